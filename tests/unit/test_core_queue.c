/* Who waits, how long, and who goes first. The device has 64 MiB unless a test says otherwise. */
#include "tests/unit/core.h"

static core_id chat, batch;

static void start(void)
{
    world_start(64 * MIB);
    chat = world_client(&world, "chat");
    batch = world_client(&world, "batch");
}

/* The client is gone and so is what it holds: its chunks are free, nobody's cache has them. */
static void give_up(core_id client)
{
    world_kill(&world, client);
}

static uint64_t ask(core_id client, uint64_t mib)
{
    return world_request(&world, client, 0, mib * MIB, 2 * MIB, 60 * SEC);
}

START_TEST(a_waiting_request_is_granted_when_memory_comes_back)
{
    core_id lease;
    uint64_t request;

    start();
    lease = world_lease(&world, chat, 64 * MIB);
    request = ask(batch, 10);
    assert_waits(batch, request);
    assert_done(chat, world_release(&world, chat, lease));
    (void) assert_granted(batch, request); /* at once, not at the next look or deadline */
    world_done(&world);
}
END_TEST

START_TEST(a_request_times_out_at_its_deadline_and_not_before)
{
    const struct core_action *answer;
    uint64_t request;

    start();
    (void) world_lease(&world, chat, 64 * MIB);
    request = world_request(&world, batch, 0, 10 * MIB, 0, SEC);
    world_pass(&world, SEC - 1);
    assert_waits(batch, request);
    world_pass(&world, 1);
    answer = assert_refused(batch, request, GMB_STATUS_TIMED_OUT, GMB_LIMIT_DEVICE);
    ck_assert_str_eq(answer->refuse.text,
        "device 0: capacity 64M has 0B for tenant batch, 10M requested; its time to wait is over");
    world_done(&world);
}
END_TEST

START_TEST(nobody_waits_longer_than_the_broker_allows)
{
    uint64_t request;

    start();
    (void) world_lease(&world, chat, 64 * MIB);
    request = world_request(&world, batch, 0, 10 * MIB, 0, UINT64_MAX);
    world_pass(&world, LIMIT_WAIT_NS - 1);
    assert_waits(batch, request);
    world_pass(&world, 1);
    assert_refused(batch, request, GMB_STATUS_TIMED_OUT, GMB_LIMIT_DEVICE);
    world_done(&world);
}
END_TEST

START_TEST(a_wait_is_cancelled_by_its_client)
{
    uint64_t request;

    start();
    (void) world_lease(&world, chat, 64 * MIB);
    request = ask(batch, 10);
    assert_refused(batch, world_cancel(&world, batch, request + 100), GMB_STATUS_NOT_FOUND, 0);
    assert_refused(chat, world_cancel(&world, chat, request), GMB_STATUS_NOT_FOUND, 0);
    assert_done(batch, world_cancel(&world, batch, request));
    assert_refused(batch, request, GMB_STATUS_CANCELLED, GMB_LIMIT_DEVICE);
    ck_assert_uint_eq(world_device(&world, 0).waiting, 0);
    world_done(&world);
}
END_TEST

START_TEST(a_wait_ends_with_its_client)
{
    core_id other;
    uint64_t request;
    struct core_totals totals;

    start();
    other = world_client(&world, "chat");
    (void) world_lease(&world, chat, 64 * MIB);
    (void) ask(other, 60);
    request = ask(other, 4);
    (void) ask(batch, 62);
    world_detach(&world, other); /* holds nothing: gone */
    ck_assert_ptr_null(world_answer(&world, other, request));
    core_totals_get(world.core, &totals);
    ck_assert_uint_eq(totals.waiting, 1);
    ck_assert_uint_eq(totals.clients, 2);
    world_kill(&world, batch);
    core_totals_get(world.core, &totals);
    ck_assert_uint_eq(totals.waiting, 0);
    ck_assert_uint_eq(totals.clients, 1);
    world_done(&world);
}
END_TEST

