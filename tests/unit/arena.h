/* What the tests of arenas share: a client of each tenant and arenas of 2 MiB chunks. */
#pragma once

#include "tests/unit/core.h"

static core_id chat, batch;

static inline void arena_start(uint64_t total_bytes)
{
    world_start(total_bytes);
    chat = world_client(&world, "chat");
    batch = world_client(&world, "batch");
}

static inline core_id arena_new(core_id client, uint32_t max_chunks)
{
    uint64_t request = world_arena(&world, client, 0, 2 * MIB, max_chunks);
    core_id lease = assert_granted(client, request);

    ck_assert_uint_eq(world_answer(&world, client, request)->grant.count, 0);
    return lease;
}

static inline void arena_fill(core_id client, core_id lease, uint32_t first, uint32_t count)
{
    uint64_t request = world_fill(&world, client, lease, first, count, 0);

    ck_assert_uint_eq(assert_granted(client, request), lease);
    ck_assert_uint_eq(world_answer(&world, client, request)->grant.first, first);
    ck_assert_uint_eq(world_answer(&world, client, request)->grant.count, count);
}

/* `map`: one character for each index, `#` for a filled one. */
static inline void assert_map(core_id lease, const char *map)
{
    struct core_lease_view view;
    uint32_t filled = 0, index = 0, chunk, generation;

    ck_assert(core_lease_get(world.core, lease, &view));
    for (; map[index] != '\0'; index++) {
        bool there = core_lease_chunk(world.core, lease, index, &chunk, &generation);

        ck_assert_msg(there == (map[index] == '#'), "index %u of %s", index, map);
        filled += there;
    }
    ck_assert_uint_eq(view.max_chunks, index);
    ck_assert_uint_eq(view.chunks, filled);
    ck_assert(!core_lease_chunk(world.core, lease, index, &chunk, &generation));
}

static inline void assert_invalid(core_id client, uint64_t request)
{
    assert_refused(client, request, GMB_STATUS_INVALID, GMB_LIMIT_NONE);
}
