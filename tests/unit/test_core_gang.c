/*
 * Leases on several devices in one request: all or none, in one step. Two devices of 64 MiB unless
 * a test says otherwise; chunks of 2 MiB.
 */
#include "tests/unit/core.h"

static core_id chat, batch;

static void start_devices(unsigned devices)
{
    world_init(&world, NULL, 64 * MIB, 0);
    for (unsigned i = 1; i < devices; i++)
        world_device_add(&world, 64 * MIB, 0);
    (void) world_tenant(&world, "chat");
    (void) world_tenant(&world, "batch");
    ck_assert_int_eq(world_configure(&world)->type, CORE_ACTION_CONFIGURED);
    chat = world_client(&world, "chat");
    batch = world_client(&world, "batch");
}

static void start(void)
{
    start_devices(2);
}

/* So many MiB on device `first` and on device `second`. */
static uint64_t gang(core_id client, uint32_t first, uint64_t first_mib, uint32_t second,
    uint64_t second_mib, uint64_t wait_ns)
{
    struct core_gang_part parts[] = {
        {first, first_mib * MIB, 2 * MIB},
        {second, second_mib * MIB, 2 * MIB},
    };

    return world_gang(&world, client, parts, 2, wait_ns);
}

static core_id take(core_id client, uint32_t device, uint64_t mib)
{
    return assert_granted(client, world_request(&world, client, device, mib * MIB, 2 * MIB, 0));
}

static void assert_used(const char *tenant, uint64_t first_mib, uint64_t second_mib)
{
    ck_assert_uint_eq(world_use(&world, tenant, 0).used, first_mib * MIB);
    ck_assert_uint_eq(world_use(&world, tenant, 1).used, second_mib * MIB);
}

START_TEST(a_gang_gets_a_lease_on_each_device_in_the_order_of_its_parts)
{
    struct core_lease_view view;
    uint64_t request;

    start();
    request = gang(chat, 1, 64, 0, 2, 0);
    (void) assert_granted(chat, request);
    ck_assert(core_lease_get(world.core, world_part(&world, chat, request, 0)->grant.lease, &view));
    ck_assert_uint_eq(view.device, 1);
    ck_assert_uint_eq(view.chunks, 32);
    ck_assert(core_lease_get(world.core, world_part(&world, chat, request, 1)->grant.lease, &view));
    ck_assert_uint_eq(view.device, 0);
    ck_assert_uint_eq(view.chunks, 1);
    assert_used("chat", 2, 64);
    world_done(&world);
}
END_TEST

START_TEST(leases_of_a_gang_are_returned_one_by_one)
{
    uint64_t request;

    start();
    request = gang(chat, 0, 8, 1, 8, 0);
    (void) assert_granted(chat, request);
    assert_done(
        chat, world_release(&world, chat, world_part(&world, chat, request, 0)->grant.lease));
    ck_assert_uint_eq(world_use(&world, "chat", 0).leased, 0);
    ck_assert_uint_eq(world_use(&world, "chat", 1).leased, 8 * MIB);
    world_done(&world);
}
END_TEST

START_TEST(a_gang_that_fits_on_one_device_alone_holds_nothing_there)
{
    uint64_t request;
    core_id lease;

    start();
    lease = take(batch, 1, 64);
    request = gang(chat, 0, 32, 1, 2, 60 * SEC);
    assert_waits(chat, request);
    assert_used("chat", 0, 0);
    assert_done(batch, world_release(&world, batch, lease));
    (void) assert_granted(chat, request);
    assert_used("chat", 32, 2);
    world_done(&world);
}
END_TEST

START_TEST(a_gang_that_may_not_wait_is_refused_by_the_device_that_is_full)
{
    const struct core_action *answer;

    start();
    (void) take(batch, 1, 64);
    answer =
        assert_refused(chat, gang(chat, 0, 32, 1, 2, 0), GMB_STATUS_EXHAUSTED, GMB_LIMIT_DEVICE);
    ck_assert_str_eq(
        answer->refuse.text, "device 1: capacity 64M has 0B for tenant chat, 2M requested");
    assert_used("chat", 0, 0);
    world_done(&world);
}
END_TEST

