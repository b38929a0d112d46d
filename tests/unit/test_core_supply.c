/* Creation: windows, failures of the driver, and what is kept ready. */
#include "tests/unit/core.h"

static core_id chat, batch;

static void start(uint64_t total_bytes)
{
    world_start(total_bytes);
    chat = world_client(&world, "chat");
    batch = world_client(&world, "batch");
}

START_TEST(a_large_request_is_made_in_windows)
{
    uint64_t large, small;

    start(4 * GIB);
    world_pass(&world, MS); /* the first look is done */
    world.held_up = true;
    large = world_request(&world, chat, 0, 2 * GIB, 2 * MIB, 0); /* 1024 chunks */
    ck_assert_uint_eq(world.job_count, 64);
    small = world_request(&world, batch, 0, 2 * MIB, 0, 0);
    ck_assert_uint_eq(world.job_count, 65); /* not behind 1024 */
    ck_assert_uint_eq(world_use(&world, "chat", 0).creating, 2 * GIB);
    ck_assert_uint_eq(world_device(&world, 0).free, 2 * GIB - 2 * MIB);
    world_work(&world);
    (void) assert_granted(chat, large);
    (void) assert_granted(batch, small);
    ck_assert_uint_eq(world.creates, 1025);
    world_done(&world);
}
END_TEST

START_TEST(many_requests_of_one_tenant_hold_up_no_other)
{
    uint64_t small;

    start(4 * GIB);
    world_pass(&world, MS);
    world.held_up = true;
    for (unsigned i = 0; i < 16; i++)
        (void) world_request(&world, chat, 0, 128 * MIB, 2 * MIB, 0); /* 64 chunks each */
    ck_assert_uint_eq(world.job_count, 64);
    small = world_request(&world, batch, 0, 2 * MIB, 0, 0);
    ck_assert_uint_eq(world.job_count, 65);
    world_work(&world);
    (void) assert_granted(batch, small);
    ck_assert_uint_eq(world.creates, 1025);
    world_done(&world);
}
END_TEST

START_TEST(requests_that_are_cancelled_fill_no_queue)
{
    start(4 * GIB);
    world_pass(&world, MS);
    world.held_up = true;
    for (unsigned i = 0; i < 200; i++) {
        uint64_t request = world_request(&world, chat, 0, 128 * MIB, 2 * MIB, 0);

        (void) world_cancel(&world, chat, request);
    }
    ck_assert_uint_le(world.job_count, 128);
    world_work(&world);
    ck_assert_uint_le(world.creates, 128);
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 0);
    world_done(&world);
}
END_TEST

START_TEST(a_failed_step_undoes_the_steps_before_it)
{
    core_id lease;
    uint64_t request;

    start(GIB);
    lease = world_lease(&world, chat, 8 * MIB);
    assert_done(chat, world_release(&world, chat, lease));
    world.break_next = 1;
    request = world_request(&world, chat, 0, 20 * MIB, 0, SEC);
    assert_refused(chat, request, GMB_STATUS_GPU, GMB_LIMIT_NONE);
    /* Its own four are ready again, what was made since is clean, nothing else is charged. */
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 8 * MIB);
    ck_assert_uint_eq(world_use(&world, "chat", 0).cached, 8 * MIB);
    ck_assert_uint_eq(world_device(&world, 0).clean, 10 * MIB);
    ck_assert_uint_eq(world_device(&world, 0).creating, 0);
    (void) world_lease(&world, chat, 20 * MIB);
    world_done(&world);
}
END_TEST

START_TEST(a_failed_growth_leaves_the_lease_as_it_was)
{
    core_id lease;
    uint64_t request;
    struct core_lease_view view;

    start(GIB);
    lease = world_lease(&world, chat, 8 * MIB);
    world.break_next = 1;
    request = world_grow(&world, chat, lease, 20 * MIB, 0);
    assert_refused(chat, request, GMB_STATUS_GPU, GMB_LIMIT_NONE);
    ck_assert(core_lease_get(world.core, lease, &view));
    ck_assert_uint_eq(view.chunks, 4);
    request = world_grow(&world, chat, lease, 20 * MIB, 0);
    (void) assert_granted(chat, request);
    world_done(&world);
}
END_TEST

START_TEST(a_driver_without_memory_is_asked_again_later)
{
    uint64_t request;

    start(GIB);
    world.refuse_next = 1;
    request = world_request(&world, chat, 0, 20 * MIB, 20 * MIB, SEC);
    assert_waits(chat, request);
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 0);
    world_pass(&world, 50 * MS - 1);
    ck_assert_uint_eq(world.creates, 1); /* no spinning */
    world_pass(&world, 1);
    (void) assert_granted(chat, request);
    world_done(&world);
}
END_TEST

