/*
 * Scripted conversations: the test plays the broker, line by line, over the real socket, and libgmb
 * answers or fails. A blocking call of libgmb runs in a thread of its own meanwhile.
 *
 * Every function fails the test when the script isn't followed within the patience of some seconds.
 */
#pragma once

#include <check.h>
#include <pthread.h>

#include "base/error.h"
#include "client/gmb.h"
#include "proto/arena_table.h"
#include "proto/conn.h"
#include "proto/status_page.h"
#include "tests/client/fake_gpu.h"
#include "tests/client/fds.h"
#include "tests/unit/scratch.h"

#define CHUNK FAKE_GPU_GRANULARITY
#define LEASE_ID 77

struct script {
    char directory[SCRATCH_PATH_BYTES];
    char path[96];
    int listen_fd;
    struct conn *conn;
    gmb_session *session;
    uint64_t timeout_ns; /* of the session, 0: as it comes */
    enum gmb_offline offline;
    bool tokens;     /* Welcome carries one: the session can be resumed … */
    bool resumed;    /* … and this is what it says of that */
    size_t open_fds; /* before anything was opened */
    bool parting;    /* the client may close at any time: what it no longer reads is lost */
};

/* A directory of its own with a listening socket in it. */
void script_begin(struct script *script);
/* Ends the session if there is one, playing along, and checks that nothing is left. */
void script_end(struct script *script);

/* Enough for whatever is answered. */
#define SCRIPT_WAIT_NS (60 * NSEC_PER_SEC)

/* A timeout for a session that is to run into it: still enough for what is answered at once, also
 * where everything is slower (CK_TIMEOUT_MULTIPLIER). */
uint64_t script_impatience_ns(void);

/* A call that runs meanwhile; `result` is there after call_join(). */
struct call {
    pthread_t thread;
    int (*run)(struct script *script, struct call *call);
    struct script *script;
    int result;
    gmb_lease *lease;
    gmb_arena *arena;
    const struct gmb_arena_params *arena_params;
    size_t n;
    uint32_t *pages;
    uint64_t bytes, wait_ns;
    char text[300];
    char limit[32];
};
void call_start(
    struct script *script, struct call *call, int (*run)(struct script *, struct call *));
int call_join(struct call *call);

/* Ready-made calls. */
int call_connect(struct script *script, struct call *call);
int call_lease(struct script *script, struct call *call); /* of `bytes`, room for 16 chunks */
int call_grow(struct script *script, struct call *call);
int call_shrink(struct script *script, struct call *call);
int call_release(struct script *script, struct call *call);
int call_arena(struct script *script, struct call *call);
int call_alloc(struct script *script, struct call *call);
int call_pages_wait(struct script *script, struct call *call);
int call_arena_free(struct script *script, struct call *call);
int call_disconnect(struct script *script, struct call *call);

/* The broker's side. */
void broker_accept(struct script *script);
/* The next message, which must be of that kind; the caller's to free with message_free(). What an
 * arena asks for ahead of need is refused meanwhile, unless it is what is expected. */
Gmb__ClientMessage *broker_expect(struct script *script, Gmb__ClientMessage__BodyCase kind);
/* An ArenaFill that somebody waits for. */
Gmb__ClientMessage *broker_expect_growth(struct script *script);
void message_free(Gmb__ClientMessage *message);
/* The same, freed already: its id. */
uint64_t broker_expect_id(struct script *script, Gmb__ClientMessage__BodyCase kind);
/* Whether something has been sent that broker_expect() would find. */
bool broker_hears(struct script *script);
/* Nothing has been sent. */
void broker_expect_silence(struct script *script);

void broker_send(struct script *script, const ProtobufCMessage *message, size_t n_fds);
void broker_send_bytes(struct script *script, const void *bytes, size_t size);
/* With one device, of 1,024 chunks. */
void broker_welcome(struct script *script, uint64_t id);
/* The same with a status page, or what the test takes for one. */
void broker_welcome_consume(struct script *script, uint64_t id, int fd);
void broker_done(struct script *script, uint64_t id);
void broker_error(struct script *script, uint64_t id, enum gmb_status status, enum gmb_limit limit,
    const char *text);
/* Chunks [first, first + count) of `total`, each of CHUNK bytes, with as many fds. */
void broker_grant(
    struct script *script, uint64_t id, uint32_t first, uint32_t count, uint32_t total);
/* As broker_grant, for a test to spoil before it sends it. */
struct grant {
    Gmb__BrokerMessage message;
    Gmb__Grant grant;
    Gmb__Chunk chunks[LIMIT_FRAME_FDS];
    Gmb__Chunk *pointers[LIMIT_FRAME_FDS];
};
void grant_fill(struct grant *grant, uint64_t id, uint32_t first, uint32_t count, uint32_t total);
void broker_close(struct script *script);

/* The broker's side of an arena: its page table, and the eventfd. */
struct script_arena {
    struct arena_table table;
    void *memory;
    uint64_t bytes;
    int event_fd;
};
/* Answers an ArenaRequest with a table of that geometry. */
void broker_arena(struct script *script, uint64_t id, uint64_t page_bytes, uint32_t chunks,
    struct script_arena *ret);
void script_arena_end(struct script_arena *arena);
/* Chunks come unasked. */
void broker_arena_grant(struct script *script, uint32_t first, uint32_t count);
void broker_recall(struct script *script, uint32_t *chunks, size_t count);

/* The broker's side of a status page for the one device. */
struct script_status {
    struct status_page *page;
    uint64_t bytes;
};
/* Makes an empty page with that many entries, and seals it; the fd is the caller's. */
int status_make(struct script_status *ret, uint32_t entries, int seals);
#define STATUS_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL)
/* The next state, as a broker publishes it: the other copy first. `bits` is what stands in the head
 * beside the sequence number. */
void status_publish(struct script_status *status, uint64_t bits, const struct status_copy *copy);
void script_status_end(struct script_status *status);

/* Whole conversations. */
void script_connect(struct script *script);
/* The same with a status page that was never written. */
void script_connect_status(struct script *script, struct script_status *ret);
/* An arena of 16 chunks of CHUNK bytes and 4 pages in each. idle_ns is never, unless the test says.
 */
gmb_arena *script_arena(
    struct script *script, const struct gmb_arena_params *params, struct script_arena *ret);
/* A lease of so many chunks, room for 16. */
gmb_lease *script_lease(struct script *script, uint32_t chunks);