START_TEST(a_limit_that_can_never_allow_a_part_refuses_the_gang_at_once)
{
    const struct core_action *answer;

    start();
    world.tenants[0].memory[1].max = 8 * MIB;
    reconfigure();
    answer = assert_refused(
        chat, gang(chat, 0, 2, 1, 10, 60 * SEC), GMB_STATUS_OVER_LIMIT, GMB_LIMIT_MEMORY_MAX);
    ck_assert_str_eq(answer->refuse.text,
        "tenant chat: MemoryMax=8M on device 1 can never give more than 8M, 10M requested");
    (void) assert_granted(chat, gang(chat, 0, 2, 1, 8, 60 * SEC));
    world_done(&world);
}
END_TEST

START_TEST(a_gang_times_out_at_its_deadline_and_names_the_device_that_held_it_back)
{
    const struct core_action *answer;
    uint64_t request;

    start();
    (void) take(batch, 1, 64);
    request = gang(chat, 0, 32, 1, 2, SEC);
    world_pass(&world, SEC - 1);
    assert_waits(chat, request);
    world_pass(&world, 1);
    answer = assert_refused(chat, request, GMB_STATUS_TIMED_OUT, GMB_LIMIT_DEVICE);
    ck_assert_str_eq(answer->refuse.text,
        "device 1: capacity 64M has 0B for tenant chat, 2M requested; its time to wait is over");
    world_done(&world);
}
END_TEST

START_TEST(smaller_requests_do_not_starve_a_gang_on_the_device_that_has_room)
{
    uint64_t waiting, small;
    core_id lease;

    start();
    lease = take(batch, 1, 64);
    waiting = gang(chat, 0, 64, 1, 64, 60 * SEC);
    /* Ranks lower: its tenant would have more for its weight. */
    world.tenants[1].weight = 1;
    reconfigure();
    small = world_request(&world, batch, 0, 2 * MIB, 2 * MIB, 60 * SEC);
    assert_waits(batch, small);
    assert_done(batch, world_release(&world, batch, lease));
    (void) assert_granted(chat, waiting);
    assert_waits(batch, small);
    world_done(&world);
}
END_TEST

START_TEST(a_gang_held_back_by_its_own_limit_reserves_nothing)
{
    uint64_t waiting;

    start();
    world.tenants[0].memory[1].max = 8 * MIB;
    reconfigure();
    (void) take(chat, 1, 8);
    waiting = gang(chat, 0, 64, 1, 2, 60 * SEC);
    assert_waits(chat, waiting);
    (void) take(batch, 0, 64);
    assert_waits(chat, waiting);
    world_done(&world);
}
END_TEST

START_TEST(a_gang_behind_an_earlier_request_of_its_tenant_reserves_nothing)
{
    uint64_t first, waiting;

    start();
    (void) take(batch, 1, 60);
    first = world_request(&world, chat, 1, 32 * MIB, 2 * MIB, 60 * SEC);
    waiting = gang(chat, 0, 64, 1, 2, 60 * SEC);
    assert_waits(chat, first);
    assert_waits(chat, waiting);
    (void) take(batch, 0, 64);
    world_done(&world);
}
END_TEST

/* Each has one device and wants the other's, in the other order. */
START_TEST(two_gangs_that_cross_are_served_one_after_the_other)
{
    uint64_t first, second;
    core_id lease;

    start();
    lease = take(batch, 0, 64);
    first = gang(chat, 0, 64, 1, 64, 60 * SEC);
    second = gang(batch, 1, 64, 0, 64, 60 * SEC);
    assert_waits(chat, first);
    assert_waits(batch, second);
    assert_done(batch, world_release(&world, batch, lease));
    (void) assert_granted(chat, first);
    assert_waits(batch, second);
    world_kill(&world, chat);
    (void) assert_granted(batch, second);
    world_done(&world);
}
END_TEST

