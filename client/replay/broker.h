/*
 * A broker of our own on a simulated device, in a directory of its own: configuration, sockets and
 * the device's memory are there, and everything goes with it.
 */
#pragma once

#include <sys/types.h>

#include "client/replay/sizing.h"
#include "client/replay/tenants.h"

#define BROKER_PATH_BYTES 108 /* what a socket's address holds */
#define BROKER_ERROR_BYTES 256

struct broker {
    pid_t pid; /* 0: none of ours */
    char dir[BROKER_PATH_BYTES];
    char sim_dir[BROKER_PATH_BYTES];
    char client_socket[BROKER_PATH_BYTES];
    char control_socket[BROKER_PATH_BYTES];
};

/*
 * Makes the directory, writes the configuration with that ladder (or takes `config`), starts gmbd
 * and waits until it answers. Sets GMB_SIM_* in this process's environment, for gmbd and workers
 * to inherit. -errno with a sentence in `error`; then nothing is left.
 */
int broker_start(const struct sizing *sizing, const struct tenants *tenants, const char *config,
    const char *ladder, struct broker *ret, char error[BROKER_ERROR_BYTES]) _must_check_;

/* Ends gmbd, by force if it doesn't end by itself, and removes the directory. Idempotent; does
 * nothing with a broker that isn't ours. -EPROTO when gmbd didn't end well. */
int broker_stop(struct broker *broker);