START_TEST(a_cancelled_wait_lets_those_behind_it_come_forward)
{
    uint64_t large, small;

    start();
    (void) world_lease(&world, chat, 60 * MIB);
    large = ask(batch, 10);
    small = ask(batch, 4);
    assert_waits(batch, small);
    (void) world_cancel(&world, batch, large);
    (void) assert_granted(batch, small);
    world_done(&world);
}
END_TEST

START_TEST(requests_of_one_tenant_do_not_overtake)
{
    uint64_t large, small;
    core_id other;

    start();
    other = world_client(&world, "batch");
    (void) world_lease(&world, chat, 60 * MIB);
    large = ask(batch, 10);
    small = ask(other, 2); /* would fit */
    assert_waits(other, small);
    assert_refused(other, world_request(&world, other, 0, 2 * MIB, 0, 0), GMB_STATUS_EXHAUSTED,
        GMB_LIMIT_DEVICE);
    give_up(chat);
    (void) assert_granted(batch, large);
    (void) assert_granted(other, small);
    world_done(&world);
}
END_TEST

START_TEST(higher_priority_goes_first)
{
    core_id holder;
    uint64_t low, high;

    start();
    world.tenants[0].priority = 200;
    reconfigure();
    holder = world_client(&world, "batch");
    (void) world_lease(&world, holder, 64 * MIB);
    low = ask(batch, 60);
    high = ask(chat, 60);
    give_up(holder);
    (void) assert_granted(chat, high);
    assert_waits(batch, low);
    world_done(&world);
}
END_TEST

START_TEST(of_equals_the_one_with_less_for_its_weight_goes_first)
{
    core_id holder;
    uint64_t rich, poor;

    start();
    (void) world_tenant(&world, "holder");
    reconfigure();
    holder = world_client(&world, "holder");
    (void) world_lease(&world, holder, 32 * MIB);
    (void) world_lease(&world, chat, 20 * MIB);
    (void) world_lease(&world, batch, 12 * MIB);
    rich = ask(chat, 32);
    poor = ask(batch, 32);
    give_up(holder);
    (void) assert_granted(batch, poor);
    assert_waits(chat, rich);
    world_done(&world);
}
END_TEST

START_TEST(weight_counts_for_more_use)
{
    core_id holder;
    uint64_t heavy, light;

    start();
    (void) world_tenant(&world, "holder");
    world.tenants[0].weight = 200; /* (20 + 32) / 200 < (12 + 32) / 100 */
    reconfigure();
    holder = world_client(&world, "holder");
    (void) world_lease(&world, holder, 32 * MIB);
    (void) world_lease(&world, chat, 20 * MIB);
    (void) world_lease(&world, batch, 12 * MIB);
    light = ask(batch, 32);
    heavy = ask(chat, 32);
    give_up(holder);
    (void) assert_granted(chat, heavy);
    assert_waits(batch, light);
    world_done(&world);
}
END_TEST

START_TEST(a_large_request_is_not_starved_by_small_ones)
{
    core_id holder;
    uint64_t large, small;

    start();
    world.tenants[0].priority = 200;
    (void) world_tenant(&world, "holder");
    reconfigure();
    holder = world_client(&world, "holder");
    (void) world_lease(&world, holder, 60 * MIB);
    large = ask(chat, 20);
    small = ask(batch, 2); /* 4 MiB are free, but chat waits for them */
    assert_waits(batch, small);
    give_up(holder);
    (void) assert_granted(chat, large);
    (void) assert_granted(batch, small);
    world_done(&world);
}
END_TEST