/*
 * Ranks differ by device: chat has less on device 0, batch on device 1. Were gangs ranked by the
 * device alone, each would reserve what the other one waits for.
 */
START_TEST(gangs_do_not_wait_for_each_other_where_ranks_differ_by_device)
{
    core_id blocker, chat_has, batch_has;
    uint64_t first, second;

    start();
    (void) world_tenant(&world, "other");
    reconfigure();
    blocker = world_client(&world, "other");
    batch_has = take(batch, 0, 8);
    chat_has = take(chat, 1, 10);
    (void) take(blocker, 0, 56);
    (void) take(blocker, 1, 54);
    first = gang(chat, 0, 40, 1, 40, 60 * SEC);
    second = gang(batch, 0, 40, 1, 40, 60 * SEC);
    assert_waits(chat, first);
    assert_waits(batch, second);
    world_kill(&world, blocker);
    /* 40 MiB beside 8 is less than beside 10. */
    (void) assert_granted(batch, second);
    assert_waits(chat, first);
    assert_done(batch, world_release(&world, batch, batch_has));
    assert_done(chat, world_release(&world, chat, chat_has));
    assert_waits(chat, first);
    world_kill(&world, batch);
    (void) assert_granted(chat, first);
    world_done(&world);
}
END_TEST

START_TEST(a_single_request_between_two_gangs_closes_no_circle)
{
    core_id blocker;
    uint64_t first, second, single;

    start();
    (void) world_tenant(&world, "other");
    reconfigure();
    blocker = world_client(&world, "other");
    (void) take(blocker, 0, 64);
    (void) take(blocker, 1, 64);
    first = gang(chat, 0, 64, 1, 64, 60 * SEC);
    single = world_request(&world, blocker, 0, 64 * MIB, 2 * MIB, 60 * SEC);
    second = gang(batch, 1, 64, 0, 64, 60 * SEC);
    world_kill(&world, blocker);
    (void) single;
    (void) assert_granted(chat, first);
    assert_waits(batch, second);
    world_kill(&world, chat);
    (void) assert_granted(batch, second);
    world_done(&world);
}
END_TEST

START_TEST(a_driver_that_fails_on_one_device_undoes_all)
{
    const struct core_action *answer;

    start();
    world.break_next = 1;
    answer = assert_refused(chat, gang(chat, 0, 8, 1, 8, 60 * SEC), GMB_STATUS_GPU, GMB_LIMIT_NONE);
    ck_assert_str_eq(answer->refuse.text,
        "the driver failed to create memory: tenant chat: 8M requested on device 0");
    assert_used("chat", 0, 0);
    (void) assert_granted(chat, gang(chat, 0, 64, 1, 64, 0));
    world_done(&world);
}
END_TEST

START_TEST(a_driver_without_memory_on_one_device_sends_the_whole_gang_back_to_wait)
{
    uint64_t request;

    start();
    world.refuse_next = 1;
    request = gang(chat, 0, 8, 1, 8, 60 * SEC);
    assert_waits(chat, request);
    assert_used("chat", 0, 0);
    world_pass(&world, 50 * MS);
    (void) assert_granted(chat, request);
    assert_used("chat", 8, 8);
    world_done(&world);
}
END_TEST

START_TEST(a_gang_is_cancelled_while_it_waits_and_while_it_is_made)
{
    uint64_t request;

    start();
    (void) take(batch, 1, 64);
    request = gang(chat, 0, 8, 1, 8, 60 * SEC);
    assert_done(chat, world_cancel(&world, chat, request));
    (void) assert_refused(chat, request, GMB_STATUS_CANCELLED, GMB_LIMIT_NONE);
    world_kill(&world, batch);
    world.held_up = true;
    request = gang(chat, 0, 8, 1, 8, 60 * SEC);
    assert_waits(chat, request);
    assert_used("chat", 8, 8);
    assert_done(chat, world_cancel(&world, chat, request));
    (void) assert_refused(chat, request, GMB_STATUS_CANCELLED, GMB_LIMIT_NONE);
    world.held_up = false;
    world_work(&world);
    assert_used("chat", 0, 0);
    world_done(&world);
}
END_TEST

