/*
 * Pages are allocated before anything is pinned, so that who waits for memory holds nothing that
 * others, or its own other sequences, could give; then all pages of the sequence are pinned at once
 * and waited for. Every read and write of a token goes to the device, by the driver's own
 * functions: what the model sees is what lies in the pages.
 */
#include "tests/compute/kv_arena.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client/gmb.h"

/* How long one sequence waits for memory before another has its turn. */
#define WAIT_NS (NSEC_PER_SEC / 2)
/* Bytes that are under way are waited for: they come, or the broker says that they are lost. */
#define RESTORE_NS (30 * NSEC_PER_SEC)

struct kv_space {
    struct kv_space_params params;
    gmb_session *session;
    gmb_arena *arena;
    int (*to_device)(uint64_t to, const void *from, size_t bytes);
    int (*to_host)(void *to, uint64_t from, size_t bytes);
    uint64_t lost, full;
};

struct kv_arena {
    struct kv kv;
    struct kv_space *space;
    uint32_t count; /* pages that the sequence has */
    bool held;
    uint32_t pages[];
};

static int complain(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, gmb_error_text());
    return -EIO;
}

static int driver_find(gmb_session *session, const char *name, void *ret_function)
{
    void *symbol = gmb_driver_symbol(session, name);

    if (symbol == NULL) {
        fprintf(stderr, "the driver has no %s\n", name);
        return -EIO;
    }
    memcpy(ret_function, &symbol, sizeof(symbol));
    return 0;
}

static int driver_open(struct kv_space *space)
{
    int (*set_current)(void *context);

    if (driver_find(space->session, "cuCtxSetCurrent", &set_current) < 0 ||
        driver_find(space->session, "cuMemcpyHtoD_v2", &space->to_device) < 0 ||
        driver_find(space->session, "cuMemcpyDtoH_v2", &space->to_host) < 0)
        return -EIO;
    if (set_current(gmb_arena_context(space->arena)) == 0)
        return 0;
    fprintf(stderr, "the context can't be made current\n");
    return -EIO;
}

static uint32_t pages_for(const struct kv_space *space, uint32_t tokens)
{
    return (tokens + space->params.page_tokens - 1) / space->params.page_tokens;
}

int kv_space_new(const struct kv_space_params *params, struct kv_space **ret)
{
    const uint64_t page_bytes = params->page_tokens * TRANSFORMER_KV_BYTES;
    struct gmb_options options = {
        .size = sizeof(options), .socket = params->socket, .offline = GMB_OFFLINE_WAIT};
    struct gmb_arena_params arena = {
        .size = sizeof(arena),
        .page_bytes = page_bytes,
        .max_bytes = (params->max_tokens / params->page_tokens + 1) * page_bytes,
        .chunk_bytes = params->chunk_pages * page_bytes,
        .element = GMB_ELEMENT_FP16,
        .label = "transformer",
    };
    struct kv_space *space = calloc(1, sizeof(*space));
    int r;

    if (space == NULL)
        return -EIO;
    space->params = *params;
    r = gmb_connect(&options, &space->session) == 0 ? 0 : complain("connect");
    if (r == 0 && gmb_arena_new(space->session, &arena, &space->arena) != 0)
        r = complain("arena");
    if (r == 0)
        r = driver_open(space);
    if (r == 0 && gmb_thread_start(space->session) != 0)
        r = complain("thread");
    if (r < 0) {
        (void) kv_space_free(space);
        return r;
    }
    *ret = space;
    return 0;
}

struct kv_space *kv_space_free(struct kv_space *space)
{
    if (space != NULL) {
        if (space->arena != NULL && gmb_arena_free(space->arena) != 0)
            (void) complain("arena");
        gmb_disconnect(space->session);
        free(space);
    }
    return NULL;
}

struct kv_space_stats kv_space_stats(const struct kv_space *space)
{
    struct gmb_arena_stats stats = {.size = sizeof(stats)};

    if (gmb_arena_get_stats(space->arena, &stats) != 0)
        (void) complain("statistics");
    return (struct kv_space_stats){
        .evictions = stats.evictions,
        .restores = stats.restores,
        .waits = stats.waits,
        .evicted_pages = stats.evicted_pages,
        .used_pages = stats.used_pages,
        .lost = space->lost,
        .full = space->full,
    };
}

const char *kv_space_tenant(const struct kv_space *space)
{
    return gmb_tenant(space->session);
}

static struct kv_arena *arena_of(struct kv *kv)
{
    return container_of(kv, struct kv_arena, kv);
}

static int pages_drop(struct kv_arena *kv)
{
    uint32_t count = kv->count;

    kv->count = 0;
    return gmb_page_unref(kv->space->arena, count, kv->pages) == 0 ? 0 : complain("free pages");
}

