/* See kills.h. The tenant's eight chunks are less than what a script and the other worker want. */
#include "tests/integration/kills.h"

#include <check.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "tests/integration/pages.h"

#define CHUNK HARNESS_CHUNK
#define PAGE (UINT64_C(64) << 10)
#define PER_CHUNK ((uint32_t) (CHUNK / PAGE))

/* Until the session is with a broker again, which then knows what was given back meanwhile. */
static void be_back(gmb_session *session)
{
    while (gmb_connection(session) != GMB_CONNECTION_READY)
        lessee_need(MIN(gmb_dispatch(session, 10), 0), "dispatch");
}

struct kills_rest *kills_rest;

static bool rest_wanted(uint64_t first, uint64_t second)
{
    if (kills_rest == NULL || !atomic_load(&kills_rest->wanted))
        return false;
    atomic_store(&kills_rest->bytes[0], first);
    atomic_store(&kills_rest->bytes[1], second);
    atomic_store(&kills_rest->rests, true);
    harness_breathe();
    return true;
}

/* Somebody has to look for a broker that is away, or it never hears what was given back. */
static void rest(struct lessee *lessee, uint64_t first, uint64_t second)
{
    while (rest_wanted(first, second))
        lessee_need(MIN(gmb_dispatch(lessee->session, 0), 0), "dispatch");
}

/* ------------------------------------------------------------------ leases */

static void leases_work(struct lessee *lessee, void *data)
{
    gmb_lease *a, *b;

    (void) data;
    a = lessee_take(lessee, 2, "a");
    lessee_write(lessee, a, 1);
    b = lessee_take(lessee, 1, "b");
    lessee_write(lessee, b, 2);
    lessee_need(gmb_lease_grow(a, CHUNK, LESSEE_WAIT_NS), "grow");
    lessee_check(lessee, b, 2);
    lessee_write(lessee, a, 3);
    lessee_need_or_later(gmb_lease_release(b), "release");
    lessee_need_or_later(gmb_lease_shrink(a, 2 * CHUNK), "shrink");
    b = lessee_take(lessee, 3, "c");
    lessee_write(lessee, b, 4);
    lessee_check(lessee, a, 3);
    ck_assert_uint_eq(gmb_lease_bytes(a), 2 * CHUNK);
    lessee_need_or_later(gmb_lease_release(a), "release");
    rest(lessee, 3 * CHUNK, 0);
    lessee_check(lessee, b, 4);
    lessee_need_or_later(gmb_lease_release(b), "release");
}

/* ------------------------------------------------------------------ arenas */

#define ARENA_CHUNKS 7
static_assert(ARENA_CHUNKS + 2 > 8, "with the other one's lease there is no room for all pages");

static gmb_arena *arena_new(gmb_session *session, const char *label, bool shared)
{
    const struct gmb_arena_params params = {.size = sizeof(params),
        .page_bytes = PAGE,
        .max_bytes = 2 * ARENA_CHUNKS * CHUNK,
        .chunk_bytes = CHUNK,
        .prefetch_bytes = 1,
        .shared = shared,
        .label = label};
    gmb_arena *arena;

    lessee_need(gmb_arena_new(session, &params, &arena), "arena");
    return arena;
}

static void arena_work(struct lessee *lessee, void *data)
{
    static struct pages pages;

    (void) data;
    pages_adopt(&pages, lessee->session, arena_new(lessee->session, "own", false));
    lessee_need(gmb_thread_start(lessee->session), "thread");
    pages.wait_ns = LESSEE_WAIT_NS;
    for (unsigned i = 0; i < ARENA_CHUNKS; i++)
        pages_fill(&pages, PER_CHUNK);
    /* Each comes back, for which another one goes. */
    pages_check(&pages, 0, pages.count, PER_CHUNK / 2);
    while (rest_wanted(pages_stats(&pages).mapped_bytes, 0))
        pages_check(&pages, 0, 1, 1);
    lessee_need(gmb_page_unref(pages.arena, PER_CHUNK, pages.pages), "free");
    pages_check(&pages, PER_CHUNK, pages.count - PER_CHUNK, PER_CHUNK);
    lessee_need_or_later(gmb_arena_free(pages.arena), "end of the arena");
}

/* ------------------------------------------------------------------ shared arenas */

#define SHARED "kv"
#define SHARED_PAGES (2 * PER_CHUNK)

static struct pages shared;

