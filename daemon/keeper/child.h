/* Starting the broker, and becoming a newer keeper. Both pass fds on by pass.h. */
#pragma once

#include "daemon/keeper/keeper.h"

/* Names under which the keeper passes its own fds to its successor. */
#define HAND_OVER_NOTIFY "gmbd-keeper.notify"
#define HAND_OVER_SOCKET "gmbd-keeper.socket."
#define HAND_OVER_LOCK "gmbd-keeper.lock."
/* Environment: the pid of the broker that goes on, or 0. */
#define HAND_OVER_CHILD "GMBD_KEEPER_CHILD"

/* The pid, or -errno with nothing started. A program that can't be executed ends with 127. */
pid_t child_start(struct keeper *keeper) _must_check_;
/* Becomes the program of the same path with the same arguments; `signal_fd` and `manager` have to
 * be closed. Returns on failure only: -errno, with everything as it was unless the fds couldn't be
 * moved. */
int child_hand_over(struct keeper *keeper);
