/*
 * libgmb: GPU memory by lease from the gmbd broker.
 *
 * A process connects once, takes leases, and gives them back. A lease is device memory at an
 * address that stays the same while it grows and shrinks; the memory behind it belongs to the
 * broker, which counts it against the quota of the caller's tenant. Who the caller is, the kernel
 * tells the broker; nothing in this interface claims it.
 *
 * Conventions
 *     Sizes are bytes, times nanoseconds. Functions that can fail return 0 or a negative GMB_E_*
 *     code; outputs (`ret_*`) are written on success only. gmb_error_text() tells the calling
 *     thread more about its own last failure: which limit refused, with its value, or which driver
 *     call failed.
 *
 * Threads
 *     Every function may be called from any thread, except where it says otherwise. Blocking
 *     functions may be called by several threads at once. One lease may be used (grown, shrunk,
 *     released) by one call at a time, an asynchronous one until its callback: another call on it
 *     is refused with GMB_E_INVALID and changes nothing.
 *
 * Deadlines
 *     The broker keeps a request's deadline. A broker that is stopped or overloaded can't: then a
 *     blocking call gives up the session's timeout after its deadline (and 1 ms later for each
 *     granule that it asked for, which may have to be created), with GMB_E_TIMED_OUT; memory that
 *     is granted all the same goes back by itself. Asynchronous requests have no such limit: there
 *     is gmb_cancel().
 *
 * Restarts
 *     When the broker goes away everything that is mapped stays mapped and usable, pages are
 *     allocated, freed and pinned as far as they are here, and memory that is given back goes back
 *     once the broker is there again. Whoever dispatches or waits (the background thread, say)
 *     looks for it, after 10 ms at first and every second at last, and resumes the session: leases,
 *     arenas and pages that were waited for go on. New requests fail meanwhile or wait, as
 *     gmb_options.offline says; one without wait fails in any case. A broker that comes back
 *     without its memory of a lease (it ran without an fd store, or was damaged) leaves it mapped:
 *     such a lease can be used and given back, not grown, and pages of an arena that were evicted
 *     don't come back (DISCONNECTED). Subscriptions go on, with the present state first; watches
 *     end. A session is over only when the broker broke the protocol, or never gave a token to
 *     resume with.
 *
 * Contexts
 *     The first lease on a device retains its primary context, which the CUDA runtime uses too,
 *     until gmb_disconnect(). The calling thread's current context is never changed.
 *
 * Fork
 *     A session belongs to the process that opened it. In a forked child every function on it that
 *     can fail returns GMB_E_FORKED and changes nothing; gmb_disconnect() there frees memory of the
 *     child alone and closes its copies of the fds. The parent is not disturbed. The child may
 *     connect anew, after exec at the latest for its GPU work, since CUDA doesn't survive fork.
 *     Page functions look for no pid: in a child of a bare clone(2) they end it by SIGSEGV, since
 *     the parent's page tables aren't mapped there.
 *
 * Signals, output
 *     The library installs no signal handler, never raises SIGPIPE, never prints and never exits.
 *
 * Source: this file is the contract; docs/protocol.md says what travels beneath it.
 */
#ifndef GMB_H
#define GMB_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GMB_VERSION_MAJOR 0
#define GMB_VERSION_MINOR 1

typedef struct gmb_session gmb_session;
typedef struct gmb_lease gmb_lease;

/* ---------------------------------------------------------------- errors */