START_TEST(what_lies_within_the_own_memory_min_passes_those_that_wait)
{
    core_id holder;
    uint64_t large, small;

    start();
    world.tenants[0].priority = 200;
    batch_limits()->min = 4 * MIB;
    (void) world_tenant(&world, "holder");
    reconfigure();
    holder = world_client(&world, "holder");
    (void) world_lease(&world, holder, 60 * MIB);
    large = ask(chat, 20);
    small = ask(batch, 4);
    assert_waits(chat, large);
    (void) assert_granted(batch, small);
    world_done(&world);
}
END_TEST

START_TEST(whom_its_own_limit_holds_back_holds_up_nobody)
{
    uint64_t over, fits;

    start();
    world.tenants[0].priority = 200;
    chat_limits()->max = 10 * MIB;
    reconfigure();
    (void) world_lease(&world, chat, 10 * MIB);
    over = ask(chat, 2);
    fits = ask(batch, 54);
    assert_waits(chat, over);
    (void) assert_granted(batch, fits);
    world_done(&world);
}
END_TEST

START_TEST(who_may_not_wait_still_gets_what_lies_ready_in_another_size)
{
    core_id lease;
    uint64_t own, others;

    start();
    lease = world_lease(&world, chat, 64 * MIB);
    assert_done(chat, world_release(&world, chat, lease));
    /* 2 MiB chunks fill the device; nobody uses one. */
    own = world_request(&world, chat, 0, 32 * MIB, 32 * MIB, 0);
    (void) assert_granted(chat, own);
    others = world_request(&world, batch, 0, 32 * MIB, 32 * MIB, 0);
    (void) assert_granted(batch, others);
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 32 * MIB);
    world_done(&world);
}
END_TEST

START_TEST(who_may_not_wait_is_refused_when_recovery_fails)
{
    core_id lease;
    uint64_t request;

    start();
    lease = world_lease(&world, chat, 64 * MIB);
    assert_done(chat, world_release(&world, chat, lease));
    world.leak_next = 1000;
    request = world_request(&world, batch, 0, 32 * MIB, 32 * MIB, 0);
    assert_waits(batch, request);
    world_pass(&world, 100 * MS);
    assert_refused(batch, request, GMB_STATUS_EXHAUSTED, GMB_LIMIT_DEVICE);
    world_done(&world);
}
END_TEST

START_TEST(who_may_not_wait_does_not_wait_for_a_slow_driver)
{
    core_id lease;
    uint64_t request;

    start();
    lease = world_lease(&world, chat, 64 * MIB);
    assert_done(chat, world_release(&world, chat, lease));
    world.held_up = true; /* what lies ready would do, but the releases take for ever */
    request = world_request(&world, batch, 0, 32 * MIB, 32 * MIB, 0);
    world_pass(&world, 100 * MS - 1);
    assert_waits(batch, request);
    world_pass(&world, 1);
    assert_refused(batch, request, GMB_STATUS_EXHAUSTED, GMB_LIMIT_DEVICE);
    world_done(&world);
}
END_TEST

START_TEST(ready_chunks_of_the_right_size_are_not_given_back_for_a_wait)
{
    core_id lease;
    uint64_t request;

    start();
    (void) world_lease(&world, batch, 32 * MIB);
    lease = world_lease(&world, chat, 32 * MIB);
    assert_done(chat, world_release(&world, chat, lease));
    request = ask(chat, 48);
    world_pass(&world, SEC);
    assert_waits(chat, request);
    ck_assert_uint_eq(world.releases, 0);
    ck_assert_uint_eq(world_use(&world, "chat", 0).cached, 32 * MIB);
    give_up(batch);
    (void) assert_granted(chat, request);
    ck_assert_uint_eq(world.creates, 16 + 16 + 8);
    world_done(&world);
}
END_TEST

