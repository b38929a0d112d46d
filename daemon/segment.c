/* See segment.h: names, states, and what is looked at when something has changed. */
#include "daemon/segment.h"

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "daemon/broker.h"
#include "daemon/segment_kept.h"
#include "daemon/segment_request.h"
#include "daemon/segment_tell.h"
#include "daemon/segment_walk.h"
#include "daemon/text.h"

/* ------------------------------------------------------------------ states */

static const char *const states[] = {
    [SEGMENT_ASKED] = "asked",
    [SEGMENT_WRITING] = "writing",
    [SEGMENT_SEALING] = "sealing",
    [SEGMENT_SEALED] = "sealed",
    [SEGMENT_DEMOTING] = "demoting",
    [SEGMENT_DEMOTED] = "demoted",
    [SEGMENT_FILLING] = "filling",
    [SEGMENT_RESTORING] = "restoring",
    [SEGMENT_QUARANTINED] = "quarantined",
    [SEGMENT_REMOVED] = "removed",
};
static_assert(ARRAY_SIZE(states) == SEGMENT_STATE_MAX, "every state has a name");

static const bool transitions[SEGMENT_STATE_MAX][SEGMENT_STATE_MAX] = {
    [SEGMENT_ASKED] = {[SEGMENT_WRITING] = true, [SEGMENT_REMOVED] = true},
    [SEGMENT_WRITING] = {[SEGMENT_SEALING] = true, [SEGMENT_REMOVED] = true},
    [SEGMENT_SEALING] =
        {[SEGMENT_WRITING] = true, [SEGMENT_SEALED] = true, [SEGMENT_REMOVED] = true},
    [SEGMENT_SEALED] =
        {[SEGMENT_DEMOTING] = true, [SEGMENT_QUARANTINED] = true, [SEGMENT_REMOVED] = true},
    [SEGMENT_DEMOTING] = {[SEGMENT_SEALED] = true,
        [SEGMENT_DEMOTED] = true,
        [SEGMENT_QUARANTINED] = true,
        [SEGMENT_REMOVED] = true},
    /* What a start of the broker doesn't find there is in quarantine. */
    [SEGMENT_DEMOTED] =
        {[SEGMENT_FILLING] = true, [SEGMENT_QUARANTINED] = true, [SEGMENT_REMOVED] = true},
    [SEGMENT_FILLING] =
        {[SEGMENT_DEMOTED] = true, [SEGMENT_RESTORING] = true, [SEGMENT_REMOVED] = true},
    [SEGMENT_RESTORING] = {[SEGMENT_SEALED] = true,
        [SEGMENT_DEMOTED] = true,
        [SEGMENT_QUARANTINED] = true,
        [SEGMENT_REMOVED] = true},
    [SEGMENT_QUARANTINED] = {[SEGMENT_REMOVED] = true},
};

const char *segment_state_name(enum segment_state state)
{
    return (unsigned) state < SEGMENT_STATE_MAX ? states[state] : "unknown";
}

bool segment_state_legal(enum segment_state from, enum segment_state to)
{
    return (unsigned) from < SEGMENT_STATE_MAX && (unsigned) to < SEGMENT_STATE_MAX &&
           transitions[from][to];
}

void segment_set_state(struct segment *segment, enum segment_state state)
{
    assert(segment_state_legal(segment->state, state));
    segment->state = state;
    if (state == SEGMENT_SEALED || state == SEGMENT_DEMOTED || state >= SEGMENT_QUARANTINED)
        segment_waiters_wake(segment);
    segment_kept_write(segment);
    segments_note(segment->space->broker, segment->space->tenant);
}

/* ------------------------------------------------------------------ spaces and names */

struct segment_space *segment_space_get(struct broker *broker, uint32_t tenant)
{
    struct segment_space **space = &broker->segments->spaces[tenant];

    if (*space != NULL)
        return *space;
    *space = calloc(1, sizeof(**space));
    if (*space == NULL)
        return NULL;
    list_init(&(*space)->noted_link);
    list_init(&(*space)->segments);
    list_init(&(*space)->unserved);
    (*space)->broker = broker;
    (*space)->tenant = tenant;
    return *space;
}

struct segment *segment_named(const struct segment_space *space, uint32_t device, const char *name)
{
    list_for_each(segment, &space->segments, struct segment, link)
    {
        if (segment->state != SEGMENT_REMOVED && segment->device == device &&
            strcmp(segment->name, name) == 0)
            return segment;
    }
    return NULL;
}