static struct gmb_prefix_key key_of(uint32_t number)
{
    return (struct gmb_prefix_key){.low = number + 1, .high = ~(uint64_t) number};
}

static void shared_hold(struct lessee *lessee, void *data)
{
    (void) data;
    pages_adopt(&shared, lessee->session, arena_new(lessee->session, SHARED, true));
    shared.wait_ns = LESSEE_WAIT_NS;
    pages_fill(&shared, SHARED_PAGES);
    for (uint32_t i = 0; i < SHARED_PAGES; i++) {
        const struct gmb_prefix_key own = key_of(i), parent = key_of(i - 1);

        lessee_need(
            gmb_arena_prefix_publish(shared.arena, shared.pages[i], &own, i > 0 ? &parent : NULL),
            "publish");
    }
}

static void shared_look(struct lessee *lessee, void *data)
{
    (void) lessee;
    (void) data;
    pages_check(&shared, 0, shared.count, PER_CHUNK / 2);
}

/* What another holder had in it went with that one. */
static void shared_let_go(struct lessee *lessee, void *data)
{
    (void) lessee;
    (void) data;
    wait_until(pages_stats(&shared).used_pages == SHARED_PAGES);
    lessee_need_or_later(gmb_arena_free(shared.arena), "end of the arena");
}

static void attach_work(struct lessee *lessee, void *data)
{
    static struct pages pages;
    const struct gmb_attach_params params = {
        .size = sizeof(params), .name = SHARED, .prefetch_bytes = 1};
    struct gmb_prefix_key keys[SHARED_PAGES];
    gmb_arena *arena;

    (void) data;
    lessee_need(gmb_arena_attach(lessee->session, &params, &arena), "attach");
    pages_adopt(&pages, lessee->session, arena);
    lessee_need(gmb_thread_start(lessee->session), "thread");
    pages.wait_ns = LESSEE_WAIT_NS;
    for (uint32_t i = 0; i < SHARED_PAGES; i++)
        keys[i] = key_of(i);
    ck_assert_int_eq(
        gmb_arena_prefix_lookup(arena, SHARED_PAGES, keys, pages.pages), (int) SHARED_PAGES);
    pages.count = SHARED_PAGES;
    pages_check(&pages, 0, pages.count, PER_CHUNK / 2);
    for (unsigned i = 0; i < 4; i++)
        pages_fill(&pages, PER_CHUNK);
    pages_check(&pages, 0, pages.count, PER_CHUNK / 2);
    lessee_need(gmb_page_unref(arena, pages.count, pages.pages), "free");
    lessee_need_or_later(gmb_arena_free(arena), "end of the arena");
}

/* ------------------------------------------------------------------ segments */

#define WEIGHTS "weights"

static struct gmb_segment_params segment_of(const char *name, uint64_t chunks)
{
    return (struct gmb_segment_params){.size = sizeof(struct gmb_segment_params),
        .name = name,
        .bytes = chunks * CHUNK,
        .chunk_bytes = CHUNK,
        .wait_ns = LESSEE_WAIT_NS};
}

static gmb_lease *segment_make(
    struct lessee *lessee, const char *name, uint64_t chunks, uint64_t mark)
{
    const struct gmb_segment_params params = segment_of(name, chunks);
    gmb_lease *lease;

    lessee_need(gmb_segment_create(lessee->session, &params, &lease), "create");
    lessee_need(lessee->set_current(gmb_lease_context(lease)), "context");
    ck_assert_int_ne(gmb_segment_writable(lease), 0);
    lessee_write(lessee, lease, mark);
    lessee_need(gmb_segment_seal(lease, LESSEE_WAIT_NS), "seal");
    return lease;
}

static gmb_lease *segment_open(
    struct lessee *lessee, const char *name, uint64_t chunks, uint64_t mark)
{
    const struct gmb_segment_params params = segment_of(name, 0);
    gmb_lease *lease;

    lessee_need(gmb_segment_open(lessee->session, &params, &lease), "open");
    ck_assert_uint_eq(gmb_lease_bytes(lease), chunks * CHUNK);
    lessee_check(lessee, lease, mark);
    return lease;
}

/* Whether it was done isn't known when the connection ends. */
static void segment_remove(struct lessee *lessee, const char *name)
{
    const struct gmb_segment_params params = segment_of(name, 0);
    int r;

    while ((r = gmb_segment_remove(lessee->session, &params)) == GMB_E_DISCONNECTED)
        be_back(lessee->session);
    ck_assert_msg(r == 0 || r == GMB_E_NOT_FOUND, "remove: %d, %s", r, gmb_error_text());
}

