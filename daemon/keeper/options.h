/* The command line of gmbd-keeper. */
#pragma once

#include <sys/types.h>

#include "base/macro.h"

#define OPTIONS_LISTEN_MAX 8

struct keeper_listen {
    char *text; /* owned: what the option said, cut up. `argv` stays whole for a handover */
    const char *name, *path;
    mode_t mode;
    gid_t gid; /* -1: as it comes */
};

struct keeper_options {
    struct keeper_listen listen[OPTIONS_LISTEN_MAX];
    size_t listen_count;
    size_t fds_max;
    uint64_t watchdog_ns;     /* 0: none */
    uint64_t stop_timeout_ns; /* from SIGTERM to SIGKILL */
    char **command;           /* NULL-terminated */
};

enum keeper_options_outcome {
    KEEPER_OPTIONS_RUN = 0,
    KEEPER_OPTIONS_DONE = 1, /* --help or --version was answered */
};

/* -EINVAL after a line on standard error. `command` is borrowed from
 * `argv`, nothing of which is changed. Release with keeper_options_clear(), on success alone. */
int keeper_options_parse(int argc, char **argv, struct keeper_options *ret) _must_check_;
void keeper_options_clear(struct keeper_options *options);
