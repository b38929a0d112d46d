/* A session is its process's: what a forked child must not use, and what it may still free. */
#pragma once

#include "client/session.h"

/* Notes this process as the session's and keeps its structures whole over a fork of any thread. */
void fork_guard_add(struct gmb_session *session);
void fork_guard_remove(struct gmb_session *session);

/* Whether this process is the one that opened the session. Any thread, no lock. */
bool fork_guard_same(const struct gmb_session *session);

/* The same as an outcome: 0 or FORKED. */
int fork_guard_check(const struct gmb_session *session, struct outcome *outcome);
