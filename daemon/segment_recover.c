/*
 * See segment_recover.h. What a record says is held against the core's lease, the chunks that there
 * are and the host tier. What doesn't fit is in quarantine from now on, with a text that says why:
 * it is served to nobody, and its readers keep what they have. What had begun when the broker died
 * is as it was before it began, so that a chunk more or less isn't what was sealed.
 */
#include "daemon/segment_recover.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "daemon/broker.h"
#include "daemon/ledger/ledger.h"
#include "daemon/segment.h"
#include "daemon/segment_kept.h"

int segments_steward_restore(struct broker *broker, uint32_t tenant, core_id steward)
{
    struct segment_space *space = segment_space_get(broker, tenant);

    if (space == NULL)
        return -ENOMEM;
    space->steward = steward;
    return 0;
}

/* ------------------------------------------------------------------ what there is of it */

/* False: it has ended, or is none of this segment. */
static bool lease_find(
    const struct broker *broker, const struct segment_head *head, struct core_lease_view *ret)
{
    return head->lease != 0 && core_lease_get(broker->core, head->lease, ret) &&
           ret->kind == CORE_LEASE_SEGMENT && ret->tenant == head->tenant &&
           ret->chunk_bytes == head->chunk_bytes && ret->max_chunks == head->chunks;
}

static bool device_find(const struct broker *broker, uint32_t number, uint32_t *ret)
{
    for (uint32_t i = 0; i < broker->device_count; i++) {
        if (ledger_device(broker->ledger, i) != number)
            continue;
        *ret = i;
        return true;
    }
    return false;
}

/* The steward's, and the broker can give them to others. */
static bool chunks_whole(const struct segment *segment)
{
    const struct segment_space *space = segment->space;
    const struct broker *broker = space->broker;
    uint32_t number, generation;

    for (uint32_t i = 0; i < segment->chunks; i++) {
        if (!core_lease_chunk(broker->core, segment->lease, i, &number, &generation) ||
            !core_holder_has(broker->core, segment->lease, space->steward, i) ||
            !executor_holds(broker->executor, number, generation))
            return false;
    }
    return true;
}

/* Those that were not returned yet, or were filled and not copied to. */
static void chunks_return(struct segment *segment)
{
    const struct segment_space *space = segment->space;
    struct core_event event = {
        .type = CORE_EVENT_ARENA_RETURN,
        .arena_return = {.lease = segment->lease, .count = 1},
    };

    for (uint32_t i = 0; i < segment->chunks; i++) {
        event.arena_return.first = i;
        if (core_holder_has(space->broker->core, segment->lease, space->steward, i))
            (void) segment_steward_ask(segment->space, &event, NULL);
    }
}

/* A mover is kept for it from now on. */
static void summed_count(struct segment *segment)
{
    struct hosting *hosting = segment->space->broker->hosting[segment->device];

    segment->summed = segment->sums != NULL;
    hosting->segment_count += segment->summed;
}

static bool slots_claim(struct segment *segment)
{
    struct segment_space *space = segment->space;
    struct hosting *hosting = space->broker->hosting[segment->device];

    if (segment->slots == NULL || hosting->tier == NULL ||
        tier_space_new(hosting->tier, &hosting->accounts[space->tenant], segment->piece_bytes,
            &segment->store) < 0)
        return false;
    for (uint32_t i = 0; i < segment->pieces; i++) {
        if (tier_slot_claim(segment->store, segment->slots[i]) < 0) {
            segment->store = tier_space_free(segment->store);
            return false;
        }
    }
    segment->stored = true;
    hosting->evicted[space->tenant] += segment->pieces * segment->piece_bytes;
    return true;
}

/* ------------------------------------------------------------------ what becomes of it */

/* `name`: NULL where nobody knows it. */
static void harm_note(struct broker *broker, const char *name, const char *text)
{
    struct recovery *found = &broker->recovery;

    if (found->segments_harmed++ == 0)
        (void) snprintf(found->segment_harmed, sizeof(found->segment_harmed), "%.*s: %.150s",
            LIMIT_NAME_BYTES, name != NULL ? name : "one whose name isn't known", text);
}

static void harmed(struct segment *segment, const char *text)
{
    harm_note(segment->space->broker, segment->name, text);
    segment_quarantine(segment, text);
}

static void sealed_recover(struct segment *segment)
{
    if (segment->lease != 0 && !segment_steward_holds(segment))
        (void) segment_steward_attach(segment);
    if (segment->lease == 0)
        harmed(segment, "the record of its memory was lost with the broker before");
    else if (!chunks_whole(segment))
        harmed(segment, "some of its memory was lost with the broker before");
}

static void demoted_recover(struct segment *segment)
{
    if (segment->lease == 0 || !segment_steward_holds(segment)) {
        harmed(segment, "the record of its lease was lost with the broker before");
        return;
    }
    chunks_return(segment);
    if (!slots_claim(segment))
        harmed(segment, "its bytes in the host tier were lost with the broker before");
}