static gmb_lease *weights;

static void weights_hold(struct lessee *lessee, void *data)
{
    (void) data;
    weights = segment_make(lessee, WEIGHTS, 1, 66);
}

static void weights_look(struct lessee *lessee, void *data)
{
    (void) data;
    lessee_check(lessee, weights, 66);
    ck_assert_int_eq(gmb_segment_quarantined(weights), 0);
}

static void weights_let_go(struct lessee *lessee, void *data)
{
    (void) lessee;
    (void) data;
    lessee_need_or_later(gmb_lease_release(weights), "release");
}

static void segments_work(struct lessee *lessee, void *data)
{
    gmb_lease *mine, *others, *lease;

    (void) data;
    mine = segment_make(lessee, "mine", 2, 1);
    others = segment_open(lessee, WEIGHTS, 1, 66);
    lessee_check(lessee, mine, 1);
    lessee_need_or_later(gmb_lease_release(mine), "release");
    lease = lessee_take(lessee, 4, "more"); /* for which "mine" goes to the host tier … */
    lessee_write(lessee, lease, 2);
    lessee_check(lessee, others, 66);
    lessee_need_or_later(gmb_lease_release(lease), "release");
    lessee_need_or_later(gmb_lease_release(others), "release");
    mine = segment_open(lessee, "mine", 2, 1); /* … and comes back */
    segment_remove(lessee, "mine");
    lessee_check(lessee, mine, 1);
    lessee_need_or_later(gmb_lease_release(mine), "release");
}

/* ------------------------------------------------------------------ gangs, cancel */

struct end {
    bool come;
    int error;
};

static void on_done(void *user, gmb_lease *lease, int error)
{
    struct end *end = user;

    ck_assert_ptr_null(lease);
    end->come = true;
    end->error = error;
}

/* More than there is, since the gang has some. */
static void wait_and_cancel(struct lessee *lessee)
{
    const struct gmb_lease_params params = {.size = sizeof(params),
        .bytes = 8 * CHUNK,
        .chunk_bytes = CHUNK,
        .wait_ns = GMB_WAIT_FOREVER,
        .label = "too much"};
    struct end end = {.come = false};
    uint64_t request;

    lessee_need(
        gmb_lease_new_async(lessee->session, &params, on_done, &end, &request), "asynchronous");
    be_back(lessee->session);
    lessee_need(gmb_cancel(lessee->session, request), "cancel");
    while (!end.come)
        lessee_need(MIN(gmb_dispatch(lessee->session, 1000), 0), "dispatch");
    ck_assert_int_eq(end.error, GMB_E_CANCELLED);
}

static void gang_work(struct lessee *lessee, void *data)
{
    struct gmb_device_info devices[2] = {{.size = sizeof(*devices)}, {.size = sizeof(*devices)}};
    struct gmb_lease_params params[2] = {{.size = sizeof(*params)}, {.size = sizeof(*params)}};
    gmb_lease *leases[2];

    (void) data;
    for (unsigned i = 0; i < 2; i++) {
        lessee_need(gmb_device_get(lessee->session, i, &devices[i]), "device");
        params[i].device = devices[i].uuid;
        params[i].bytes = (2 + i) * CHUNK;
        params[i].max_bytes = 4 * CHUNK;
        params[i].chunk_bytes = CHUNK;
        params[i].wait_ns = LESSEE_WAIT_NS;
    }
    lessee_need(gmb_lease_gang(lessee->session, params, 2, leases), "gang");
    for (unsigned i = 0; i < 2; i++) {
        lessee_need(lessee->set_current(gmb_lease_context(leases[i])), "context");
        lessee_write(lessee, leases[i], 10 + i);
    }
    wait_and_cancel(lessee);
    rest(lessee, 2 * CHUNK, 3 * CHUNK);
    lessee_need(gmb_lease_grow(leases[1], CHUNK, LESSEE_WAIT_NS), "grow");
    for (unsigned i = 0; i < 2; i++) {
        lessee_need(lessee->set_current(gmb_lease_context(leases[i])), "context");
        lessee_need_or_later(gmb_lease_shrink(leases[i], (2 + i) * CHUNK), "shrink");
        lessee_check(lessee, leases[i], 10 + i);
        lessee_need_or_later(gmb_lease_release(leases[i]), "release");
    }
}

/* ------------------------------------------------------------------ pressure */

