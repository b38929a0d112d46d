/*
 * From the params to an arena and back. What the broker answers is checked against what was asked,
 * and the page table against its own layout, before anything of it is used.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "client/arena.h"
#include "client/arena_own.h"
#include "client/ask.h"
#include "client/device.h"
#include "client/fork.h"
#include "client/grant.h"
#include "client/lease.h"
#include "client/request.h"
#include "client/text.h"

/* A chunk costs the driver the same whatever its size, and is what is given back at once. */
#define CHUNK_BYTES_GOOD (UINT64_C(8) << 20)
#define CHUNK_PAGES_GOOD 16u

uint32_t arena_clock(void)
{
    uint32_t now = (uint32_t) (clock_now(&clock_monotonic) / (NSEC_PER_SEC / 16));

    return now != 0 ? now : 1;
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

/* The smallest chunk that holds whole pages and granules, and enough of both. */
static uint64_t chunk_choose(uint64_t page, uint64_t granule, uint64_t max_bytes)
{
    uint64_t step, chunk, wanted;

    if (__builtin_mul_overflow(page / common_divisor(page, granule), granule, &step))
        return 0;
    wanted = MAX(CHUNK_BYTES_GOOD, CHUNK_PAGES_GOOD * page);
    wanted = MIN(wanted, LIMIT_CHUNK_BYTES / 2);
    /* A small arena in a few chunks at least; a huge one in no more than there can be. */
    wanted = MIN(wanted, max_bytes / 8);
    wanted = MAX(wanted, max_bytes / ARENA_CHUNKS_MAX + 1);
    if (!round_up(wanted, step, &chunk))
        return 0;
    while (chunk > step && chunk / page > ARENA_PAGES_PER_CHUNK_MAX)
        chunk -= step;
    return chunk;
}

static int geometry_read(const struct gmb_arena_params *params, const struct device *device,
    struct arena_geometry *ret, struct outcome *outcome)
{
    uint64_t granule = device->info.granularity_bytes, chunk = params->chunk_bytes, max_bytes;
    struct arena_table_header ignored;

    if (params->page_bytes == 0 || params->page_bytes % 16 != 0 ||
        params->page_bytes > LIMIT_CHUNK_BYTES)
        return outcome_set(outcome, GMB_E_INVALID,
            "page_bytes must be a multiple of 16, from 16 to %llu",
            (unsigned long long) LIMIT_CHUNK_BYTES);
    if (params->max_bytes == 0)
        return outcome_set(outcome, GMB_E_INVALID, "an arena of 0 bytes makes no sense");
    if (chunk == 0)
        chunk = chunk_choose(params->page_bytes, granule, params->max_bytes);
    if (chunk == 0 || chunk % granule != 0 || chunk % params->page_bytes != 0 ||
        chunk > LIMIT_CHUNK_BYTES)
        return outcome_set(outcome, GMB_E_INVALID,
            "a chunk must be a multiple of page_bytes and of %llu, at most %llu",
            (unsigned long long) granule, (unsigned long long) LIMIT_CHUNK_BYTES);
    if (!round_up(params->max_bytes, chunk, &max_bytes) || max_bytes / chunk > ARENA_CHUNKS_MAX ||
        arena_table_layout(params->page_bytes, chunk, (uint32_t) (max_bytes / chunk),
            params->shared != 0 ? ARENA_TABLE_SHARED : 0, &ignored) < 0)
        return outcome_set(outcome, GMB_E_INVALID,
            "an arena has at most %u chunks, %u pages in each and %u together", ARENA_CHUNKS_MAX,
            ARENA_PAGES_PER_CHUNK_MAX, ARENA_PAGES_MAX);
    *ret = (struct arena_geometry){
        .page_bytes = params->page_bytes,
        .chunk_bytes = chunk,
        .max_bytes = max_bytes,
        .max_chunks = (uint32_t) (max_bytes / chunk),
        .shared = params->shared != 0,
    };
    return 0;
}

int arena_new_object(struct gmb_session *session, struct gmb_arena **ret, struct outcome *outcome)
{
    struct gmb_arena *arena;
    size_t size = (sizeof(*arena) + 63) / 64 * 64;

    arena = aligned_alloc(64, size);
    if (arena == NULL)
        return outcome_set(outcome, GMB_E_INTERNAL, "no host memory for an arena");
    memset(arena, 0, size);
    list_init(&arena->lease.link);
    list_init(&arena->after);
    (void) pthread_mutex_init(&arena->after_lock, NULL);
    arena->event_fd = -1;
    arena->lease.session = session;
    arena->lease.farewell = request_new(REQUEST_RELEASE, REQUEST_OWNER_NOBODY);
    *ret = arena;
    if (arena->lease.farewell == NULL) {
        arena_destroy(arena);
        return outcome_set(outcome, GMB_E_INTERNAL, "no host memory for an arena");
    }
    return 0;
}

void arena_destroy(struct gmb_arena *arena)
{
    struct gmb_session *session = arena->lease.session;

    (void) pthread_mutex_lock(&session->lock);
    list_remove(&arena->lease.link);
    (void) pthread_mutex_unlock(&session->lock);
    arena_after_drop(arena);
    /* A forked child has none there, and may have got other memory in its place. */
    if (arena->table_memory != NULL && fork_guard_same(session))
        (void) munmap(arena->table_memory, arena->table_bytes);
    close_fd(&arena->event_fd);
    request_free(arena->lease.farewell);
    arena_own_free(&arena->pool.table);
    free(arena->local);
    free(arena->vacant_since_ns);
    (void) pthread_mutex_destroy(&arena->after_lock);
    free(arena);
}

static int table_map(
    struct gmb_arena *arena, int fd, const struct arena_geometry *geometry, struct outcome *outcome)
{
    struct arena_table table;
    struct stat status;
    int seals = fcntl(fd, F_GET_SEALS);
    void *memory;

    /* A table that could shrink would kill this process by SIGBUS. */
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &status) < 0)
        return outcome_set(outcome, GMB_E_PROTOCOL, "the broker sent an unsealed page table");
    memory = mmap(NULL, (size_t) status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return outcome_set_errno(outcome, errno, "the page table can't be mapped");
    arena->table_memory = memory;
    arena->table_bytes = (uint64_t) status.st_size;
    /* Shared memory would stay the parent's in a forked child: what writes there by mistake is to
     * die of it, not to free the parent's pages. */
    if (madvise(memory, (size_t) status.st_size, MADV_DONTFORK) < 0)
        return outcome_set_errno(outcome, errno, "the page table can't be kept from children");
    if (arena_table_open(memory, arena->table_bytes, &table) < 0 ||
        table.layout.page_bytes != geometry->page_bytes ||
        table.layout.chunk_bytes != geometry->chunk_bytes ||
        table.layout.max_chunks != geometry->max_chunks ||
        arena_table_shared(&table) != geometry->shared)
        return outcome_set(
            outcome, GMB_E_PROTOCOL, "the broker sent a page table of another shape");
    arena_pool_init(&arena->pool, &table);
    if (geometry->shared && arena_own_new(&arena->pool.table, geometry->holder) < 0)
        return outcome_set(outcome, GMB_E_INTERNAL, "no host memory to count pages by");
    return 0;
}

