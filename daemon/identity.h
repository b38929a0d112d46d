/*
 * Who is at the other end of a socket, by the kernel's word alone: nothing that the peer sends or
 * has in its environment counts.
 */
#pragma once

#include <sys/types.h>

#include "base/limits.h"
#include "base/macro.h"

/* PATH_MAX bounds a cgroup's path; more groups than this are not looked at. */
#define IDENTITY_GROUPS 1024

struct identity {
    pid_t pid;
    uid_t uid;
    gid_t gid;
    size_t group_count;
    gid_t *groups;        /* supplementary */
    int pidfd;            /* of the process that connected, whatever became of its pid since */
    uint64_t start_ticks; /* when that started, since boot: with the pid it names one process */
    bool guessed;         /* /proc hides the process: its pid may have passed to this one */
    char *cgroup;         /* path in the unified hierarchy; "" where there is none */
    char *unit;           /* systemd unit; "" outside of one */
};

#define IDENTITY_NONE ((struct identity){.pidfd = -1})
#define _cleanup_identity_ _cleanup_(identity_clear)

/*
 * Identity of the process that connected `fd`, a connected AF_UNIX socket. -ESRCH when that process
 * is gone, or when its pid may have passed to another one since; other -errno. Doesn't block.
 */
int identity_read(int fd, struct identity *ret) _must_check_;
/*
 * Identity of the process that had `pid` and started at that time, as far as it can be told without
 * its socket: no groups. -ESRCH when it is dead, whoever has the pid now; other -errno. Where /proc
 * doesn't show a process that lives (hidepid=), it is taken for the one that is looked for, without
 * cgroup and unit: what that may still hold is nobody else's.
 */
int identity_find(pid_t pid, uint64_t start_ticks, uid_t uid, struct identity *ret) _must_check_;
/* Frees and closes what is left; idempotent. */
void identity_clear(struct identity *identity);

bool identity_in_group(const struct identity *identity, gid_t gid);

/*
 * For kernels whose sockets don't give a pidfd: one of the process that has `pid`, if it started no
 * later than `accepted_ticks` (clock ticks since boot). -ESRCH when it started later: then it is
 * not the one that connected, only has its pid.
 */
int identity_open_pid(pid_t pid, uint64_t accepted_ticks, int *ret_pidfd) _must_check_;

/* Field 22 of a /proc/PID/stat line, in clock ticks since boot. -EBADMSG if it is not one. */
int identity_parse_start(const char *stat_line, uint64_t *ret_ticks) _must_check_;
/* The path behind `0::` in the text of /proc/PID/cgroup, the caller's; "" when there is none.
 * -ENOMEM. */
int identity_parse_cgroup(const char *text, char **ret_path) _must_check_;