START_TEST(the_death_of_its_client_ends_a_gang_on_all_devices)
{
    start();
    world.held_up = true;
    (void) gang(chat, 0, 8, 1, 8, 60 * SEC);
    (void) gang(chat, 0, 64, 1, 64, 60 * SEC);
    world_kill(&world, chat);
    world.held_up = false;
    world_work(&world);
    assert_used("chat", 0, 0);
    ck_assert_uint_eq(world_device(&world, 0).waiting, 0);
    ck_assert_uint_eq(world_device(&world, 1).waiting, 0);
    (void) assert_granted(batch, gang(batch, 0, 64, 1, 64, 0));
    world_done(&world);
}
END_TEST

START_TEST(a_drained_device_refuses_the_gangs_that_want_it)
{
    const struct core_action *answer;
    uint64_t waiting, making;

    start();
    (void) take(batch, 1, 62);
    world.held_up = true;
    making = gang(chat, 0, 2, 1, 2, 60 * SEC);
    waiting = gang(batch, 0, 62, 1, 2, 60 * SEC);
    world_drain(&world, 1, false);
    answer = assert_refused(batch, waiting, GMB_STATUS_EXHAUSTED, GMB_LIMIT_DRAINING);
    ck_assert_str_eq(answer->refuse.text,
        "device 1 is being drained by an operator, 2M requested by tenant batch");
    world.held_up = false;
    world_work(&world);
    (void) assert_refused(chat, making, GMB_STATUS_EXHAUSTED, GMB_LIMIT_DRAINING);
    assert_used("chat", 0, 0);
    world_done(&world);
}
END_TEST

START_TEST(memory_min_and_max_hold_for_each_device_alone)
{
    start();
    world.tenants[1].memory[0].min = 32 * MIB;
    world.tenants[0].memory[1].max = 32 * MIB;
    reconfigure();
    (void) assert_refused(
        chat, gang(chat, 0, 34, 1, 32, 60 * SEC), GMB_STATUS_OVER_LIMIT, GMB_LIMIT_GUARANTEED);
    (void) assert_refused(
        chat, gang(chat, 0, 32, 1, 34, 60 * SEC), GMB_STATUS_OVER_LIMIT, GMB_LIMIT_MEMORY_MAX);
    (void) assert_granted(chat, gang(chat, 0, 32, 1, 32, 0));
    (void) assert_granted(batch, gang(batch, 0, 32, 1, 32, 0));
    world_done(&world);
}
END_TEST

START_TEST(above_memory_high_a_gang_pauses_once)
{
    uint64_t request;

    start();
    world.tenants[0].memory[1].high = 8 * MIB;
    reconfigure();
    request = gang(chat, 0, 8, 1, 40, 60 * SEC);
    assert_waits(chat, request);
    world_pass(&world, SEC);
    (void) assert_granted(chat, request);
    world_done(&world);
}
END_TEST

START_TEST(what_lies_ready_of_others_is_recovered_on_every_device)
{
    uint64_t request;
    core_id lease;

    start();
    for (uint32_t i = 0; i < 2; i++) {
        lease = take(batch, i, 64);
        assert_done(batch, world_release(&world, batch, lease)); /* cached */
    }
    request = gang(chat, 0, 64, 1, 64, 0);
    world_pass(&world, 50 * MS);
    (void) assert_granted(chat, request);
    world_done(&world);
}
END_TEST

