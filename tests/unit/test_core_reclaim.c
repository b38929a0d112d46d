/* The wish for memory out of arenas: when it is uttered, for how much, and when no longer. And
 * devices that an operator empties. */
#include "tests/unit/arena.h"

/* batch has `chunks` of 2 MiB in an arena. */
static core_id batch_arena(uint32_t chunks)
{
    core_id lease = arena_new(batch, chunks);

    arena_fill(batch, lease, 0, chunks);
    return lease;
}

static void assert_reclaim(size_t index, uint64_t at_ns, uint32_t tenant, uint64_t bytes, bool own)
{
    const struct world_reclaim *reclaim = &world.reclaims[index];

    ck_assert_uint_gt(world.reclaim_count, index);
    ck_assert_uint_eq(reclaim->at_ns, at_ns);
    ck_assert_uint_eq(reclaim->device, 0);
    ck_assert_uint_eq(reclaim->tenant, tenant);
    ck_assert_uint_eq(reclaim->bytes, bytes);
    ck_assert(reclaim->own == own);
}

START_TEST(who_waits_for_the_device_asks_for_what_is_missing)
{
    core_id lease;
    uint64_t request, start_ns;

    arena_start(16 * MIB);
    lease = batch_arena(7);
    start_ns = world.now_ns;
    request = world_request(&world, chat, 0, 6 * MIB, 2 * MIB, 10 * SEC);
    assert_waits(chat, request);
    ck_assert_uint_eq(world.reclaim_count, 1);
    assert_reclaim(0, start_ns, 0, 4 * MIB, false); /* 2 MiB are free */
    ck_assert_uint_eq(world.reclaims[0].wanted, 6 * MIB);
    assert_done(batch, world_return(&world, batch, lease, 3, 1));
    ck_assert_uint_eq(world.reclaim_count, 1); /* not sooner than after 100 ms … */
    world_pass(&world, 99 * MS);
    ck_assert_uint_eq(world.reclaim_count, 1);
    world_pass(&world, 1 * MS);
    ck_assert_uint_eq(world.reclaim_count, 2);
    assert_reclaim(1, start_ns + 100 * MS, 0, 2 * MIB, false); /* … and less by what came */
    world_pass(&world, 1000 * MS);
    ck_assert_uint_eq(world.reclaim_count, 12);
    assert_reclaim(11, start_ns + 1100 * MS, 0, 2 * MIB, false);
    assert_done(batch, world_return(&world, batch, lease, 0, 1));
    assert_granted(chat, request);
    world_pass(&world, SEC);
    ck_assert_uint_eq(world.reclaim_count, 12);
    world_done(&world);
}
END_TEST

START_TEST(each_who_waits_asks_for_its_own_part)
{
    arena_start(16 * MIB);
    (void) batch_arena(8);
    (void) world_request(&world, chat, 0, 6 * MIB, 2 * MIB, 10 * SEC);
    (void) world_request(&world, batch, 0, 2 * MIB, 2 * MIB, 10 * SEC);
    (void) world_request(&world, chat, 0, 2 * MIB, 2 * MIB, 10 * SEC); /* behind its first */
    ck_assert_uint_eq(world.reclaim_count, 2);
    assert_reclaim(0, world.now_ns, 0, 6 * MIB, false);
    assert_reclaim(1, world.now_ns, 1, 2 * MIB, false);
    world_done(&world);
}
END_TEST

/* One plan for a tenant's whole queue, as far as the tenant may have it. */
START_TEST(those_behind_the_first_are_asked_for_with_it)
{
    arena_start(16 * MIB);
    (void) batch_arena(8);
    (void) world_request(&world, chat, 0, 6 * MIB, 2 * MIB, 10 * SEC);
    (void) world_request(&world, chat, 0, 2 * MIB, 2 * MIB, 10 * SEC);
    (void) world_request(&world, chat, 0, 2 * MIB, 2 * MIB, 10 * SEC);
    assert_reclaim(0, world.now_ns, 0, 6 * MIB, false);
    world_pass(&world, 100 * MS);
    assert_reclaim(1, world.now_ns, 0, 10 * MIB, false);
    ck_assert_uint_eq(world.reclaims[1].wanted, 10 * MIB);
    chat_limits()->max = 8 * MIB;
    reconfigure();
    world_pass(&world, 100 * MS);
    assert_reclaim(2, world.now_ns, 0, 8 * MIB, false);
    world_done(&world);
}
END_TEST

