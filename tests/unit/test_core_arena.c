/* Arenas: leases with holes. */
#include "tests/unit/arena.h"

START_TEST(an_arena_begins_empty_and_costs_nothing)
{
    core_id lease;

    arena_start(16 * MIB);
    lease = arena_new(chat, 8);
    assert_map(lease, "........");
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 0);
    ck_assert_uint_eq(world.creates, 0);
    world_done(&world);
}
END_TEST

START_TEST(fills_go_where_they_were_asked_for)
{
    core_id lease;
    struct core_client_view view;

    arena_start(16 * MIB);
    lease = arena_new(chat, 8);
    arena_fill(chat, lease, 2, 2);
    arena_fill(chat, lease, 7, 1);
    arena_fill(chat, lease, 0, 1);
    assert_map(lease, "#.##...#");
    arena_fill(chat, lease, 4, 3);
    assert_map(lease, "#.######");
    ck_assert_uint_eq(world_use(&world, "chat", 0).leased, 14 * MIB);
    ck_assert(core_client_next(world.core, 0, &view));
    ck_assert_uint_eq(view.id, chat);
    ck_assert_uint_eq(view.leased, 14 * MIB);
    ck_assert_uint_eq(view.leases, 1);
    world_done(&world);
}
END_TEST

START_TEST(several_fills_are_in_flight_and_never_the_same_index)
{
    core_id lease;
    uint64_t first, second;

    arena_start(16 * MIB);
    lease = arena_new(chat, 8);
    world.held_up = true;
    first = world_fill(&world, chat, lease, 4, 2, SEC);
    second = world_fill(&world, chat, lease, 0, 2, SEC);
    assert_invalid(chat, world_fill(&world, chat, lease, 1, 1, SEC));
    assert_invalid(chat, world_fill(&world, chat, lease, 3, 2, SEC));
    assert_invalid(chat, world_fill(&world, chat, lease, 5, 3, SEC));
    assert_invalid(chat, world_fill(&world, chat, lease, 0, 8, SEC));
    assert_waits(chat, first);
    assert_waits(chat, second);
    assert_map(lease, "........"); /* what is being made is not there yet */
    world_work(&world);
    ck_assert_uint_eq(assert_granted(chat, first), lease);
    ck_assert_uint_eq(assert_granted(chat, second), lease);
    assert_map(lease, "##..##..");
    assert_invalid(chat, world_fill(&world, chat, lease, 5, 1, SEC));
    world_done(&world);
}
END_TEST

START_TEST(an_index_that_waits_is_taken_and_free_again_after)
{
    core_id lease;
    uint64_t waiting;

    arena_start(4 * MIB);
    lease = arena_new(chat, 4);
    (void) world_lease(&world, batch, 4 * MIB);
    waiting = world_fill(&world, chat, lease, 1, 2, SEC);
    assert_waits(chat, waiting);
    assert_invalid(chat, world_fill(&world, chat, lease, 2, 1, SEC));
    assert_done(chat, world_cancel(&world, chat, waiting));
    waiting = world_fill(&world, chat, lease, 2, 1, SEC);
    assert_waits(chat, waiting);
    world_pass(&world, SEC);
    assert_refused(chat, waiting, GMB_STATUS_TIMED_OUT, GMB_LIMIT_DEVICE);
    assert_waits(chat, world_fill(&world, chat, lease, 0, 2, SEC));
    world_done(&world);
}
END_TEST

START_TEST(a_run_must_lie_within_the_arena)
{
    core_id lease;

    arena_start(32 * MIB);
    lease = arena_new(chat, 8);
    assert_invalid(chat, world_fill(&world, chat, lease, 0, 0, 0));
    assert_invalid(chat, world_fill(&world, chat, lease, 8, 1, 0));
    assert_invalid(chat, world_fill(&world, chat, lease, 7, 2, 0));
    assert_invalid(chat, world_fill(&world, chat, lease, UINT32_MAX, UINT32_MAX, 0));
    assert_invalid(chat, world_fill(&world, chat, lease, 1, UINT32_MAX, 0));
    assert_refused(
        chat, world_fill(&world, chat, 12345, 0, 1, 0), GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE);
    assert_refused(
        batch, world_fill(&world, batch, lease, 0, 1, 0), GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE);
    arena_fill(chat, lease, 7, 1);
    arena_fill(chat, lease, 0, 7);
    assert_map(lease, "########");
    world_done(&world);
}
END_TEST