/* All pages up to `count`, the new ones with what the policies should know of them. */
static int pages_extend(struct kv_arena *kv, uint32_t count)
{
    const struct kv_space *space = kv->space;
    const uint32_t page_tokens = space->params.page_tokens;
    int r;

    if (count <= kv->count)
        return KV_READY;
    r = gmb_page_alloc(space->arena, count - kv->count, kv->pages + kv->count, WAIT_NS);
    /* DISCONNECTED: the broker was away for longer than that; it comes back. */
    if (r == GMB_E_EXHAUSTED || r == GMB_E_TIMED_OUT || r == GMB_E_DISCONNECTED)
        return KV_FULL;
    if (r != 0)
        return complain("allocate pages");
    for (; kv->count < count; kv->count++) {
        struct gmb_page_hint hint = {
            .parent = kv->count > 0 ? kv->pages[kv->count - 1] : UINT32_MAX,
            .position = kv->count * page_tokens,
            .tokens = page_tokens,
            .recomputable = space->params.recomputable,
        };

        if (gmb_page_set_hint(space->arena, kv->pages[kv->count], &hint) != 0)
            r = complain("hint");
    }
    return r;
}

static int arena_release(struct kv *kv)
{
    struct kv_arena *self = arena_of(kv);

    if (!self->held)
        return 0;
    self->held = false;
    return gmb_page_unpin(self->space->arena, self->count, self->pages) == 0 ? 0
                                                                             : complain("unpin");
}

static int pages_lost(struct kv_arena *kv)
{
    kv->space->lost++;
    return pages_drop(kv) < 0 ? -EIO : KV_LOST;
}

static int arena_hold(struct kv *kv, uint32_t tokens)
{
    struct kv_arena *self = arena_of(kv);
    struct kv_space *space = self->space;
    int r = pages_extend(self, pages_for(space, tokens));

    space->full += r == KV_FULL;
    if (r != KV_READY)
        return r;
    r = gmb_page_pin(space->arena, self->count, self->pages);
    if (r == GMB_PIN_LOST)
        return pages_lost(self);
    if (r < 0)
        return complain("pin");
    self->held = true;
    if (r == GMB_PIN_WAITING)
        r = gmb_page_wait(space->arena, self->count, self->pages, RESTORE_NS);
    if (r == GMB_PIN_READY)
        return KV_READY;
    if (r < 0)
        (void) complain("wait for pages");
    if (arena_release(kv) < 0 || r < 0)
        return -EIO;
    return pages_lost(self);
}

/* Where a token lies, and how many follow on its page, itself included. */
static uint64_t token_address(const struct kv_arena *kv, uint32_t position, uint32_t *ret_tokens)
{
    const uint32_t page_tokens = kv->space->params.page_tokens;

    *ret_tokens = page_tokens - position % page_tokens;
    return gmb_arena_address(kv->space->arena) +
           kv->pages[position / page_tokens] * gmb_arena_page_bytes(kv->space->arena) +
           position % page_tokens * TRANSFORMER_KV_BYTES;
}

static int arena_read(struct kv *kv, uint32_t tokens, uint16_t *to)
{
    struct kv_arena *self = arena_of(kv);
    uint32_t count;

    for (uint32_t at = 0; at < tokens; at += count) {
        uint64_t from = token_address(self, at, &count);
        int r;

        count = MIN(count, tokens - at);
        r = self->space->to_host(
            to + (size_t) at * TRANSFORMER_KV_HALVES, from, count * TRANSFORMER_KV_BYTES);
        if (r != 0) {
            fprintf(stderr, "token %u can't be read: the driver says %d\n", at, r);
            return -EIO;
        }
    }
    return 0;
}

static int arena_write(struct kv *kv, uint32_t position, const uint16_t *token)
{
    struct kv_arena *self = arena_of(kv);
    uint32_t count;
    uint64_t to = token_address(self, position, &count);
    int r = self->space->to_device(to, token, TRANSFORMER_KV_BYTES);

    if (r == 0)
        return 0;
    fprintf(stderr, "token %u can't be written: the driver says %d\n", position, r);
    return -EIO;
}

static struct kv *arena_kv_free(struct kv *kv)
{
    struct kv_arena *self = arena_of(kv);

    (void) arena_release(kv);
    if (self->count > 0)
        (void) pages_drop(self);
    free(self);
    return NULL;
}

static const struct kv_ops arena_ops = {
    .hold = arena_hold,
    .release = arena_release,
    .read = arena_read,
    .write = arena_write,
    .free = arena_kv_free,
};

struct kv *kv_arena_new(struct kv_space *space, uint32_t tokens)
{
    uint32_t pages = pages_for(space, tokens);
    struct kv_arena *kv = calloc(1, sizeof(*kv) + pages * sizeof(kv->pages[0]));

    if (kv == NULL)
        return NULL;
    kv->kv.ops = &arena_ops;
    kv->space = space;
    return &kv->kv;
}
