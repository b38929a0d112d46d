/* Levels, stall and advice as the core makes them of its ledger: the figures themselves are tested
 * by tests/scenario/pressure-*.txt. */
#include <stdio.h>
#include <string.h>

#include "tests/unit/arena.h"

#define CHUNK (2 * MIB)

static enum pressure_level level_of(const char *tenant)
{
    return world_pressure(&world, tenant, 0).level;
}

static void assert_level(size_t index, uint64_t at_ns, uint32_t tenant, enum pressure_level level)
{
    const struct world_level *found = &world.levels[index];

    ck_assert_uint_gt(world.level_count, index);
    ck_assert_uint_eq(found->tenant, tenant);
    ck_assert_uint_eq(found->at_ns, at_ns);
    ck_assert_msg(found->level == level, "it is %s", pressure_level_name(found->level));
}

/* Takes it back, and lets it go to the driver. */
static void give_back(core_id client, core_id lease)
{
    assert_done(client, world_release(&world, client, lease));
}

START_TEST(a_tenant_near_its_own_limit_is_told_in_the_same_step)
{
    arena_start(200 * MIB);
    chat_limits()->max = 20 * MIB;
    reconfigure();
    (void) world_lease(&world, chat, 14 * MIB);
    ck_assert_int_eq(level_of("chat"), PRESSURE_NONE);
    (void) world_lease(&world, chat, CHUNK); /* 16 of 20 MiB: 80 % */
    ck_assert_uint_eq(world.level_count, 1);
    assert_level(0, world.now_ns, 0, PRESSURE_LOW);
    (void) world_lease(&world, chat, CHUNK); /* 90 % */
    assert_level(1, world.now_ns, 0, PRESSURE_MEDIUM);
    (void) world_lease(&world, chat, CHUNK); /* all */
    assert_level(2, world.now_ns, 0, PRESSURE_CRITICAL);
    ck_assert_uint_eq(world_pressure(&world, "chat", 0).headroom, 0);
    ck_assert_uint_eq(world_pressure(&world, "chat", 0).reachable, 20 * MIB);
    /* The device is far from full, and so is the other one. */
    ck_assert_int_eq(level_of("batch"), PRESSURE_NONE);
    ck_assert_int_eq(world.levels[2].device_level, PRESSURE_NONE);
    world_done(&world);
}
END_TEST

START_TEST(quotas_that_add_up_to_the_capacity_raise_levels)
{
    arena_start(100 * MIB);
    chat_limits()->max = batch_limits()->max = 50 * MIB;
    reconfigure();
    (void) world_lease(&world, chat, 40 * MIB);
    ck_assert_int_eq(level_of("chat"), PRESSURE_LOW);
    ck_assert_int_eq(level_of("batch"), PRESSURE_NONE);
    (void) world_lease(&world, batch, 46 * MIB);
    ck_assert_int_eq(level_of("batch"), PRESSURE_MEDIUM);
    world_done(&world);
}
END_TEST

START_TEST(a_guarantee_is_headroom_on_a_full_device)
{
    arena_start(100 * MIB);
    chat_limits()->min = 40 * MIB;
    reconfigure();
    (void) world_lease(&world, chat, 10 * MIB);
    (void) world_lease(&world, batch, 60 * MIB);
    /* 30 MiB are free, all of them promised to chat. */
    ck_assert_uint_eq(world_pressure(&world, "chat", 0).headroom, 30 * MIB);
    ck_assert_uint_eq(world_pressure(&world, "batch", 0).headroom, 0);
    ck_assert_int_eq(level_of("chat"), PRESSURE_NONE);
    ck_assert_int_eq(level_of("batch"), PRESSURE_CRITICAL);
    ck_assert_uint_eq(world_pressure(&world, "batch", 0).reachable, 60 * MIB);
    world_done(&world);
}
END_TEST

