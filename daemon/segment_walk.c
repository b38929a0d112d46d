/*
 * One job names pieces that follow each other, so that a job knows the first of its pieces and
 * nothing else. A segment's record stays until its last job is answered, whatever became of it
 * meanwhile (SEGMENT_REMOVED).
 */
#include "daemon/segment_walk.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/size.h"
#include "daemon/broker.h"
#include "daemon/mover_control.h"
#include "daemon/segment_kept.h"
#include "daemon/segment_request.h"

/* Of one job: some milliseconds of the mover's time, as other jobs wait behind it. */
#define WALK_BYTES (UINT64_C(64) << 20)
/* One is copied while the next one is prepared. */
#define WALK_JOBS 2

struct segment_ticket {
    struct job_owner owner; /* first: what the device's handler looks at */
    struct segment *segment;
    uint32_t first; /* piece */
};

static struct hosting *hosting_of(const struct segment *segment)
{
    return segment->space->broker->hosting[segment->device];
}

/* ------------------------------------------------------------------ the host tier */

/* An enum tier_outcome, or -ENOMEM. */
static int store_take(struct segment *segment)
{
    struct hosting *hosting = hosting_of(segment);
    int r;

    if (hosting->tier == NULL)
        return TIER_FULL;
    r = tier_space_new(hosting->tier, &hosting->accounts[segment->space->tenant],
        segment->piece_bytes, &segment->store);
    if (r < 0)
        return r;
    segment->slots = calloc(segment->pieces, sizeof(segment->slots[0]));
    r = segment->slots != NULL ? TIER_OK : -ENOMEM;
    for (uint32_t i = 0; r == TIER_OK && i < segment->pieces; i++)
        r = tier_slot_alloc(segment->store, &segment->slots[i]);
    if (r != TIER_OK)
        segment_store_give(segment);
    return r;
}

void segment_store_give(struct segment *segment)
{
    if (segment->stored)
        hosting_of(segment)->evicted[segment->space->tenant] -=
            segment->pieces * segment->piece_bytes;
    segment->stored = false;
    segment->store = tier_space_free(segment->store);
    free(segment->slots);
    segment->slots = NULL;
}

/* ------------------------------------------------------------------ what comes of it */

/* What was sealed and what was found differ. */
static void changed_text(const struct segment *segment, char text[LIMIT_TEXT_BYTES])
{
    char piece[SIZE_TEXT_MAX], offset[SIZE_TEXT_MAX];

    (void) snprintf(text, LIMIT_TEXT_BYTES,
        "the %s at %s are not what was sealed: somebody has written to it",
        size_format(piece, segment->piece_bytes),
        size_format(offset, segment->walk.bad * segment->piece_bytes));
}

static void chunks_return(struct segment *segment)
{
    struct core_event event = {
        .type = CORE_EVENT_ARENA_RETURN,
        .arena_return.lease = segment->lease,
        .arena_return.count = segment->chunks,
    };

    (void) segment_steward_ask(segment->space, &event, NULL);
}

/* Bytes that are being made free count for who waits for them, as with chunks of arenas. */
static void coming_count(struct segment *segment, bool counted)
{
    struct hosting *hosting = hosting_of(segment);
    uint64_t bytes = segment->chunks * segment->chunk_bytes;

    if (segment->counted == counted)
        return;
    segment->counted = counted;
    hosting->leaving[segment->space->tenant] += counted ? bytes : -bytes;
    if (segment->beneficiary < LIMIT_TENANTS)
        hosting->coming[segment->beneficiary] += counted ? bytes : -bytes;
}

static void verify_end(struct segment *segment, bool whole)
{
    const struct broker *broker = segment->space->broker;
    uint64_t now_ns = clock_now(broker->clock);

    if (whole) {
        segment->verified_ns = now_ns;
        segment->verifications++;
    }
    segment->verify_ns = add_saturate(now_ns, broker->config->segment_verify_ns);
}

static void demote_end(struct segment *segment, bool whole)
{
    if (!whole) {
        segment_store_give(segment);
        segment_set_state(segment, SEGMENT_SEALED);
        return;
    }
    verify_end(segment, true);
    segment->stored = true;
    hosting_of(segment)->evicted[segment->space->tenant] += segment->pieces * segment->piece_bytes;
    /* It is written down that its bytes are there before its memory goes. */
    segment_set_state(segment, SEGMENT_DEMOTED);
    chunks_return(segment);
    observers_evicted(
        &segment->space->broker->observers, &(struct broker_taking){.device = segment->device,
                                                .tenant = segment->space->tenant,
                                                .beneficiary = segment->beneficiary,
                                                .bytes = segment->chunks * segment->chunk_bytes});
}