START_TEST(who_may_not_wait_asks_for_nothing)
{
    arena_start(16 * MIB);
    (void) batch_arena(8);
    assert_refused(chat, world_request(&world, chat, 0, 2 * MIB, 2 * MIB, 0), GMB_STATUS_EXHAUSTED,
        GMB_LIMIT_DEVICE);
    ck_assert_uint_eq(world.reclaim_count, 0);
    world_done(&world);
}
END_TEST

START_TEST(what_lies_ready_goes_before_anything_in_arenas)
{
    core_id lease;

    arena_start(16 * MIB);
    lease = batch_arena(8);
    assert_done(batch, world_return(&world, batch, lease, 0, 3));
    assert_granted(chat, world_request(&world, chat, 0, 6 * MIB, 2 * MIB, SEC));
    ck_assert_uint_eq(world.reclaim_count, 0);
    world_done(&world);
}
END_TEST

START_TEST(what_a_memory_min_keeps_ready_is_not_waited_for)
{
    core_id bulk, arena;

    arena_start(16 * MIB);
    batch_limits()->min = 6 * MIB;
    (void) world_tenant(&world, "bulk");
    reconfigure();
    bulk = world_client(&world, "bulk");
    assert_done(batch, world_release(&world, batch, world_lease(&world, batch, 6 * MIB)));
    ck_assert_uint_eq(world_use(&world, "batch", 0).cached, 6 * MIB);
    arena = arena_new(bulk, 5);
    arena_fill(bulk, arena, 0, 5);
    assert_waits(chat, world_request(&world, chat, 0, 2 * MIB, 2 * MIB, SEC));
    ck_assert_uint_eq(world.reclaim_count, 1);
    assert_reclaim(0, world.now_ns, 0, 2 * MIB, false);
    ck_assert_uint_eq(world_use(&world, "batch", 0).cached, 6 * MIB);
    world_done(&world);
}
END_TEST

START_TEST(whom_its_own_memory_max_holds_back_gives_itself)
{
    core_id lease;
    uint64_t request;

    arena_start(16 * MIB);
    chat_limits()->max = 8 * MIB;
    reconfigure();
    lease = arena_new(chat, 8);
    arena_fill(chat, lease, 0, 4);
    request = world_fill_urgent(&world, chat, lease, 5, 2, SEC);
    assert_waits(chat, request);
    ck_assert_uint_eq(world.reclaim_count, 1);
    assert_reclaim(0, world.now_ns, 0, 4 * MIB, true);
    assert_done(chat, world_return(&world, chat, lease, 1, 2));
    assert_granted(chat, request);
    assert_map(lease, "#..#.##.");
    ck_assert_uint_eq(world.creates, 4);
    world_done(&world);
}
END_TEST

START_TEST(a_restore_goes_before_what_else_its_tenant_waits_for)
{
    core_id lease, held, arena;
    uint64_t first, second, urgent, urgent2;

    arena_start(16 * MIB);
    held = world_lease(&world, batch, 2 * MIB);
    arena = arena_new(batch, 7);
    arena_fill(batch, arena, 0, 7);
    lease = arena_new(chat, 8);
    first = world_fill(&world, chat, lease, 0, 1, SEC);
    second = world_fill(&world, chat, lease, 1, 1, SEC);
    urgent = world_fill_urgent(&world, chat, lease, 2, 1, SEC);
    urgent2 = world_fill_urgent(&world, chat, lease, 3, 1, SEC);
    assert_done(batch, world_release(&world, batch, held));
    assert_granted(chat, urgent);
    assert_waits(chat, urgent2);
    assert_waits(chat, first);
    assert_done(batch, world_return(&world, batch, arena, 0, 2));
    assert_granted(chat, urgent2);
    assert_granted(chat, first);
    assert_waits(chat, second);
    world_done(&world);
}
END_TEST

