/*
 * What takes effect when a stream has passed, with the streams of the simulated driver, the real
 * broker and its mover: a page that the stream may still use is neither handed out nor moved.
 */
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/ctl/control.h"
#include "tests/client/node.h"
#include "tests/unit/unit.h"

#define PAGES_PER_CHUNK 4u
#define PAGE_BYTES (CHUNK_BYTES / PAGES_PER_CHUNK)
/* A mover that runs has a context, and the device is not idle before it has gone. */
#define NODE_TEXT "HostTier=64M\nMoverIdle=50ms\n[Tenant chat]\nUser=*\n"

static struct node node;

struct driver {
    int (*context_set)(void *context);
    int (*synchronize)(void);
    int (*stream_create)(void **ret, unsigned flags);
    int (*stream_destroy)(void *stream);
    int (*stream_synchronize)(void *stream);
    int (*host_function)(void *stream, void (*function)(void *), void *data);
    int (*set)(unsigned long long to, unsigned char value, size_t bytes);
    int (*to_host)(void *to, unsigned long long from, size_t bytes);
};

struct bench {
    const struct node *node;
    gmb_session *session;
    gmb_arena *arena;
    struct driver driver;
};

static void symbol_get(gmb_session *session, const char *name, void *ret_function)
{
    void *symbol = gmb_driver_symbol(session, name);

    WORKER_CHECK(symbol != NULL);
    memcpy(ret_function, &symbol, sizeof(symbol));
}

static void bench_begin(struct bench *bench, const struct node *on, uint32_t chunks)
{
    struct gmb_arena_params params = {
        .size = sizeof(params),
        .page_bytes = PAGE_BYTES,
        .chunk_bytes = CHUNK_BYTES,
        .max_bytes = chunks * CHUNK_BYTES,
        .prefetch_bytes = 1,
        .idle_ns = UINT64_MAX,
    };
    struct driver *driver = &bench->driver;

    bench->node = on;
    bench->session = worker_connect(on);
    WORKER_CHECK(gmb_thread_start(bench->session) == 0);
    WORKER_CHECK(gmb_arena_new(bench->session, &params, &bench->arena) == 0);
    symbol_get(bench->session, "cuCtxSetCurrent", &driver->context_set);
    symbol_get(bench->session, "cuCtxSynchronize", &driver->synchronize);
    symbol_get(bench->session, "cuStreamCreate", &driver->stream_create);
    symbol_get(bench->session, "cuStreamDestroy_v2", &driver->stream_destroy);
    symbol_get(bench->session, "cuStreamSynchronize", &driver->stream_synchronize);
    symbol_get(bench->session, "cuLaunchHostFunc", &driver->host_function);
    symbol_get(bench->session, "cuMemsetD8_v2", &driver->set);
    symbol_get(bench->session, "cuMemcpyDtoH_v2", &driver->to_host);
    WORKER_CHECK(driver->context_set(gmb_arena_context(bench->arena)) == 0);
}

static void bench_end(struct bench *bench)
{
    WORKER_CHECK(gmb_arena_free(bench->arena) == 0);
    gmb_disconnect(bench->session);
}

/* A stream whose work stands still until it is opened. */
struct gate {
    void *stream;
    int fds[2];
};

static void gate_wait(void *data)
{
    const struct gate *gate = data;
    char byte;

    WORKER_CHECK(read(gate->fds[0], &byte, 1) == 1);
}

static void gate_close(struct bench *bench, struct gate *gate)
{
    WORKER_CHECK(pipe(gate->fds) == 0);
    WORKER_CHECK(bench->driver.stream_create(&gate->stream, 1) == 0);
    WORKER_CHECK(bench->driver.host_function(gate->stream, gate_wait, gate) == 0);
}

/* Everything that was put into the stream before has passed when this returns. */
static void gate_open(struct bench *bench, struct gate *gate)
{
    WORKER_CHECK(write(gate->fds[1], "", 1) == 1);
    WORKER_CHECK(bench->driver.stream_synchronize(gate->stream) == 0);
    WORKER_CHECK(bench->driver.stream_destroy(gate->stream) == 0);
    (void) close(gate->fds[0]);
    (void) close(gate->fds[1]);
}

