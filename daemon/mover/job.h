/*
 * A job as the mover works on it: every number of the message checked against what the mover has,
 * so that nothing behind this may touch a byte out of bounds. Pure; no pointer into the message is
 * kept.
 */
#pragma once

#include "base/limits.h"
#include "base/macro.h"
#include "kernels/quantize.h"
#include "proto/mover.pb-c.h"

#define JOB_CHUNKS_MAX LIMIT_FRAME_FDS
#define JOB_COPIES_MAX 1024

/* What a job's numbers must lie in. */
struct job_bounds {
    uint64_t tier_bytes;
    uint64_t disk_bytes; /* of it, behind its memory */
    uint64_t slab_bytes;
    uint64_t granularity_bytes; /* chunk sizes are multiples of it */
};

struct job_chunk {
    uint32_t number, generation;
    uint64_t bytes;
    bool with_fd; /* the next fd of the message is this chunk's */
};

struct job_copy {
    uint32_t chunk; /* index into `chunks` */
    uint64_t chunk_offset;
    uint64_t tier_offset; /* slot_bytes from here lie in one slab */
    uint64_t checksum;
};

struct job {
    uint64_t id;
    Gmb__MoverJobKind kind;
    enum page_format format;
    enum page_element element;
    uint64_t page_bytes;  /* on the device */
    uint64_t slot_bytes;  /* in the tier */
    uint64_t slab_offset; /* PREPARE: in the tier's memory */
    uint32_t chunk_count, copy_count;
    struct job_chunk chunks[JOB_CHUNKS_MAX];
    struct job_copy copies[]; /* copy_count */
};

/*
 * -EINVAL with `*ret_reason` (static text) when a number makes no sense: sizes or offsets that are
 * no multiple of 16 or lie outside their chunk, slab or the tier, unknown enums, a chunk that
 * stands twice, fds other than `fd_count`; -ENOMEM. The job is the caller's, for free(3).
 */
int job_parse(const Gmb__MoverJob *message, const struct job_bounds *bounds, size_t fd_count,
    struct job **ret, const char **ret_reason) _must_check_;

/* Bytes of a page of this format in the tier; 0 for a format and element that don't go together. */
uint64_t job_slot_bytes(enum page_format format, enum page_element element, uint64_t page_bytes);