/* Everything that is made in this process, of what the broker has sent. */
static int arena_set_up(struct gmb_arena *arena, struct request *request,
    const struct arena_geometry *geometry, struct outcome *outcome)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    struct gmb_session *session = arena->lease.session;
    int r;

    arena->lease.chunk_bytes = geometry->chunk_bytes;
    arena->lease.wanted_bytes = geometry->max_bytes;
    arena->local = calloc(geometry->max_chunks, sizeof(*arena->local));
    arena->vacant_since_ns = calloc(geometry->max_chunks, sizeof(*arena->vacant_since_ns));
    if (arena->local == NULL || arena->vacant_since_ns == NULL)
        return outcome_set(outcome, GMB_E_INTERNAL, "no host memory for an arena");
    if (geometry->holder >= ARENA_HOLDERS_MAX)
        return outcome_set(outcome, GMB_E_PROTOCOL, "the broker made a holder that none can be");
    r = table_map(arena, request->table_fd, geometry, outcome);
    if (r < 0)
        return r;
    arena->event_fd = TAKE_FD(request->event_fd);
    if (epoll_ctl(session->arrivals_fd, EPOLL_CTL_ADD, arena->event_fd, &event) < 0)
        return outcome_set_errno(outcome, errno, "the arena's eventfd can't be watched");
    return grant_range_reserve(session, &arena->lease, geometry->chunk_bytes, outcome);
}

/* From here on it is among what a broker that comes back is told of. If one was told meanwhile, it
 * took the arena back. */