START_TEST(growth_above_memory_high_is_slowed_and_not_refused)
{
    uint64_t request, at_once;

    start();
    chat_limits()->high = 8 * MIB;
    reconfigure();
    (void) world_lease(&world, chat, 8 * MIB);
    /* 100 % over: a second. */
    request = ask(chat, 8);
    assert_waits(chat, request);
    world_pass(&world, SEC - 1);
    assert_waits(chat, request);
    world_pass(&world, 1);
    (void) assert_granted(chat, request);
    /* Who may not wait can't be slowed, only refused: so it isn't. */
    at_once = world_request(&world, chat, 0, 2 * MIB, 0, 0);
    (void) assert_granted(chat, at_once);
    /* At most half of the own wait. */
    request = world_request(&world, chat, 0, 2 * MIB, 0, 100 * MS);
    world_pass(&world, 50 * MS - 1);
    assert_waits(chat, request);
    world_pass(&world, 1);
    (void) assert_granted(chat, request);
    world_done(&world);
}
END_TEST

START_TEST(whoever_is_slowed_holds_up_nobody)
{
    uint64_t slowed, other;

    start();
    world.tenants[0].priority = 200;
    chat_limits()->high = 0;
    reconfigure();
    slowed = ask(chat, 60);
    other = ask(batch, 20);
    assert_waits(chat, slowed);
    (void) assert_granted(batch, other);
    world_done(&world);
}
END_TEST

START_TEST(hundreds_of_requests_at_once_are_all_served)
{
    uint64_t requests[500];
    core_id clients[500];

    world_start(GIB);
    for (unsigned i = 0; i < 500; i++)
        clients[i] = world_client(&world, i % 2 ? "chat" : "batch");
    world.held_up = true;
    for (unsigned i = 0; i < 500; i++)
        requests[i] = world_request(&world, clients[i], 0, 2 * MIB, 0, SEC);
    world_work(&world);
    for (unsigned i = 0; i < 500; i++)
        (void) assert_granted(clients[i], requests[i]);
    world_done(&world);
}
END_TEST

START_TEST(more_answers_than_a_step_holds_are_left_to_the_next)
{
    uint64_t requests[LIMIT_REQUESTS_PER_CLIENT];

    start();
    (void) world_lease(&world, chat, 64 * MIB);
    for (unsigned i = 0; i < 1000; i++)
        requests[i] = world_request(&world, batch, 0, 2 * MIB, 0, SEC);
    world.held_up = true;
    world.now_ns += SEC;
    world_step(&world, &(struct core_event){.type = CORE_EVENT_TICK});
    ck_assert_uint_eq(world.actions.count, CORE_ACTIONS_MAX);
    ck_assert_uint_eq(core_next_tick(world.core), 0);
    world_work(&world);
    for (unsigned i = 0; i < 1000; i++)
        assert_refused(batch, requests[i], GMB_STATUS_TIMED_OUT, GMB_LIMIT_DEVICE);
    world_done(&world);
}
END_TEST

UNIT_MAIN("core_queue", a_waiting_request_is_granted_when_memory_comes_back,
    a_request_times_out_at_its_deadline_and_not_before, nobody_waits_longer_than_the_broker_allows,
    a_wait_is_cancelled_by_its_client, a_wait_ends_with_its_client,
    a_cancelled_wait_lets_those_behind_it_come_forward, requests_of_one_tenant_do_not_overtake,
    higher_priority_goes_first, of_equals_the_one_with_less_for_its_weight_goes_first,
    weight_counts_for_more_use, a_large_request_is_not_starved_by_small_ones,
    what_lies_within_the_own_memory_min_passes_those_that_wait,
    whom_its_own_limit_holds_back_holds_up_nobody,
    who_may_not_wait_still_gets_what_lies_ready_in_another_size,
    who_may_not_wait_is_refused_when_recovery_fails,
    who_may_not_wait_does_not_wait_for_a_slow_driver,
    ready_chunks_of_the_right_size_are_not_given_back_for_a_wait,
    growth_above_memory_high_is_slowed_and_not_refused, whoever_is_slowed_holds_up_nobody,
    hundreds_of_requests_at_once_are_all_served,
    more_answers_than_a_step_holds_are_left_to_the_next)