START_TEST(what_others_take_is_told_at_once_and_then_every_ten_ms)
{
    uint64_t start_ns;

    arena_start(100 * MIB);
    (void) world_lease(&world, chat, 10 * MIB);
    world_pass(&world, SEC);
    start_ns = world.now_ns;
    world.level_count = 0;
    /* 10 of 10 + 2.. MiB left: chat is at 83 %, batch and the device at nearly all. */
    (void) world_lease(&world, batch, 88 * MIB);
    ck_assert_int_eq(level_of("chat"), PRESSURE_LOW);
    ck_assert_int_eq(level_of("batch"), PRESSURE_CRITICAL);
    for (size_t i = 0; i < world.level_count; i++)
        ck_assert_uint_eq(world.levels[i].at_ns, start_ns);
    ck_assert_int_eq(world.levels[world.level_count - 1].device_level, PRESSURE_CRITICAL);
    /* The rest within the same 10 ms: its turn comes when they are over. */
    world.level_count = 0;
    (void) world_lease(&world, batch, CHUNK);
    ck_assert_int_eq(level_of("chat"), PRESSURE_LOW);
    world_pass(&world, 9 * MS + 999999);
    ck_assert_int_eq(level_of("chat"), PRESSURE_LOW);
    world_pass(&world, 1);
    ck_assert_int_eq(level_of("chat"), PRESSURE_CRITICAL);
    assert_level(world.level_count - 1, start_ns + 10 * MS, 0, PRESSURE_CRITICAL);
    world_done(&world);
}
END_TEST

START_TEST(a_level_falls_with_time_alone_one_by_one)
{
    core_id lease;
    uint64_t start_ns;

    arena_start(100 * MIB);
    chat_limits()->max = 20 * MIB;
    reconfigure();
    lease = world_lease(&world, chat, 20 * MIB);
    world_pass(&world, SEC);
    world.level_count = 0;
    start_ns = world.now_ns;
    give_back(chat, lease); /* its own chunks lie ready for it */
    world_pass(&world, 2 * SEC - 1);
    ck_assert_uint_eq(world.level_count, 0);
    world_pass(&world, 5 * SEC);
    ck_assert_uint_eq(world.level_count, 3);
    assert_level(0, start_ns + 2 * SEC, 0, PRESSURE_MEDIUM);
    assert_level(1, start_ns + 4 * SEC, 0, PRESSURE_LOW);
    assert_level(2, start_ns + 6 * SEC, 0, PRESSURE_NONE);
    world_done(&world);
}
END_TEST

START_TEST(use_that_goes_to_and_fro_around_a_watermark_is_told_once)
{
    core_id lease;

    arena_start(100 * MIB);
    chat_limits()->max = 20 * MIB;
    reconfigure();
    (void) world_lease(&world, chat, 14 * MIB);
    for (int i = 0; i < 100; i++) {
        lease = world_lease(&world, chat, CHUNK);
        world_pass(&world, 100 * MS);
        give_back(chat, lease);
        world_pass(&world, 1900 * MS);
    }
    ck_assert_uint_eq(world.level_count, 1);
    world_done(&world);
}
END_TEST

START_TEST(above_memory_high_it_is_medium_at_least)
{
    arena_start(100 * MIB);
    chat_limits()->high = 10 * MIB;
    reconfigure();
    (void) world_lease(&world, chat, 10 * MIB);
    ck_assert_int_eq(level_of("chat"), PRESSURE_NONE);
    (void) world_lease(&world, chat, CHUNK);
    ck_assert_int_eq(level_of("chat"), PRESSURE_MEDIUM);
    world_done(&world);
}
END_TEST

START_TEST(a_drained_device_has_nothing_left_for_anybody)
{
    arena_start(100 * MIB);
    (void) world_lease(&world, chat, CHUNK);
    world_pass(&world, SEC);
    world_drain(&world, 0, false);
    world_pass(&world, 10 * MS);
    ck_assert_int_eq(level_of("chat"), PRESSURE_CRITICAL);
    ck_assert_int_eq(level_of("batch"), PRESSURE_CRITICAL);
    ck_assert(world_pressure(&world, "chat", 0).draining);
    world_drain(&world, 0, true);
    world_pass(&world, 10 * SEC);
    ck_assert_int_eq(level_of("chat"), PRESSURE_NONE);
    world_done(&world);
}
END_TEST