struct segment *segment_of_lease(const struct broker *broker, uint32_t tenant, core_id lease)
{
    const struct segment_space *space = broker->segments->spaces[tenant];

    if (space == NULL || lease == 0)
        return NULL;
    list_for_each(segment, &space->segments, struct segment, link)
    {
        if (segment->lease == lease)
            return segment;
    }
    return NULL;
}

/* No mover is kept for it any more. */
static void sums_drop(struct segment *segment)
{
    struct hosting *hosting = segment->space->broker->hosting[segment->device];

    hosting->segment_count -= segment->summed;
    segment->summed = false;
    hosting_mover_spare(hosting);
    free(segment->sums);
    segment->sums = NULL;
}

void segment_free(struct segment *segment)
{
    segment_waiters_wake(segment);
    segment_store_give(segment);
    sums_drop(segment);
    segment_kept_end(segment);
    list_remove(&segment->link);
    list_remove(&segment->all_link);
    segment->space->count--;
    free(segment);
}

/* Records of what was quarantined and holds nothing any more make room for others. */
static void relic_drop(struct segment_space *space)
{
    list_for_each(segment, &space->segments, struct segment, link)
    {
        if (segment->state != SEGMENT_QUARANTINED || segment->lease != 0)
            continue;
        segment_free(segment);
        return;
    }
}

struct segment *segment_new(
    struct segment_space *space, uint32_t device, const char *name, uint64_t size_bytes)
{
    struct segments *segments = space->broker->segments;
    struct segment *segment;

    if (space->count >= LIMIT_SEGMENTS_PER_TENANT)
        relic_drop(space);
    segment = space->count < LIMIT_SEGMENTS_PER_TENANT ? calloc(1, sizeof(*segment)) : NULL;
    if (segment == NULL)
        return NULL;
    segment->space = space;
    segment->number = ++segments->last_number;
    segment->device = device;
    segment->size_bytes = size_bytes;
    segment->asked_ns = clock_now(space->broker->clock);
    segment->idle_ns = segment->verified_ns = segment->verify_ns = CLOCK_NEVER;
    (void) snprintf(segment->name, sizeof(segment->name), "%s", name);
    list_init(&segment->waiters);
    list_init(&segment->link);
    list_init(&segment->all_link);
    list_append(&space->segments, &segment->link);
    list_append(&segments->all, &segment->all_link);
    space->count++;
    return segment;
}

void segment_bind(struct segment *segment, core_id lease)
{
    const struct broker *broker = segment->space->broker;
    struct core_lease_view view = {0};

    (void) core_lease_get(broker->core, lease, &view);
    segment->lease = lease;
    segment->chunk_bytes = view.chunk_bytes;
    segment->chunks = view.max_chunks;
    segment->piece_bytes = broker->devices[segment->device].granularity_bytes;
    segment->pieces = (uint32_t) (segment->chunks * (segment->chunk_bytes / segment->piece_bytes));
    segment_set_state(segment, SEGMENT_WRITING);
}

/* ------------------------------------------------------------------ changes */

void segment_remove(struct segment *segment)
{
    struct core_event cancel = {.type = CORE_EVENT_CANCEL, .cancel.request = segment->fill};

    if (segment->state == SEGMENT_FILLING && segment->filled == 0)
        (void) segment_steward_ask(segment->space, &cancel, NULL);
    segment_set_state(segment, SEGMENT_REMOVED);
    segment_walk_stop(segment);
}

void segment_quarantine(struct segment *segment, const char *text)
{
    const struct broker *broker = segment->space->broker;
    struct core_tenant_view tenant = {.name = ""};

    (void) core_tenant_get(broker->core, segment->space->tenant, &tenant);
    text_copy(segment->text, sizeof(segment->text), text);
    log_error("segment %s of %s on device %u is in quarantine: %s", segment->name, tenant.name,
        segment->device, segment->text);
    /* It is written down before anybody is told. */
    segment_set_state(segment, SEGMENT_QUARANTINED);
    observers_quarantined(&broker->observers, &(struct broker_quarantine){.device = segment->device,
                                                  .tenant = segment->space->tenant,
                                                  .segment = segment->name,
                                                  .text = segment->text});
    segment_readers_tell(segment);
}

