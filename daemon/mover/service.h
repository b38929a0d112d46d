/* The mover's conversation with the broker, from the first message to the last. */
#pragma once

#include "gpu/gpu.h"
#include "proto/mover.pb-c.h"

/*
 * Serves on `fd` (consumed) until the broker closes it or something fails; says why on the log. The
 * result is the exit status. Unless `*ret_clean` the process must end without another call of the
 * driver, by _exit(2): some work may still run, for ever perhaps.
 */
Gmb__MoverExit service_run(enum gpu_driver driver, int fd, bool *ret_clean);
