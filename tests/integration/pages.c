/* See pages.h. */
#include "tests/integration/pages.h"

#include <check.h>
#include <string.h>

#include "tests/integration/orders.h"

#define WAIT_NS UINT64_C(15000000000)

static void need(int r, const char *what)
{
    ck_assert_msg(r == 0, "%s: %d, %s", what, r, r < 0 ? gmb_error_text() : "");
}

static void driver_find(struct pages *pages, const char *name, void *ret_function)
{
    void *symbol = gmb_driver_symbol(pages->session, name);

    ck_assert_msg(symbol != NULL, "the driver has no %s", name);
    memcpy(ret_function, &symbol, sizeof(symbol));
}

void pages_open(struct pages *pages, const struct harness *harness, uint64_t page_bytes,
    uint64_t chunk_bytes, uint64_t max_bytes)
{
    const struct gmb_arena_params params = {
        .page_bytes = page_bytes,
        .chunk_bytes = chunk_bytes,
        .max_bytes = max_bytes,
    };

    pages_open_with(pages, harness, &params);
}

void pages_use(struct pages *pages)
{
    need(pages->set_current(gmb_arena_context(pages->arena)), "context");
}

static void session_open(struct pages *pages, const struct harness *harness)
{
    struct gmb_options options = {
        .size = sizeof(options), .socket = harness->client_socket, .offline = GMB_OFFLINE_WAIT};

    memset(pages, 0, sizeof(*pages));
    pages->wait_ns = WAIT_NS;
    need(gmb_connect(&options, &pages->session), "connect");
}

static void arena_begin(struct pages *pages)
{
    pages->page_bytes = gmb_arena_page_bytes(pages->arena);
    driver_find(pages, "cuCtxSetCurrent", &pages->set_current);
    driver_find(pages, "cuMemcpyHtoD_v2", &pages->to_device);
    driver_find(pages, "cuMemcpyDtoH_v2", &pages->to_host);
    pages_use(pages);
}

void pages_adopt(struct pages *pages, gmb_session *session, gmb_arena *arena)
{
    *pages = (struct pages){.session = session, .arena = arena, .wait_ns = WAIT_NS};
    arena_begin(pages);
}

void pages_open_with(
    struct pages *pages, const struct harness *harness, const struct gmb_arena_params *wanted)
{
    struct gmb_arena_params params = *wanted;

    params.size = sizeof(params);
    params.prefetch_bytes = 1;
    if (params.label == NULL)
        params.label = "pages";
    session_open(pages, harness);
    need(gmb_arena_new(pages->session, &params, &pages->arena), "arena");
    arena_begin(pages);
    need(gmb_thread_start(pages->session), "thread");
}

void pages_share(struct pages *pages, const struct harness *harness, uint64_t page_bytes,
    uint64_t chunk_bytes, uint64_t max_bytes, const char *name)
{
    const struct gmb_arena_params params = {
        .page_bytes = page_bytes,
        .chunk_bytes = chunk_bytes,
        .max_bytes = max_bytes,
        .shared = 1,
        .label = name,
    };

    pages_open_with(pages, harness, &params);
}

void pages_attach(struct pages *pages, const struct harness *harness, const char *name)
{
    const struct gmb_attach_params params = {
        .size = sizeof(params),
        .name = name,
        .prefetch_bytes = 1,
    };

    session_open(pages, harness);
    need(gmb_arena_attach(pages->session, &params, &pages->arena), "attach");
    arena_begin(pages);
    need(gmb_thread_start(pages->session), "thread");
}

void pages_close(struct pages *pages)
{
    need(gmb_arena_free(pages->arena), "free");
    gmb_disconnect(pages->session);
}

static void bytes_make(const struct pages *pages, uint32_t page, uint64_t *ret)
{
    for (size_t i = 0; i < pages->page_bytes / sizeof(*ret); i++)
        ret[i] = (page + 1 + (pages->mark << 32)) * UINT64_C(0x9e3779b97f4a7c15) + i;
}

static uint64_t address_of(const struct pages *pages, uint32_t page)
{
    return gmb_arena_address(pages->arena) + page * pages->page_bytes;
}

static void page_write(struct pages *pages, uint32_t page)
{
    uint64_t *bytes = malloc(pages->page_bytes);

    ck_assert_ptr_nonnull(bytes);
    bytes_make(pages, page, bytes);
    need(pages->to_device(address_of(pages, page), bytes, pages->page_bytes), "copy to device");
    free(bytes);
}