START_TEST(parts_are_checked_at_their_limits)
{
    struct core_gang_part parts[LIMIT_DEVICES + 1] = {{0, 2 * MIB, 0}, {2, 2 * MIB, 0}};

    start();
    (void) assert_refused(
        chat, world_gang(&world, chat, parts, 0, 0), GMB_STATUS_INVALID, GMB_LIMIT_NONE);
    (void) assert_refused(chat, world_gang(&world, chat, parts, LIMIT_DEVICES + 1, 0),
        GMB_STATUS_INVALID, GMB_LIMIT_NONE);
    (void) assert_refused(
        chat, world_gang(&world, chat, parts, 2, 0), GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE);
    (void) assert_refused(chat, gang(chat, 1, 2, 1, 2, 0), GMB_STATUS_INVALID, GMB_LIMIT_NONE);
    (void) assert_refused(chat, gang(chat, 0, 2, 1, 0, 0), GMB_STATUS_INVALID, GMB_LIMIT_NONE);
    (void) assert_granted(chat, world_gang(&world, chat, parts, 1, 0));
    parts[0].chunk_bytes = 3 * MIB;
    (void) assert_refused(
        chat, world_gang(&world, chat, parts, 1, 0), GMB_STATUS_INVALID, GMB_LIMIT_NONE);
    world_done(&world);
}
END_TEST

START_TEST(each_part_counts_as_a_lease_and_as_a_request)
{
    start();
    world.tenants[0].leases_max = 3;
    reconfigure();
    (void) assert_granted(chat, gang(chat, 0, 2, 1, 2, 0));
    (void) assert_refused(
        chat, gang(chat, 0, 2, 1, 2, 0), GMB_STATUS_EXHAUSTED, GMB_LIMIT_LEASES_MAX);
    world.tenants[0].leases_max = 4;
    reconfigure();
    (void) assert_granted(chat, gang(chat, 0, 2, 1, 2, 0));
    (void) take(batch, 0, 60);
    for (unsigned i = 0; i < LIMIT_REQUESTS_PER_CLIENT / 2; i++)
        assert_waits(batch, gang(batch, 0, 2, 1, 2, 60 * SEC));
    (void) assert_refused(
        batch, gang(batch, 0, 2, 1, 2, 60 * SEC), GMB_STATUS_EXHAUSTED, GMB_LIMIT_REQUESTS);
    world_done(&world);
}
END_TEST

START_TEST(a_request_behind_a_gang_of_its_tenant_says_what_it_waited_for)
{
    uint64_t request;

    start();
    (void) take(batch, 1, 64);
    (void) gang(chat, 0, 8, 1, 8, 60 * SEC);
    request = world_request(&world, chat, 0, 2 * MIB, 2 * MIB, SEC);
    (void) assert_refused(chat, world_request(&world, chat, 0, 2 * MIB, 2 * MIB, 0),
        GMB_STATUS_EXHAUSTED, GMB_LIMIT_DEVICE);
    world_pass(&world, SEC);
    (void) assert_refused(chat, request, GMB_STATUS_TIMED_OUT, GMB_LIMIT_DEVICE);
    world_done(&world);
}
END_TEST

/*
 * Lets whoever has got what it asked for go, until all have. As long as nobody holds anything and
 * somebody waits, the core would have to serve one: that it always does is freedom from deadlock.
 */
static void serve_all(core_id clients[], const uint64_t requests[], unsigned count)
{
    unsigned served = 0;

    for (bool more = true; more;) {
        more = false;
        for (unsigned i = 0; i < count; i++) {
            if (clients[i] == 0 || !world_answer(&world, clients[i], requests[i]))
                continue;
            (void) assert_granted(clients[i], requests[i]);
            world_kill(&world, clients[i]);
            clients[i] = 0;
            served++;
            more = true;
        }
    }
    ck_assert_msg(served == count, "after %u of %u all wait", served, count);
}

/* Gangs of both tenants over three devices in every order: whenever nothing is in flight, at least
 * one of those that wait is granted, and each that is granted has everything. */