static struct heard {
    uint32_t level, steps;
    uint64_t advice;
} heard;

static void on_pressure(void *user, unsigned device, const struct gmb_pressure *pressure)
{
    (void) user;
    (void) device;
    heard.level = pressure->level;
}

static void on_advice(void *user, const struct gmb_advice *advice)
{
    (void) user;
    heard.steps = advice->step_count;
    heard.advice = advice->id;
}

/* A broker that comes meanwhile counts ids anew; an advice that was taken back has none. */
static void acknowledge(struct lessee *lessee)
{
    int r = gmb_advice_ack(
        lessee->session, heard.advice, GMB_DEGRADE_REDUCE_BATCH, GMB_ADVICE_DONE, CHUNK);

    ck_assert_msg(r == 0 || r == GMB_E_DISCONNECTED || r == GMB_E_NOT_FOUND, "acknowledge: %d, %s",
        r, gmb_error_text());
}

static void hear(struct lessee *lessee, uint32_t level, uint32_t steps)
{
    uint64_t deadline = harness_now_ms() + LESSEE_WAIT_NS / 1000000;

    while (heard.level != level || heard.steps != steps) {
        ck_assert_msg(harness_now_ms() < deadline, "level %u instead of %u, %u steps of %u",
            heard.level, level, heard.steps, steps);
        lessee_need(MIN(gmb_dispatch(lessee->session, 10), 0), "dispatch");
    }
}

/* One that can't be had for a broker that goes away is asked for again. */
static int watch(struct lessee *lessee, uint64_t *ret_watch)
{
    const struct gmb_watch_params params = {.size = sizeof(params), .level = GMB_PRESSURE_CRITICAL};
    int fd, r;

    while ((r = gmb_pressure_watch(lessee->session, &params, &fd, ret_watch)) == GMB_E_DISCONNECTED)
        be_back(lessee->session);
    lessee_need(r, "watch");
    return fd;
}

/* For the level, or a last time since the connection broke. */
static void ring_wait(struct lessee *lessee, int fd)
{
    uint64_t deadline = harness_now_ms() + LESSEE_WAIT_NS / 1000000;
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    while (poll(&poll_fd, 1, 2) == 0) {
        ck_assert_msg(harness_now_ms() < deadline, "the watch doesn't ring");
        lessee_need(MIN(gmb_dispatch(lessee->session, 0), 0), "dispatch");
    }
}

static void pressure_work(struct lessee *lessee, void *data)
{
    gmb_lease *lease;
    uint64_t number;
    int fd, r;

    (void) data;
    while ((r = gmb_pressure_subscribe(lessee->session, on_pressure, on_advice, NULL)) ==
           GMB_E_DISCONNECTED)
        be_back(lessee->session);
    lessee_need(r, "subscribe");
    lease = lessee_take(lessee, 5, "most"); /* seven of eight */
    hear(lessee, GMB_PRESSURE_LOW, 1);
    acknowledge(lessee);
    fd = watch(lessee, &number);
    lessee_need(gmb_lease_grow(lease, CHUNK, LESSEE_WAIT_NS), "grow");
    hear(lessee, GMB_PRESSURE_CRITICAL, 1);
    ring_wait(lessee, fd);
    r = gmb_pressure_unwatch(lessee->session, number);
    ck_assert_msg(r == 0 || r == GMB_E_NOT_FOUND || r == GMB_E_DISCONNECTED, "unwatch: %d", r);
    (void) close(fd);
    lessee_need_or_later(gmb_lease_release(lease), "release");
    hear(lessee, GMB_PRESSURE_NONE, 0);
    lessee_need_or_later(gmb_pressure_subscribe(lessee->session, NULL, NULL, NULL), "unsubscribe");
}

/* ------------------------------------------------------------------ all of them */

static const struct kills_script scripts[] = {
    {"leases", "1", 15, leases_work, NULL, NULL, NULL},
    {"arena", "1", 60, arena_work, NULL, NULL, NULL},
    {"attach", "1", 15, attach_work, shared_hold, shared_look, shared_let_go},
    {"segments", "1", 18, segments_work, weights_hold, weights_look, weights_let_go},
    {"gang", "2", 13, gang_work, NULL, NULL, NULL},
    {"pressure", "1", 17, pressure_work, NULL, NULL, NULL},
};

const struct kills_script *kills_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(scripts); i++) {
        if (strcmp(scripts[i].name, name) == 0)
            return &scripts[i];
    }
    return NULL;
}
