/*
 * The host tier in this process: its memory mapped once, page-locked slab by slab when a job first
 * needs one; its disk read and written, never mapped, so that a disk that is gone is an error of
 * one job and no SIGBUS. Any thread.
 */
#pragma once

#include "daemon/mover/device.h"

struct slabs;

struct slabs_files {
    uint64_t tier_bytes, disk_bytes; /* all of it, and what of that lies behind the memfd's */
    uint64_t slab_bytes;
    int tier_fd; /* the broker's memfd; borrowed */
    int disk_fd; /* borrowed; −1: none */
};

/*
 * Maps the memfd. -EINVAL when it isn't as long as is said, whole slabs, and sealed against
 * shrinking: memory that shrank would end this process by SIGBUS.
 */
int slabs_new(
    const struct device *device, const struct slabs_files *files, struct slabs **ret) _must_check_;
/* No work may use them. Accepts NULL, returns NULL. */
struct slabs *slabs_free(struct slabs *slabs);

uint64_t slabs_slab_bytes(const struct slabs *slabs);
/* Whether the byte of the tier lies on the disk. */
bool slabs_on_disk(const struct slabs *slabs, uint64_t offset);
/*
 * All of `bytes` at `offset` of the tier, which lie on the disk. A write has reached the disk when
 * it returns: the page's memory is given away then. Blocks for as long as the disk does. -EREMOTEIO
 * with `error` when it fails, or the file is shorter than was promised.
 */
int slabs_disk_read(struct slabs *slabs, uint64_t offset, void *to, uint64_t bytes,
    struct gpu_error *error) _must_check_;
int slabs_disk_write(struct slabs *slabs, uint64_t offset, const void *from, uint64_t bytes,
    struct gpu_error *error) _must_check_;

/*
 * The device address of a byte of the tier's memory; the slab that it lies in is page-locked first
 * if need be, which blocks for milliseconds. The driver's errors: -ENOMEM when no more can be
 * locked.
 */
int slabs_address(struct slabs *slabs, uint64_t offset, uint64_t *ret_address,
    struct gpu_error *error) _must_check_;

/* The same ahead of need, for the slab that begins there: its memory is found, too. -ENOMEM when
 * there is none. */
int slabs_prepare(struct slabs *slabs, uint64_t offset, struct gpu_error *error) _must_check_;