START_TEST(waiting_for_memory_is_stall_of_some_or_of_all)
{
    core_id other, lease;
    uint64_t request, others;

    arena_start(20 * MIB);
    other = world_client(&world, "chat");
    lease = world_lease(&world, batch, 16 * MIB);
    (void) world_lease(&world, other, CHUNK);
    request = world_request(&world, chat, 0, 8 * MIB, CHUNK, 100 * SEC);
    assert_waits(chat, request);
    ck_assert(world_pressure(&world, "chat", 0).stalled);
    world_pass(&world, 3 * SEC);
    /* The other client of chat has a lease and waits for nothing. */
    ck_assert_uint_eq(world_pressure(&world, "chat", 0).stall_ns[STALL_SOME], 3 * SEC);
    ck_assert_uint_eq(world_pressure(&world, "chat", 0).stall_ns[STALL_FULL], 0);
    others = world_request(&world, other, 0, 8 * MIB, CHUNK, 100 * SEC);
    assert_waits(other, others);
    world_pass(&world, 2 * SEC);
    ck_assert_uint_eq(world_pressure(&world, "chat", 0).stall_ns[STALL_SOME], 5 * SEC);
    ck_assert_uint_eq(world_pressure(&world, "chat", 0).stall_ns[STALL_FULL], 2 * SEC);
    ck_assert_uint_eq(world_pressure(&world, "batch", 0).stall_ns[STALL_SOME], 0);
    give_back(batch, lease);
    world_pass(&world, 100 * MS);
    assert_granted(chat, request);
    assert_granted(other, others);
    ck_assert(!world_pressure(&world, "chat", 0).stalled);
    /* What they waited is what the next one will: one eighth of the second wait. */
    ck_assert_uint_ge(world_pressure(&world, "chat", 0).wait_mean_ns, 4 * SEC);
    ck_assert_uint_le(world_pressure(&world, "chat", 0).wait_mean_ns, 5 * SEC + 100 * MS);
    world_done(&world);
}
END_TEST

START_TEST(stall_alone_lifts_a_level_and_the_averages_are_the_kernels)
{
    struct core_pressure_view view;

    arena_start(100 * MIB);
    (void) world_lease(&world, chat, CHUNK);
    world_pass(&world, 4 * SEC - world.now_ns % (4 * SEC)); /* to the beginning of a period */
    world_restore_wait(&world, chat, 0, true);
    world_pass(&world, SEC);
    world_restore_wait(&world, chat, 0, false);
    world_pass(&world, SEC);
    view = world_pressure(&world, "chat", 0);
    ck_assert_uint_eq(view.stall_ns[STALL_SOME], SEC);
    ck_assert_uint_eq(view.stall[STALL_SOME][STALL_AVG10], 90576);
    ck_assert_uint_eq(view.stall[STALL_SOME][STALL_AVG60], 16357);
    ck_assert_uint_eq(view.stall[STALL_SOME][STALL_AVG300], 3417);
    ck_assert_uint_eq(view.stall[STALL_FULL][STALL_AVG10], 90576);
    ck_assert_int_eq(view.level, PRESSURE_LOW);
    world_pass(&world, 60 * SEC);
    ck_assert_int_eq(level_of("chat"), PRESSURE_NONE);
    world_done(&world);
}
END_TEST

START_TEST(nobody_stalls_who_is_gone_or_unknown)
{
    uint64_t request;

    arena_start(20 * MIB);
    (void) world_lease(&world, batch, 20 * MIB);
    world_restore_wait(&world, chat, 1, true);                       /* no such device */
    world_restore_wait(&world, chat + (UINT64_C(9) << 32), 0, true); /* no such client */
    ck_assert(!world_pressure(&world, "chat", 0).stalled);
    world_restore_wait(&world, chat, 0, true);
    world_restore_wait(&world, chat, 0, true);
    request = world_request(&world, chat, 0, CHUNK, CHUNK, 100 * SEC);
    world_restore_wait(&world, chat, 0, false);
    ck_assert(world_pressure(&world, "chat", 0).stalled); /* its request waits yet */
    (void) request;
    world_detach(&world, chat);
    ck_assert(!world_pressure(&world, "chat", 0).stalled);
    ck_assert_int_eq(level_of("chat"), PRESSURE_NONE);
    world_done(&world);
}
END_TEST

