/*
 * The broker's end of one device's mover: starts it when there is work, hands it jobs, keeps each
 * until it is answered, and starts another when it dies or stops to make progress.
 *
 * A job copies pages between chunks and slots of the host tier, or zeroes chunks. Every job can be
 * done twice, so what a dead mover left unanswered is sent again. A job that was on its way when a
 * mover died is suspect: it is sent alone, and after MOVER_ATTEMPTS deaths it fails instead.
 *
 * All of it belongs to the loop's thread and never blocks, but mover_control_free(). The functions
 * of `struct mover_handler` are called from the loop alone, never from within a call made here;
 * they may call anything here but mover_control_free().
 */
#pragma once

#include "base/clock.h"
#include "daemon/tier.h"

struct event_base;
struct mover_control;

/* What fits in one message: its fds, and its bytes with every number at its longest. */
#define MOVER_JOB_CHUNKS 128
#define MOVER_JOB_COPIES 1024
/* One job's bytes: tens of milliseconds of copying, so that urgent jobs get their turn. */
#define MOVER_JOB_BYTES (UINT64_C(256) << 20)
/* Jobs that are queued or on their way: at most 4 MiB of them for each device. */
#define MOVER_QUEUE_JOBS 128
/* Deaths of movers, or failures of the driver, after which a job is given up. */
#define MOVER_ATTEMPTS 4

enum mover_kind {
    MOVER_EVICT,    /* pages to slots; answered with a checksum each */
    MOVER_RESTORE,  /* slots to pages; one that isn't what was evicted is wiped and reported */
    MOVER_SCRUB,    /* whole chunks become zero; no copies */
    MOVER_CHECKSUM, /* pages are read where they are; answered with a checksum each */
    MOVER_KIND_MAX
};

/* Numbers of MoverFormat: how the bytes lie in the tier. */
enum mover_format { MOVER_RAW, MOVER_INT8, MOVER_FP8, MOVER_FORMAT_MAX };

/* What a page's elements are; only quantized formats look at it. Numbers of MoverJob.element. */
enum mover_element { MOVER_ELEMENT_NONE, MOVER_FP16, MOVER_BF16, MOVER_ELEMENT_MAX };

struct mover_chunk {
    uint32_t number, generation; /* the core's */
    uint64_t bytes;
};

struct mover_copy {
    uint32_t chunk;        /* index into the job's chunks */
    bool damaged;          /* RESTORE, result: the slot's bytes don't match; the page is zero */
    uint64_t chunk_offset; /* bytes, a multiple of 16 */
    uint64_t tier_offset;  /* bytes, a multiple of 16; 0 for CHECKSUM */
    uint64_t checksum;     /* EVICT, CHECKSUM: result. RESTORE: what EVICT gave */
};

struct mover_job {
    enum mover_kind kind;
    enum mover_format format;
    enum mover_element element;
    bool urgent; /* goes before jobs that aren't: restores, and evictions somebody waits for */
    uint64_t page_bytes;              /* of device memory; 0 for SCRUB */
    size_t chunk_count;               /* 1 to MOVER_JOB_CHUNKS */
    size_t copy_count;                /* 1 to MOVER_JOB_COPIES; 0 for SCRUB */
    const struct mover_chunk *chunks; /* borrowed for the call */
    const struct mover_copy *copies;  /* borrowed for the call */
    void *owner;                      /* comes back with the result */
};

/*
 * What became of a job: `error` is
 *   0        done; look at `damaged` of each copy after a RESTORE
 *   -ESTALE  a chunk is gone: it was forgotten, or can't be exported any more
 *   -EIO     given up: the driver failed or movers died on it; `text` says what was last seen
 *   -EAGAIN  no mover could be started, again and again: the job itself is not known to be bad
 *   -EINVAL  the mover refused the numbers
 *   -EREMOTEIO the tier's disk could not be read or written; `text` says which and why
 *   -ECANCELED the control is being freed
 * Everything else is as it was submitted, with the results filled in. Borrowed for the call.
 */
struct mover_result {
    struct mover_job job;
    int error;
    const char *text; /* never NULL */
};

/* Of the caller's; `data` is passed to each. */
struct mover_handler {
    void *data;
    /* A new fd of the chunk, CLOEXEC; mover_control owns it. -ESTALE when it is gone. */
    int (*chunk_export)(void *data, uint32_t number, uint32_t generation, int *ret_fd);
    /* Once for each job that mover_submit() took. */
    void (*job_done)(void *data, const struct mover_result *result);
    /* Device memory that is to be kept for a mover that isn't there, whenever that changes. */
    void (*memory_wanted)(void *data, uint64_t bytes);
    /* The mover no longer holds the chunk: once for each mover_forget() that returned true. */
    void (*chunk_forgotten)(void *data, uint32_t number, uint32_t generation);
};

