/* A helper of the broker's (the mover, or one that holds slabs) as a process: started, watched by
 * its pidfd, ended, reaped. Nothing here blocks but mover_process_end(). */
#pragma once

#include <sys/types.h>

#include "base/macro.h"

struct mover_process {
    pid_t pid;       /* 0: none */
    int pidfd;       /* owned; -1: none. Readable once the process has ended */
    int wait_status; /* as waitid(2) has it: set by mover_process_reap() */
    int wait_code;
};

#define MOVER_PROCESS_NONE ((struct mover_process){.pidfd = -1})

struct mover_start {
    const char *name;     /* of the program: `gmbd-mover`, `gmbd-slab` */
    const char *variable; /* of the environment, that says where it is */
    const char *program;  /* NULL: as the variable says, else `name` beside this program */
    const char *driver;   /* `cuda`, `sim` */
    const char *user;     /* whom it becomes when it is started by root */
};

/*
 * Starts it; `*ret_socket` is our end of the connection with it. It inherits standard error,
 * its end of the socket and the environment, without what is meant for this process alone.
 * -errno of the kernel; -ENOENT when there is no such program.
 */
int mover_process_start(
    const struct mover_start *start, struct mover_process *ret, int *ret_socket) _must_check_;
/* Idempotent; does nothing without a process. */
void mover_process_kill(const struct mover_process *process);
/* True when the process has ended: it is reaped, but the pidfd stays open for
 * mover_process_forget(). */
bool mover_process_reap(struct mover_process *process);
/* True while it is stopped by a signal: it will not go on by itself. */
bool mover_process_stopped(const struct mover_process *process);
/* Closes the pidfd, which nobody may watch any more. The process must have been reaped. */
void mover_process_forget(struct mover_process *process);
/* Waits until it ends, `patience_ms` by itself and then by force. */
void mover_process_end(struct mover_process *process, int patience_ms);

/* Of one that has ended: whether it found no device memory for its context. */
bool mover_process_starved(const struct mover_process *process);

#define MOVER_PROCESS_TEXT 96
/* `exited with status 3 (sticky error of the driver)`, `was killed by signal 9`; returns `text`. */
char *mover_process_describe(const struct mover_process *process, char text[MOVER_PROCESS_TEXT]);
