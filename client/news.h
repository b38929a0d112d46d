/* What the broker tells unasked of pressure: kept until whoever dispatches calls for it. */
#pragma once

#include "client/session.h"

/* Once the devices are known. INTERNAL without host memory. */
int news_prepare(struct gmb_session *session, struct outcome *outcome);

/* An event has come: keeps the latest for whoever subscribed. PROTOCOL for what makes no sense. By
 * the seat, with `lock` held. */
int news_pressure_take(
    struct gmb_session *session, const Gmb__Pressure *message, struct outcome *why);
int news_advice_take(struct gmb_session *session, const Gmb__Advice *message, struct outcome *why);

/* A subscription has begun, on which the advice in force follows, if there is one: what a broker
 * before asked for isn't asked any more. By the seat, with `lock` held. */
void news_advice_overtake(struct gmb_session *session);

/* Whether news_run() has something to do. `lock` is held. */
bool news_wait(const struct gmb_session *session);
/* Calls for all news that have come, and tells how often. With `lock` held, which it gives up
 * around each call. */
int news_run(struct gmb_session *session);

/* What has come was for somebody else. `lock` is held. */
void news_forget(struct gmb_session *session);

/* Waits until no callback runs in another thread. `lock` is held, and given up meanwhile. */
void news_quiet(struct gmb_session *session);