START_TEST(runs_are_returned_where_they_lie_and_filled_anew)
{
    core_id lease;

    arena_start(16 * MIB);
    lease = arena_new(chat, 8);
    arena_fill(chat, lease, 0, 8);
    ck_assert_uint_eq(world.creates, 8);
    assert_done(chat, world_return(&world, chat, lease, 2, 3));
    assert_map(lease, "##...###");
    ck_assert_uint_eq(world_use(&world, "chat", 0).leased, 10 * MIB);
    ck_assert_uint_eq(world_use(&world, "chat", 0).cached, 6 * MIB);
    arena_fill(chat, lease, 4, 1);
    ck_assert_uint_eq(world.creates, 8); /* one of its own is taken again */
    assert_map(lease, "##..####");
    assert_done(chat, world_return(&world, chat, lease, 4, 4));
    assert_done(chat, world_return(&world, chat, lease, 0, 2));
    assert_map(lease, "........");
    ck_assert_uint_eq(world_use(&world, "chat", 0).leased, 0);
    world_pass(&world, 11 * SEC);
    ck_assert_uint_eq(world_free(&world, 0), 16 * MIB);
    arena_fill(chat, lease, 3, 1); /* it lives on without a chunk */
    world_done(&world);
}
END_TEST

START_TEST(what_is_empty_or_being_made_cannot_be_returned)
{
    core_id lease;
    uint64_t pending;

    arena_start(16 * MIB);
    lease = arena_new(chat, 8);
    arena_fill(chat, lease, 0, 2);
    assert_invalid(chat, world_return(&world, chat, lease, 2, 1));
    assert_invalid(chat, world_return(&world, chat, lease, 1, 2)); /* half of it */
    assert_invalid(chat, world_return(&world, chat, lease, 0, 0));
    assert_invalid(chat, world_return(&world, chat, lease, 8, 1));
    assert_invalid(chat, world_return(&world, chat, lease, 1, UINT32_MAX));
    assert_refused(
        batch, world_return(&world, batch, lease, 0, 1), GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE);
    world.held_up = true;
    pending = world_fill(&world, chat, lease, 2, 2, SEC);
    assert_invalid(chat, world_return(&world, chat, lease, 2, 2));
    assert_invalid(chat, world_return(&world, chat, lease, 1, 2));
    assert_done(chat, world_return(&world, chat, lease, 1, 1)); /* its neighbour can */
    world_work(&world);
    assert_granted(chat, pending);
    assert_map(lease, "#.##....");
    world_done(&world);
}
END_TEST

START_TEST(an_arena_with_holes_is_released_whole)
{
    core_id lease;
    struct core_lease_view view;
    uint64_t pending;

    arena_start(16 * MIB);
    lease = arena_new(chat, 8);
    arena_fill(chat, lease, 1, 1);
    arena_fill(chat, lease, 6, 2);
    world.held_up = true;
    pending = world_fill(&world, chat, lease, 3, 2, SEC);
    assert_invalid(chat, world_release(&world, chat, lease)); /* not while one is filled */
    world_work(&world);
    assert_granted(chat, pending);
    world.held_up = false;
    assert_done(chat, world_release(&world, chat, lease));
    ck_assert(!core_lease_get(world.core, lease, &view));
    ck_assert_uint_eq(world_use(&world, "chat", 0).leased, 0);
    ck_assert_uint_eq(world_use(&world, "chat", 0).cached, 10 * MIB);
    world_done(&world);
}
END_TEST