void segment_fill(struct segment *segment, uint64_t wait_ns)
{
    struct core_event event = {
        .type = CORE_EVENT_ARENA_FILL,
        .arena_fill.lease = segment->lease,
        .arena_fill.count = segment->chunks,
        .arena_fill.wait_ns = wait_ns,
    };

    segment->filled = 0;
    segment_set_state(segment, SEGMENT_FILLING);
    (void) segment_steward_ask(segment->space, &event, &segment->fill);
}

/* ------------------------------------------------------------------ looking */

/* The core's word on who has it. False when the lease has ended. */
static bool holders_look(struct segment *segment)
{
    const struct broker *broker = segment->space->broker;
    struct core_lease_view view;
    uint32_t readers;

    if (segment->lease == 0 || !core_lease_get(broker->core, segment->lease, &view)) {
        segment->lease = 0;
        segment->readers = 0;
        return false;
    }
    readers = view.holders - segment_steward_holds(segment);
    if (readers == 0 && (segment->readers > 0 || segment->idle_ns == CLOCK_NEVER))
        segment->idle_ns = clock_now(broker->clock);
    else if (readers > 0)
        segment->idle_ns = CLOCK_NEVER;
    segment->readers = readers;
    return true;
}

/* Whether the request that it was made for is still with the core. */
static bool asker_waits(const struct segment *segment)
{
    const struct client *client = client_find(segment->space->broker, segment->writer);

    return client != NULL && client->session != NULL &&
           request_find(client->session, segment->request) != NULL;
}

static void filling_look(struct segment *segment)
{
    if (segment->filled == 0)
        return;
    segment->fill = 0;
    if (segment->filled > 0) {
        segment_set_state(segment, SEGMENT_RESTORING);
        if (segment_walk_start(segment, SEGMENT_WALK_RESTORE))
            return;
    }
    segment_waiters_refuse(segment, &segment->refusal);
    segment_set_state(segment, SEGMENT_DEMOTED);
}

static void sealed_look(struct segment *segment, uint64_t now_ns)
{
    const struct config *config = segment->space->broker->config;

    if (segment->idle_ns != CLOCK_NEVER && segment->walk.kind == SEGMENT_WALK_NONE &&
        !segment_awaited(segment)) {
        uint64_t due = add_saturate(segment->idle_ns, config->segment_idle_ns);

        if (due <= now_ns) {
            log_info("segment %s of tenant %u on device %u goes: nobody had it for %llu s",
                segment->name, segment->space->tenant, segment->device,
                (unsigned long long) (config->segment_idle_ns / NSEC_PER_SEC));
            segment_remove(segment);
            return;
        }
        segments_at(segment->space->broker->segments, due);
    }
    if (segment->state != SEGMENT_SEALED || segment->sums == NULL ||
        segment->walk.kind != SEGMENT_WALK_NONE)
        return;
    if (segment->verify_ns <= now_ns)
        (void) segment_walk_start(segment, SEGMENT_WALK_VERIFY);
    else
        segments_at(segment->space->broker->segments, segment->verify_ns);
}

/* It may be gone afterwards. */
static void segment_look(struct segment *segment, uint64_t now_ns)
{
    bool held = holders_look(segment);

    switch (segment->state) {
    case SEGMENT_ASKED:
        if (!asker_waits(segment))
            segment_free(segment);
        return;
    case SEGMENT_WRITING:
    case SEGMENT_SEALING:
        if (held)
            return;
        if (segment->state == SEGMENT_SEALING)
            segment_seal_abandon(segment);
        segment_remove(segment);
        return;
    case SEGMENT_SEALED:
    case SEGMENT_DEMOTED:
        sealed_look(segment, now_ns);
        return;
    case SEGMENT_FILLING:
        filling_look(segment);
        return;
    case SEGMENT_DEMOTING:
    case SEGMENT_RESTORING:
        return;
    case SEGMENT_QUARANTINED:
        if (held && segment->readers == 0 && segment->walk.jobs == 0) {
            segment_store_give(segment);
            segment_steward_release(segment);
            if (!holders_look(segment))
                sums_drop(segment);
        }
        return;
    case SEGMENT_REMOVED:
        if (segment->walk.jobs > 0 || segment->kept_tag != 0)
            return;
        segment_store_give(segment);
        segment_steward_release(segment);
        if (!holders_look(segment))
            segment_free(segment);
        return;
    case SEGMENT_STATE_MAX:
        return;
    }
}

