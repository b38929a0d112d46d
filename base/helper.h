/*
 * What the broker's helper processes have in common: how they are started, and what they give up
 * before they touch anything. Each needs a socket and a device.
 */
#pragma once

#include "base/macro.h"

struct helper_arguments {
    const char *driver; /* of --gpu=; NULL: none was named */
    const char *user;   /* of --user=; NULL: stays who it is */
    int socket_fd;      /* of --socket=: the broker's end is the other one */
};

/* Strings are borrowed from `argv`. -EINVAL for anything else, and without a socket. */
int helper_arguments_parse(int argc, char **argv, struct helper_arguments *ret) _must_check_;

/*
 * Names the process (at most 15 characters), closes every fd but standard ones and the socket,
 * bounds what it may use, becomes `user` (with no other group) if it is root's, gives up new
 * privileges for ever, and dies with its parent. -ENOENT: there is no such user; other -errno.
 */
int helper_confine(const char *name, const struct helper_arguments *arguments) _must_check_;