enum gmb_error {
    GMB_E_EXHAUSTED = -1,  /* a limit refused; retry helps once memory is given back */
    GMB_E_OVER_LIMIT = -2, /* more than the limit can ever allow; retry never helps */
    GMB_E_TIMED_OUT = -3,  /* the deadline passed while the request waited */
    GMB_E_CANCELLED = -4,  /* by gmb_cancel() or gmb_disconnect() */
    GMB_E_INVALID = -5,    /* an argument, or a call at the wrong moment */
    GMB_E_NOT_FOUND = -6,  /* no such device or request */
    GMB_E_DENIED = -7,     /* this process belongs to no configured tenant, or may not connect */
    GMB_E_CONFLICT = -8,
    GMB_E_UNSUPPORTED = -9,   /* by the broker's version, this library's, or the device */
    GMB_E_DISCONNECTED = -10, /* the broker is away; leases already mapped stay valid */
    GMB_E_FORKED = -11,       /* the session is the parent process's */
    GMB_E_GPU = -12,          /* the driver failed; the text names the call and its code */
    GMB_E_PROTOCOL = -13,     /* the broker broke the protocol; the session is over */
    GMB_E_INTERNAL = -14      /* no host memory, or a fault in the broker or here */
};

/* What the code means in general; never NULL, also for 0 and for unknown codes. */
const char *gmb_strerror(int error);

/* What the calling thread's last failed gmb_* call met, as a sentence; "" when none failed. Valid
 * until that thread's next failing call. */
const char *gmb_error_text(void);

/* Name of the limit behind the calling thread's last EXHAUSTED, OVER_LIMIT or TIMED_OUT:
 * "MemoryMax", "device", …; "none" otherwise. */
const char *gmb_error_limit(void);

/* ---------------------------------------------------------------- session */

/* What becomes of requests while the broker is away (restarted, upgraded, crashed). */
enum gmb_offline {
    GMB_OFFLINE_FAIL = 0, /* they fail with DISCONNECTED, those in flight, too */
    GMB_OFFLINE_WAIT = 1  /* they wait for it, as long as they may wait for memory */
};

struct gmb_options {
    size_t size;         /* sizeof(struct gmb_options): lets the structure grow */
    const char *socket;  /* NULL: $GMB_SOCKET, else /run/gmbd/client.sock */
    const char *program; /* shown to operators; NULL: the process's own name */
    const char *driver;  /* "cuda" or "sim"; NULL: whichever the broker uses */
    uint64_t timeout_ns; /* for greeting, and for answers beyond their deadline; 0: 10 s */
    uint32_t offline;    /* enum gmb_offline */
};

/* Connects and greets. Blocks up to the timeout, and for the loading of the driver. `options` may
 * be NULL and isn't kept. GMB_E_DISCONNECTED where nobody listens, DENIED, UNSUPPORTED (its
 * version, or another driver than the options want), EXHAUSTED (ClientsMax), TIMED_OUT, GPU (the
 * driver named by the broker can't be loaded), INVALID, PROTOCOL, INTERNAL. */
int gmb_connect(const struct gmb_options *options, gmb_session **ret_session);

/* Cancels what waits (the callbacks run here, with GMB_E_CANCELLED), gives back every lease
 * (waiting for the device to finish with them, as gmb_lease_release() does), closes the connection,
 * and frees the session; the leases' handles are gone with it. Blocks for the broker's answers, the
 * session's timeout at most. Accepts NULL. No other thread may be inside a call on the session. */
void gmb_disconnect(gmb_session *session);

enum gmb_connection {
    GMB_CONNECTION_READY = 0,
    GMB_CONNECTION_AWAY = 1, /* the broker is; whoever dispatches or waits looks for it */
    GMB_CONNECTION_OVER = 2  /* for good: every call that needs the broker is DISCONNECTED */
};
/* Where the session stands: GMB_CONNECTION_*, or FORKED. Doesn't block. */
int gmb_connection(gmb_session *session);

/* Name of the tenant that the broker counts this process under. Owned by the session. */
const char *gmb_tenant(const gmb_session *session);

/* The driver that the leased memory belongs to: "cuda" or "sim". Owned by the library. */
const char *gmb_driver(const gmb_session *session);

/* A function of that driver under its exported name, such as "cuMemcpyHtoD_v2": a program that
 * calls the driver through this runs on the simulated one as on the real one, without being linked
 * with either. NULL where the driver has none of that name. */
