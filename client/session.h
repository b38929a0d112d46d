/*
 * What the files of libgmb share: session, device, lease, request.
 *
 * One mutex for each session guards whatever isn't marked otherwise. It is never held across a
 * driver call, a wait or a callback.
 *
 * Reading is a seat, not a thread: whoever needs an answer and finds the seat free sits down, polls
 * the socket and takes in whatever comes, for everybody; the others wait on `changed`. Only the
 * seat maps the chunks of grants and only the seat ends the connection, so that no other thread can
 * pull the socket or a half-mapped lease from under it.
 *
 * A request is sent, then answered (by the seat), then concluded by its owner: the thread that
 * blocks on it, whoever dispatches, or, when nobody waits any more, the seat itself. Concluding
 * makes the memory accessible or takes everything back.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/list.h"
#include "base/uuid.h"
#include "client/outcome.h"
#include "gpu/gpu.h"
#include "proto/conn.h"

/* Highest version of the protocol that this library speaks. */
#define CLIENT_PROTOCOL_VERSION 1

/*
 * Where the session stands. With a broker that gives tokens a connection that ends is made again
 * (resume.h); with another one the session is over then.
 */
enum session_phase {
    SESSION_READY,
    SESSION_AWAY,     /* no connection; the next one is tried at `retry_ns` */
    SESSION_GREETING, /* connected again, Hello sent */
    SESSION_RESUMING, /* welcome again; saying what is mapped */
    SESSION_OVER,     /* for good */
    SESSION_PHASE_MAX
};

/* Bytes of the token that a Welcome carries. */
#define SESSION_TOKEN_BYTES 16

struct resume_held;

struct device {
    struct gmb_device_info info;
    struct uuid uuid;
    const struct gpu_device *gpu; /* NULL where this process doesn't see it */
    struct CUctx_st *context;     /* guarded by `context_lock`; constant once set */
    bool slabs;                   /* its memory comes in slabs over CUDA IPC: one to a lease */
    _Atomic bool failed;          /* out of service, says the broker */
};

/* A tenant's status page: see status.h. */
struct status_view {
    const struct status_page *page; /* NULL: the broker keeps none */
    uint64_t bytes;
    unsigned entries; /* 0 without a page */
};

/* What the broker told last of one device, and nobody has been called for yet. */
struct pressure_news {
    bool come;
    uint32_t level, device_level;
    uint64_t headroom_bytes, some_total_us, full_total_us;
};

/* Who is called for news, and the news. */
struct subscription {
    gmb_pressure_fn pressure;
    gmb_advice_fn advice;
    void *user;
    struct pressure_news *news; /* owned; by the device's index */
    bool advised;               /* an advice has come for which nobody has been called yet: */
    struct gmb_advice last;     /* `steps` is set for the call alone */
    struct gmb_advice_step steps[LIMIT_ADVICE_STEPS];
    bool running; /* a callback, in `runner` */
    pthread_t runner;
};

/* A callback for a lease, in `runner`. */
struct lease_call {
    const struct gmb_lease *running; /* NULL: none */
    pthread_t runner;
};

/* Who is called for leases that are asked back. */
struct revoke_subscription {
    gmb_revoke_fn call; /* NULL: nobody */
    unsigned noted;     /* leases that are asked back, and nobody was called for */
    void *user;
    struct lease_call now;
};

/* Who is called for segments that are in quarantine. */
struct quarantine_subscription {
    gmb_segment_fn call; /* NULL: nobody */
    unsigned noted;      /* segments for which nobody was called yet */
    void *user;
    struct lease_call now;
};

struct gmb_session {
    /* fork.c */
    struct list registered;
    unsigned generation;
    pid_t pid;

    /* Constant once connected. */
    struct gpu *gpu;
    char tenant[LIMIT_NAME_BYTES + 1];
    uint64_t timeout_ns;
    struct device *devices;
    unsigned device_count;
    struct status_view status;
    char *socket, *program; /* as they were at the start; `program` may be NULL */
    bool patient;           /* requests outlive the connection (GMB_OFFLINE_WAIT) */
    int epoll_fd;           /* what gmb_fd() hands out: the socket, `notify_fd` and `retry_fd` */
    int notify_fd;          /* readable while callbacks wait or the session is over */
    int wake_fd;            /* gets the seat out of its poll */
    int retry_fd;           /* timer: readable when a connection is to be tried */
    int arrivals_fd; /* epoll, edge-triggered: the arenas' eventfds, which are their owners' to read
                      */