/* `r` says whether its sums and slots were read. */
static void state_recover(struct segment *segment, int r)
{
    switch (segment->state) {
    case SEGMENT_WRITING:
        /* Its seal was not through. */
        segment_steward_release(segment);
        return;
    case SEGMENT_SEALED:
    case SEGMENT_DEMOTED:
        if (r < 0)
            harmed(segment, "its checksums can't be read any more");
        else if (segment->state == SEGMENT_SEALED)
            sealed_recover(segment);
        else
            demoted_recover(segment);
        if (segment->state != SEGMENT_QUARANTINED)
            summed_count(segment);
        return;
    case SEGMENT_QUARANTINED:
    case SEGMENT_REMOVED:
    case SEGMENT_ASKED:
    case SEGMENT_SEALING:
    case SEGMENT_DEMOTING:
    case SEGMENT_FILLING:
    case SEGMENT_RESTORING:
    case SEGMENT_STATE_MAX:
        return;
    }
}

static void head_take(struct segment *segment, const struct segment_head *head)
{
    uint64_t now_ns = clock_now(segment->space->broker->clock);

    segment->number = head->number;
    segment->state = (enum segment_state) head->state;
    segment->writer = head->state == SEGMENT_WRITING ? head->writer : 0;
    segment->chunk_bytes = head->chunk_bytes;
    segment->chunks = head->chunks;
    segment->piece_bytes = head->piece_bytes;
    segment->pieces = head->pieces;
    segment->asked_ns = MIN(head->asked_ns, now_ns);
    segment->verified_ns = head->verified_ns;
    segment->verifications = head->verifications;
    if (head->verified_ns != CLOCK_NEVER)
        segment->verify_ns = add_saturate(
            MIN(head->verified_ns, now_ns), segment->space->broker->config->segment_verify_ns);
    memcpy(segment->text, head->text, sizeof(segment->text));
}

/* False: nothing is left of it, or to be said of it. */
static bool segment_recover(
    struct broker *broker, struct fdstore_item *item, const struct segment_head *head)
{
    struct core_tenant_view tenant;
    struct core_lease_view lease = {0};
    struct segment_space *space;
    struct segment *segment;
    bool leased = lease_find(broker, head, &lease);
    uint32_t device;
    int r;

    /* Its writer or its last reader has gone. */
    if (!leased && (head->state == SEGMENT_WRITING || head->state == SEGMENT_REMOVED))
        return true;
    if (head->number != item->number || !device_find(broker, head->device, &device) ||
        (leased && lease.device != device) || !core_tenant_get(broker->core, head->tenant, &tenant))
        return false;
    space = segment_space_get(broker, head->tenant);
    if (space == NULL ||
        (head->state != SEGMENT_REMOVED && segment_named(space, device, head->name) != NULL))
        return false;
    segment = segment_new(space, device, head->name, head->size_bytes);
    if (segment == NULL)
        return false;
    head_take(segment, head);
    segment->lease = leased ? head->lease : 0;
    r = segment_kept_resume(segment, item->fd, head);
    if (segment->kept_stored)
        fdstore_close(item);
    state_recover(segment, r);
    broker->recovery.segments++;
    return true;
}

/* Its steward's part; of its readers each lets go when it resumes, or dies. */
static void lease_abandon(struct broker *broker, const struct core_lease_view *lease)
{
    struct segment_space *space = broker->segments->spaces[lease->tenant];
    struct core_event event = {
        .type = CORE_EVENT_LEASE_RELEASE,
        .lease_release.lease = lease->id,
    };

    if (space == NULL || !core_holder_find(broker->core, lease->id, space->steward))
        return; /* it was never sealed */
    log_error("segment lease %llu of tenant %u on device %u can't be gone on with: its record is "
              "missing",
        (unsigned long long) lease->id, lease->tenant, lease->device);
    harm_note(broker, NULL, "its record is missing");
    (void) segment_steward_ask(space, &event, NULL);
}

static void leases_abandon(struct broker *broker)
{
    struct core_lease_view lease = {0};

    while (core_lease_next(broker->core, lease.id, &lease)) {
        if (lease.kind == CORE_LEASE_SEGMENT &&
            segment_of_lease(broker, lease.tenant, lease.id) == NULL)
            lease_abandon(broker, &lease);
    }
}

/* Numbers go on behind the highest one, so that no name in the store is ever another's. */
static void numbers_skip(struct broker *broker, const struct fdstore_item *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (items[i].kind == FDSTORE_SEGMENT)
            broker->segments->last_number =
                MAX(broker->segments->last_number, (uint64_t) items[i].number);
    }
}

/* What had a lease is told of by that one. */
static void item_recover(struct broker *broker, struct fdstore_item *item)
{
    struct segment_head head = {.name = "(?)"};
    bool read = !item->ambiguous && segment_kept_read(item->fd, &head) == 0;
    char name[FDSTORE_NAME_BYTES];

    if (read && segment_recover(broker, item, &head))
        return;
    log_error("segment %s can't be gone on with: its record %s %s", head.name,
        fdstore_name(name, item->kind, item->number),
        read ? "fits nothing that is there" : "can't be read");
}

void segments_recover(struct broker *broker)
{
    struct fdstore_item *items;
    size_t count = fdstore_inherited(broker->store, &items);

    numbers_skip(broker, items, count);
    for (size_t i = 0; i < count; i++) {
        if (items[i].kind == FDSTORE_SEGMENT && items[i].fd >= 0)
            item_recover(broker, &items[i]);
    }
    leases_abandon(broker);
    for (uint32_t i = 0; i < LIMIT_TENANTS; i++)
        segments_note(broker, i);
}