START_TEST(a_driver_without_memory_refuses_who_may_not_wait)
{
    start(GIB);
    world.refuse_next = 1;
    assert_refused(chat, world_request(&world, chat, 0, 2 * MIB, 0, 0), GMB_STATUS_EXHAUSTED,
        GMB_LIMIT_DRIVER);
    /* Nor is it asked again for the next one within the pause. */
    assert_refused(chat, world_request(&world, chat, 0, 2 * MIB, 0, 0), GMB_STATUS_EXHAUSTED,
        GMB_LIMIT_DRIVER);
    ck_assert_uint_eq(world.creates, 1);
    world_pass(&world, 50 * MS);
    (void) world_lease(&world, chat, 2 * MIB);
    world_done(&world);
}
END_TEST

START_TEST(a_driver_that_never_has_memory_times_the_wait_out)
{
    uint64_t request;

    start(GIB);
    world.refuse_next = UINT32_MAX;
    request = world_request(&world, chat, 0, 2 * MIB, 0, SEC);
    world_pass(&world, SEC);
    assert_refused(chat, request, GMB_STATUS_TIMED_OUT, GMB_LIMIT_DRIVER);
    ck_assert_uint_ge(world.creates, 10);
    ck_assert_uint_le(world.creates, 21); /* one each 50 ms */
    world_done(&world);
}
END_TEST

START_TEST(memory_that_others_took_is_found_by_the_failure)
{
    uint64_t request;

    start(GIB);
    world_pass(&world, MS);
    world.devices[0].others = GIB - 10 * MIB;
    request = world_request(&world, chat, 0, 20 * MIB, 0, 60 * SEC);
    assert_waits(chat, request);
    ck_assert_uint_eq(world_device(&world, 0).unaccounted, GIB - 10 * MIB);
    world_pass(&world, SEC);
    world.devices[0].others = 0;
    world_pass(&world, 6 * SEC);
    (void) assert_granted(chat, request);
    world_done(&world);
}
END_TEST

START_TEST(clean_chunks_are_kept_ready_when_asked_for)
{
    struct core_options options = core_options_default;
    size_t creates;

    options.prefetch_bytes = 16 * MIB;
    world_init(&world, &options, GIB, 0);
    (void) world_tenant(&world, "chat");
    reconfigure();
    chat = world_client(&world, "chat");
    (void) world_lease(&world, chat, 2 * MIB);
    ck_assert_uint_eq(world_device(&world, 0).clean, 16 * MIB);
    creates = world.creates;
    (void) world_lease(&world, chat, 2 * MIB);
    ck_assert_uint_eq(world.creates, creates + 1); /* the one that fills up again */
    ck_assert_uint_eq(world_device(&world, 0).clean, 16 * MIB);
    creates = world.creates;
    world_pass(&world, 60 * SEC); /* idle: kept all the same, and the very same */
    ck_assert_uint_eq(world.creates, creates);
    ck_assert_uint_eq(world_device(&world, 0).clean, 16 * MIB);
    world_done(&world);
}
END_TEST

START_TEST(what_is_kept_ready_goes_when_it_is_in_the_way)
{
    struct core_options options = core_options_default;
    uint64_t request;

    options.prefetch_bytes = 16 * MIB;
    world_init(&world, &options, 64 * MIB, 0);
    (void) world_tenant(&world, "chat");
    reconfigure();
    chat = world_client(&world, "chat");
    (void) world_lease(&world, chat, 2 * MIB);
    ck_assert_uint_eq(world_device(&world, 0).clean, 16 * MIB);
    request = world_request(&world, chat, 0, 56 * MIB, 56 * MIB, 0);
    (void) assert_granted(chat, request);
    world_done(&world);
}
END_TEST

START_TEST(chunks_for_who_waits_are_made_as_memory_comes)
{
    core_id lease;
    uint64_t request;
    size_t creates;

    start(64 * MIB);
    lease = world_lease(&world, batch, 60 * MIB); /* 30 chunks */
    creates = world.creates;
    request = world_request(&world, chat, 0, 32 * MIB, 2 * MIB, 10 * SEC);
    assert_waits(chat, request);
    ck_assert_uint_eq(world.creates, creates + 2); /* 4 MiB were free */
    ck_assert_uint_eq(world_device(&world, 0).clean, 4 * MIB);
    assert_done(batch, world_shrink(&world, batch, lease, 21));
    ck_assert_uint_eq(world.creates, creates + 11);
    ck_assert_uint_eq(world_device(&world, 0).clean, 22 * MIB);
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 0); /* it has nothing yet */
    world_pass(&world, 9 * SEC);
    ck_assert_uint_eq(world.creates, creates + 11);
    assert_done(batch, world_shrink(&world, batch, lease, 16));
    assert_granted(chat, request);
    ck_assert_uint_eq(world.creates, creates + 16);
    ck_assert_uint_eq(world_device(&world, 0).clean, 0);
    world_done(&world);
}
END_TEST

