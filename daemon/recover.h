/*
 * The start of a broker that had a predecessor: its fds and its ledger are taken over, and what is
 * found becomes the core's, the executor's and the shell's again (docs/restart.md). All of it
 * before the loop runs; it waits for the driver, and for the store at most some seconds.
 *
 * Whatever is damaged, missing or too much is said in the log and makes what remains smaller; it
 * never makes the start fail, and never evicts who has a whole record.
 */
#pragma once

#include "base/log.h"
#include "daemon/core/core.h"
#include "daemon/fdstore.h"

struct absent;
struct broker;

/* What was found, for the log and the status. */
struct recovery {
    uint32_t clients, dead, leases, chunks, arenas; /* that go on; dead: clients that don't */
    uint32_t segments;                              /* that go on … */
    uint32_t segments_harmed;                       /* … or are no longer served, or not there: */
    char segment_harmed[LIMIT_TEXT_BYTES];          /* … the first of these, and why */
    uint32_t stuck;                                 /* chunks whose memory the broker has not */
    uint32_t damaged, refused;                      /* records */
    uint32_t strays;                                /* fds that no record names */
    uint32_t gone;                                  /* records of devices that are gone */
    uint32_t lost_arenas, lost_pages;               /* pages: in the host tier, of other arenas */
    uint32_t epoch;
    char degraded[LIMIT_TEXT_BYTES]; /* what isn't as it was, as a sentence; else empty */
    core_id *dead_ids;               /* owned; until recover_end() */
    struct absent *absent;           /* owned; NULL: nobody was there before */
};

/* Before the executor: finds the store and opens or makes the ledger. -EINVAL, -ENOMEM with a
 * sentence for what the operator has to mend. */
int recover_begin(struct broker *broker, char error[FDSTORE_ERROR_BYTES]) _must_check_;
/* After the core's devices, before its tenants. -ENOMEM, -errno. */
int recover_records(struct broker *broker) _must_check_;
/* One more sentence about what isn't as it was: to the log, and to `degraded` if there is room. */
void recover_degraded(struct recovery *found, enum log_level level, const char *format, ...)
    _printf_(3, 4);
/* After the configuration: who died meanwhile is dead, and all is said. */
void recover_end(struct broker *broker);
/* Frees what is left of it. */
void recover_clear(struct broker *broker);
