/* A session is its process's: what a forked child must not use, and what it may still free. */
#pragma once

#include "client/session.h"

/* Notes this process as the session's and keeps its structures whole over a fork of any thread. */
void fork_guard_add(struct gmb_session *session);
void fork_guard_remove(struct gmb_session *session);

/* Counts forks on the way to this process. */
extern atomic_uint fork_generation;

/* Whether this process is the one that opened the session. Any thread, no lock. */
bool fork_guard_same(const struct gmb_session *session);

/* The same without a system call: a child of a bare clone(2) isn't noticed. */
static inline bool fork_guard_likely(const struct gmb_session *session)
{
    return session->generation == atomic_load_explicit(&fork_generation, memory_order_relaxed);
}

/* The same as an outcome: 0 or FORKED. */
int fork_guard_check(const struct gmb_session *session, struct outcome *outcome);