/* For loops that ask again; the worker fails when this has lasted too long. */
static void breathe(uint64_t *since_ns)
{
    uint64_t now_ns = clock_now(&clock_monotonic);

    if (*since_ns == 0)
        *since_ns = now_ns;
    WORKER_CHECK(now_ns - *since_ns < WAIT_NS);
    (void) poll(NULL, 0, 1);
}

/* Another thread of the library may be applying what has passed, and this call then doesn't. */
static uint32_t page_soon(struct bench *bench)
{
    uint64_t since_ns = 0;
    uint32_t page;

    while (gmb_page_alloc(bench->arena, 1, &page, GMB_WAIT_NONE) != 0)
        breathe(&since_ns);
    return page;
}

static bool page_there(struct bench *bench)
{
    uint32_t page;
    int r = gmb_page_alloc(bench->arena, 1, &page, GMB_WAIT_NONE);

    WORKER_CHECK(r == 0 || r == GMB_E_EXHAUSTED);
    return r == 0;
}

static void run_freer(const struct node *on, int fd, uint64_t argument)
{
    uint32_t pages[PAGES_PER_CHUNK];
    struct gate one, other;
    struct bench bench;

    bench_begin(&bench, on, 1);
    WORKER_CHECK(gmb_page_alloc(bench.arena, PAGES_PER_CHUNK, pages, WAIT_NS) == 0);
    WORKER_CHECK(gmb_page_pin(bench.arena, 1, &pages[2]) == GMB_PIN_READY);
    gate_close(&bench, &one);
    gate_close(&bench, &other);
    WORKER_CHECK(gmb_page_unref_after(bench.arena, 1, &pages[0], one.stream) == 0);
    WORKER_CHECK(gmb_page_unref_after(bench.arena, 1, &pages[1], other.stream) == 0);
    WORKER_CHECK(gmb_page_unpin_after(bench.arena, 1, &pages[2], other.stream) == 0);
    WORKER_CHECK(gmb_page_unref_after(bench.arena, 1, &pages[2], other.stream) == 0);
    WORKER_CHECK(!page_there(&bench));
    /* The second stream isn't held up by the first, and keeps its order: unpinned, then freed. */
    gate_open(&bench, &other);
    WORKER_CHECK(page_soon(&bench) + page_soon(&bench) == pages[1] + pages[2]);
    WORKER_CHECK(!page_there(&bench));
    gate_open(&bench, &one);
    WORKER_CHECK(page_soon(&bench) == pages[0]);
    bench_end(&bench);
}

START_TEST(page_freed_behind_a_stream_is_handed_out_after_it)
{
    struct worker worker;

    node_start(&node, 32 * CHUNK_BYTES, NODE_TEXT);
    worker_start(&node, &worker, run_freer, 0);
    worker_end(&worker);
    node_stop(&node);
}
END_TEST

/* An operator takes so much from everybody of the tenant: what the plan comes to, in bytes. */
static uint64_t evict(const struct bench *bench, uint64_t bytes)
{
    Gmb__ControlRequest request = GMB__CONTROL_REQUEST__INIT;
    Gmb__Reclaim reclaim;
    char tenant[] = "chat";
    struct outcome outcome = OUTCOME_OK;
    Gmb__ControlReply *reply = NULL;
    struct conn *conn = NULL;
    uint64_t planned;

    gmb__reclaim__init(&reclaim);
    reclaim.tenant = tenant;
    reclaim.bytes = bytes;
    reclaim.from_tenant = true;
    request.body_case = GMB__CONTROL_REQUEST__BODY_RECLAIM;
    request.reclaim = &reclaim;
    WORKER_CHECK(control_connect(bench->node->control_socket, &conn, &outcome) == 0);
    WORKER_CHECK(
        control_ask(conn, &request, GMB__CONTROL_REPLY__BODY_RECLAIM_PLAN, &reply, &outcome) == 0);
    planned = reply->reclaim_plan->planned_bytes;
    frame_message_free(&reply->base);
    conn_free(conn);
    return planned;
}

