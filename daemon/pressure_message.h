/* Messages about pressure: what a client asks, and the events that it hears. */
#pragma once

#include "daemon/message.h"

struct session;

void on_pressure_subscribe(struct session *session, const Gmb__ClientMessage *message);
void on_pressure_watch(struct session *session, const Gmb__ClientMessage *message);
void on_pressure_unwatch(struct session *session, const Gmb__ClientMessage *message);
void on_advice_ack(struct session *session, const Gmb__ClientMessage *message);

/* Sends one event of those that the session waits for, with what holds now, or nothing: -ENODATA
 * when none waits, else as conn_try_send_consume(). */
int pressure_event_send(struct session *session) _must_check_;

/* Fills `steps` and `pointers`, of LADDER_ACTION_MAX places each: how many steps there are. */
size_t pressure_steps_fill(
    const struct ladder_rung *rung, Gmb__AdviceStep *steps, Gmb__AdviceStep **pointers);
