/*
 * The disk behind a device's host tier, as the broker sees it: whether there is one, whether it
 * fails, and when it is tried again.
 *
 * One that can't be had at start stays out until the next. One that fails later on gets nothing
 * new for a while, then a try; each further failure in a row doubles the while. What lies there
 * stays where it is, and who wants it waits.
 */
#pragma once

#include "daemon/tier_disk.h"

struct hosting;
struct mover_result;

struct disk {
    char *path;                /* as it was at start; NULL: none is configured */
    bool refused;              /* it is, and can't be had */
    bool old;                  /* the file is that of a broker before, and lies elsewhere */
    uint64_t retry_ns;         /* while it is suspended: until when */
    uint64_t pause_ns;         /* the last while; 0: it works */
    char text[TIER_DISK_TEXT]; /* why nothing is put there; empty: it is, or there is none */
};

/*
 * What the configuration asks for: a file of `*ret_bytes`, or −1 and 0 where there is none or it
 * can't be had, which is logged and noted. Blocks: see tier_disk_open(). -ENOMEM.
 */
int disk_open(struct hosting *hosting, int *ret_fd, uint64_t *ret_bytes) _must_check_;
/* A file that a broker before has made, of `*ret_bytes`. -EINVAL when it is none, -ENOMEM. */
int disk_adopt(struct hosting *hosting, int fd, uint64_t *ret_bytes) _must_check_;
/* How long the configuration wants the file that there is: 0 where it names no disk, or another,
 * or one that couldn't be had. */
uint64_t disk_wanted(const struct hosting *hosting);
/* Accepts a zero one. */
void disk_clear(struct disk *disk);

/* What a job has shown of the disk. Before its pages are settled. */
void disk_judge(struct hosting *hosting, const struct mover_result *result);
/* Whether it gets nothing new. */
bool disk_failing(const struct hosting *hosting);
/* Lets it be tried again when that is due; part of a turn. */
void disk_turn(struct hosting *hosting);
