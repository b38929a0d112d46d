/*
 * What of a segment outlives the broker, besides its lease (docs/restart.md): what it is, what has
 * become of it, its checksums, and where its bytes lie in the host tier. It stands in a memfd of
 * the broker's own, which is in the store before anybody has the segment, under its number, which
 * is never another's.
 *
 * There are two heads, and `current` is the checksum of the one that counts: the other one is
 * filled, and then `current` changes at once. Whoever dies in between leaves what was before, and a
 * damaged head is told from one that was being written. Sums and slots stand behind them, and are
 * there before a head counts on them.
 */
#pragma once

#include <assert.h>

#include "base/limits.h"
#include "daemon/core/core.h"
#include "daemon/segment.h"

struct executor_done;

#define SEGMENT_KEPT_MAGIC UINT64_C(0x31474553424d47) /* "GMBSEG1" */
#define SEGMENT_KEPT_HEADS 2
#define SEGMENT_KEPT_BEGIN 4096

struct segment_head {
    core_id lease;  /* it has ended where that isn't there */
    core_id writer; /* WRITING */
    uint32_t number, tenant;
    uint32_t device; /* number in the ledger */
    uint32_t state;  /* WRITING, SEALED, DEMOTED, QUARANTINED or REMOVED */
    uint64_t size_bytes, chunk_bytes, piece_bytes;
    uint32_t chunks, pieces;
    uint32_t summed, stored; /* sums count, and so do slots … */
    uint64_t sums_checksum;  /* … as these say */
    uint64_t slots_checksum;
    uint64_t asked_ns, verified_ns, verifications;
    char name[LIMIT_NAME_BYTES + 1];
    char text[LIMIT_TEXT_BYTES];
    uint64_t checksum; /* of all before */
};

struct segment_kept {
    uint64_t magic;
    uint64_t current;
    struct segment_head heads[SEGMENT_KEPT_HEADS];
};
static_assert(sizeof(struct segment_kept) <= SEGMENT_KEPT_BEGIN, "sums begin behind it");

/*
 * Begins to keep one whose lease is there: true when its grant has to wait for
 * segment_kept_done(). Where nothing can be kept it ends with the broker.
 */
bool segment_kept_begin(struct segment *segment);
/* It is in the store, or can't be: what waited for that goes on. False: it is no segment's. */
bool segment_kept_done(struct broker *broker, const struct executor_done *done);
/* Writes down what it is now. */
void segment_kept_write(struct segment *segment);
/* A successor finds nothing of it. */
void segment_kept_end(struct segment *segment);

/* Of a head's bytes, and of the sums or slots of the segment with that number. */
uint64_t segment_head_checksum(const struct segment_head *head);
uint64_t segment_words_checksum(const uint64_t *words, uint32_t count, uint32_t number);

/* The head that counts. -EINVAL for what none of ours has written, -errno. */
int segment_kept_read(int fd, struct segment_head *ret) _must_check_;
/* Goes on with one that was read; what counts of sums and slots is the segment's: −EBADMSG when
 * those aren't what they were (the segment is as it was before), -EINVAL, -ENOMEM, -errno. */
int segment_kept_resume(
    struct segment *segment, int fd, const struct segment_head *head) _must_check_;
