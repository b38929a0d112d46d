/* The way to a greeted connection. */
#pragma once

#include "client/session.h"

/* Sends Hello; `token` is that of the session to resume, or NULL. A broker that closes meanwhile is
 * found by reading. */
int connect_hello(
    struct conn *conn, const char *program, const uint8_t *token, struct outcome *outcome);

/*
 * Says Hello and waits for Welcome, which is the caller's to free; in `ret_fds`, empty before, is
 * the fd that came with it, if one did. The broker's Error, or DISCONNECTED, TIMED_OUT, PROTOCOL,
 * UNSUPPORTED.
 */
int connect_greet(struct conn *conn, const char *program, uint64_t deadline_ns,
    Gmb__BrokerMessage **ret, struct fdset *ret_fds, struct outcome *outcome);