void *gmb_driver_symbol(const gmb_session *session, const char *name);

struct gmb_device_info {
    size_t size;   /* in: sizeof(struct gmb_device_info) */
    char uuid[64]; /* "GPU-8-4-4-4-12" */
    char name[96];
    uint64_t capacity_bytes;    /* what the broker hands out there, to all tenants together */
    uint64_t granularity_bytes; /* chunks are multiples of this */
    uint64_t memory_max_bytes;  /* the tenant's MemoryMax when we connected; UINT64_MAX: none */
    uint32_t failed; /* not 0: lost or broken, and out of service; requests there get GPU, and what
                        is leased there can be given back and little else */
    uint32_t whole_leases; /* not 0: shared over CUDA IPC (docs/ipc.md). max_bytes, growth, a shrink
                              to 0, arenas and segments are UNSUPPORTED; see gmb_lease_lost() */
};

unsigned gmb_device_count(const gmb_session *session);
/* As things are now, as far as the broker's messages have been read. INVALID for an index past the
 * count. */
int gmb_device_get(const gmb_session *session, unsigned index, struct gmb_device_info *info);

/* ---------------------------------------------------------------- leases */

#define GMB_WAIT_NONE UINT64_C(0)
#define GMB_WAIT_FOREVER UINT64_MAX /* as long as the broker allows: an hour */

struct gmb_lease_params {
    size_t size;        /* sizeof(struct gmb_lease_params) */
    const char *device; /* UUID text; NULL: the broker's first device */
    uint64_t bytes;     /* > 0, rounded up to whole chunks */
    uint64_t max_bytes; /* address space to reserve for growth at the same address; 0: bytes */
    uint64_t
        chunk_bytes;   /* size of a chunk, a multiple of the granularity; 0: the broker chooses */
    uint64_t wait_ns;  /* how long the request may wait for memory */
    const char *label; /* shown to operators, cut at 64 bytes; may be NULL */
};

/* Takes a lease: asks, maps and makes it readable and writable for this process on that device.
 * Blocks up to wait_ns plus the time of mapping. The lease is the session's until
 * gmb_lease_release(). EXHAUSTED, OVER_LIMIT, TIMED_OUT, INVALID, NOT_FOUND (device), DISCONNECTED,
 * GPU, PROTOCOL, INTERNAL. After a failure nothing is held. */
int gmb_lease_new(
    gmb_session *session, const struct gmb_lease_params *params, gmb_lease **ret_lease);

/* Takes `n` leases in one request, each on another device: all of them or none. Two processes that
 * want the same devices in another order don't wait for each other, and while one waits it holds
 * nothing; what it asks for is kept free for it as for a single request. `params` are n structures
 * one behind the other, each as long as the first one's `size` says; wait_ns and label of the first
 * hold for all. ret_leases[i] is the lease of params[i], afterwards one like any other. Blocks and
 * fails as gmb_lease_new(), with the device that refused named in gmb_error_text(); INVALID too for
 * n = 0, n > 64 and two parts on one device. After a failure nothing is held or written. */
int gmb_lease_gang(
    gmb_session *session, const struct gmb_lease_params *params, size_t n, gmb_lease **ret_leases);

/* Device address of the first byte: a CUdeviceptr. The same for the life of the lease. */
uint64_t gmb_lease_address(const gmb_lease *lease);
/* The CUcontext in which it is accessible: its device's primary one, retained by the session. */
void *gmb_lease_context(const gmb_lease *lease);
/* Mapped bytes: a multiple of gmb_lease_chunk_bytes(). */
uint64_t gmb_lease_bytes(const gmb_lease *lease);
uint64_t gmb_lease_chunk_bytes(const gmb_lease *lease);
uint64_t gmb_lease_max_bytes(const gmb_lease *lease);

/* Not 0: what is behind a whole lease may be gone, with the process that held it. Release it. */
int gmb_lease_lost(const gmb_lease *lease);