/* Nothing is left in it: its steward goes, and the space. */
static void space_end(struct segment_space *space)
{
    struct broker *broker = space->broker;
    struct core_event event = {.type = CORE_EVENT_CLIENT_DEAD, .client = space->steward};

    broker->segments->spaces[space->tenant] = NULL;
    list_remove(&space->noted_link);
    if (space->steward != 0)
        broker_step(broker, &event);
    free(space);
}

static void space_look(struct segment_space *space)
{
    uint64_t now_ns = clock_now(space->broker->clock);

    list_for_each_safe(segment, &space->segments, struct segment, link)
        segment_look(segment, now_ns);
    segment_waiters_serve(space);
    if (list_empty(&space->segments) && space->waiter_count == 0)
        space_end(space);
}

void segments_note(struct broker *broker, uint32_t tenant)
{
    struct segment_space *space = broker->segments->spaces[tenant];

    if (space != NULL && !list_linked(&space->noted_link))
        list_append(&broker->segments->noted, &space->noted_link);
}

static void timer_set(struct segments *segments)
{
    struct heap_node *first = heap_first(&segments->deadlines);
    uint64_t now_ns = clock_now(segments->broker->clock), wait_ns;
    struct timeval wait;

    if (first != NULL)
        segments->due_ns = MIN(segments->due_ns, first->key);
    if (segments->due_ns >= segments->timer_ns)
        return;
    segments->timer_ns = segments->due_ns;
    /* Rounded up to a millisecond: deadlines close to each other are one look. */
    wait_ns = sub_saturate(segments->timer_ns, now_ns) + NSEC_PER_MSEC;
    wait = (struct timeval){
        .tv_sec = (time_t) (wait_ns / NSEC_PER_SEC),
        .tv_usec = (suseconds_t) (wait_ns % NSEC_PER_SEC / NSEC_PER_USEC),
    };
    (void) event_add(segments->timer, &wait);
}

void segments_settle(struct broker *broker)
{
    struct segments *segments = broker->segments;
    struct segment_space *space;

    if (segments->closing)
        return;
    while ((space = list_first(&segments->noted, struct segment_space, noted_link)) != NULL) {
        list_remove(&space->noted_link);
        space_look(space);
    }
    timer_set(segments);
}

void segments_at(struct segments *segments, uint64_t at_ns)
{
    segments->due_ns = MIN(segments->due_ns, at_ns);
}

void segments_device_failed(struct broker *broker, uint32_t device)
{
    list_for_each(segment, &broker->segments->all, struct segment, all_link)
    {
        if (segment->device == device)
            segment_waiters_wake(segment);
    }
}

void segments_reload(struct broker *broker)
{
    list_for_each(segment, &broker->segments->all, struct segment, all_link)
    {
        if (segment->sums != NULL)
            segment->verify_ns =
                add_saturate(segment->verified_ns, broker->config->segment_verify_ns);
        segments_note(broker, segment->space->tenant);
    }
}

/* Deadlines of who waits; and all segments, of which some may be due. */
static void on_timer(evutil_socket_t fd, short what, void *data)
{
    struct segments *segments = data;

    (void) fd;
    (void) what;
    segments->due_ns = segments->timer_ns = CLOCK_NEVER;
    segment_waiters_expire(segments, clock_now(segments->broker->clock));
    list_for_each(segment, &segments->all, struct segment, all_link)
        segments_note(segments->broker, segment->space->tenant);
    broker_settle(segments->broker);
}

/* ------------------------------------------------------------------ life */

int segments_new(struct broker *broker, struct segments **ret)
{
    struct segments *segments = calloc(1, sizeof(*segments));

    if (segments == NULL)
        return -ENOMEM;
    segments->broker = broker;
    segments->due_ns = segments->timer_ns = CLOCK_NEVER;
    list_init(&segments->all);
    list_init(&segments->noted);
    segments->timer = event_new(broker->base, -1, 0, on_timer, segments);
    if (segments->timer == NULL) {
        free(segments);
        return -ENOMEM;
    }
    *ret = segments;
    return 0;
}

struct segments *segments_free(struct segments *segments)
{
    if (segments == NULL)
        return NULL;
    list_for_each_safe(segment, &segments->all, struct segment, all_link) segment_free(segment);
    for (uint32_t i = 0; i < LIMIT_TENANTS; i++)
        free(segments->spaces[i]);
    heap_done(&segments->deadlines);
    event_free(segments->timer);
    free(segments);
    return NULL;
}
