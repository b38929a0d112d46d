/* What a run comes to: figures from the shared block, as text for people and JSON for programs.
 * docs/replay.md says what each figure means. */
#pragma once

#include <stdio.h>

#include "client/replay/run.h"

enum verdict {
    VERDICT_CLEAN,
    VERDICT_CORRUPT,     /* a byte differed from what its owner had written */
    VERDICT_LOST,        /* a request neither completed nor refused, or a worker died */
    VERDICT_ORPHANED,    /* device memory didn't come back */
    VERDICT_INTERRUPTED, /* by a signal */
    VERDICT_MAX
};

const char *verdict_name(enum verdict verdict);
/* 0 for CLEAN alone. */
int verdict_exit_status(enum verdict verdict);

/* Requests of one tenant, or all. */
struct report_part {
    uint64_t requests, at_once, waited, refused, lost, preempted;
    uint64_t wait_p50_ns, wait_p99_ns; /* over completed ones; no wait counts as 0 */
    uint64_t peak_bytes;
    uint64_t static_bytes; /* sum of its workers' own peaks */
    uint64_t stall_ns;     /* waited for memory, by all requests together */
    /* With arenas; pages. */
    uint64_t evictions, restores, reread, dropped, restore_ns;
    uint64_t entitled, entitled_refused; /* requests that stayed within MemoryMin */
};

struct report_limit {
    char name[STATS_LIMIT_BYTES];
    uint64_t refused;
};

struct report {
    enum verdict verdict;
    struct report_part all;
    struct report_part *tenants; /* owned; as many as the run has */
    struct report_limit *limits; /* owned; those that refused something */
    size_t limit_count;
    uint64_t static_split_refused;
    uint64_t corrupt_bytes, foreign_bytes, checked_bytes;
    uint64_t late_ns;
    double saved_ratio; /* 1 − peak / static */
};

/* -ENOMEM, -EOVERFLOW. */
int report_make(const struct run *run, struct report *ret) _must_check_;
void report_free(struct report *report);

/* What was chosen for the run, before it starts; `format` as trace_format_name(). */
void report_print_choices(FILE *file, const struct run *run);
void report_print(FILE *file, const struct run *run, const struct report *report);
/* To `path`, or standard output for "-". -errno. */
int report_write_json(
    const char *path, const struct run *run, const struct report *report) _must_check_;