/* Adds `bytes` (rounded up to whole chunks) behind the end. Blocks and fails as gmb_lease_new().
 * INVALID past max_bytes. After a failure the lease is as it was. */
int gmb_lease_grow(gmb_lease *lease, uint64_t bytes, uint64_t wait_ns);

/* Gives back what lies behind the first `bytes` (rounded up to whole chunks). Waits for the work
 * that the device has in flight (the driver's unmap doesn't), unmaps, and tells the broker. `bytes`
 * 0 keeps the lease and its address without memory. INVALID for more than the lease has. After GPU
 * the lease is as it was; after DISCONNECTED or TIMED_OUT it is shrunk, and the broker counts the
 * memory as leased until it hears of it or the process ends. */
int gmb_lease_shrink(gmb_lease *lease, uint64_t bytes);

/* Gives back everything, as shrink does, and frees the handle, on failure too (the process's death
 * then settles it with the broker); but not where the call is refused: INVALID, since another one
 * is at work on the lease, and FORKED. Accepts NULL. */
int gmb_lease_release(gmb_lease *lease);

/* ---------------------------------------------------------------- arenas of KV pages */

/*
 * An arena is address space cut into pages of one size, with memory behind as much of it as is in
 * use. Page i lies at gmb_arena_address() + i × page_bytes for ever: block tables, graphs and
 * kernels stay valid. Memory comes and goes by chunks of several pages, ahead of need and by
 * itself.
 *
 * A page is allocated with one reference and no pin. Whoever lets a kernel read or write a page
 * pins it before and unpins it afterwards; a page without pin may be moved to the host tier at any
 * time, and comes back, byte for byte, when it is pinned. Until gmb_page_ready() or gmb_page_wait()
 * says so nobody may read or write it: its bytes are on their way, or not compared with their
 * checksum yet. Pins and references are counts.
 *
 * Page functions take n pages at once, may be called by any number of threads at once, make no
 * system call unless they say that they wait or send, and do all or nothing. An arena needs
 * somebody who dispatches (gmb_thread_start() or gmb_dispatch(), or threads that block in calls of
 * this library): memory is kept ready, given back when idle or recalled, and taken for restored
 * pages there. Misuse (a page that isn't allocated, a free while pinned, a count below zero or past
 * its range) is GMB_E_INVALID and changes nothing; a library built with GMB_DEBUG_ASSERT aborts
 * instead.
 */
typedef struct gmb_arena gmb_arena;

enum gmb_element { GMB_ELEMENT_BYTES = 0, GMB_ELEMENT_FP16 = 1, GMB_ELEMENT_BF16 = 2 };

struct gmb_arena_params {
    size_t size;          /* sizeof(struct gmb_arena_params) */
    const char *device;   /* UUID text; NULL: the broker's first device */
    uint64_t page_bytes;  /* a multiple of 16; 1 GiB at most, 32 MiB where there is a host tier */
    uint64_t max_bytes;   /* address space, rounded up to whole chunks */
    uint64_t chunk_bytes; /* a multiple of page_bytes and granularity; 0: the library chooses */
    uint64_t prefetch_bytes; /* free memory kept ready ahead of need; 0: one chunk */
    uint64_t idle_ns; /* an empty chunk is given back after; 0: 1 s; UINT64_MAX: only when asked */
    uint32_t element; /* enum gmb_element: lets a quantized tier know what it holds */
    uint32_t shared;  /* not 0: other processes of the tenant may attach, by the label */
    const char *label;
};

/* Blocks for one exchange with the broker. Holds no memory yet. Errors as gmb_lease_new(); CONFLICT
 * when the tenant shares an arena of that label already: attach to it. */
int gmb_arena_new(
    gmb_session *session, const struct gmb_arena_params *params, gmb_arena **ret_arena);
/* Waits for the device, gives everything back and frees the handle, on failure too. In a shared
 * arena that is this process's part: pins and references that it still had are dropped by the
 * broker, what others hold stays, and the arena ends with its last holder. Accepts NULL. */