static int arena_register(struct gmb_arena *arena, unsigned resumes, struct outcome *outcome)
{
    struct gmb_session *session = arena->lease.session;
    int r = 0;

    (void) pthread_mutex_lock(&session->lock);
    arena->lease.lost = resumes != session->resumes;
    arena->lease.known = !arena->lease.lost;
    if (arena->lease.lost)
        r = outcome_set(outcome, GMB_E_DISCONNECTED, "the broker restarted meanwhile");
    else
        list_append(&session->arenas, &arena->lease.link);
    (void) pthread_mutex_unlock(&session->lock);
    return r;
}

int arena_make_consume(struct gmb_arena *arena, struct request *request,
    const struct arena_geometry *geometry, struct outcome *outcome)
{
    unsigned resumes = request->resumes;
    int r = arena_set_up(arena, request, geometry, outcome);

    request_free(request);
    if (r == 0)
        r = arena_register(arena, resumes, outcome);
    if (r < 0)
        arena_drop_consume(arena);
    return r;
}

static struct request *request_of(const struct gmb_arena_params *params,
    const struct arena_geometry *geometry, const struct device *device)
{
    struct request *request = request_new(REQUEST_ARENA, REQUEST_OWNER_WAITER);

    if (request == NULL)
        return NULL;
    request->device = device;
    request->page_bytes = geometry->page_bytes;
    request->chunk_bytes = geometry->chunk_bytes;
    request->max_bytes = geometry->max_bytes;
    request->element = params->element;
    request->shared = geometry->shared;
    text_clean(request->label, sizeof(request->label), params->label);
    return request;
}

void arena_settings(struct gmb_arena *arena, uint64_t prefetch_bytes, uint64_t idle_ns)
{
    uint64_t page = arena->pool.table.layout.page_bytes;

    if (prefetch_bytes == 0)
        prefetch_bytes = arena->lease.chunk_bytes;
    arena->prefetch_pages =
        MIN(prefetch_bytes / page + (prefetch_bytes % page != 0), ARENA_PAGES_MAX);
    arena->disputed_until_ns = CLOCK_NEVER;
    arena->idle_ns = idle_ns != 0 ? idle_ns : NSEC_PER_SEC;
    atomic_store(&arena->now, arena_clock());
}

static int arena_create(struct gmb_session *session, const struct gmb_arena_params *params,
    struct device *device, const struct arena_geometry *asked, struct gmb_arena **ret,
    struct outcome *outcome)
{
    struct arena_geometry geometry = *asked;
    struct request *request;
    struct gmb_arena *arena = NULL;
    int r = arena_new_object(session, &arena, outcome);

    if (r < 0)
        return r;
    arena->lease.device = device;
    request = request_of(params, &geometry, device);
    r = request != NULL ? request_ask(session, request, outcome)
                        : outcome_set(outcome, GMB_E_INTERNAL, "no host memory for a request");
    if (r < 0) {
        arena_destroy(arena);
        return r;
    }
    arena->lease.id = request->arena_id;
    if (request->arena_chunk_bytes != geometry.chunk_bytes ||
        request->arena_max_chunks != geometry.max_chunks) {
        request_free(request);
        arena_drop_consume(arena);
        return outcome_set(outcome, GMB_E_PROTOCOL, "the broker made an arena of another shape");
    }
    geometry.holder = request->arena_holder;
    r = arena_make_consume(arena, request, &geometry, outcome);
    if (r < 0)
        return r;
    arena_settings(arena, params->prefetch_bytes, params->idle_ns);
    *ret = arena;
    return 0;
}

_public_ int gmb_arena_new(
    gmb_session *session, const struct gmb_arena_params *params, gmb_arena **ret_arena)
{
    struct outcome outcome = OUTCOME_OK;
    struct arena_geometry geometry = {0};
    struct device *device;
    int r = fork_guard_check(session, &outcome);

    if (r == 0 && (params == NULL || params->size < sizeof(*params)))
        r = outcome_set(&outcome, GMB_E_INVALID, "params.size must be sizeof the structure");
    if (r == 0 && params->element > GMB_ELEMENT_BF16)
        r = outcome_set(&outcome, GMB_E_INVALID, "element is none that this library knows");
    if (r == 0 && params->shared != 0 && (params->label == NULL || params->label[0] == '\0'))
        r = outcome_set(&outcome, GMB_E_INVALID, "a shared arena needs a label, its name");
    if (r == 0)
        r = device_find(session, params->device, &device, &outcome);
    if (r == 0)
        r = geometry_read(params, device, &geometry, &outcome);
    if (r == 0)
        r = device_retain(session, device, &outcome);
    if (r == 0)
        (void) arena_create(session, params, device, &geometry, ret_arena, &outcome);
    return outcome_publish(&outcome);
}
