/* The way back: reuse within a tenant, never between tenants; death; what does not come back. */
#include "tests/unit/core.h"

static core_id chat, batch;

static void start(uint64_t total_bytes)
{
    world_start(total_bytes);
    chat = world_client(&world, "chat");
    batch = world_client(&world, "batch");
}

START_TEST(a_tenant_gets_its_own_chunks_back_without_the_driver)
{
    core_id lease;
    size_t creates;

    start(GIB);
    lease = world_lease(&world, chat, 20 * MIB);
    assert_done(chat, world_release(&world, chat, lease));
    creates = world.creates;
    ck_assert_uint_eq(creates, 10);
    (void) world_lease(&world, chat, 20 * MIB);
    ck_assert_uint_eq(world.creates, creates);
    ck_assert_uint_eq(world.releases, 0);
    world_done(&world);
}
END_TEST

START_TEST(the_chunk_returned_last_is_taken_first)
{
    core_id old, young;
    uint32_t expected, got, generation;

    start(GIB);
    old = world_lease(&world, chat, 2 * MIB);
    young = world_lease(&world, chat, 2 * MIB);
    ck_assert(core_lease_chunk(world.core, young, 0, &expected, &generation));
    assert_done(chat, world_release(&world, chat, old));
    assert_done(chat, world_release(&world, chat, young));
    ck_assert(
        core_lease_chunk(world.core, world_lease(&world, chat, 2 * MIB), 0, &got, &generation));
    ck_assert_uint_eq(got, expected);
    world_done(&world);
}
END_TEST

START_TEST(no_chunk_goes_from_one_tenant_to_another)
{
    core_id lease;

    start(64 * MIB);
    lease = world_lease(&world, chat, 64 * MIB);
    assert_done(chat, world_release(&world, chat, lease));
    ck_assert_uint_eq(world.creates, 32);
    lease = world_lease(&world, batch, 64 * MIB);
    ck_assert_uint_eq(world.releases, 32); /* every one went through the driver */
    ck_assert_uint_eq(world.creates, 64);
    world_done(&world);
}
END_TEST

START_TEST(memory_kept_ready_counts_against_the_limit)
{
    core_id lease;

    start(GIB);
    chat_limits()->max = 64 * MIB;
    reconfigure();
    lease = world_lease(&world, chat, 64 * MIB);
    assert_done(chat, world_release(&world, chat, lease));
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 64 * MIB);
    /* In another size: the ready ones must go first, and do. */
    (void) assert_granted(chat, world_request(&world, chat, 0, 64 * MIB, 32 * MIB, 0));
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 64 * MIB);
    ck_assert_uint_eq(world_use(&world, "chat", 0).peak, 64 * MIB);
    world_done(&world);
}
END_TEST

START_TEST(an_idle_tenant_keeps_nothing_ready)
{
    core_id lease;

    start(GIB);
    lease = world_lease(&world, chat, 512 * MIB);
    assert_done(chat, world_release(&world, chat, lease));
    world_pass(&world, 10 * SEC - 1);
    ck_assert_uint_eq(world_use(&world, "chat", 0).cached, 512 * MIB);
    world_pass(&world, 1);
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 0);
    ck_assert_uint_eq(world_free(&world, 0), GIB);
    world_done(&world);
}
END_TEST

START_TEST(a_dead_worker_leaves_nothing_and_its_chunks_are_not_reused)
{
    size_t count;

    start(GIB);
    (void) world_lease(&world, chat, 100 * MIB);
    (void) world_lease(&world, chat, 200 * MIB);
    count = world.answer_count;
    world_kill(&world, chat);
    ck_assert_int_eq(world.answers[count].type, CORE_ACTION_CLIENT_GONE);
    ck_assert_uint_eq(world.answers[count].client, chat);
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 0);
    ck_assert_uint_eq(world.releases, 50 + 50);
    ck_assert_uint_eq(world_free(&world, 0), GIB);
    world_done(&world);
}
END_TEST