int gmb_arena_free(gmb_arena *arena);

struct gmb_attach_params {
    size_t size;             /* sizeof(struct gmb_attach_params) */
    const char *name;        /* label of an arena that was made with `shared` */
    uint64_t prefetch_bytes; /* as in gmb_arena_params */
    uint64_t idle_ns;
};

/*
 * Takes part in an arena that another process of the tenant made and shares. Pages have the same
 * numbers and bytes in all of them, and an address of its own in each. Pins and references are
 * counted for each process: nobody can free what another holds, a pin needs a reference of the same
 * process, and one that dies drops exactly what it had. A page whose chunk isn't mapped here yet is
 * one that gmb_page_pin() answers WAITING for.
 *
 * Blocks for one exchange with the broker; the memory that is there is mapped by whoever
 * dispatches. DENIED, with the limit "permission", when the tenant shares no arena of that name;
 * EXHAUSTED when 16 processes hold it; INVALID, NOT_FOUND (its device), TIMED_OUT, DISCONNECTED,
 * GPU, PROTOCOL, INTERNAL. After a failure nothing is held.
 */
int gmb_arena_attach(
    gmb_session *session, const struct gmb_attach_params *params, gmb_arena **ret_arena);

uint64_t gmb_arena_address(const gmb_arena *arena);
/* The CUcontext in which it is accessible, as gmb_lease_context(). */
void *gmb_arena_context(const gmb_arena *arena);
uint64_t gmb_arena_page_bytes(const gmb_arena *arena);
uint32_t gmb_arena_pages(const gmb_arena *arena); /* page numbers are below this */

/* Allocates n pages, from the fullest chunks. While memory lacks it waits up to wait_ns for the
 * broker (dispatching as a blocking call does); with GMB_WAIT_NONE it makes no system call.
 * EXHAUSTED, TIMED_OUT, OVER_LIMIT (n pages never fit), DISCONNECTED when more memory would be
 * needed. What ret_pages holds after a failure means nothing. */
int gmb_page_alloc(gmb_arena *arena, size_t n, uint32_t *ret_pages, uint64_t wait_ns);
/* Drops one reference of each; the last one frees the page. */
int gmb_page_unref(gmb_arena *arena, size_t n, const uint32_t *pages);
int gmb_page_ref(gmb_arena *arena, size_t n, const uint32_t *pages);

/* What gmb_page_pin() answers beside errors. */
enum gmb_pin {
    GMB_PIN_READY = 0, /* all are resident: use them */
    GMB_PIN_WAITING =
        1,           /* pinned, but some are on their way back: gmb_page_wait() or gmb_arena_fd() */
    GMB_PIN_LOST = 2 /* nothing was pinned: some were recomputable and have been dropped */
};
/* Sends one message to the broker when it answers WAITING. DISCONNECTED, with nothing pinned, when
 * pages aren't resident and the broker is away, unless the session waits for it. */
int gmb_page_pin(gmb_arena *arena, size_t n, const uint32_t *pages);
int gmb_page_unpin(gmb_arena *arena, size_t n, const uint32_t *pages);
/* Whether all are resident now: GMB_PIN_*. The pages are pinned by the caller. */
int gmb_page_ready(gmb_arena *arena, size_t n, const uint32_t *pages);
/* Blocks until all are resident (GMB_PIN_READY) or those that aren't are lost (GMB_PIN_LOST), or
 * wait_ns passed (TIMED_OUT). DISCONNECTED when the broker went away meanwhile, unless the
 * session waits for it, and GPU when the device failed: unpin what isn't ready. A pinned page keeps
 * its chunk on the device: who waits while it has pages pinned in as many chunks as it may have
 * waits for itself. */
int gmb_page_wait(gmb_arena *arena, size_t n, const uint32_t *pages, uint64_t wait_ns);
/* Marks a use, for the eviction policy; pinning does so, too. */
int gmb_page_touch(gmb_arena *arena, size_t n, const uint32_t *pages);

