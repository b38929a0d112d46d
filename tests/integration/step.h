/*
 * A process that ends or stops itself at its n-th message. Linked with --wrap for sendmsg(2) and
 * recvmsg(2), which carry nothing else in broker, mover and library: each datagram that goes out or
 * comes in is a step. step_arm() writes the file that GMB_STEP names; steps count from when it is
 * there, and whoever acts removes it first, so that its successor lives.
 */
#pragma once

#include <stdbool.h>

#define STEP_VARIABLE "GMB_STEP"

/* At the n-th step from now on the process of that environment sends `signal` to itself, or to its
 * parent. */
void step_arm(const char *path, unsigned n, int signal, bool parent);
/* Whether it has. */
bool step_taken(const char *path);
/* Nobody is to any more. Whether nobody has. */
bool step_disarm(const char *path);

/*
 * Calls `run` in a process of its own, since a driver is opened once for one simulated GPU, with a
 * kind of interruption and the message, or write, at which it is to come. What `run` says: false
 * when nobody got as far as that.
 */
bool step_run_apart(bool (*run)(int kind, unsigned n), int kind, unsigned n);
