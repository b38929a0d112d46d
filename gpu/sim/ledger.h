/*
 * The node's GPU memory: which chunk is charged to which device, across all processes that share
 * a state directory. docs/simulator.md explains the mechanism.
 *
 * A chunk is charged from ledger_chunk_create until the process that owns it has dropped it or
 * died, and no open file description of its data file holds flock(LOCK_SH) any more: exported
 * fds (also in other processes and in unread sockets) and mappings of them hold one.
 *
 * Errors are negative errnos: -ENOMEM device full, -ENOSPC no slot left, -ESTALE not that chunk
 * any more, -EBADMSG the ledger's contents make no sense. Thread-safe. Calls block for the
 * node-wide lock, which is held for microseconds (a process stopped while it holds it stops the
 * others, a killed one doesn't).
 */
#pragma once

#include "base/uuid.h"
#include "gpu/sim/config.h"

#define LEDGER_CHUNKS_MAX (1u << 20)
#define LEDGER_PROCS_MAX 4096u

struct ledger;

/* A chunk as it is named everywhere: a slot is used again, its generation then differs. */
struct ledger_id {
    uint32_t slot;
    uint32_t generation;
};

/* What is fixed at creation. */
struct ledger_chunk_info {
    struct ledger_id id;
    unsigned device;
    uint64_t bytes;
    uint8_t handle_types; /* CUmemAllocationHandleType mask */
    uint8_t flags;        /* LEDGER_CHUNK_* */
};

#define LEDGER_CHUNK_RDMA 1u   /* gpuDirectRDMACapable was requested */
#define LEDGER_CHUNK_LEGACY 2u /* backs cuMemAlloc */

struct ledger_memory {
    uint64_t total, free, used; /* bytes; total = free + used */
};

struct ledger_process {
    int pid;
    uint64_t used; /* bytes of the chunks it owns and of its contexts on the device */
};

/*
 * Opens, or creates, the ledger of config->dir. `config->hardware` counts for a new ledger.
 * -EUCLEAN: another version's ledger.
 */
int ledger_open(const struct sim_config *config, struct ledger **ret) _must_check_;
/* Accepts NULL; returns NULL. A registered process's memory is dropped as if it had died. */
struct ledger *ledger_close(struct ledger *ledger);
static inline void ledger_closep(struct ledger **ledger)
{
    *ledger = ledger_close(*ledger);
}
/* Around fork, so that no thread holds the node-wide lock while the child gets its copy. */
void ledger_fork_prepare(struct ledger *ledger);
void ledger_fork_parent(struct ledger *ledger);
/* In the child: closes what it shares with the parent, and the ledger can't be used any more. */
void ledger_fork_child(struct ledger *ledger);

/*
 * Needed before this process may own chunks or contexts. On a node that nobody uses (no live
 * process, no charged chunk) `config->hardware` counts from here on. -EUSERS: LEDGER_PROCS_MAX
 * are alive.
 */
int ledger_register(struct ledger *ledger, const struct sim_config *config) _must_check_;
void ledger_hardware(struct ledger *ledger, struct sim_hardware *ret);

/* Charges and makes a chunk that the calling process owns. `info->id` is filled in. */
int ledger_chunk_create(struct ledger *ledger, struct ledger_chunk_info *info) _must_check_;
/*
 * The owner lets go. `shared` says whether anyone else can have got at the chunk; without that the
 * memory is free at once. An id that isn't owned by this process is ignored.
 */
void ledger_chunk_drop(struct ledger *ledger, struct ledger_id id, bool shared);
/*
 * A new description of the chunk's data file, CLOEXEC, read-write. With `hold` it pins the chunk,
 * without it the caller must own the chunk while it uses the fd. Returns the fd or an error.
 */
int ledger_chunk_open(struct ledger *ledger, struct ledger_id id, bool hold) _must_check_;
/* Which chunk an exported fd stands for. Borrows the fd. -EBADF: none of this node's chunks. */
int ledger_chunk_identify(
    struct ledger *ledger, int fd, struct ledger_chunk_info *ret) _must_check_;
/*
 * Makes this process the owner of a chunk whose owner has let go or died, while the caller holds an
 * fd of it. True when this process owns the chunk now.
 */
bool ledger_chunk_adopt(struct ledger *ledger, struct ledger_id id);
/* Looks up a chunk by id and opens it with hold: legacy IPC. -EBUSY: this process owns it; -ESTALE
 * too when whoever made it has let go or died, though others hold it still. */
int ledger_chunk_attach(
    struct ledger *ledger, struct ledger_id id, struct ledger_chunk_info *ret) _must_check_;

/* A context of this process begins on the device: -ENOMEM without room for its overhead. */
int ledger_context_begin(struct ledger *ledger, unsigned device) _must_check_;
void ledger_context_end(struct ledger *ledger, unsigned device);

/* Exact now: looks for dead processes and for chunks that the last holder has let go. */
int ledger_memory(struct ledger *ledger, unsigned device, struct ledger_memory *ret) _must_check_;
/* Live processes with a context on the device; writes at most `size`, returns how many there are.
 */
int ledger_processes(
    struct ledger *ledger, unsigned device, struct ledger_process *ret, unsigned size) _must_check_;
/* UUID of a device: the same for that index on every node. */
struct uuid ledger_uuid(unsigned device);
/* The same as NVML writes it; returns `text`. */
char *ledger_uuid_text(
    const struct sim_hardware *hardware, unsigned device, char text[UUID_TEXT_MAX]);