/* Readable since pages that were waited for arrived; read 8 bytes to reset. */
int gmb_arena_fd(const gmb_arena *arena);

/* As gmb_page_unref() and gmb_page_unpin(), taking effect when the work now in `stream` (a
 * CUstream) has finished. They record an event; a later page call or dispatch finds it passed. What
 * can't be done then (the page is still pinned by somebody, say) is left undone; a library built
 * with GMB_DEBUG_ASSERT aborts. Of one stream they take effect in the order of the calls.
 * UNSUPPORTED without a driver's functions. */
int gmb_page_unref_after(gmb_arena *arena, size_t n, const uint32_t *pages, void *stream);
int gmb_page_unpin_after(gmb_arena *arena, size_t n, const uint32_t *pages, void *stream);

/* What the policies should know of a page. */
struct gmb_page_hint {
    uint64_t prefix;       /* hash of the sequence up to the page's end; 0: none */
    uint32_t parent;       /* page that it continues; UINT32_MAX: none */
    uint32_t position;     /* of its first token */
    uint32_t tokens;       /* that it holds */
    uint32_t recomputable; /* not 0: may be dropped instead of moved to the host tier */
};
int gmb_page_set_hint(gmb_arena *arena, uint32_t page, const struct gmb_page_hint *hint);

/* Moves that would empty chunks, for an engine that can change its block tables at a safe point of
 * its choosing: copy the bytes of old[i] to new[i], which is allocated for it, then unref old[i].
 * Returns the number of moves (at most `max`), or an error. Only unpinned pages with one reference
 * move. Pin both while copying. new[i] has the hint of old[i], and what continued old[i] continues
 * new[i] from now on, whether that moves or not: no hint is set meanwhile. One thread at a time. */
int gmb_arena_compact(gmb_arena *arena, size_t max, uint32_t *ret_old, uint32_t *ret_new);

/*
 * The index of prefixes of a shared arena: which page holds what, found by every process that holds
 * the arena. A key is a hash of the sequence up to the page's end, of 64 bits (high = 0) or 128;
 * two sequences of one key get each other's pages. The index has a reference of its own to each
 * published page, so that it outlives who published it: it may be moved to the host tier, and comes
 * back when pinned, and is dropped where it is recomputable and there is no room. These calls make
 * no system call and wait for nobody. UNSUPPORTED in an arena that isn't shared.
 */
struct gmb_prefix_key {
    uint64_t low, high;
};

enum gmb_prefix {
    GMB_PREFIX_NEW = 0,  /* published */
    GMB_PREFIX_THERE = 1 /* another page is there under that key: nothing was done */
};

/* Publishes a page that this process references and has written, as what continues the page that
 * is published under `parent` (NULL: nothing). GMB_PREFIX_*; NOT_FOUND when nothing is published
 * under `parent`; EXHAUSTED when the index has no room for the key; INVALID when the page isn't
 * referenced here or is published already. One thread at a time for each page. */
int gmb_arena_prefix_publish(gmb_arena *arena, uint32_t page, const struct gmb_prefix_key *key,
    const struct gmb_prefix_key *parent);
/* Finds the longest prefix: pages of keys[0], keys[1], … up to the first that isn't there. Each
 * gets a reference of this process, to be dropped with gmb_page_unref(). How many, or an error. */
int gmb_arena_prefix_lookup(
    gmb_arena *arena, size_t n, const struct gmb_prefix_key *keys, uint32_t *ret_pages);
/* Takes n pages out of the index, which this process references: they stay its own. INVALID, and
 * nothing was done, when one isn't referenced here or isn't published. */
int gmb_arena_prefix_unpublish(gmb_arena *arena, size_t n, const uint32_t *pages);
/* Frees up to n published pages that nobody references: those whose last use is longest ago
 * first, none before what continues it. How many (0: there are none), or INTERNAL. Looks at
 * every page of the arena: for when an allocation found none free. */
