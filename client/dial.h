/* The way to one of the broker's sockets. */
#pragma once

#include "client/outcome.h"

/*
 * A connected socket to the broker at `path`. Blocks until `deadline_ns`: a broker that starts has
 * a queue of connections before it. DISCONNECTED where nobody listens, DENIED, TIMED_OUT, INVALID.
 */
int dial(const char *path, uint64_t deadline_ns, int *ret_fd, struct outcome *outcome);