static void restore_end(struct segment *segment, const struct segment_walk *walk)
{
    struct hosting *hosting = hosting_of(segment);
    struct core_action refusal = {
        .type = CORE_ACTION_REFUSE,
        .refuse.status = walk->error == -EAGAIN || walk->error == -EREMOTEIO ? GMB_STATUS_EXHAUSTED
                                                                             : GMB_STATUS_GPU,
        .refuse.limit = GMB_LIMIT_DEVICE,
    };

    if (walk->error == 0 && !walk->stopped) {
        verify_end(segment, true);
        segment->stored = false;
        hosting->evicted[segment->space->tenant] -= segment->pieces * segment->piece_bytes;
        /* … and that they are back before their slots can be another's. */
        segment_set_state(segment, SEGMENT_SEALED);
        segment_store_give(segment);
        return;
    }
    chunks_return(segment);
    (void) snprintf(refusal.refuse.text, sizeof(refusal.refuse.text),
        "segment %s can't be brought back: %.150s", segment->name, walk->text);
    segment_waiters_refuse(segment, &refusal);
    segment_set_state(segment, SEGMENT_DEMOTED);
}

/* All jobs are answered. */
static void walk_end(struct segment *segment)
{
    const struct segment_walk walk = segment->walk;
    bool whole = walk.error == 0 && !walk.stopped;
    char text[LIMIT_TEXT_BYTES];

    segment->walk = (struct segment_walk){.bad = walk.bad};
    coming_count(segment, false);
    segments_note(segment->space->broker, segment->space->tenant);
    if (segment->state == SEGMENT_REMOVED)
        return;
    if (walk.changed) {
        changed_text(segment, text);
        segment_quarantine(segment, text);
        return;
    }
    if (walk.error != 0 && walk.kind != SEGMENT_WALK_SEAL)
        log_warning("segment %s on device %u: the mover could not do it: %s", segment->name,
            segment->device, walk.text);
    switch (walk.kind) {
    case SEGMENT_WALK_SEAL:
        segment_seal_answer(segment,
            walk.error != 0 ? walk.error
            : walk.stopped  ? -ECANCELED
                            : 0,
            walk.text);
        break;
    case SEGMENT_WALK_VERIFY:
        verify_end(segment, whole);
        segment_kept_write(segment);
        break;
    case SEGMENT_WALK_DEMOTE:
        demote_end(segment, whole);
        break;
    case SEGMENT_WALK_RESTORE:
        restore_end(segment, &walk);
        break;
    case SEGMENT_WALK_NONE:
    case SEGMENT_WALK_KIND_MAX:
        break;
    }
}

/* ------------------------------------------------------------------ jobs */

static void piece_done(struct segment *segment, uint32_t piece, const struct mover_copy *copy)
{
    struct segment_walk *walk = &segment->walk;
    bool restore = walk->kind == SEGMENT_WALK_RESTORE;

    if (walk->kind == SEGMENT_WALK_SEAL) {
        segment->sums[piece] = copy->checksum;
    } else if (!walk->changed &&
               (restore ? copy->damaged : copy->checksum != segment->sums[piece])) {
        walk->changed = true;
        walk->bad = piece;
    }
}

static void job_done(struct hosting *hosting, const struct mover_result *result)
{
    struct segment_ticket *ticket = result->job.owner;
    struct segment *segment = ticket->segment;
    struct segment_walk *walk = &segment->walk;
    uint32_t first = ticket->first;

    free(ticket);
    walk->jobs--;
    if (segment->space->broker->segments->closing)
        return;
    for (size_t i = 0; result->error == 0 && i < result->job.copy_count; i++)
        piece_done(segment, first + (uint32_t) i, &result->job.copies[i]);
    if (result->job.kind != MOVER_CHECKSUM)
        disk_judge(hosting, result);
    if (result->error != 0 && walk->error == 0) {
        walk->error = result->error;
        (void) snprintf(walk->text, sizeof(walk->text), "%s", result->text);
    }
    /* The device's turn goes on with it, and ends in broker_settle(). */
    hosting_kick(hosting);
}