struct mover_options {
    const char *program;  /* NULL: $GMB_MOVER, else `gmbd-mover` beside this program */
    const char *driver;   /* `cuda` or `sim` */
    const char *user;     /* whom a mover started by root becomes; NULL: `nobody` */
    uint64_t hello_ns;    /* a mover must be ready within: drivers take seconds to initialise */
    uint64_t progress_ns; /* some answer must come within, besides the time that bytes take */
    uint64_t bytes_per_second; /* the slowest copying that counts as progress */
    uint64_t backoff_ns;       /* before the second start in a row; doubles */
    uint64_t backoff_max_ns;
    uint64_t idle_ns; /* a mover without work is ended: its context costs device memory */
};

extern const struct mover_options mover_options_default;

enum mover_state {
    MOVER_STATE_NONE,     /* no process: nothing to do, or waiting before the next start */
    MOVER_STATE_STARTING, /* no MoverReady yet */
    MOVER_STATE_READY,
    MOVER_STATE_ENDING, /* told to end, or killed; not reaped yet */
    MOVER_STATE_MAX
};

struct mover_stats {
    enum mover_state state;
    int pid;                 /* 0: no process */
    uint64_t starts, deaths; /* deaths: that nobody asked for */
    uint64_t jobs_done, jobs_failed, jobs_repeated;
    uint64_t evicted_bytes, restored_bytes, scrubbed_bytes, summed_bytes, damaged_pages;
    uint64_t context_bytes; /* of device memory, as the last mover said */
    size_t queued, in_flight, held_chunks;
};

/*
 * Starts nothing. `base`, `clock`, `tier` and `handler` are borrowed and must outlive the control;
 * `options` (NULL: the default) is copied, its strings are borrowed. `uuid`: of the device.
 */
int mover_control_new(struct event_base *base, const struct clock *clock, struct tier *tier,
    const uint8_t uuid[16], const struct mover_options *options,
    const struct mover_handler *handler, struct mover_control **ret) _must_check_;
/*
 * Ends the mover (kills it if it doesn't end by itself within a second) and waits for it. Calls
 * job_done() with -ECANCELED for every job left and chunk_forgotten() for every chunk that was to
 * be forgotten. Accepts NULL, returns NULL.
 */
struct mover_control *mover_control_free(struct mover_control *control);

/*
 * Bytes of the slot that a page of `page_bytes` takes in this format: what tier_space_new() is
 * told. 0 for what doesn't go together.
 */
uint64_t mover_slot_bytes(
    enum mover_format format, enum mover_element element, uint64_t page_bytes);

/*
 * Takes a copy of the job. -EINVAL for numbers out of bounds: page size, offsets that aren't
 * multiples of 16 or lie outside their chunk or the tier, counts, sizes. -EAGAIN when
 * MOVER_QUEUE_JOBS are queued: submit again after some job_done(). -ENOMEM.
 * The order of jobs is not kept: whoever needs one after another waits for the first.
 */
int mover_submit(struct mover_control *control, const struct mover_job *job) _must_check_;

/*
 * The chunk is to be released: the mover must drop it first, since its mapping keeps the memory.
 * False when no mover holds it, and it can be released at once. True when chunk_forgotten() will
 * follow: once jobs that are on their way with it have ended, or the mover has. Jobs with it that
 * are still queued fail with -ESTALE.
 */
bool mover_forget(struct mover_control *control, uint32_t number, uint32_t generation);

/*
 * The chunk is likely to be released before long: the mover drops it meanwhile, so that the release
 * waits for nothing. A job that needs it all the same has it sent again.
 */
void mover_let_go(struct mover_control *control, uint32_t number, uint32_t generation);

/*
 * Whether a mover is kept, with work or without: one that is started when the device is full finds
 * no memory for its context there. When it isn't kept any more, one without work ends at once, and
 * later ones after their idle time again.
 */
void mover_keep(struct mover_control *control, bool keep);

void mover_stats_get(const struct mover_control *control, struct mover_stats *ret);
/* `none`, `starting`, `ready`, `ending`; never NULL. */
const char *mover_state_name(enum mover_state state);