START_TEST(the_death_of_its_client_ends_an_arena_and_its_fills)
{
    core_id lease;

    arena_start(16 * MIB);
    lease = arena_new(chat, 8);
    arena_fill(chat, lease, 1, 1);
    arena_fill(chat, lease, 6, 1);
    world.held_up = true;
    (void) world_fill(&world, chat, lease, 2, 3, SEC);
    (void) world_fill_urgent(&world, chat, lease, 7, 1, SEC);
    world_kill(&world, chat);
    world.held_up = false;
    world_work(&world);
    world_pass(&world, 11 * SEC);
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 0);
    ck_assert_uint_eq(world_free(&world, 0), 16 * MIB);
    world_done(&world);
}
END_TEST

START_TEST(the_driver_fails_and_a_fill_leaves_the_arena_as_it_was)
{
    core_id lease;
    uint64_t broken;

    arena_start(16 * MIB);
    lease = arena_new(chat, 8);
    arena_fill(chat, lease, 0, 1);
    arena_fill(chat, lease, 4, 1);
    world.break_next = 1;
    broken = world_fill(&world, chat, lease, 1, 3, SEC);
    assert_refused(chat, broken, GMB_STATUS_GPU, GMB_LIMIT_NONE);
    assert_map(lease, "#...#...");
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 4 * MIB);
    world.refuse_next = 1;
    broken = world_fill(&world, chat, lease, 5, 3, SEC); /* no memory for the third: later */
    assert_waits(chat, broken);
    assert_map(lease, "#...#...");
    world_pass(&world, 50 * MS);
    assert_granted(chat, broken);
    assert_map(lease, "#...####");
    world_done(&world);
}
END_TEST

START_TEST(a_lease_grows_and_an_arena_is_filled_never_the_other_way)
{
    core_id arena, lease;

    arena_start(16 * MIB);
    arena = arena_new(chat, 4);
    lease = world_lease(&world, chat, 4 * MIB);
    arena_fill(chat, arena, 0, 2);
    assert_invalid(chat, world_grow(&world, chat, arena, 2 * MIB, 0));
    assert_invalid(chat, world_shrink(&world, chat, arena, 1));
    assert_invalid(chat, world_fill(&world, chat, lease, 0, 1, 0));
    assert_invalid(chat, world_fill(&world, chat, lease, 2, 1, 0));
    assert_invalid(chat, world_return(&world, chat, lease, 0, 1));
    assert_map(arena, "##..");
    assert_done(chat, world_shrink(&world, chat, lease, 1));
    world_done(&world);
}
END_TEST

START_TEST(sizes_of_an_arena_are_checked_at_their_limits)
{
    static const uint64_t wrong_bytes[] = {0, 1, 3 * MIB, 2 * MIB + 1, GIB + 2 * MIB, UINT64_MAX};

    arena_start(16 * MIB);
    for (size_t i = 0; i < ARRAY_SIZE(wrong_bytes); i++)
        assert_refused(chat, world_arena(&world, chat, 0, wrong_bytes[i], 1), GMB_STATUS_INVALID,
            GMB_LIMIT_CHUNKS);
    assert_refused(
        chat, world_arena(&world, chat, 0, 2 * MIB, 0), GMB_STATUS_INVALID, GMB_LIMIT_CHUNKS);
    assert_refused(chat, world_arena(&world, chat, 0, 2 * MIB, LIMIT_LEASE_CHUNKS + 1),
        GMB_STATUS_INVALID, GMB_LIMIT_CHUNKS);
    assert_refused(
        chat, world_arena(&world, chat, 1, 2 * MIB, 1), GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE);
    (void) arena_new(chat, LIMIT_LEASE_CHUNKS);
    assert_granted(chat, world_arena(&world, chat, 0, GIB, 1)); /* larger than the device: empty */
    world_done(&world);
}
END_TEST

