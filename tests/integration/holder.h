/* A client in a process of its own that takes what it is to have, never speaks again, and dies when
 * the test says so, or with it. */
#pragma once

#include "tests/integration/raw.h"

/* Connects and takes; `told` goes to the process that started it. */
typedef void holder_take(const struct harness *harness, void *told);

/* Returns when it has: `told`, of so many bytes, goes to it and comes back as it left it there. */
pid_t holder_start(const struct harness *harness, holder_take *take, void *told, size_t bytes);
void holder_kill(pid_t pid);

/* A holder_take of HOLDER_CHUNKS of HARNESS_CHUNK in one lease; `told` is its token, 16 bytes. */
#define HOLDER_CHUNKS 4
void holder_take_lease(const struct harness *harness, void *told);
