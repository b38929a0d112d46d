/* The way to a greeted connection. */
#pragma once

#include "client/session.h"

/*
 * A connected socket to the broker at `path`. Blocks until `deadline_ns`: a broker that starts has a
 * queue of connections before it. DISCONNECTED where nobody listens, DENIED, TIMED_OUT, INVALID.
 */
int connect_socket(const char *path, uint64_t deadline_ns, int *ret_fd, struct outcome *outcome);

/*
 * Says Hello and waits for Welcome, which is the caller's to free. The broker's Error, or
 * DISCONNECTED, TIMED_OUT, PROTOCOL, UNSUPPORTED.
 */
int connect_greet(struct conn *conn, const char *program, uint64_t deadline_ns,
    Gmb__BrokerMessage **ret, struct outcome *outcome);