    _Atomic bool stale; /* the broker has gone: its status page is its last word */

    pthread_mutex_t context_lock; /* taken before `lock` or alone */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum session_phase phase;
    struct conn *conn;     /* NULL while AWAY and OVER */
    struct outcome broken; /* why it is not READY */
    uint8_t token[SESSION_TOKEN_BYTES];
    bool resumable;           /* the token is one */
    uint64_t retry_ns;        /* AWAY: when; GREETING, RESUMING: when that is given up */
    uint64_t retry_pause_ns;  /* before the last try */
    struct resume_held *held; /* RESUMING: what is still to be said */
    unsigned resumes;         /* times that a broker came back */
    unsigned drops;           /* times that a connection ended */
    bool ending;              /* the broker said that it ends */
    bool reading;             /* the seat is taken */
    bool dispatching;
    bool threaded, stopping;
    bool leaving; /* being disconnected: nothing more is asked for */
    pthread_t thread;
    bool watching_write; /* the epoll set watches the socket for writing */
    uint64_t last_id;
    unsigned waiting;     /* requests for memory that are not answered */
    unsigned unsent;      /* requests in `pending` that the socket hadn't room for */
    struct list pending;  /* by id */
    struct list answered; /* callbacks to run */
    struct list settling; /* answered, and nobody waits: the seat concludes them */
    struct list leases;
    struct list arenas;     /* by their leases' links */
    uint64_t arenas_due_ns; /* when they are looked after next */
    struct subscription subscription;
    struct revoke_subscription revoke;
    struct quarantine_subscription quarantine;
    struct list watches; /* struct watch.link */
    uint64_t watch_ids;
};

struct gmb_lease {
    struct list link;
    struct gmb_session *session;
    struct device *device;
    struct request *farewell; /* ready to be sent, so that giving back can't run out of memory */

    /* Set by the first grant, constant from then on. */
    uint64_t id;
    uint64_t chunk_bytes;
    uint64_t address;
    uint64_t reserved_bytes;

    bool segment;              /* others may have it, too; whole from the start */
    bool read_only;            /* … and this process only reads it */
    uint64_t wanted_bytes;     /* address space asked for; 0: what the grant has */
    _Atomic uint32_t chunks;   /* mapped and accessible */
    _Atomic bool quarantined;  /* a segment: the broker doesn't stand for its bytes any more */
    bool unheard;              /* … and nobody was called for it yet */
    _Atomic bool forfeit;      /* a slab: its memory may be gone with the process that had it */
    bool busy;                 /* a call is at work on it */
    uint32_t held;             /* chunks that the broker is to count as this lease's … */
    bool known;                /* … once it has granted it, until it is told of the end */
    bool lost;                 /* the broker couldn't resume it: it is never told of it again */
    bool unsettled;            /* a grow was given up before it was answered */
    bool dropped;              /* released meanwhile: goes once the grow is settled */
    uint64_t revoked_bytes;    /* asked back, and nobody was called for it yet; 0: nothing … */
    uint64_t revoked_until_ns; /* … until then */
};

enum request_kind {
    REQUEST_LEASE,
    REQUEST_GROW,
    REQUEST_SHRINK,
    REQUEST_RELEASE,
    REQUEST_CANCEL,
    REQUEST_ARENA,
    REQUEST_FILL,
    REQUEST_RETURN,
    REQUEST_SUBSCRIBE,
    REQUEST_WATCH,
    REQUEST_UNWATCH,
    REQUEST_ACK,
    REQUEST_MAPPED, /* this and the next one are told, not asked: gone once they are sent */
    REQUEST_WANT,
    REQUEST_READY, /* told, too */
    REQUEST_ATTACH,
    REQUEST_GANG,
    REQUEST_SEGMENT,
    REQUEST_SEAL,
    REQUEST_REMOVE,
    REQUEST_MAX
};

enum request_owner {
    REQUEST_OWNER_WAITER,   /* a thread that blocks on it */
    REQUEST_OWNER_CALLBACK, /* whoever dispatches */
    REQUEST_OWNER_NOBODY,   /* the seat: what comes is given back */
    REQUEST_OWNER_ARENA,    /* the seat, for the arena that grows */
    REQUEST_OWNER_MAX
};