/* Waits until so many pages are in the host tier. */
static void wait_evicted(struct bench *bench, uint64_t pages)
{
    struct gmb_arena_stats stats = {.size = sizeof(stats)};
    uint64_t since_ns = 0;

    for (;;) {
        WORKER_CHECK(gmb_arena_get_stats(bench->arena, &stats) == 0);
        if (stats.evicted_pages == pages)
            return;
        breathe(&since_ns);
    }
}

static void page_write(struct bench *bench, uint32_t page)
{
    WORKER_CHECK(bench->driver.set(gmb_arena_address(bench->arena) + page * PAGE_BYTES,
                     (unsigned char) (page + 1), PAGE_BYTES) == 0);
}

static bool page_holds(struct bench *bench, uint32_t page)
{
    _cleanup_free_ unsigned char *copy = malloc(PAGE_BYTES);

    WORKER_CHECK(copy != NULL);
    WORKER_CHECK(bench->driver.to_host(
                     copy, gmb_arena_address(bench->arena) + page * PAGE_BYTES, PAGE_BYTES) == 0);
    for (uint64_t i = 0; i < PAGE_BYTES; i++) {
        if (copy[i] != page + 1)
            return false;
    }
    return true;
}

static void run_unpinner(const struct node *on, int fd, uint64_t argument)
{
    uint32_t pages[2 * PAGES_PER_CHUNK], count = ARRAY_SIZE(pages);
    uint64_t since_ns = 0;
    struct bench bench;
    struct gate gate;

    bench_begin(&bench, on, 2);
    WORKER_CHECK(gmb_page_alloc(bench.arena, count, pages, WAIT_NS) == 0);
    WORKER_CHECK(gmb_page_pin(bench.arena, count, pages) == GMB_PIN_READY);
    for (uint32_t i = 0; i < count; i++)
        page_write(&bench, pages[i]);
    WORKER_CHECK(bench.driver.synchronize() == 0);
    WORKER_CHECK(gmb_page_unpin(bench.arena, count - 1, pages + 1) == 0);
    gate_close(&bench, &gate);
    WORKER_CHECK(gmb_page_unpin_after(bench.arena, 1, pages, gate.stream) == 0);

    /* The other chunk's pages go, these don't: one is pinned until the stream has passed. */
    (void) evict(&bench, 2 * CHUNK_BYTES);
    wait_evicted(&bench, PAGES_PER_CHUNK);
    WORKER_CHECK(evict(&bench, CHUNK_BYTES) == 0);
    WORKER_CHECK(gmb_page_ready(bench.arena, 1, pages) == GMB_PIN_READY);
    gate_open(&bench, &gate);
    while (evict(&bench, CHUNK_BYTES) == 0)
        breathe(&since_ns);
    wait_evicted(&bench, count);

    WORKER_CHECK(gmb_page_pin(bench.arena, count, pages) == GMB_PIN_WAITING);
    WORKER_CHECK(gmb_page_wait(bench.arena, count, pages, WAIT_NS) == GMB_PIN_READY);
    for (uint32_t i = 0; i < count; i++)
        WORKER_CHECK(page_holds(&bench, pages[i]));
    bench_end(&bench);
}

START_TEST(page_unpinned_behind_a_stream_is_moved_after_it)
{
    struct worker worker;

    node_start(&node, 32 * CHUNK_BYTES, NODE_TEXT);
    worker_start(&node, &worker, run_unpinner, 0);
    worker_end(&worker);
    node_stop(&node);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client streams");
    TCase *tcase = tcase_create("client streams");

    tcase_add_test(tcase, page_freed_behind_a_stream_is_handed_out_after_it);
    tcase_add_test(tcase, page_unpinned_behind_a_stream_is_moved_after_it);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    return unit_run_suite(suite);
}
