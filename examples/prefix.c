/*
 * One KV cache for several processes of a tenant: each looks up how much of a prompt some process
 * has computed already, computes the rest, and publishes it for the others.
 *
 *     cc prefix.c $(pkg-config --cflags --libs gmb) -o prefix
 *     ./prefix hold                 in one terminal: 0 of 8 pages were there
 *     ./prefix                      in another one: 8 of 8 pages were there
 *
 * With `hold` it stays until its standard input ends: an arena lives as long as its last process.
 */
#include <gmb.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB (UINT64_C(1) << 10)
#define WAIT_NS UINT64_C(5000000000)
#define NAME "example-kv"
#define BLOCKS 8 /* of the prompt, a page each */
#define TOKENS 16

struct driver {
    int (*set_current)(void *context);
    int (*to_device)(uint64_t to, const void *from, size_t bytes);
    int (*to_host)(void *to, uint64_t from, size_t bytes);
};

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s (limit: %s)\n", what, gmb_error_text(), gmb_error_limit());
    return EXIT_FAILURE;
}

static int driver_find(gmb_session *session, const char *name, void *ret_function)
{
    void *symbol = gmb_driver_symbol(session, name);

    if (symbol == NULL)
        return -1;
    memcpy(ret_function, &symbol, sizeof(symbol));
    return 0;
}

/* The first process makes the arena, the others attach; two that come at once settle it by name. */
static int arena_open(gmb_session *session, gmb_arena **ret)
{
    const struct gmb_attach_params attach = {.size = sizeof(attach), .name = NAME};
    const struct gmb_arena_params make = {
        .size = sizeof(make),
        .page_bytes = 64 * KIB,
        .max_bytes = 64 * 1024 * KIB,
        .shared = 1,
        .label = NAME,
    };
    int r = gmb_arena_attach(session, &attach, ret);

    if (r == GMB_E_DENIED)
        r = gmb_arena_new(session, &make, ret);
    return r == GMB_E_CONFLICT ? gmb_arena_attach(session, &attach, ret) : r;
}

/* A key stands for everything up to its block: it is made from the key before it and the block's
 * tokens. An engine takes a stronger hash, since two sequences of one key would share a page. */
static struct gmb_prefix_key key_after(struct gmb_prefix_key key, uint32_t block)
{
    for (uint32_t token = block * TOKENS; token < (block + 1) * TOKENS; token++) {
        key.low = (key.low ^ token) * UINT64_C(0x100000001b3);
        key.high = (key.high ^ key.low) * UINT64_C(0x9e3779b97f4a7c15);
    }
    return key;
}

static uint64_t page_address(const gmb_arena *arena, uint32_t page)
{
    return gmb_arena_address(arena) + page * gmb_arena_page_bytes(arena);
}

/* What the model would compute for a block: here, the block's key. A page is written before it is
 * published, while it is pinned. */
static int block_compute(gmb_arena *arena, const struct driver *driver,
    const struct gmb_prefix_key *keys, uint32_t block, uint32_t *ret_page)
{
    struct gmb_page_hint hint = {
        .parent = UINT32_MAX, .position = block * TOKENS, .tokens = TOKENS, .recomputable = 1};

    if (gmb_page_alloc(arena, 1, ret_page, WAIT_NS) != 0)
        return fail("alloc");
    if (gmb_page_pin(arena, 1, ret_page) < 0 || gmb_page_wait(arena, 1, ret_page, WAIT_NS) != 0)
        return fail("pin");
    if (driver->to_device(page_address(arena, *ret_page), &keys[block], sizeof(keys[block])) != 0)
        return fail("write");
    if (gmb_page_unpin(arena, 1, ret_page) != 0 ||
        gmb_page_set_hint(arena, *ret_page, &hint) != 0 ||
        gmb_arena_prefix_publish(
            arena, *ret_page, &keys[block], block > 0 ? &keys[block - 1] : NULL) < 0)
        return fail("publish");
    return EXIT_SUCCESS;
}

/* Whether each page holds what its block gives, wherever it was meanwhile. */
static int prompt_check(gmb_arena *arena, const struct driver *driver,
    const struct gmb_prefix_key *keys, const uint32_t *pages)
{
    if (gmb_page_pin(arena, BLOCKS, pages) < 0 || gmb_page_wait(arena, BLOCKS, pages, WAIT_NS) != 0)
        return fail("pin");
    for (uint32_t i = 0; i < BLOCKS; i++) {
        struct gmb_prefix_key found;

        if (driver->to_host(&found, page_address(arena, pages[i]), sizeof(found)) != 0 ||
            memcmp(&found, &keys[i], sizeof(found)) != 0) {
            fprintf(stderr, "page %" PRIu32 " holds something else\n", pages[i]);
            return EXIT_FAILURE;
        }
    }
    return gmb_page_unpin(arena, BLOCKS, pages) == 0 ? EXIT_SUCCESS : fail("unpin");
}

static int work(gmb_arena *arena, const struct driver *driver)
{
    struct gmb_prefix_key keys[BLOCKS], key = {0};
    uint32_t pages[BLOCKS];
    int found;

    if (driver->set_current(gmb_arena_context(arena)) != 0)
        return EXIT_FAILURE;
    for (uint32_t i = 0; i < BLOCKS; i++)
        keys[i] = key = key_after(key, i);
    found = gmb_arena_prefix_lookup(arena, BLOCKS, keys, pages);
    if (found < 0)
        return fail("lookup");
    for (uint32_t i = (uint32_t) found; i < BLOCKS; i++) {
        if (block_compute(arena, driver, keys, i, &pages[i]) != EXIT_SUCCESS)
            return EXIT_FAILURE;
    }
    if (prompt_check(arena, driver, keys, pages) != EXIT_SUCCESS)
        return EXIT_FAILURE;
    printf("%d of %d pages were there\n", found, BLOCKS);
    fflush(stdout);
    /* The request is through: the index keeps the pages for the next one. */
    return gmb_page_unref(arena, BLOCKS, pages) == 0 ? EXIT_SUCCESS : fail("unref");
}

int main(int argc, char **argv)
{
    struct driver driver = {0};
    gmb_session *session;
    gmb_arena *arena = NULL;
    int status = EXIT_FAILURE;

    if (gmb_connect(NULL, &session) != 0)
        return fail("connect");
    /* Somebody has to map the memory that comes, and give back what is asked for. */
    if (gmb_thread_start(session) != 0 || arena_open(session, &arena) != 0)
        fail("arena");
    else if (driver_find(session, "cuCtxSetCurrent", &driver.set_current) == 0 &&
             driver_find(session, "cuMemcpyHtoD_v2", &driver.to_device) == 0 &&
             driver_find(session, "cuMemcpyDtoH_v2", &driver.to_host) == 0)
        status = work(arena, &driver);
    while (argc > 1 && strcmp(argv[1], "hold") == 0 && getchar() != EOF)
        ;
    if (gmb_arena_free(arena) != 0)
        status = fail("free");
    gmb_disconnect(session);
    return status;
}