START_TEST(a_restore_that_may_not_wait_is_not_refused_for_those_behind_it)
{
    core_id lease;
    uint64_t waiting;

    arena_start(16 * MIB);
    (void) batch_arena(7);
    lease = arena_new(chat, 8);
    waiting = world_fill(&world, chat, lease, 0, 2, SEC);
    assert_waits(chat, waiting);
    assert_refused(
        chat, world_fill(&world, chat, lease, 2, 1, 0), GMB_STATUS_EXHAUSTED, GMB_LIMIT_DEVICE);
    assert_granted(chat, world_fill_urgent(&world, chat, lease, 3, 1, 0));
    assert_waits(chat, waiting);
    world_done(&world);
}
END_TEST

START_TEST(use_above_a_lowered_limit_is_asked_back_until_it_is_gone)
{
    core_id lease;
    uint64_t start_ns;

    arena_start(16 * MIB);
    lease = arena_new(chat, 8);
    arena_fill(chat, lease, 0, 8);
    chat_limits()->max = 16 * MIB;
    reconfigure();
    ck_assert_uint_eq(world.reclaim_count, 0);
    chat_limits()->max = 10 * MIB;
    start_ns = world.now_ns;
    reconfigure();
    ck_assert_uint_eq(world.reclaim_count, 1);
    assert_reclaim(0, start_ns, 0, 6 * MIB, true);
    assert_done(chat, world_return(&world, chat, lease, 0, 1));
    assert_done(chat, world_return(&world, chat, lease, 4, 1));
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 12 * MIB); /* nothing is kept */
    world_pass(&world, 99 * MS);
    ck_assert_uint_eq(world.reclaim_count, 1);
    world_pass(&world, 1 * MS);
    assert_reclaim(1, start_ns + 100 * MS, 0, 2 * MIB, true);
    assert_done(chat, world_return(&world, chat, lease, 7, 1));
    ck_assert_uint_eq(world_use(&world, "chat", 0).overage, 0);
    world_pass(&world, SEC);
    ck_assert_uint_eq(world.reclaim_count, 2);
    chat_limits()->max = 10 * MIB - 1; /* a byte is enough */
    reconfigure();
    assert_reclaim(2, world.now_ns, 0, 1, true);
    chat_limits()->max = UINT64_MAX;
    reconfigure();
    world_pass(&world, SEC);
    ck_assert_uint_eq(world.reclaim_count, 3);
    world_done(&world);
}
END_TEST

START_TEST(what_is_being_made_above_a_lowered_limit_is_asked_back_too)
{
    core_id lease;
    uint64_t request;

    arena_start(16 * MIB);
    lease = arena_new(chat, 8);
    world.held_up = true;
    request = world_fill(&world, chat, lease, 0, 4, SEC);
    chat_limits()->max = 4 * MIB;
    reconfigure();
    world_work(&world);
    world.held_up = false;
    assert_granted(chat, request);
    ck_assert_uint_eq(world_use(&world, "chat", 0).overage, 4 * MIB);
    world_pass(&world, 100 * MS);
    ck_assert_uint_ge(world.reclaim_count, 1);
    assert_reclaim(world.reclaim_count - 1, world.now_ns, 0, 4 * MIB, true);
    world_done(&world);
}
END_TEST

START_TEST(what_is_above_a_lowered_limit_is_wished_for_before_growth)
{
    core_id lease;

    arena_start(32 * MIB);
    lease = arena_new(chat, 8);
    arena_fill(chat, lease, 0, 6);
    chat_limits()->max = 8 * MIB;
    reconfigure();
    assert_reclaim(0, world.now_ns, 0, 4 * MIB, true);
    ck_assert_uint_eq(world.reclaims[0].wanted, 0);
    assert_waits(chat, world_fill_urgent(&world, chat, lease, 6, 1, 10 * SEC));
    ck_assert_uint_eq(world.reclaim_count, 1);
    assert_done(chat, world_return(&world, chat, lease, 0, 2));
    ck_assert_uint_eq(world.reclaim_count, 2);
    ck_assert_uint_eq(world.reclaims[1].bytes, 2 * MIB);
    ck_assert_uint_eq(world.reclaims[1].wanted, 2 * MIB);
    ck_assert(world.reclaims[1].own);
    world_done(&world);
}
END_TEST