/* -ESTALE when a chunk has gone. */
static int job_submit(struct segment *segment)
{
    static const enum mover_kind kinds[] = {
        [SEGMENT_WALK_NONE] = MOVER_KIND_MAX,
        [SEGMENT_WALK_SEAL] = MOVER_CHECKSUM,
        [SEGMENT_WALK_VERIFY] = MOVER_CHECKSUM,
        [SEGMENT_WALK_DEMOTE] = MOVER_EVICT,
        [SEGMENT_WALK_RESTORE] = MOVER_RESTORE,
    };
    struct segment_walk *walk = &segment->walk;
    struct mover_chunk chunks[MOVER_JOB_CHUNKS];
    struct mover_copy copies[MOVER_JOB_CHUNKS];
    uint32_t per_chunk = (uint32_t) (segment->chunk_bytes / segment->piece_bytes), last = 0;
    uint64_t most = MAX(WALK_BYTES / segment->piece_bytes, UINT64_C(1));
    uint64_t left = MIN(most, (uint64_t) segment->pieces - walk->next);
    uint32_t count = (uint32_t) MIN(left, (uint64_t) ARRAY_SIZE(copies));
    struct segment_ticket *ticket;
    struct mover_job job = {
        .kind = kinds[walk->kind],
        .page_bytes = segment->piece_bytes,
        .copy_count = count,
        .chunks = chunks,
        .copies = copies,
    };
    int r;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t piece = walk->next + i, index = piece / per_chunk;
        struct mover_chunk *chunk = &chunks[job.chunk_count];

        if (i == 0 || index != last) {
            if (!core_lease_chunk(segment->space->broker->core, segment->lease, index,
                    &chunk->number, &chunk->generation))
                return -ESTALE;
            chunk->bytes = segment->chunk_bytes;
            job.chunk_count++;
            last = index;
        }
        copies[i] = (struct mover_copy){
            .chunk = (uint32_t) job.chunk_count - 1,
            .chunk_offset = piece % per_chunk * segment->piece_bytes,
            .tier_offset = segment->slots != NULL ? segment->slots[piece] : 0,
            .checksum = walk->kind == SEGMENT_WALK_RESTORE ? segment->sums[piece] : 0,
        };
    }
    ticket = malloc(sizeof(*ticket));
    if (ticket == NULL)
        return -ENOMEM;
    *ticket = (struct segment_ticket){
        .owner = {.done = job_done}, .segment = segment, .first = walk->next};
    job.owner = ticket;
    r = mover_submit(hosting_of(segment)->mover, &job);
    if (r < 0) {
        free(ticket);
        return r;
    }
    walk->next += count;
    walk->jobs++;
    return 0;
}

/* Submits what there is room for; ends the walk when nothing is left to be waited for. */
static void walk_pump(struct segment *segment)
{
    struct segment_walk *walk = &segment->walk;
    int r = 0;

    while (r == 0 && walk->error == 0 && !walk->stopped && !walk->changed &&
           walk->next < segment->pieces && walk->jobs < WALK_JOBS && move_room(hosting_of(segment)))
        r = job_submit(segment);
    if (r < 0) {
        walk->error = r;
        (void) snprintf(walk->text, sizeof(walk->text), "%s", strerror(-r));
    }
    if (walk->jobs == 0 &&
        (walk->error != 0 || walk->stopped || walk->changed || walk->next == segment->pieces))
        walk_end(segment);
}

void segment_walk_turn(struct hosting *hosting)
{
    list_for_each(segment, &hosting->broker->segments->all, struct segment, all_link)
    {
        if (segment->device == hosting->device && segment->walk.kind != SEGMENT_WALK_NONE)
            walk_pump(segment);
    }
}

int segment_demote(struct segment *segment, uint32_t beneficiary)
{
    int r;

    if (segment->state != SEGMENT_SEALED || segment->readers > 0 ||
        segment->walk.kind != SEGMENT_WALK_NONE || segment_awaited(segment))
        return -EBUSY;
    if (!segment->summed)
        return -EOPNOTSUPP;
    r = store_take(segment);
    if (r != TIER_OK)
        return r == TIER_FULL ? -ENOSPC : r == TIER_HOST_MAX ? -EDQUOT : r;
    segment->beneficiary = beneficiary;
    coming_count(segment, true);
    segment_set_state(segment, SEGMENT_DEMOTING);
    return segment_walk_start(segment, SEGMENT_WALK_DEMOTE) ? 0 : -EOPNOTSUPP;
}

bool segment_walk_start(struct segment *segment, enum segment_walk_kind kind)
{
    struct hosting *hosting = hosting_of(segment);

    if (hosting->mover == NULL)
        return false;
    mover_keep(hosting->mover, true);
    segment->walk = (struct segment_walk){.kind = kind};
    hosting_kick(hosting);
    return true;
}

void segment_walk_stop(struct segment *segment)
{
    segment->walk.stopped = true;
    if (segment->walk.kind != SEGMENT_WALK_NONE)
        hosting_kick(hosting_of(segment));
}