START_TEST(a_closed_connection_is_not_a_dead_process)
{
    core_id lease;
    struct core_client_view view;

    start(GIB);
    lease = world_lease(&world, chat, 100 * MIB);
    world_detach(&world, chat);
    world_pass(&world, 3600 * SEC);
    ck_assert_uint_eq(world_use(&world, "chat", 0).leased, 100 * MIB);
    ck_assert_uint_eq(world.releases, 0);
    ck_assert(core_client_next(world.core, 0, &view));
    ck_assert_uint_eq(view.id, chat);
    ck_assert(view.detached);
    /* It can't ask any more. */
    assert_refused(chat, world_release(&world, chat, lease), GMB_STATUS_INVALID, 0);
    world_kill(&world, chat);
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 0);
    if (core_client_next(world.core, 0, &view))
        ck_assert_uint_ne(view.id, chat);
    world_done(&world);
}
END_TEST

START_TEST(the_successor_of_a_client_is_not_taken_for_it)
{
    core_id lease, successor;

    start(GIB);
    world_kill(&world, chat);
    successor = world_client(&world, "chat");
    ck_assert_uint_ne(successor, chat);
    lease = world_lease(&world, successor, 2 * MIB);
    world_kill(&world, chat); /* told twice: nothing more to kill */
    world_detach(&world, chat);
    assert_refused(chat, world_release(&world, chat, lease), GMB_STATUS_NOT_FOUND, 0);
    ck_assert_uint_eq(world_use(&world, "chat", 0).leased, 2 * MIB);
    world_done(&world);
}
END_TEST

START_TEST(death_while_chunks_are_being_made_loses_none)
{
    uint64_t request;

    start(64 * MIB);
    world.held_up = true;
    request = world_request(&world, chat, 0, 64 * MIB, 0, 0);
    world_kill(&world, chat);
    world_work(&world);
    ck_assert_ptr_null(world_answer(&world, chat, request));
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 0);
    ck_assert_uint_eq(world_device(&world, 0).clean, 64 * MIB);
    /* Never handed out, so anybody may have them. */
    world.held_up = false;
    (void) world_lease(&world, batch, 64 * MIB);
    ck_assert_uint_eq(world.creates, 32);
    world_done(&world);
}
END_TEST

START_TEST(memory_behind_a_forgotten_fd_stays_charged_until_it_is_back)
{
    struct core_tenant_device_view use;

    start(64 * MIB);
    (void) world_lease(&world, chat, 32 * MIB);
    world.leak_next = 4;
    world_kill(&world, chat);
    world_pass(&world, 100 * MS);
    use = world_use(&world, "chat", 0);
    ck_assert_uint_eq(use.used, 8 * MIB);
    ck_assert_uint_eq(use.releasing, 8 * MIB);
    ck_assert_uint_eq(use.orphaned, 0);
    world_pass(&world, 3 * SEC);
    use = world_use(&world, "chat", 0);
    ck_assert_uint_eq(use.used, 8 * MIB);
    ck_assert_uint_eq(use.releasing, 0);
    ck_assert_uint_eq(use.orphaned, 8 * MIB);
    ck_assert_uint_eq(world_device(&world, 0).orphaned, 8 * MIB);
    ck_assert_uint_eq(world_device(&world, 0).free, 56 * MIB);
    /* Half comes back, then the rest. */
    world.devices[0].leaked = 4 * MIB;
    world_pass(&world, 2 * SEC);
    ck_assert_uint_eq(world_use(&world, "chat", 0).orphaned, 4 * MIB);
    world.devices[0].leaked = 0;
    world_pass(&world, 2 * SEC);
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 0);
    ck_assert_uint_eq(world_device(&world, 0).free, 64 * MIB);
    world_done(&world);
}
END_TEST

START_TEST(memory_that_is_late_is_waited_for)
{
    start(64 * MIB);
    (void) world_lease(&world, chat, 32 * MIB);
    world.leak_next = 16;
    world_kill(&world, chat);
    world_pass(&world, 5 * MS);
    world.devices[0].leaked = 0; /* 5 ms late, within the window */
    world_pass(&world, 15 * MS);
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 0);
    ck_assert_uint_eq(world_device(&world, 0).releasing, 0);
    world_done(&world);
}
END_TEST