START_TEST(what_came_back_for_a_request_of_its_tenant_stays_for_it)
{
    core_id lease;
    uint64_t request;
    size_t creates, releases;

    arena_start(16 * MIB);
    lease = batch_arena(8);
    request = world_request(&world, batch, 0, 6 * MIB, 2 * MIB, 100 * SEC);
    assert_done(batch, world_return(&world, batch, lease, 0, 1));
    creates = world.creates;
    releases = world.releases;
    world_pass(&world, 50 * SEC); /* five times what a returned chunk is kept for nobody */
    ck_assert_uint_eq(world_use(&world, "batch", 0).cached, 2 * MIB);
    assert_done(batch, world_return(&world, batch, lease, 3, 2));
    assert_granted(batch, request);
    ck_assert_uint_eq(world.creates, creates);
    ck_assert_uint_eq(world.releases, releases);
    /* Nobody waits for what comes now. */
    assert_done(batch, world_return(&world, batch, lease, 1, 1));
    world_pass(&world, 11 * SEC);
    ck_assert_uint_eq(world_use(&world, "batch", 0).cached, 0);
    world_done(&world);
}
END_TEST

START_TEST(what_memory_low_protects_goes_when_a_wish_brought_nothing)
{
    core_id bulk, arena, lease;
    uint64_t request, start_ns;

    arena_start(16 * MIB);
    batch_limits()->low = 6 * MIB;
    (void) world_tenant(&world, "bulk");
    reconfigure();
    bulk = world_client(&world, "bulk");
    lease = world_lease(&world, batch, 6 * MIB);
    assert_done(batch, world_release(&world, batch, lease));
    arena = arena_new(bulk, 5);
    arena_fill(bulk, arena, 0, 5);
    start_ns = world.now_ns;
    request = world_request(&world, chat, 0, 4 * MIB, 2 * MIB, SEC);
    assert_reclaim(0, start_ns, 0, 4 * MIB, false);
    /* Something came of it: arenas are not through yet. */
    assert_done(bulk, world_return(&world, bulk, arena, 0, 1));
    world_pass(&world, 100 * MS);
    assert_reclaim(1, start_ns + 100 * MS, 0, 2 * MIB, false);
    ck_assert_uint_eq(world_use(&world, "batch", 0).cached, 6 * MIB);
    world_pass(&world, 99 * MS);
    assert_waits(chat, request);
    world_pass(&world, 1 * MS);
    assert_granted(chat, request);
    ck_assert_uint_eq(world_use(&world, "batch", 0).cached, 4 * MIB);
    world_done(&world);
}
END_TEST

START_TEST(reclaim_can_be_turned_off)
{
    struct core_options options = core_options_default;

    options.reclaim_ns = 0;
    world_init(&world, &options, 16 * MIB, 0);
    (void) world_tenant(&world, "chat");
    (void) world_tenant(&world, "batch");
    reconfigure();
    chat = world_client(&world, "chat");
    batch = world_client(&world, "batch");
    (void) batch_arena(8);
    assert_waits(chat, world_request(&world, chat, 0, 2 * MIB, 2 * MIB, 10 * SEC));
    batch_limits()->max = 4 * MIB;
    reconfigure();
    ck_assert_uint_gt(core_next_tick(world.core), world.now_ns);
    world_pass(&world, SEC);
    ck_assert_uint_eq(world.reclaim_count, 0);
    world_done(&world);
}
END_TEST

START_TEST(an_empty_configuration_takes_nothing_from_arenas)
{
    core_id lease;

    arena_start(16 * MIB);
    lease = arena_new(chat, 8);
    arena_fill(chat, lease, 0, 8);
    world.tenant_count = 0;
    reconfigure();
    world_pass(&world, SEC);
    ck_assert_uint_eq(world.reclaim_count, 0);
    assert_map(lease, "########");
    assert_refused(
        chat, world_arena(&world, chat, 0, 2 * MIB, 1), GMB_STATUS_DENIED, GMB_LIMIT_NONE);
    world_done(&world);
}
END_TEST