static void ladder_set(
    struct core_tenant_config *tenant, enum pressure_level level, const char *text)
{
    char reason[LADDER_REASON_BYTES];

    ck_assert_int_eq(ladder_rung_parse(text, &tenant->ladder.rungs[level], reason), 0);
}

START_TEST(advice_goes_up_at_once_and_down_rung_by_rung)
{
    core_id lease;
    uint64_t start_ns;

    arena_start(100 * MIB);
    chat_limits()->max = 20 * MIB;
    ladder_set(&world.tenants[0], PRESSURE_LOW, "reduce-batch 0.75");
    ladder_set(&world.tenants[0], PRESSURE_CRITICAL, "reject-below-priority 50");
    reconfigure();
    ck_assert_uint_eq(world.advice_count, 0);
    start_ns = world.now_ns;
    lease = world_lease(&world, chat, 20 * MIB);
    ck_assert_uint_eq(world.advice_count, 1);
    ck_assert_uint_eq(world.advices[0].tenant, 0);
    ck_assert_uint_eq(world.advices[0].view.id, 1);
    ck_assert_int_eq(world.advices[0].view.rung, PRESSURE_CRITICAL);
    ck_assert_uint_eq(world.advices[0].view.steps.batch_factor, 750000);
    ck_assert_uint_eq(world.advices[0].view.steps.reject_below, 50);
    ck_assert_uint_eq(world.advices[0].view.used_then, 20 * MIB);
    give_back(chat, lease);
    world_pass(&world, 30 * SEC);
    /* Level 2 after 2 s; rung 2 five later, with less to do; rung 1 asks for the same, so that it
     * is no other advice; rung 0 after five more seconds each. */
    ck_assert_uint_eq(world.advice_count, 3);
    ck_assert_uint_eq(world.advices[1].at_ns, start_ns + 7 * SEC);
    ck_assert_int_eq(world.advices[1].view.rung, PRESSURE_MEDIUM);
    ck_assert_uint_eq(world.advices[1].view.steps.present, 1u << LADDER_REDUCE_BATCH);
    ck_assert_uint_eq(world.advices[2].at_ns, start_ns + 17 * SEC);
    ck_assert_uint_eq(world.advices[2].view.id, 3);
    ck_assert_uint_eq(world.advices[2].view.steps.present, 0);
    ck_assert_int_eq(world_advice(&world, "chat").rung, PRESSURE_NONE);
    world_done(&world);
}
END_TEST

START_TEST(a_tenant_without_a_ladder_is_asked_for_nothing)
{
    arena_start(20 * MIB);
    (void) world_lease(&world, chat, 20 * MIB);
    ck_assert_int_eq(level_of("chat"), PRESSURE_CRITICAL);
    ck_assert_uint_eq(world.advice_count, 0);
    ck_assert_uint_eq(world_advice(&world, "chat").id, 0);
    ck_assert_int_eq(world_advice(&world, "chat").rung, PRESSURE_CRITICAL);
    /* One that it gets now is asked at once; one that is changed as well; one that goes takes
     * everything back. */
    ladder_set(&world.tenants[0], PRESSURE_LOW, "pause-new");
    reconfigure();
    ck_assert_uint_eq(world.advice_count, 1);
    ladder_set(&world.tenants[0], PRESSURE_LOW, "pause-new, reduce-batch 0.5");
    reconfigure();
    ck_assert_uint_eq(world.advice_count, 2);
    reconfigure(); /* the same again */
    ck_assert_uint_eq(world.advice_count, 2);
    ladder_set(&world.tenants[0], PRESSURE_LOW, "");
    reconfigure();
    ck_assert_uint_eq(world.advice_count, 3);
    ck_assert_uint_eq(world_advice(&world, "chat").steps.present, 0);
    world_done(&world);
}
END_TEST