START_TEST(chunks_made_for_who_gave_up_waiting_go_back)
{
    uint64_t request;

    start(64 * MIB);
    (void) world_lease(&world, batch, 60 * MIB);
    request = world_request(&world, chat, 0, 32 * MIB, 2 * MIB, 60 * SEC);
    world_pass(&world, 30 * SEC);
    ck_assert_uint_eq(world_device(&world, 0).clean, 4 * MIB); /* kept as long as it waits */
    assert_done(chat, world_cancel(&world, chat, request));
    world_pass(&world, 11 * SEC);
    ck_assert_uint_eq(world_device(&world, 0).clean, 0);
    ck_assert_uint_eq(world_free(&world, 0), 4 * MIB);
    world_done(&world);
}
END_TEST

START_TEST(nothing_is_made_ahead_of_what_is_promised_to_others)
{
    start(64 * MIB);
    batch_limits()->min = 10 * MIB;
    reconfigure();
    (void) world_lease(&world, chat, 48 * MIB);
    /* 16 MiB are free, 10 of them promised: 6 may be made for chat. */
    assert_waits(chat, world_request(&world, chat, 0, 8 * MIB, 2 * MIB, 10 * SEC));
    ck_assert_uint_eq(world_device(&world, 0).clean, 6 * MIB);
    ck_assert_uint_eq(world_device(&world, 0).free, 10 * MIB);
    /* What is promised is there at once, in whatever size. */
    assert_granted(batch, world_request(&world, batch, 0, 10 * MIB, 10 * MIB, 0));
    world_done(&world);
}
END_TEST

START_TEST(what_is_made_for_the_first_is_not_released_for_the_second)
{
    size_t creates, releases;

    start(64 * MIB);
    (void) world_lease(&world, batch, 56 * MIB);
    assert_waits(chat, world_request(&world, chat, 0, 16 * MIB, 2 * MIB, 10 * SEC));
    ck_assert_uint_eq(world_device(&world, 0).clean, 8 * MIB);
    creates = world.creates;
    releases = world.releases;
    assert_waits(batch, world_request(&world, batch, 0, 4 * MIB, 4 * MIB, 10 * SEC));
    assert_refused(batch, world_request(&world, batch, 0, 4 * MIB, 4 * MIB, 0),
        GMB_STATUS_EXHAUSTED, GMB_LIMIT_DEVICE);
    world_pass(&world, SEC);
    ck_assert_uint_eq(world.creates, creates);
    ck_assert_uint_eq(world.releases, releases);
    ck_assert_uint_eq(world_device(&world, 0).clean, 8 * MIB);
    world_done(&world);
}
END_TEST

START_TEST(what_was_made_for_one_goes_to_a_guarantee_that_is_raised)
{
    start(64 * MIB);
    (void) world_lease(&world, batch, 44 * MIB);
    assert_waits(chat, world_request(&world, chat, 0, 32 * MIB, 2 * MIB, 60 * SEC));
    ck_assert_uint_eq(world_device(&world, 0).clean, 20 * MIB);
    batch_limits()->min = 60 * MIB;
    reconfigure();
    assert_granted(batch, world_request(&world, batch, 0, 16 * MIB, 16 * MIB, SEC));
    ck_assert_uint_eq(world_device(&world, 0).clean, 4 * MIB);
    world_done(&world);
}
END_TEST

UNIT_MAIN("core_supply", a_large_request_is_made_in_windows,
    many_requests_of_one_tenant_hold_up_no_other, requests_that_are_cancelled_fill_no_queue,
    a_failed_step_undoes_the_steps_before_it, a_failed_growth_leaves_the_lease_as_it_was,
    a_driver_without_memory_is_asked_again_later, a_driver_without_memory_refuses_who_may_not_wait,
    a_driver_that_never_has_memory_times_the_wait_out,
    memory_that_others_took_is_found_by_the_failure, clean_chunks_are_kept_ready_when_asked_for,
    what_is_kept_ready_goes_when_it_is_in_the_way, chunks_for_who_waits_are_made_as_memory_comes,
    chunks_made_for_who_gave_up_waiting_go_back,
    nothing_is_made_ahead_of_what_is_promised_to_others,
    what_is_made_for_the_first_is_not_released_for_the_second,
    what_was_made_for_one_goes_to_a_guarantee_that_is_raised)
