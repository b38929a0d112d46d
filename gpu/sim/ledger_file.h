/*
 * The ledger as it lies in the file, and what one process knows about it. Private to ledger_*.c.
 *
 * Each process that registers holds a write lock (fcntl, of the open file description) on the
 * byte of `procs` that bears its number, so that its death, however it comes, shows. Chunks stand
 * in one doubly linked list each: their owner's, or that of the unowned of their device; free
 * slots are chained by `next`.
 *
 * The file is written by processes that may be killed at any instruction. `dirty` is set around
 * each change; who finds it set under the lock derives lists and sums from the slots again. The
 * slot's `state` is the last thing written when a chunk begins and the first when it ends. What
 * is read from the file is an index or a count that somebody may have overwritten: it is checked
 * where it is used.
 */
#pragma once

#include <pthread.h>

#include "gpu/sim/ledger.h"

#define LEDGER_MAGIC UINT64_C(0x316d69732d626d67) /* "gmb-sim1" */
#define LEDGER_VERSION 3u
#define LEDGER_NONE UINT32_MAX
/* The file is sparse; it is backed in steps, so that a full file system is an error, not SIGBUS. */
#define LEDGER_STEP 1024u

enum ledger_chunk_state { CHUNK_FREE, CHUNK_OWNED, CHUNK_UNOWNED };

struct ledger_chunk {
    uint8_t state;
    uint8_t device;
    uint8_t handle_types;
    uint8_t flags;
    uint32_t owner;
    uint32_t next, prev;
    uint32_t generation;
    uint32_t unused;
    uint64_t bytes;
    uint64_t inode;         /* of the data file; 0 until it is made */
    uint64_t free_after_ns; /* CLOCK_MONOTONIC; 0: nobody has found it let go yet */
};

struct ledger_proc {
    uint32_t used;
    int32_t pid;
    uint32_t owned; /* head of the list of its chunks */
    uint32_t unused;
    uint16_t contexts[SIM_DEVICES_MAX];
};

struct ledger_device {
    uint64_t charged;
    uint32_t unowned; /* head of the list */
    uint32_t unused;
};

struct ledger_file {
    uint64_t magic; /* written last when the file is made */
    uint32_t version;
    uint32_t dirty;
    uint64_t bytes;                   /* of the file: differs when the layout does */
    uint32_t chunks_high, procs_high; /* slots at and above were never used */
    uint32_t free;                    /* head of the chain */
    uint32_t doubt; /* a link made no sense: `dirty` stays set after this change */
    struct sim_hardware hardware;
    struct ledger_device devices[SIM_DEVICES_MAX];
    struct ledger_proc procs[LEDGER_PROCS_MAX];
    struct ledger_chunk chunks[LEDGER_CHUNKS_MAX];
};

struct ledger {
    pthread_mutex_t mutex; /* between threads; flock on `fd` between processes */
    int dir, fd, procs_fd;
    unsigned mode;   /* of the files in the directory */
    uint32_t self;   /* number in `procs`, LEDGER_NONE until registered */
    uint64_t device; /* st_dev of the files */
    struct ledger_file *file;
};

/* ledger_open.c */
int ledger_lock(struct ledger *ledger) _must_check_;
void ledger_unlock(struct ledger *ledger);
/* Backs `bytes` at `at` in the file. */
int ledger_back(struct ledger *ledger, const void *at, size_t bytes) _must_check_;

/* Makes `hardware` the node's; the lock is held and the node idle. */
int ledger_configure(struct ledger *ledger, const struct sim_hardware *hardware) _must_check_;

/* ledger_list.c: all with the lock held, between ledger_change and ledger_changed. */
void ledger_change(struct ledger *ledger);
void ledger_changed(struct ledger *ledger);
/* Takes the chunk out of the list that it is in. */
void ledger_unlink(struct ledger *ledger, uint32_t slot);
/* Puts a chunk in no list into its owner's, or into its device's when it is unowned. */
void ledger_link(struct ledger *ledger, uint32_t slot);
/* Ends a chunk: its file, its charge, its slot. */
void ledger_chunk_free(struct ledger *ledger, uint32_t slot);
/* Derives lists and sums from the slots. */
void ledger_recount(struct ledger *ledger);
struct ledger_chunk *ledger_slot(struct ledger *ledger, uint32_t slot);

/* ledger_collect.c: with the lock held. */
bool ledger_proc_alive(struct ledger *ledger, uint32_t proc);
/* The process is gone, or lets go of everything. */
void ledger_proc_end(struct ledger *ledger, uint32_t proc);
/* Ends the processes that have died. */
void ledger_collect_dead(struct ledger *ledger);
/* Frees the device's unowned chunks that nobody holds any more. */
void ledger_collect_unowned(struct ledger *ledger, unsigned device);
/* Frees one unowned chunk when nobody holds it; between ledger_change and ledger_changed. */
bool ledger_chunk_probe(struct ledger *ledger, uint32_t slot);
uint64_t ledger_context_bytes(struct ledger *ledger, unsigned device);
/* Bytes that are free as the file says, without looking for what could be. */
uint64_t ledger_room(struct ledger *ledger, unsigned device);
/* 0 when `bytes` are free, after looking for what could be; -ENOMEM. */
int ledger_make_room(struct ledger *ledger, unsigned device, uint64_t bytes) _must_check_;

/* ledger_data.c: without the lock. */
/* Relative to the directory. */
void ledger_chunk_path(char path[32], unsigned device, uint32_t slot);
/* Makes the data file of a chunk that this process owns and fills it as the node says. */
int ledger_data_make(
    struct ledger *ledger, const struct ledger_chunk_info *info, uint64_t *ret_inode) _must_check_;
/* Without the node-wide lock: whether the owner has let go of the chunk or died, as it seems. */
bool ledger_chunk_ownerless(struct ledger *ledger, struct ledger_id id);