START_TEST(empty_arenas_have_a_bound)
{
    core_id last = 0;

    arena_start(16 * MIB);
    for (unsigned i = 0; i < LIMIT_ARENAS_PER_TENANT; i++)
        last = arena_new(chat, 1);
    assert_refused(
        chat, world_arena(&world, chat, 0, 2 * MIB, 1), GMB_STATUS_EXHAUSTED, GMB_LIMIT_LEASES_MAX);
    (void) arena_new(batch, 1); /* of one tenant */
    assert_done(chat, world_release(&world, chat, last));
    (void) arena_new(chat, 1);
    world_kill(&world, chat);
    chat = world_client(&world, "chat");
    (void) arena_new(chat, 1);
    world_done(&world);
}
END_TEST

START_TEST(indices_of_arenas_have_a_bound)
{
    core_id last = 0;

    arena_start(16 * MIB);
    for (unsigned i = 0; i < LIMIT_INDICES_PER_TENANT / LIMIT_LEASE_CHUNKS - 1; i++)
        (void) arena_new(chat, LIMIT_LEASE_CHUNKS);
    last = arena_new(chat, LIMIT_LEASE_CHUNKS - 1);
    assert_refused(
        chat, world_arena(&world, chat, 0, 2 * MIB, 2), GMB_STATUS_EXHAUSTED, GMB_LIMIT_CHUNKS);
    (void) arena_new(chat, 1);
    assert_refused(
        chat, world_arena(&world, chat, 0, 2 * MIB, 1), GMB_STATUS_EXHAUSTED, GMB_LIMIT_CHUNKS);
    assert_done(chat, world_release(&world, chat, last));
    (void) arena_new(chat, LIMIT_LEASE_CHUNKS - 1);
    world_done(&world);
}
END_TEST

START_TEST(an_arena_counts_as_a_lease)
{
    core_id lease;

    arena_start(16 * MIB);
    world.tenants[0].leases_max = 1;
    reconfigure();
    lease = arena_new(chat, 1);
    assert_refused(
        chat, world_arena(&world, chat, 0, 2 * MIB, 1), GMB_STATUS_EXHAUSTED, GMB_LIMIT_LEASES_MAX);
    assert_done(chat, world_release(&world, chat, lease));
    (void) arena_new(chat, 1);
    world_done(&world);
}
END_TEST

START_TEST(memory_max_holds_for_an_arena_at_n_and_n_plus_1)
{
    core_id lease;

    arena_start(64 * MIB);
    chat_limits()->max = 8 * MIB;
    reconfigure();
    lease = arena_new(chat, 8);
    assert_refused(chat, world_fill(&world, chat, lease, 0, 5, 0), GMB_STATUS_OVER_LIMIT,
        GMB_LIMIT_MEMORY_MAX);
    arena_fill(chat, lease, 4, 4);
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 8 * MIB);
    /* Not for ever: the arena can give another chunk back. */
    assert_refused(
        chat, world_fill(&world, chat, lease, 0, 1, 0), GMB_STATUS_EXHAUSTED, GMB_LIMIT_MEMORY_MAX);
    assert_done(chat, world_return(&world, chat, lease, 7, 1));
    arena_fill(chat, lease, 0, 1);
    assert_map(lease, "#...###.");
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 8 * MIB);
    world_done(&world);
}
END_TEST

UNIT_MAIN("core_arena", an_arena_begins_empty_and_costs_nothing, fills_go_where_they_were_asked_for,
    several_fills_are_in_flight_and_never_the_same_index,
    an_index_that_waits_is_taken_and_free_again_after, a_run_must_lie_within_the_arena,
    runs_are_returned_where_they_lie_and_filled_anew,
    what_is_empty_or_being_made_cannot_be_returned, an_arena_with_holes_is_released_whole,
    the_death_of_its_client_ends_an_arena_and_its_fills,
    the_driver_fails_and_a_fill_leaves_the_arena_as_it_was,
    a_lease_grows_and_an_arena_is_filled_never_the_other_way,
    sizes_of_an_arena_are_checked_at_their_limits, empty_arenas_have_a_bound,
    indices_of_arenas_have_a_bound, an_arena_counts_as_a_lease,
    memory_max_holds_for_an_arena_at_n_and_n_plus_1)