int gmb_arena_prefix_trim(gmb_arena *arena, size_t n);

struct gmb_arena_stats {
    size_t size;
    uint64_t mapped_bytes, used_pages, free_pages, evicted_pages, evictions, restores, waits;
};
int gmb_arena_get_stats(const gmb_arena *arena, struct gmb_arena_stats *stats);

#include "gmb_pressure.h"

/* ---------------------------------------------------------------- event loops */

/* Called once for a request: `error` 0 and the lease, or a GMB_E_* code and NULL (for a grow: the
 * lease as it was), and gmb_error_text() then says why. Runs in whoever dispatches: gmb_dispatch(),
 * the background thread or, at the end, gmb_disconnect(); never in another thread's blocking call.
 * May call any gmb_* function except gmb_disconnect() and gmb_dispatch(); one that waits for memory
 * holds up the callbacks behind it. */
typedef void (*gmb_lease_fn)(void *user, gmb_lease *lease, int error);

/* As gmb_lease_new() without blocking: `done` will be called, perhaps before this returns if there
 * is a background thread. `ret_request` (may be NULL) is written before that and names the request
 * for gmb_cancel(). EXHAUSTED when 1,024 requests of the session wait. */
int gmb_lease_new_async(gmb_session *session, const struct gmb_lease_params *params,
    gmb_lease_fn done, void *user, uint64_t *ret_request);
int gmb_lease_grow_async(gmb_lease *lease, uint64_t bytes, uint64_t wait_ns, gmb_lease_fn done,
    void *user, uint64_t *ret_request);

/* Called by whoever dispatches (as gmb_lease_fn): the broker asks `bytes` of the lease back, since
 * a tenant that is entitled to memory waits for it and nobody can move what is in a lease. Answer
 * with gmb_lease_shrink() by at least so much, or gmb_lease_release(), in here or later, before
 * `deadline_ns` on CLOCK_MONOTONIC. Who doesn't is passed over for others, and where the operator
 * allows it may be killed. May call any gmb_* function but gmb_disconnect() and gmb_dispatch(). The
 * lease is valid during the call: another thread's gmb_lease_release() of it waits for the end of
 * the call, so don't wait for that thread in here. It may be one whose gmb_lease_new() in another
 * thread is about to return. */
typedef void (*gmb_revoke_fn)(void *user, gmb_lease *lease, uint64_t bytes, uint64_t deadline_ns);

/*
 * From now on `revoke` is called for each lease that is asked back; NULL ends that. Without a
 * callback nothing is answered; what is asked meanwhile is handed to the next one. Replaces the
 * callback before, which doesn't run any more when this has returned, except if it is called from
 * there. Exchanges nothing with the broker. FORKED.
 */
int gmb_revoke_subscribe(gmb_session *session, gmb_revoke_fn revoke, void *user);

/* Withdraws a request that waits; its `done` is called with GMB_E_CANCELLED. If the grant was
 * already on the way, `done` brings it. NOT_FOUND when it is answered already. */
int gmb_cancel(gmb_session *session, uint64_t request);

/* A pollable fd, readable when gmb_dispatch() has something to do; now and then another thread has
 * done it meanwhile. It stays readable once the broker has gone. Owned by the session. */
int gmb_fd(const gmb_session *session);

/* Reads what has come and runs callbacks. Waits up to `timeout_ms` for something (0: not, -1: for
 * ever). The number of callbacks run, or a GMB_E_* code: DISCONNECTED when the session is over,
 * after every pending request was called back with it. One thread at a time; others get INVALID. */
int gmb_dispatch(gmb_session *session, int timeout_ms);

/* A thread of the library's own that dispatches until gmb_disconnect(). All signals are blocked in
 * it. INVALID when there is one. With it, the application must not call gmb_dispatch(). */
int gmb_thread_start(gmb_session *session);

#include "gmb_segment.h"

#ifdef __cplusplus
}
#endif

#endif
