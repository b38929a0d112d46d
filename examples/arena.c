/*
 * A small KV cache: allocates pages in an arena, writes them, gives one sequence's pages back when
 * the device has read them, and finds the others unharmed, wherever they have been meanwhile.
 *
 *     cc arena.c $(pkg-config --cflags --libs gmb) -o arena && ./arena
 *
 * Copies stand for kernels, as in worker.c: whatever reads or writes a page on the device does it
 * between pin and unpin.
 */
#include <gmb.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB (UINT64_C(1) << 10)
#define WAIT_NS UINT64_C(5000000000)
#define SEQUENCE 8 /* pages of one sequence */

typedef int (*set_current_fn)(void *context);
typedef int (*to_device_fn)(uint64_t to, const void *from, size_t bytes);
typedef int (*to_host_fn)(void *to, uint64_t from, size_t bytes);

struct driver {
    set_current_fn set_current;
    to_device_fn to_device;
    to_host_fn to_host;
};

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s (limit: %s)\n", what, gmb_error_text(), gmb_error_limit());
    return EXIT_FAILURE;
}

static int driver_find(gmb_session *session, const char *name, void *ret_function, size_t size)
{
    void *symbol = gmb_driver_symbol(session, name);

    if (symbol == NULL)
        return -1;
    memcpy(ret_function, &symbol, size);
    return 0;
}

static uint64_t page_address(const gmb_arena *arena, uint32_t page)
{
    return gmb_arena_address(arena) + page * gmb_arena_page_bytes(arena);
}

/* A sequence of pages, each with its number in it. They are written while they are pinned. */
static int sequence_write(gmb_arena *arena, const struct driver *driver, uint32_t *ret_pages)
{
    if (gmb_page_alloc(arena, SEQUENCE, ret_pages, WAIT_NS) != 0)
        return fail("alloc");
    if (gmb_page_pin(arena, SEQUENCE, ret_pages) != GMB_PIN_READY)
        return fail("pin");
    for (uint32_t i = 0; i < SEQUENCE; i++) {
        struct gmb_page_hint hint = {
            .parent = i == 0 ? UINT32_MAX : ret_pages[i - 1], .position = i * 16, .tokens = 16};

        if (driver->to_device(page_address(arena, ret_pages[i]), &i, sizeof(i)) != 0)
            return EXIT_FAILURE;
        if (gmb_page_set_hint(arena, ret_pages[i], &hint) != 0)
            return fail("hint");
    }
    /* From here on the broker may take their memory for others. */
    return gmb_page_unpin(arena, SEQUENCE, ret_pages) == 0 ? EXIT_SUCCESS : fail("unpin");
}

static int sequence_check(gmb_arena *arena, const struct driver *driver, const uint32_t *pages)
{
    int pin = gmb_page_pin(arena, SEQUENCE, pages);

    /* Some are in host memory: they are on their way. A server would run another batch meanwhile
     * and poll gmb_arena_fd(). */
    if (pin == GMB_PIN_WAITING)
        pin = gmb_page_wait(arena, SEQUENCE, pages, WAIT_NS);
    if (pin != GMB_PIN_READY)
        return fail("pin");
    for (uint32_t i = 0; i < SEQUENCE; i++) {
        uint32_t found;

        if (driver->to_host(&found, page_address(arena, pages[i]), sizeof(found)) != 0 ||
            found != i)
            return EXIT_FAILURE;
    }
    return gmb_page_unpin(arena, SEQUENCE, pages) == 0 ? EXIT_SUCCESS : fail("unpin");
}

static int work(gmb_session *session, gmb_arena *arena, const struct driver *driver)
{
    uint32_t one[SEQUENCE], other[SEQUENCE];

    if (driver->set_current(gmb_arena_context(arena)) != 0 ||
        sequence_write(arena, driver, one) != 0 || sequence_write(arena, driver, other) != 0)
        return EXIT_FAILURE;
    /* Free once the work that is in the stream now has finished; NULL is the default stream. */
    if (gmb_page_unref_after(arena, SEQUENCE, one, NULL) != 0)
        return fail("unref");
    if (sequence_check(arena, driver, other) != 0)
        return EXIT_FAILURE;
    printf("%s: room for %u pages of %" PRIu64 " KiB of %s memory, %d of them found unharmed\n",
        gmb_tenant(session), gmb_arena_pages(arena), gmb_arena_page_bytes(arena) / KIB,
        gmb_driver(session), SEQUENCE);
    return gmb_page_unref(arena, SEQUENCE, other) == 0 ? EXIT_SUCCESS : fail("unref");
}

int main(void)
{
    struct gmb_arena_params params = {
        .size = sizeof(params),
        .page_bytes = 64 * KIB,
        .max_bytes = 64 * 1024 * KIB,
        .element = GMB_ELEMENT_FP16,
        .label = "example",
    };
    struct driver driver;
    gmb_session *session;
    gmb_arena *arena;
    int status;

    if (gmb_connect(NULL, &session) != 0)
        return fail("connect");
    /* Somebody has to look after the arena: keep memory ready, give it back. */
    if (gmb_thread_start(session) != 0)
        status = fail("thread");
    else if (driver_find(
                 session, "cuCtxSetCurrent", &driver.set_current, sizeof(driver.set_current)) ||
             driver_find(session, "cuMemcpyHtoD_v2", &driver.to_device, sizeof(driver.to_device)) ||
             driver_find(session, "cuMemcpyDtoH_v2", &driver.to_host, sizeof(driver.to_host)))
        status = fail("driver");
    else if (gmb_arena_new(session, &params, &arena) != 0)
        status = fail("arena");
    else {
        status = work(session, arena, &driver);
        if (gmb_arena_free(arena) != 0)
            status = fail("free");
    }
    gmb_disconnect(session);
    return status;
}
