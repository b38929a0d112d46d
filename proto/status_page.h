/*
 * Layout of a tenant's status page: shared memory that the broker writes and the tenant's processes
 * read. docs/pressure.md says what the figures mean.
 *
 * One memfd for each tenant, so that nobody reads another tenant's figures, sealed against resizing
 * and against any writable mapping but the broker's own (F_SEAL_FUTURE_WRITE): a reader may map it
 * read-only and can neither change nor shrink it.
 *
 *   struct status_header
 *   struct status_entry × header.entries    by the device's index in Welcome
 *
 * Torn reads. An entry has two copies and a sequence number: copy `sequence & 1` is the one in
 * force. The broker writes the other copy, then stores the next number (release). A reader loads
 * the number (acquire), copies that copy, and loads the number again: unchanged, the copy is whole.
 * A broker that dies at any instant leaves the copy in force untouched and its number constant: a
 * reader neither spins nor sees half of anything. The broker changes an entry at most once in
 * STATUS_INTERVAL_NS, so a reader that was overtaken succeeds the next time.
 *
 * `head` packs what is asked most often into the same 64-bit word as the sequence number, so that
 * one load gives a level that belongs to its number.
 */
#pragma once

#include <assert.h>

#include "base/limits.h"
#include "base/macro.h"

#define STATUS_MAGIC UINT64_C(0x31535441544d4247) /* "GBMTATS1" */
#define STATUS_INTERVAL_NS UINT64_C(1000000)

struct status_header {
    uint64_t magic;
    uint32_t entries; /* devices of the broker, at most LIMIT_DEVICES */
    uint32_t entry_bytes;
    uint64_t reserved[6];
};

/* Fields of status_entry.head, from the least significant bit. */
#define STATUS_SEQUENCE_BITS 32
#define STATUS_LEVEL_SHIFT 32        /* 4 bits: enum pressure_level of the tenant there */
#define STATUS_DEVICE_LEVEL_SHIFT 36 /* 4 bits: of the device */
#define STATUS_RUNG_SHIFT 40         /* 4 bits: rung of the ladder in force: 0 none … 3 */
#define STATUS_FLAG_PAUSE_NEW (UINT64_C(1) << 44)
#define STATUS_FLAG_FAILED (UINT64_C(1) << 45) /* the device is out of service, or drained */
#define STATUS_FLAG_LIVE (UINT64_C(1) << 46)   /* an entry that was ever written */

/* Bytes and nanoseconds. Shares of time are in millionths. */
struct status_copy {
    uint64_t used; /* charged to the tenant, what it gave back and is kept for it included */
    uint64_t min, low, high, max; /* its limits there; UINT64_MAX: none */
    uint64_t headroom;            /* what it could have now without anybody giving anything */
    uint64_t reachable; /* the most it can ever have: what max, capacity and others' min leave */
    uint64_t advice;    /* id of the advice in force; 0: none yet */
    uint64_t some_total_us, full_total_us; /* stall, since the broker began */
    uint32_t some_avg10, some_avg60, full_avg10, full_avg60;
    uint64_t wait_estimate_ns; /* what a request that must wait has lately waited: a moving mean */
    uint32_t reject_below;     /* request priorities below it are turned away; 0: none */
    uint32_t waiting;          /* requests of the tenant in the queue there */
    uint64_t updated_ns;       /* CLOCK_MONOTONIC of the broker at this copy */
    uint64_t reserved;
};

struct status_entry {
    _Alignas(64) uint64_t head;
    uint64_t head_padding[7];
    _Alignas(64) struct status_copy copies[2];
};

struct status_page {
    struct status_header header;
    struct status_entry entries[]; /* header.entries of them */
};
static_assert(sizeof(struct status_header) == 64, "one cache line");
static_assert(sizeof(struct status_copy) == 128, "two cache lines");
static_assert(sizeof(struct status_entry) == 320, "five cache lines");
