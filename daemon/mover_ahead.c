/*
 * A slab that a job is the first to need has to be found by the kernel, zeroed and page-locked: ten
 * milliseconds, while somebody waits for the memory that the job makes free. So a mover that is
 * kept and has nothing to do makes the slabs ready that are taken next, one after the other.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "daemon/mover_control_private.h"

/* 256 MiB: as much as goes to and fro at once (MOVER_JOB_BYTES); of a small tier half. */
#define AHEAD_SLABS 8u
#define WORD_BITS 64u

/* A bit for every slab: also for those that are out of use, where something may lie still. */
static size_t words(const struct tier *tier)
{
    return (tier_bytes(tier) - tier_disk_bytes(tier)) / tier_slab_bytes(tier) / WORD_BITS + 1;
}

static uint32_t most(const struct tier *tier)
{
    struct tier_stats stats = tier_stats(tier);
    uint64_t slabs = (stats.total_bytes - stats.disk_bytes) / tier_slab_bytes(tier);

    return (uint32_t) MIN(slabs / 2, (uint64_t) AHEAD_SLABS);
}

int ahead_init(struct mover_control *control)
{
    control->ahead.locked = calloc(words(control->tier), sizeof(control->ahead.locked[0]));
    return control->ahead.locked == NULL ? -ENOMEM : 0;
}

void ahead_clear(struct mover_control *control)
{
    free(control->ahead.locked);
    control->ahead.locked = NULL;
}

void ahead_forget(struct mover_control *control)
{
    memset(control->ahead.locked, 0, words(control->tier) * sizeof(control->ahead.locked[0]));
}

static bool locked(const struct mover_control *control, uint64_t offset)
{
    uint64_t slab = offset / tier_slab_bytes(control->tier);

    return (control->ahead.locked[slab / WORD_BITS] >> slab % WORD_BITS & 1) != 0;
}

static void lock_note(struct mover_control *control, uint64_t offset)
{
    uint64_t slab = offset / tier_slab_bytes(control->tier);

    control->ahead.locked[slab / WORD_BITS] |= UINT64_C(1) << slab % WORD_BITS;
}

void ahead_note(struct mover_control *control, const struct mover_record *record)
{
    if (record->prepare)
        lock_note(control, record->slab_offset);
    for (size_t i = 0; record->job.kind != MOVER_CHECKSUM && i < record->job.copy_count; i++) {
        uint64_t offset = record->copies[i].tier_offset;

        if (tier_backing(control->tier, offset) == TIER_MEMORY)
            lock_note(control, offset);
    }
}

struct mover_record *ahead_next(struct mover_control *control)
{
    uint64_t offsets[AHEAD_SLABS];
    struct mover_record *record;
    uint32_t count;

    if (control->state != MOVER_STATE_READY || !control->keep || dispatch_has_work(control) ||
        control->ahead.failures >= MOVER_ATTEMPTS)
        return NULL;
    count = tier_upcoming(control->tier, offsets, most(control->tier));
    for (uint32_t i = 0; i < count; i++) {
        if (locked(control, offsets[i]))
            continue;
        if (mover_record_new_prepare(offsets[i], &record) < 0)
            return NULL;
        tier_touch(control->tier, offsets[i]);
        return record;
    }
    return NULL;
}

void ahead_failed(struct mover_control *control, const char *text)
{
    if (++control->ahead.failures == MOVER_ATTEMPTS)
        log_warning("the mover makes no slab of the host tier ready any more before it is needed, "
                    "after %d failures: %s",
            MOVER_ATTEMPTS, text);
}