START_TEST(gangs_in_every_order_are_all_served)
{
    static const uint32_t orders[][3] = {
        {0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    uint64_t requests[12];
    core_id clients[12];

    start_devices(3);
    for (unsigned i = 0; i < 12; i++) {
        struct core_gang_part parts[3];

        clients[i] = world_client(&world, i % 2 == 0 ? "chat" : "batch");
        for (unsigned k = 0; k < 3; k++)
            parts[k] = (struct core_gang_part){orders[i / 2][k], (20 + 4 * k) * MIB, 2 * MIB};
        requests[i] = world_gang(&world, clients[i], parts, 3, 600 * SEC);
    }
    serve_all(clients, requests, 12);
    world_done(&world);
}
END_TEST

static uint64_t random_state;

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint32_t below(uint32_t bound)
{
    uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t) ((z ^ (z >> 31)) % bound);
}

#define CROWD 24

static uint64_t ask_at_random(core_id client)
{
    struct core_gang_part parts[3];
    uint32_t count = 1 + below(3), start = below(3), step = 1 + below(2);

    if (below(3) == 0)
        return world_request(&world, client, start, (1 + below(32)) * 2 * MIB, 2 * MIB, UINT64_MAX);
    for (uint32_t i = 0; i < count; i++)
        parts[i] =
            (struct core_gang_part){(start + i * step) % 3, (1 + below(32)) * 2 * MIB, 2 * MIB};
    return world_gang(&world, client, parts, count, UINT64_MAX);
}

START_TEST(gangs_and_single_requests_of_any_rank_are_all_served)
{
    random_state = 2026;
    for (unsigned round = 0; round < 20; round++) {
        uint64_t requests[CROWD];
        core_id clients[CROWD];

        start_devices(3);
        (void) world_tenant(&world, "other");
        for (unsigned i = 0; i < 3; i++) {
            world.tenants[i].priority = below(2);
            world.tenants[i].weight = 1 + below(5);
        }
        reconfigure();
        for (unsigned i = 0; i < CROWD; i++) {
            clients[i] = world_client(&world, world.tenants[below(3)].name);
            requests[i] = ask_at_random(clients[i]);
        }
        serve_all(clients, requests, CROWD);
        world_done(&world);
    }
}
END_TEST

UNIT_MAIN("core_gang", a_gang_gets_a_lease_on_each_device_in_the_order_of_its_parts,
    leases_of_a_gang_are_returned_one_by_one,
    a_gang_that_fits_on_one_device_alone_holds_nothing_there,
    a_gang_that_may_not_wait_is_refused_by_the_device_that_is_full,
    a_limit_that_can_never_allow_a_part_refuses_the_gang_at_once,
    a_gang_times_out_at_its_deadline_and_names_the_device_that_held_it_back,
    smaller_requests_do_not_starve_a_gang_on_the_device_that_has_room,
    a_gang_held_back_by_its_own_limit_reserves_nothing,
    a_gang_behind_an_earlier_request_of_its_tenant_reserves_nothing,
    two_gangs_that_cross_are_served_one_after_the_other,
    gangs_do_not_wait_for_each_other_where_ranks_differ_by_device,
    a_single_request_between_two_gangs_closes_no_circle,
    a_driver_that_fails_on_one_device_undoes_all,
    a_driver_without_memory_on_one_device_sends_the_whole_gang_back_to_wait,
    a_gang_is_cancelled_while_it_waits_and_while_it_is_made,
    the_death_of_its_client_ends_a_gang_on_all_devices,
    a_drained_device_refuses_the_gangs_that_want_it, memory_min_and_max_hold_for_each_device_alone,
    above_memory_high_a_gang_pauses_once, what_lies_ready_of_others_is_recovered_on_every_device,
    parts_are_checked_at_their_limits, each_part_counts_as_a_lease_and_as_a_request,
    a_request_behind_a_gang_of_its_tenant_says_what_it_waited_for,
    gangs_in_every_order_are_all_served, gangs_and_single_requests_of_any_rank_are_all_served)
