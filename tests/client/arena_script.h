/* One arena and the test that plays its broker. */
#pragma once

#include "base/clock.h"
#include "tests/client/script.h"
#include "tests/unit/unit.h"

static struct script script;
static struct script_arena shared;

/* Allocates while the broker grants what is asked for. */
static inline void alloc_granted(
    gmb_arena *arena, size_t n, uint32_t *pages, uint32_t first, uint32_t count)
{
    struct call call = {.arena = arena, .n = n, .pages = pages, .wait_ns = SCRIPT_WAIT_NS};
    Gmb__ClientMessage *message;

    call_start(&script, &call, call_alloc);
    message = broker_expect_growth(&script);
    ck_assert_uint_eq(message->arena_fill->lease, LEASE_ID);
    ck_assert_uint_eq(message->arena_fill->first, first);
    ck_assert_uint_eq(message->arena_fill->count, count);
    broker_grant(&script, message->id, first, count, first + count);
    message_free(message);
    message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_ARENA_MAPPED);
    ck_assert_uint_eq(message->id, 0);
    ck_assert_uint_eq(message->arena_mapped->first, first);
    ck_assert_uint_eq(message->arena_mapped->count, count);
    message_free(message);
    ck_assert_int_eq(call_join(&call), 0);
}

static inline enum arena_chunk_state chunk_state(uint32_t chunk)
{
    return (enum arena_chunk_state) __atomic_load_n(
        &shared.table.chunks[chunk].state, __ATOMIC_SEQ_CST);
}

static inline void chunk_close(uint32_t chunk)
{
    __atomic_store_n(
        &shared.table.chunks[chunk].state, (uint32_t) ARENA_CHUNK_CLOSED, __ATOMIC_SEQ_CST);
}

static inline gmb_arena *arena_begin(size_t n, uint32_t *pages)
{
    gmb_arena *arena;

    script_begin(&script);
    script_connect(&script);
    arena = script_arena(&script, NULL, &shared);
    if (n > 0)
        alloc_granted(arena, n, pages, 0, (uint32_t) (n + 3) / 4);
    return arena;
}

static inline void arena_finish(void)
{
    script_arena_end(&shared);
    script_end(&script);
}