START_TEST(what_is_kept_back_is_nobodys_until_it_is_used)
{
    uint64_t request;

    arena_start(16 * MIB);
    world_pass(&world, MS);
    world_hold(&world, 0, 6 * MIB);
    ck_assert_uint_eq(world_device(&world, 0).unaccounted, 6 * MIB);
    ck_assert_uint_eq(world_device(&world, 0).lacking, 0);
    (void) world_lease(&world, chat, 10 * MIB);
    request = world_request(&world, batch, 0, 2 * MIB, 2 * MIB, 10 * SEC);
    assert_waits(batch, request);
    /* The process is there: its memory is seen as what others use, and no longer kept back. */
    world.devices[0].others = 4 * MIB;
    world_hold(&world, 0, 0);
    ck_assert_uint_eq(world_device(&world, 0).unaccounted, 4 * MIB);
    assert_granted(batch, request);
    /* It has died, and the look that sees that keeps it. */
    world.devices[0].others = 0;
    world_hold(&world, 0, 4 * MIB);
    ck_assert_uint_eq(world_device(&world, 0).unaccounted, 4 * MIB);
    ck_assert_uint_eq(world_device(&world, 0).free, 0);
    world_hold(&world, 7, 4 * MIB); /* there is none */
    world_hold(&world, 0, UINT64_MAX);
    ck_assert_uint_eq(world_device(&world, 0).free, 0);
    world_done(&world);
}
END_TEST

START_TEST(a_look_from_before_keeps_what_is_kept_back)
{
    arena_start(16 * MIB);
    world_pass(&world, MS);
    world_hold(&world, 0, 6 * MIB);
    world_pass(&world, 5 * SEC - 2 * MS);
    world.held_up = true;
    world_pass(&world, 10 * MS); /* a routine look is with the shell */
    ck_assert_uint_eq(world.job_count, 1);
    world_hold(&world, 0, 0);
    world.held_up = false;
    world_work(&world);
    /* The second look was asked for after that, and has seen all there is. */
    ck_assert_uint_ge(world.looks, 3);
    ck_assert_uint_eq(world_device(&world, 0).unaccounted, 0);
    world_done(&world);
}
END_TEST

START_TEST(what_lies_ready_makes_room_for_what_is_kept_back)
{
    core_id lease;

    arena_start(16 * MIB);
    batch_limits()->low = 16 * MIB;
    reconfigure();
    lease = batch_arena(6);
    (void) world_lease(&world, chat, 4 * MIB);
    assert_done(batch, world_return(&world, batch, lease, 0, 2));
    world_hold(&world, 0, 8 * MIB);
    ck_assert_uint_eq(world_use(&world, "batch", 0).cached, 0);
    ck_assert_uint_eq(world_device(&world, 0).unaccounted, 4 * MIB);
    ck_assert_uint_eq(world_device(&world, 0).lacking, 4 * MIB);
    /* It goes before everybody: what comes next is for it. */
    assert_waits(chat, world_request(&world, chat, 0, 2 * MIB, 2 * MIB, 10 * SEC));
    assert_done(batch, world_return(&world, batch, lease, 2, 2));
    ck_assert_uint_eq(world_device(&world, 0).lacking, 0);
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 4 * MIB);
    world_done(&world);
}
END_TEST