START_TEST(with_its_last_client_a_tenants_pressure_ends)
{
    size_t told;

    arena_start(20 * MIB);
    ladder_set(&world.tenants[0], PRESSURE_LOW, "pause-new");
    reconfigure();
    (void) world_lease(&world, chat, 20 * MIB);
    ck_assert_uint_eq(world.advice_count, 1);
    told = world.level_count;
    world_kill(&world, chat);
    ck_assert_int_eq(level_of("chat"), PRESSURE_NONE);
    assert_level(told, world.now_ns, 0, PRESSURE_NONE);
    ck_assert_uint_eq(world_advice(&world, "chat").steps.present, 0);
    ck_assert_uint_eq(world.advice_count, 2);
    /* Nobody hears of it any more: no timer is left but those of the device. */
    world_pass(&world, 100 * SEC);
    ck_assert_uint_eq(world.advice_count, 2);
    world_done(&world);
}
END_TEST

START_TEST(figures_are_shown_once_a_millisecond_and_the_last_ones_too)
{
    size_t before;

    arena_start(200 * MIB);
    (void) world_lease(&world, chat, 20 * MIB);
    world_pass(&world, SEC);
    before = world.figures;
    for (int i = 0; i < 1000; i++) {
        core_id lease = world_lease(&world, chat, CHUNK);

        world_pass(&world, 1000); /* 1 µs */
        give_back(chat, lease);
    }
    /* 1 ms of chat's own figures, and of what it left to the other. */
    ck_assert_uint_le(world.figures - before, 5);
    before = world.figures;
    (void) world_lease(&world, chat, CHUNK);
    world_pass(&world, 10 * MS);
    ck_assert_uint_gt(world.figures, before);
    before = world.figures;
    world_pass(&world, SEC);
    ck_assert_uint_eq(world.figures, before); /* nothing changes, nothing is shown */
    world_done(&world);
}
END_TEST

START_TEST(other_thresholds_hold_from_the_configuration_on)
{
    struct core_pressure_options pressure = core_options_default.pressure;
    struct core_event event = {
        .type = CORE_EVENT_CONFIGURE,
        .configure.tenants = world.tenants,
        .configure.count = 2,
        .configure.pressure = &pressure,
        .cookie = 1,
    };

    arena_start(100 * MIB);
    (void) world_lease(&world, chat, 40 * MIB);
    ck_assert_int_eq(level_of("chat"), PRESSURE_NONE);
    pressure.levels.share[PRESSURE_LOW] = 400000;
    event.configure.tenants = world.tenants;
    world_step(&world, &event);
    ck_assert_int_eq(level_of("chat"), PRESSURE_LOW);
    /* Those that make no sense refuse everything. */
    pressure.levels.share[PRESSURE_LOW] = 950000;
    world_step(&world, &event);
    ck_assert_int_eq(world.answers[world.answer_count - 1].type, CORE_ACTION_REFUSE);
    ck_assert_int_eq(level_of("chat"), PRESSURE_LOW);
    world_done(&world);
}
END_TEST

UNIT_MAIN("core_pressure", a_tenant_near_its_own_limit_is_told_in_the_same_step,
    quotas_that_add_up_to_the_capacity_raise_levels, a_guarantee_is_headroom_on_a_full_device,
    what_others_take_is_told_at_once_and_then_every_ten_ms,
    a_level_falls_with_time_alone_one_by_one,
    use_that_goes_to_and_fro_around_a_watermark_is_told_once,
    above_memory_high_it_is_medium_at_least, a_drained_device_has_nothing_left_for_anybody,
    waiting_for_memory_is_stall_of_some_or_of_all,
    stall_alone_lifts_a_level_and_the_averages_are_the_kernels,
    nobody_stalls_who_is_gone_or_unknown, advice_goes_up_at_once_and_down_rung_by_rung,
    a_tenant_without_a_ladder_is_asked_for_nothing, with_its_last_client_a_tenants_pressure_ends,
    figures_are_shown_once_a_millisecond_and_the_last_ones_too,
    other_thresholds_hold_from_the_configuration_on)
