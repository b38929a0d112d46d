/*
 * The keeper: starts the broker, holds its fds, hears what it says, reaps whoever ends, and starts
 * the broker again.
 *
 * One thread, one poll(2). Its own state is small enough to be handed to a newer program of itself
 * by the conventions that it speaks with the broker (child_hand_over()).
 */
#pragma once

#include "base/clock.h"
#include "daemon/keeper/manager.h"
#include "daemon/keeper/notify.h"
#include "daemon/keeper/options.h"
#include "daemon/keeper/restart.h"
#include "daemon/keeper/store.h"
#include "daemon/listen.h"

enum keeper_phase {
    KEEPER_WAITING, /* no broker; one is started at `start_ns` */
    KEEPER_RUNNING,
    KEEPER_RESTARTING, /* SIGTERM was sent; whatever it ends with, another one follows at once */
    KEEPER_STOPPING,   /* SIGTERM was passed on */
    KEEPER_ENDED,      /* `status` is what the keeper ends with */
    KEEPER_PHASE_MAX
};

struct keeper {
    const struct keeper_options *options; /* borrowed */
    char **argv;                          /* borrowed: the keeper's own command line */
    const struct clock *clock;
    enum keeper_phase phase;
    struct store store;                               /* the broker's */
    struct listen_socket sockets[OPTIONS_LISTEN_MAX]; /* by index of options->listen */
    char *directory;                                  /* of the notify socket; removed at the end */
    int notify_fd, signal_fd;
    struct manager manager;
    pid_t child;                             /* 0: none */
    uint64_t start_ns, watchdog_ns, kill_ns; /* CLOCK_NEVER: not set */
    struct restart restart;
    bool hand_over; /* was asked for by SIGUSR2 */
    int status;
};

/* Binds what is to be bound, or takes over what an earlier keeper passed on. Logs. -errno. */
int keeper_start(struct keeper *keeper, const struct keeper_options *options, char **argv,
    const struct clock *clock) _must_check_;
/* The signals that keeper_run() takes, as an fd. -errno. */
int keeper_signals_open(struct keeper *keeper) _must_check_;
/* Until the broker has ended for good. Returns the exit status: the broker's, or 128 + signal. */
int keeper_run(struct keeper *keeper);
/* Ends what is left: closes every fd that is held. */
void keeper_clear(struct keeper *keeper);