struct request {
    struct list link;
    uint64_t id;
    enum request_kind kind;
    enum request_owner owner;
    bool sent, answered;
    bool again;              /* it was on its way when a connection ended */
    bool withdrawn;          /* the broker was, or is to be, asked to cancel it */
    bool urgent;             /* FILL */
    struct gmb_lease *lease; /* of LEASE and SEGMENT (owned until concluded), GROW and FILL */
    struct outcome outcome;
    uint64_t deadline_ns; /* when a waiter gives up */
    uint64_t expires_ns;  /* when it has waited for memory long enough: CLOCK_NEVER, or 0 unless it
                             takes some */
    unsigned resumes;     /* ARENA, ATTACH: session.resumes when it was answered */
    unsigned drops;       /* WATCH: session.drops when it was answered */

    /* What is asked for. */
    uint64_t
        target; /* SHRINK, RELEASE, SEAL and of arenas: the broker's lease; CANCEL: the request;
                        UNWATCH: the watch; ACK: the advice */
    uint64_t bytes, chunk_bytes, wait_ns;
    uint32_t keep_chunks;
    char label[LIMIT_NAME_BYTES + 1];
    const struct device *device;    /* ARENA, WATCH, REMOVE */
    uint64_t page_bytes, max_bytes; /* ARENA */
    uint32_t element;               /* ARENA */
    bool shared;                    /* ARENA; SEGMENT, REMOVE: of the share group */
    uint32_t run_first, run_count;  /* RETURN, MAPPED */
    uint32_t *pages;                /* WANT: owned */
    size_t page_count;
    bool off;                      /* SUBSCRIBE */
    struct gmb_watch_params watch; /* WATCH */
    uint32_t action, result;       /* ACK: enum gmb_degrade, enum gmb_advice_outcome; and bytes */
    struct request **parts; /* GANG: owned, one for each lease, which is owned until concluded */
    size_t part_count;

    /* What has come: the seat's alone until answered. */
    uint32_t first_chunk;    /* of the lease when it was sent */
    uint32_t total_chunks;   /* 0 before the first part */
    uint32_t granted_chunks; /* received, from first_chunk on */
    uint32_t mapped_chunks;
    size_t part_at;    /* GANG: whose grant is next */
    uint64_t arena_id; /* ARENA, ATTACH: 0 before it is made; and its fds, owned, or −1 */
    uint64_t arena_chunk_bytes, arena_page_bytes;
    uint32_t arena_max_chunks, arena_holder;
    bool arena_shared;
    struct uuid arena_device;
    int table_fd, event_fd; /* WATCH: the latter alone, and in `target` the watch */

    gmb_lease_fn done;
    void *user;
};

static inline bool request_takes_memory(const struct request *request)
{
    return request->kind == REQUEST_LEASE || request->kind == REQUEST_GROW ||
           request->kind == REQUEST_FILL || request->kind == REQUEST_GANG ||
           request->kind == REQUEST_SEGMENT;
}

/* Whether its grant is a lease of its own. */
static inline bool request_makes_lease(const struct request *request)
{
    return request->kind == REQUEST_LEASE || request->kind == REQUEST_SEGMENT;
}

/* Whether the broker answers nothing. */
static inline bool request_is_note(const struct request *request)
{
    return request->kind == REQUEST_MAPPED || request->kind == REQUEST_WANT ||
           request->kind == REQUEST_READY;
}

/* Whether it is answered by an arena. */
static inline bool request_makes_arena(const struct request *request)
{
    return request->kind == REQUEST_ARENA || request->kind == REQUEST_ATTACH;
}

/* Whether it can be sent again to a broker that came back. */
static inline bool request_resumes(const struct request *request)
{
    return request_takes_memory(request) || request_makes_arena(request) ||
           request->kind == REQUEST_SEAL || request->kind == REQUEST_WATCH ||
           (request->kind == REQUEST_SUBSCRIBE && !request->off);
}

/* Whether what it asks for is done when the session resumes, whatever became of the message. */
static inline bool request_settles(const struct request *request)
{
    return request->kind == REQUEST_SHRINK || request->kind == REQUEST_RELEASE ||
           request->kind == REQUEST_CANCEL || request->kind == REQUEST_RETURN ||
           request->kind == REQUEST_UNWATCH || (request->kind == REQUEST_SUBSCRIBE && request->off);
}