START_TEST(a_drained_device_refuses_who_waits_and_who_comes)
{
    core_id arena;
    uint64_t waiting, behind;

    arena_start(16 * MIB);
    (void) batch_arena(7);
    arena = arena_new(chat, 8);
    waiting = world_fill(&world, chat, arena, 0, 2, 10 * SEC);
    behind = world_request(&world, chat, 0, 2 * MIB, 0, 10 * SEC);
    world_drain(&world, 0, false);
    assert_refused(chat, waiting, GMB_STATUS_EXHAUSTED, GMB_LIMIT_DRAINING);
    assert_refused(chat, behind, GMB_STATUS_EXHAUSTED, GMB_LIMIT_DRAINING);
    assert_refused(chat, world_request(&world, chat, 0, 2 * MIB, 0, SEC), GMB_STATUS_EXHAUSTED,
        GMB_LIMIT_DRAINING);
    assert_refused(chat, world_fill_urgent(&world, chat, arena, 0, 1, 0), GMB_STATUS_EXHAUSTED,
        GMB_LIMIT_DRAINING);
    assert_refused(
        chat, world_arena(&world, chat, 0, 2 * MIB, 1), GMB_STATUS_EXHAUSTED, GMB_LIMIT_DRAINING);
    world_drain(&world, 0, true);
    arena_fill(chat, arena, 0, 1);
    (void) arena_new(chat, 1);
    world_drain(&world, 7, false); /* there is none */
    world_done(&world);
}
END_TEST

START_TEST(a_drained_device_ends_what_is_being_made_there)
{
    core_id arena;
    uint64_t request;

    arena_start(64 * MIB);
    arena = arena_new(chat, 16);
    arena_fill(chat, arena, 3, 1);
    world.held_up = true;
    request = world_fill(&world, chat, arena, 4, 8, 10 * SEC);
    world_drain(&world, 0, false);
    world.held_up = false;
    world_work(&world);
    assert_refused(chat, request, GMB_STATUS_EXHAUSTED, GMB_LIMIT_DRAINING);
    assert_map(arena, "...#............");
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 2 * MIB);
    world_pass(&world, 10 * MS);
    ck_assert_uint_eq(world_free(&world, 0), 62 * MIB); /* what was made is not kept ready */
    world_drain(&world, 0, true);
    arena_fill(chat, arena, 4, 8);
    world_done(&world);
}
END_TEST

START_TEST(a_drained_device_keeps_nothing_ready)
{
    core_id lease;

    arena_start(16 * MIB);
    lease = batch_arena(8);
    assert_done(batch, world_return(&world, batch, lease, 0, 4));
    ck_assert_uint_eq(world_use(&world, "batch", 0).cached, 8 * MIB);
    world_drain(&world, 0, false);
    world_pass(&world, 1 * MS);
    ck_assert_uint_eq(world_free(&world, 0), 8 * MIB);
    assert_done(batch, world_return(&world, batch, lease, 4, 4));
    world_pass(&world, 1 * MS);
    ck_assert_uint_eq(world_free(&world, 0), 16 * MIB);
    ck_assert_uint_eq(world_use(&world, "batch", 0).used, 0);
    world_done(&world);
}
END_TEST

UNIT_MAIN("core_reclaim", who_waits_for_the_device_asks_for_what_is_missing,
    each_who_waits_asks_for_its_own_part, those_behind_the_first_are_asked_for_with_it,
    who_may_not_wait_asks_for_nothing, what_lies_ready_goes_before_anything_in_arenas,
    what_a_memory_min_keeps_ready_is_not_waited_for,
    whom_its_own_memory_max_holds_back_gives_itself,
    a_restore_goes_before_what_else_its_tenant_waits_for,
    a_restore_that_may_not_wait_is_not_refused_for_those_behind_it,
    use_above_a_lowered_limit_is_asked_back_until_it_is_gone,
    what_is_being_made_above_a_lowered_limit_is_asked_back_too,
    what_is_above_a_lowered_limit_is_wished_for_before_growth,
    what_came_back_for_a_request_of_its_tenant_stays_for_it,
    what_memory_low_protects_goes_when_a_wish_brought_nothing, reclaim_can_be_turned_off,
    an_empty_configuration_takes_nothing_from_arenas, what_is_kept_back_is_nobodys_until_it_is_used,
    a_look_from_before_keeps_what_is_kept_back, what_lies_ready_makes_room_for_what_is_kept_back,
    a_drained_device_refuses_who_waits_and_who_comes,
    a_drained_device_ends_what_is_being_made_there, a_drained_device_keeps_nothing_ready)