void pages_fill(struct pages *pages, uint32_t count)
{
    uint32_t *at = pages->pages + pages->count;

    ck_assert_uint_le(pages->count + count, PAGES_MAX);
    need(gmb_page_alloc(pages->arena, count, at, pages->wait_ns), "alloc");
    need(gmb_page_pin(pages->arena, count, at), "pin of new pages");
    for (uint32_t i = 0; i < count; i++)
        page_write(pages, at[i]);
    need(gmb_page_unpin(pages->arena, count, at), "unpin");
    pages->count += count;
}

/* It is resident. */
static void page_compare(struct pages *pages, uint32_t page)
{
    uint64_t *expected = malloc(pages->page_bytes), *found = malloc(pages->page_bytes);

    ck_assert(expected != NULL && found != NULL);
    bytes_make(pages, page, expected);
    need(pages->to_host(found, address_of(pages, page), pages->page_bytes), "copy to host");
    ck_assert_msg(
        memcmp(expected, found, pages->page_bytes) == 0, "page %u holds other bytes", page);
    free(expected);
    free(found);
}

uint32_t pages_check_or_lost(struct pages *pages)
{
    uint32_t lost = 0;

    for (uint32_t i = 0; i < pages->count; i++) {
        int r = gmb_page_pin(pages->arena, 1, &pages->pages[i]), pinned = r;

        if (r == GMB_PIN_WAITING)
            r = gmb_page_wait(pages->arena, 1, &pages->pages[i], pages->wait_ns);
        ck_assert_msg(r == GMB_PIN_READY || r == GMB_PIN_LOST, "page %u: %d, %s", pages->pages[i],
            r, r < 0 ? gmb_error_text() : "");
        if (r == GMB_PIN_READY)
            page_compare(pages, pages->pages[i]);
        lost += r == GMB_PIN_LOST;
        if (pinned != GMB_PIN_LOST)
            need(gmb_page_unpin(pages->arena, 1, &pages->pages[i]), "unpin");
    }
    return lost;
}

void pages_check(struct pages *pages, uint32_t first, uint32_t count, uint32_t step)
{
    for (uint32_t i = first; i < first + count; i += step) {
        uint32_t n = MIN(step, first + count - i);
        int r = gmb_page_pin(pages->arena, n, &pages->pages[i]);

        ck_assert_msg(r == GMB_PIN_READY || r == GMB_PIN_WAITING, "pin: %d, %s", r,
            r < 0 ? gmb_error_text() : "");
        need(gmb_page_wait(pages->arena, n, &pages->pages[i], pages->wait_ns), "wait");
        for (uint32_t k = i; k < i + n; k++)
            page_compare(pages, pages->pages[k]);
        need(gmb_page_unpin(pages->arena, n, &pages->pages[i]), "unpin");
    }
}

void pages_restore(struct pages *pages)
{
    int r = gmb_page_pin(pages->arena, pages->count, pages->pages);

    ck_assert_msg(r == GMB_PIN_READY || r == GMB_PIN_WAITING, "pin: %d", r);
    need(gmb_page_wait(pages->arena, pages->count, pages->pages, pages->wait_ns), "wait");
    need(gmb_page_unpin(pages->arena, pages->count, pages->pages), "unpin");
}

struct gmb_arena_stats pages_stats(const struct pages *pages)
{
    struct gmb_arena_stats stats = {.size = sizeof(stats)};

    need(gmb_arena_get_stats(pages->arena, &stats), "statistics");
    return stats;
}

void pages_wait_connected(const struct pages *pages)
{
    wait_until(gmb_connection(pages->session) == GMB_CONNECTION_READY);
}

void pages_evict(struct pages *pages, const struct harness *harness, uint64_t count)
{
    uint64_t deadline = harness_now_ms() + 2 * HARNESS_DEADLINE_MS;

    while (pages_stats(pages).evicted_pages < count) {
        ck_assert_msg(harness_now_ms() < deadline, "%llu pages of %llu were evicted",
            (unsigned long long) pages_stats(pages).evicted_pages, (unsigned long long) count);
        (void) order_evict(harness, "test", UINT64_C(512) << 20);
        harness_breathe();
    }
}

void pages_wait_evicted(const struct pages *pages, uint64_t count)
{
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;

    while (pages_stats(pages).evicted_pages < count) {
        ck_assert_msg(harness_now_ms() < deadline, "%llu pages of %llu were evicted",
            (unsigned long long) pages_stats(pages).evicted_pages, (unsigned long long) count);
        harness_breathe();
    }
}

void pages_wait_mapped(const struct pages *pages, uint64_t bytes)
{
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;

    while (pages_stats(pages).mapped_bytes > bytes) {
        ck_assert_msg(harness_now_ms() < deadline, "%llu bytes are mapped",
            (unsigned long long) pages_stats(pages).mapped_bytes);
        harness_breathe();
    }
}