START_TEST(a_tenant_that_leaks_holds_up_nobody)
{
    core_id leaker, lease;

    start(GIB);
    leaker = world_client(&world, "chat");
    (void) world_lease(&world, leaker, 2 * MIB);
    world.leak_next = UINT32_MAX;
    world_kill(&world, leaker);
    world_pass(&world, 100 * MS); /* known from here on */
    (void) world_lease(&world, chat, 640 * MIB);
    world_kill(&world, chat);
    world.leak_next = 0;
    lease = world_lease(&world, batch, 64 * MIB);
    (void) lease;
    world_kill(&world, batch);
    /* In the same instant: no window was granted to what leaks. */
    ck_assert_uint_eq(world_use(&world, "batch", 0).used, 0);
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 642 * MIB);
    world_done(&world);
}
END_TEST

START_TEST(what_others_take_is_unaccounted_and_not_orphaned)
{
    start(GIB);
    (void) world_lease(&world, chat, 100 * MIB);
    world.devices[0].others = 300 * MIB;
    world_pass(&world, 6 * SEC);
    ck_assert_uint_eq(world_device(&world, 0).unaccounted, 300 * MIB);
    ck_assert_uint_eq(world_device(&world, 0).orphaned, 0);
    ck_assert_uint_eq(world_device(&world, 0).free, GIB - 400 * MIB);
    assert_refused(batch, world_request(&world, batch, 0, 700 * MIB, 0, 0), GMB_STATUS_EXHAUSTED,
        GMB_LIMIT_DEVICE);
    world.devices[0].others = 0;
    world_pass(&world, 6 * SEC);
    ck_assert_uint_eq(world_device(&world, 0).unaccounted, 0);
    world_done(&world);
}
END_TEST

START_TEST(others_within_the_reserve_take_nothing)
{
    world_init(&world, NULL, GIB, 100 * MIB);
    (void) world_tenant(&world, "chat");
    reconfigure();
    world.devices[0].others = 100 * MIB;
    world_pass(&world, 6 * SEC);
    ck_assert_uint_eq(world_device(&world, 0).free, GIB - 100 * MIB);
    world.devices[0].others = 100 * MIB + 1;
    world_pass(&world, 6 * SEC);
    ck_assert_uint_eq(world_device(&world, 0).free, GIB - 100 * MIB - 1);
    world_done(&world);
}
END_TEST

START_TEST(others_memory_min_is_not_eaten_into_for_nothing)
{
    core_id lease;
    uint64_t request;

    start(64 * MIB);
    chat_limits()->min = 32 * MIB;
    reconfigure();
    lease = world_lease(&world, chat, 32 * MIB);
    assert_done(chat, world_release(&world, chat, lease));
    (void) world_lease(&world, batch, 32 * MIB);
    /* Taking chat's ready chunks would only raise what is promised to chat. */
    request = world_request(&world, batch, 0, 2 * MIB, 0, SEC);
    world_pass(&world, SEC);
    assert_refused(batch, request, GMB_STATUS_TIMED_OUT, GMB_LIMIT_DEVICE);
    ck_assert_uint_eq(world_use(&world, "chat", 0).cached, 32 * MIB);
    ck_assert_uint_eq(world.releases, 0);
    world_done(&world);
}
END_TEST

UNIT_MAIN("core_release", a_tenant_gets_its_own_chunks_back_without_the_driver,
    the_chunk_returned_last_is_taken_first, no_chunk_goes_from_one_tenant_to_another,
    memory_kept_ready_counts_against_the_limit, an_idle_tenant_keeps_nothing_ready,
    a_dead_worker_leaves_nothing_and_its_chunks_are_not_reused,
    a_closed_connection_is_not_a_dead_process, the_successor_of_a_client_is_not_taken_for_it,
    death_while_chunks_are_being_made_loses_none,
    memory_behind_a_forgotten_fd_stays_charged_until_it_is_back, memory_that_is_late_is_waited_for,
    a_tenant_that_leaks_holds_up_nobody, what_others_take_is_unaccounted_and_not_orphaned,
    others_within_the_reserve_take_nothing, others_memory_min_is_not_eaten_into_for_nothing)
