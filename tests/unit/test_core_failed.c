/* A device that is lost or broken is out of service; the others don't notice. Two of 64 MiB. */
#include "tests/unit/core.h"

static core_id chat, batch;

static void start(void)
{
    world_init(&world, NULL, 64 * MIB, 0);
    world_device_add(&world, 64 * MIB, 0);
    (void) world_tenant(&world, "chat");
    (void) world_tenant(&world, "batch");
    ck_assert_int_eq(world_configure(&world)->type, CORE_ACTION_CONFIGURED);
    chat = world_client(&world, "chat");
    batch = world_client(&world, "batch");
}

static uint64_t ask(core_id client, uint32_t device, uint64_t mib, uint64_t wait_ns)
{
    return world_request(&world, client, device, mib * MIB, 2 * MIB, wait_ns);
}

START_TEST(who_waits_and_who_comes_is_refused_by_the_device)
{
    const struct core_action *answer;
    uint64_t waiting;

    start();
    (void) assert_granted(batch, ask(batch, 1, 64, 0));
    waiting = ask(chat, 1, 2, 60 * SEC);
    assert_waits(chat, waiting);
    world_fail(&world, 1);
    answer = assert_refused(chat, waiting, GMB_STATUS_GPU, GMB_LIMIT_DEVICE);
    ck_assert_str_eq(answer->refuse.text,
        "device 1 is out of service since it failed, 2M requested by tenant chat");
    (void) assert_refused(chat, ask(chat, 1, 2, 60 * SEC), GMB_STATUS_GPU, GMB_LIMIT_DEVICE);
    (void) assert_refused(
        chat, world_arena(&world, chat, 1, 2 * MIB, 4), GMB_STATUS_GPU, GMB_LIMIT_DEVICE);
    ck_assert(world_device(&world, 1).failed);
    ck_assert(!world_device(&world, 0).failed);
    (void) assert_granted(chat, ask(chat, 0, 64, 0));
    world_done(&world);
}
END_TEST

START_TEST(what_is_being_made_there_is_refused_and_undone)
{
    uint64_t request;

    start();
    world.held_up = true;
    request = ask(chat, 1, 64, 60 * SEC);
    world_fail(&world, 1);
    world.held_up = false;
    world_work(&world);
    (void) assert_refused(chat, request, GMB_STATUS_GPU, GMB_LIMIT_DEVICE);
    ck_assert_uint_eq(world_use(&world, "chat", 1).used, 0);
    world_done(&world);
}
END_TEST

START_TEST(a_gang_that_wants_it_is_refused_as_a_whole)
{
    struct core_gang_part parts[] = {{0, 2 * MIB, 2 * MIB}, {1, 2 * MIB, 2 * MIB}};
    uint64_t waiting;

    start();
    (void) assert_granted(batch, ask(batch, 0, 64, 0));
    waiting = world_gang(&world, chat, parts, 2, 60 * SEC);
    assert_waits(chat, waiting);
    world_fail(&world, 1);
    (void) assert_refused(chat, waiting, GMB_STATUS_GPU, GMB_LIMIT_DEVICE);
    (void) assert_refused(
        chat, world_gang(&world, chat, parts, 2, 60 * SEC), GMB_STATUS_GPU, GMB_LIMIT_DEVICE);
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 0);
    world_done(&world);
}
END_TEST

START_TEST(what_is_leased_there_stays_until_it_is_returned_and_is_not_looked_for_then)
{
    core_id lease;
    size_t looks;

    start();
    lease = assert_granted(chat, ask(chat, 1, 8, 0));
    world_fail(&world, 1);
    ck_assert_uint_eq(world_use(&world, "chat", 1).leased, 8 * MIB);
    world.leak_next = 4; /* the driver gives nothing back */
    assert_done(chat, world_release(&world, chat, lease));
    world_pass(&world, SEC);
    ck_assert_uint_eq(world_use(&world, "chat", 1).used, 0);
    looks = world.looks;
    world_pass(&world, 60 * SEC);
    /* Device 0 is looked at every five seconds, device 1 never. */
    ck_assert_uint_eq(world.looks - looks, 12);
    world_done(&world);
}
END_TEST

START_TEST(a_tenant_is_no_longer_charged_for_what_a_failed_device_keeps)
{
    core_id lease;

    start();
    lease = assert_granted(chat, ask(chat, 1, 8, 0));
    world.leak_next = 4;
    assert_done(chat, world_release(&world, chat, lease));
    world_pass(&world, 60 * SEC);
    ck_assert_uint_eq(world_use(&world, "chat", 1).orphaned, 8 * MIB);
    world_fail(&world, 1);
    ck_assert_uint_eq(world_use(&world, "chat", 1).used, 0);
    world_done(&world);
}
END_TEST

START_TEST(the_end_of_a_drain_does_not_bring_it_back)
{
    start();
    world_drain(&world, 1, false);
    world_fail(&world, 1);
    world_drain(&world, 1, true);
    (void) assert_refused(chat, ask(chat, 1, 2, 0), GMB_STATUS_GPU, GMB_LIMIT_DEVICE);
    world_fail(&world, 7); /* there is none */
    world_done(&world);
}
END_TEST

UNIT_MAIN("core_failed", who_waits_and_who_comes_is_refused_by_the_device,
    what_is_being_made_there_is_refused_and_undone, a_gang_that_wants_it_is_refused_as_a_whole,
    what_is_leased_there_stays_until_it_is_returned_and_is_not_looked_for_then,
    a_tenant_is_no_longer_charged_for_what_a_failed_device_keeps,
    the_end_of_a_drain_does_not_bring_it_back)
