/* What the tests of restored cores share: a core that is made again of what the one before has
 * written down. */
#pragma once

#include <string.h>

#include "tests/unit/arena.h"

/* Records with which the next core starts, and chunks whose memory the shell has lost. */
static struct core_record log_of[WORLD_RECORDS];
static size_t log_count;
static uint32_t lost[8];
static size_t lost_count;

static inline bool has_handle(const struct core_record *record)
{
    for (size_t i = 0; i < lost_count; i++) {
        if (record->type == CORE_RECORD_CHUNK && lost[i] == record->number)
            return false;
    }
    return true;
}

static inline bool same_place(const struct core_record *a, const struct core_record *b)
{
    return a->type == b->type && a->number == b->number &&
           (a->type != CORE_RECORD_ACCOUNT || a->account.device == b->account.device);
}

/* The last record of each place counts. */
static inline void records_give(
    struct core *core, const struct core_record *records, size_t count, bool damaged)
{
    for (unsigned type = 0; type < CORE_RECORD_MAX; type++) {
        for (size_t i = 0; i < count; i++) {
            bool last = records[i].type == type;

            for (size_t k = i + 1; last && k < count; k++)
                last = !same_place(&records[i], &records[k]);
            if (last)
                ck_assert_int_eq(
                    core_restore(core, &records[i], has_handle(&records[i]), damaged), 0);
        }
    }
}

/* The world goes on with a core that is made of the first `count` records. Jobs of the shell are
 * gone, but for the first look at each device. */
static inline void restart_with(size_t count, bool damaged, uint64_t reserve_bytes)
{
    uint64_t total = world.devices[0].total;

    log_count = count;
    memcpy(log_of, world.records, count * sizeof(log_of[0]));
    world.core = core_free(world.core);
    world.job_count = 0;
    world.held_up = true;
    ck_assert_int_eq(core_new(&core_options_default, &world.core), 0);
    {
        struct world_device device = world.devices[0];

        world_device_add(&world, total, reserve_bytes);
        world.devices[0] = device;
    }
    records_give(world.core, log_of, log_count, damaged);
    ck_assert_int_eq(core_restore_end(world.core, damaged, 1000), 0);
    ck_assert_pstr_eq(core_check(world.core), NULL);
    world.held_up = false;
    world.record_count = count; /* what is written from now on comes behind them */
    reconfigure();
}

static inline void restart(void)
{
    restart_with(world.record_count, false, 0);
}

static inline uint32_t chunk_number(core_id lease, uint32_t index)
{
    uint32_t number, generation;

    ck_assert(core_lease_chunk(world.core, lease, index, &number, &generation));
    return number;
}

static inline void attach(core_id client)
{
    world_step(&world, &(struct core_event){.type = CORE_EVENT_CLIENT_ATTACH, .client = client});
}
