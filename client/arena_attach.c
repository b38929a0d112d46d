/*
 * From a name to an arena that another process has made. Its shape comes from the broker, not from
 * the page table, which every process that holds it may write. Chunks are sent once the broker
 * hears that there is somewhere to map them.
 */
#include <string.h>

#include "client/arena.h"
#include "client/ask.h"
#include "client/device.h"
#include "client/fork.h"
#include "client/request.h"
#include "client/text.h"

static int geometry_take(
    const struct request *request, struct arena_geometry *ret, struct outcome *outcome)
{
    struct arena_table_header layout;
    uint64_t max_bytes;

    if (!request->arena_shared ||
        arena_table_layout(request->arena_page_bytes, request->arena_chunk_bytes,
            request->arena_max_chunks, ARENA_TABLE_SHARED, &layout) < 0 ||
        __builtin_mul_overflow(
            request->arena_chunk_bytes, (uint64_t) request->arena_max_chunks, &max_bytes))
        return outcome_set(
            outcome, GMB_E_PROTOCOL, "the broker attached to an arena that can't be one");
    *ret = (struct arena_geometry){
        .page_bytes = request->arena_page_bytes,
        .chunk_bytes = request->arena_chunk_bytes,
        .max_bytes = max_bytes,
        .max_chunks = request->arena_max_chunks,
        .shared = true,
        .holder = request->arena_holder,
    };
    return 0;
}

static int device_take(struct gmb_session *session, const struct request *request,
    struct device **ret, struct outcome *outcome)
{
    for (unsigned i = 0; i < session->device_count; i++) {
        struct device *device = &session->devices[i];

        if (memcmp(device->uuid.bytes, request->arena_device.bytes, UUID_BYTES) != 0)
            continue;
        *ret = device;
        return device_find(session, device->info.uuid, ret, outcome);
    }
    return outcome_set(outcome, GMB_E_PROTOCOL, "the arena lies on a device that isn't there");
}

/* The broker knows this process as a holder; what fails from here on is given up there, too. */
static int attached_make_consume(
    struct gmb_arena *arena, struct request *request, struct outcome *outcome)
{
    struct gmb_session *session = arena->lease.session;
    struct arena_geometry geometry;
    int r = geometry_take(request, &geometry, outcome);

    arena->lease.id = request->arena_id;
    if (r == 0)
        r = device_take(session, request, &arena->lease.device, outcome);
    if (r == 0)
        r = device_retain(session, arena->lease.device, outcome);
    if (r == 0)
        return arena_make_consume(arena, request, &geometry, outcome);
    request_free(request);
    arena_drop_consume(arena);
    return r;
}

static int arena_attach(struct gmb_session *session, const struct gmb_attach_params *params,
    struct gmb_arena **ret, struct outcome *outcome)
{
    struct request *request = request_new(REQUEST_ATTACH, REQUEST_OWNER_WAITER);
    struct gmb_arena *arena = NULL;
    int r;

    if (request == NULL)
        return outcome_set(outcome, GMB_E_INTERNAL, "no host memory for a request");
    text_clean(request->label, sizeof(request->label), params->name);
    r = arena_new_object(session, &arena, outcome);
    if (r < 0) {
        request_free(request);
        return r;
    }
    r = request_ask(session, request, outcome);
    if (r < 0) {
        arena_destroy(arena);
        return r;
    }
    r = attached_make_consume(arena, request, outcome);
    if (r < 0)
        return r;
    arena_settings(arena, params->prefetch_bytes, params->idle_ns);
    (void) pthread_mutex_lock(&session->lock);
    arena_tell(arena, REQUEST_READY, 0, 0);
    (void) pthread_mutex_unlock(&session->lock);
    *ret = arena;
    return 0;
}

_public_ int gmb_arena_attach(
    gmb_session *session, const struct gmb_attach_params *params, gmb_arena **ret_arena)
{
    struct outcome outcome = OUTCOME_OK;
    int r = fork_guard_check(session, &outcome);

    if (r == 0 && (params == NULL || params->size < sizeof(*params)))
        r = outcome_set(&outcome, GMB_E_INVALID, "params.size must be sizeof the structure");
    if (r == 0 && (params->name == NULL || params->name[0] == '\0'))
        r = outcome_set(
            &outcome, GMB_E_INVALID, "an arena is found by its name, and none is given");
    if (r == 0)
        (void) arena_attach(session, params, ret_arena, &outcome);
    return outcome_publish(&outcome);
}
