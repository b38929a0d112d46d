/*
 * What a service says of itself on NOTIFY_SOCKET: datagrams of lines `NAME=value`, with fds, as
 * sd_notify(3) has them. Parsing is apart from receiving.
 */
#pragma once

#include "base/macro.h"

/* systemd's bound for one datagram, and the kernel's for the fds in it. */
#define NOTIFY_BYTES 4096
#define NOTIFY_FDS 253

/* Strings point into the parsed text; NULL where the line is absent. */
struct notify {
    bool ready, watchdog, fd_store, fd_store_remove;
    const char *fd_name, *status;
};

/* Cuts `text` (NUL-terminated, of which nothing else is expected) into lines. Total: lines that
 * mean nothing here are skipped, as systemd does. */
void notify_parse(char *text, struct notify *ret);

struct notify_datagram {
    char text[NOTIFY_BYTES + 1];
    pid_t pid;           /* the sender by the kernel's word; 0: unknown */
    int fds[NOTIFY_FDS]; /* owned; close with notify_datagram_clear() */
    size_t fd_count;
};

/* A socket bound to `path`, which sends nobody's word without the kernel's of who sent it. The fd,
 * or -errno. */
int notify_socket(const char *path) _must_check_;
/* Takes one datagram without blocking; what is cut off in it (bytes or fds) empties it, and its fds
 * are closed. -EAGAIN: there is none. */
int notify_receive(int fd, struct notify_datagram *ret) _must_check_;
void notify_datagram_clear(struct notify_datagram *datagram);
