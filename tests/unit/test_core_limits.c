/* Limits of tenants and of the broker, at N, at N + 1 and at the largest value. */
#include "tests/unit/core.h"

#include <string.h>

static core_id chat, batch;

static void start(uint64_t total_bytes)
{
    world_start(total_bytes);
    chat = world_client(&world, "chat");
    batch = world_client(&world, "batch");
}

START_TEST(two_requests_for_the_last_bytes_only_one_is_admitted)
{
    uint64_t first, second;

    start(64 * MIB);
    world.held_up = true; /* the first one's chunks are still being made */
    first = world_request(&world, chat, 0, 64 * MIB, 0, 0);
    second = world_request(&world, batch, 0, 64 * MIB, 0, 0);
    assert_waits(chat, first);
    assert_refused(batch, second, GMB_STATUS_EXHAUSTED, GMB_LIMIT_DEVICE);
    world_work(&world);
    (void) assert_granted(chat, first);
    world_done(&world);
}
END_TEST

START_TEST(two_requests_below_memory_max_only_together_above_it)
{
    uint64_t first, second;

    start(GIB);
    chat_limits()->max = 100 * MIB;
    reconfigure();
    world.held_up = true;
    first = world_request(&world, chat, 0, 60 * MIB, 0, 0);
    second = world_request(&world, chat, 0, 60 * MIB, 0, 0);
    assert_refused(chat, second, GMB_STATUS_EXHAUSTED, GMB_LIMIT_MEMORY_MAX);
    world_work(&world);
    (void) assert_granted(chat, first);
    world_done(&world);
}
END_TEST

START_TEST(memory_max_gives_its_last_byte_and_no_more)
{
    const struct core_action *answer;

    start(GIB);
    chat_limits()->max = 100 * MIB;
    reconfigure();
    answer = assert_refused(chat, world_request(&world, chat, 0, 100 * MIB + 1, 0, SEC),
        GMB_STATUS_OVER_LIMIT, GMB_LIMIT_MEMORY_MAX);
    ck_assert_str_eq(answer->refuse.text,
        "tenant chat: MemoryMax=100M on device 0 can never give more than 100M, 102M requested");
    ck_assert_uint_eq(answer->refuse.available_bytes, 100 * MIB);
    (void) world_lease(&world, chat, 98 * MIB);
    answer = assert_refused(chat, world_request(&world, chat, 0, 2 * MIB + 1, 2 * MIB, 0),
        GMB_STATUS_EXHAUSTED, GMB_LIMIT_MEMORY_MAX);
    ck_assert_str_eq(
        answer->refuse.text, "tenant chat: MemoryMax=100M on device 0 leaves 2M, 4M requested");
    (void) world_lease(&world, chat, 2 * MIB);
    assert_refused(
        chat, world_request(&world, chat, 0, 1, 0, 0), GMB_STATUS_EXHAUSTED, GMB_LIMIT_MEMORY_MAX);
    world_done(&world);
}
END_TEST

START_TEST(what_a_lease_can_never_gain_is_told_with_what_it_has)
{
    const struct core_action *answer;
    uint64_t lease;

    start(GIB);
    chat_limits()->max = 100 * MIB;
    reconfigure();
    lease = world_lease(&world, chat, 98 * MIB);
    answer = assert_refused(chat, world_grow(&world, chat, lease, 4 * MIB, 0),
        GMB_STATUS_OVER_LIMIT, GMB_LIMIT_MEMORY_MAX);
    ck_assert_str_eq(answer->refuse.text,
        "tenant chat: MemoryMax=100M on device 0 can never give more than 2M, 4M requested; the "
        "lease has 98M already");
    (void) assert_granted(chat, world_grow(&world, chat, lease, 2 * MIB, 0));
    world_done(&world);
}
END_TEST

START_TEST(a_permanent_refusal_is_never_called_a_temporary_one)
{
    start(64 * MIB);
    chat_limits()->min = 16 * MIB;
    reconfigure();
    assert_refused(batch, world_request(&world, batch, 0, 50 * MIB, 0, SEC), GMB_STATUS_OVER_LIMIT,
        GMB_LIMIT_GUARANTEED);
    assert_refused(chat, world_request(&world, chat, 0, 66 * MIB, 0, SEC), GMB_STATUS_OVER_LIMIT,
        GMB_LIMIT_DEVICE);
    assert_refused(chat, world_request(&world, chat, 0, UINT64_MAX, GIB, SEC),
        GMB_STATUS_OVER_LIMIT, GMB_LIMIT_CHUNKS);
    (void) world_lease(&world, batch, 48 * MIB);
    assert_refused(batch, world_request(&world, batch, 0, 2 * MIB, 0, 0), GMB_STATUS_EXHAUSTED,
        GMB_LIMIT_GUARANTEED);
    world_done(&world);
}
END_TEST

START_TEST(memory_min_is_grantable_however_much_others_use)
{
    start(64 * MIB);
    chat_limits()->min = 16 * MIB;
    reconfigure();
    (void) world_lease(&world, batch, 48 * MIB);
    (void) world_lease(&world, chat, 16 * MIB);
    assert_refused(
        chat, world_request(&world, chat, 0, 1, 0, 0), GMB_STATUS_EXHAUSTED, GMB_LIMIT_DEVICE);
    world_done(&world);
}
END_TEST

START_TEST(free_memory_is_never_more_than_there_is)
{
    struct core_device_view view;

    start(64 * MIB);
    (void) world_lease(&world, chat, 60 * MIB);
    world.devices[0].others = 4 * MIB; /* more than the reserve, which is 0 */
    world_pass(&world, 6 * SEC);
    view = world_device(&world, 0);
    ck_assert_uint_eq(view.free, 0);
    ck_assert_uint_eq(view.unaccounted, 4 * MIB);
    world.devices[0].total = 1024 * MIB; /* absurd: far more in use than the ledger can have */
    world.devices[0].others = 1000 * MIB;
    world.devices[0].total = 1064 * MIB;
    world_pass(&world, 6 * SEC);
    view = world_device(&world, 0);
    ck_assert_uint_le(view.free, 4 * MIB);
    ck_assert_uint_le(view.unaccounted, 4 * MIB);
    world_done(&world);
}
END_TEST

START_TEST(clients_max_is_exact)
{
    start(GIB);
    world.tenants[0].clients_max = 2;
    reconfigure();
    ck_assert_uint_ne(world_client(&world, "chat"), 0);
    ck_assert_uint_eq(world_client(&world, "chat"), 0);
    ck_assert_int_eq(world.answers[world.answer_count - 1].refuse.limit, GMB_LIMIT_CLIENTS_MAX);
    world_kill(&world, chat);
    ck_assert_uint_ne(world_client(&world, "chat"), 0);
    world.tenants[0].clients_max = 0;
    reconfigure();
    ck_assert_uint_eq(world_client(&world, "chat"), 0);
    ck_assert_uint_eq(world_client(&world, "nobody"), 0);
    ck_assert_uint_eq(world_client(&world, NULL), 0);
    world_done(&world);
}
END_TEST

START_TEST(a_tenant_with_many_clients_leaves_places_to_others)
{
    struct core_options options = core_options_default;

    options.clients_max = 16;
    world_init(&world, &options, 64 * MIB, 0);
    (void) world_tenant(&world, "chat");
    (void) world_tenant(&world, "batch");
    reconfigure();
    /* A quarter of 16 is promised, 2 to each: the first tenant gets 14, the other its 2. */
    for (unsigned i = 0; i < 14; i++)
        ck_assert_uint_ne(world_client(&world, "chat"), 0);
    ck_assert_uint_eq(world_client(&world, "chat"), 0);
    for (unsigned i = 0; i < 2; i++)
        ck_assert_uint_ne(world_client(&world, "batch"), 0);
    ck_assert_uint_eq(world_client(&world, "batch"), 0);
    world_done(&world);
    /* Who may have none is promised none. */
    world_init(&world, &options, 64 * MIB, 0);
    (void) world_tenant(&world, "chat");
    (void) world_tenant(&world, "batch");
    world.tenants[1].clients_max = 0;
    reconfigure();
    for (unsigned i = 0; i < 16; i++)
        ck_assert_uint_ne(world_client(&world, "chat"), 0);
    ck_assert_uint_eq(world_client(&world, "chat"), 0);
    world_done(&world);
}
END_TEST

START_TEST(leases_max_counts_what_is_asked_for_too)
{
    core_id lease;
    uint64_t waiting;

    start(64 * MIB);
    world.tenants[0].leases_max = 2;
    reconfigure();
    lease = world_lease(&world, chat, 64 * MIB);
    waiting = world_request(&world, chat, 0, 2 * MIB, 0, SEC);
    assert_refused(chat, world_request(&world, chat, 0, 2 * MIB, 0, SEC), GMB_STATUS_EXHAUSTED,
        GMB_LIMIT_LEASES_MAX);
    assert_done(chat, world_cancel(&world, chat, waiting));
    waiting = world_request(&world, chat, 0, 2 * MIB, 0, SEC);
    assert_done(chat, world_release(&world, chat, lease));
    world_pass(&world, 100 * MS);
    (void) assert_granted(chat, waiting);
    world_done(&world);
}
END_TEST

START_TEST(a_client_has_at_most_1024_requests_waiting)
{
    start(64 * MIB);
    (void) world_lease(&world, chat, 64 * MIB);
    for (unsigned i = 0; i < LIMIT_REQUESTS_PER_CLIENT; i++)
        (void) world_request(&world, chat, 0, 2 * MIB, 0, SEC);
    assert_refused(chat, world_request(&world, chat, 0, 2 * MIB, 0, SEC), GMB_STATUS_EXHAUSTED,
        GMB_LIMIT_REQUESTS);
    /* Another tenant still gets through. */
    assert_refused(batch, world_request(&world, batch, 0, 2 * MIB, 0, 0), GMB_STATUS_EXHAUSTED,
        GMB_LIMIT_DEVICE);
    world_done(&world);
}
END_TEST

START_TEST(a_tenant_has_at_most_4096_requests_waiting)
{
    core_id clients[LIMIT_REQUESTS_PER_TENANT / LIMIT_REQUESTS_PER_CLIENT], one_more;

    start(64 * MIB);
    (void) world_lease(&world, batch, 64 * MIB);
    for (unsigned k = 0; k < ARRAY_SIZE(clients); k++) {
        clients[k] = world_client(&world, "chat");
        for (unsigned i = 0; i < LIMIT_REQUESTS_PER_CLIENT; i++)
            (void) world_request(&world, clients[k], 0, 2 * MIB, 0, SEC);
    }
    one_more = world_client(&world, "chat");
    assert_refused(one_more, world_request(&world, one_more, 0, 2 * MIB, 0, SEC),
        GMB_STATUS_EXHAUSTED, GMB_LIMIT_REQUESTS);
    world_kill(&world, clients[0]);
    assert_waits(one_more, world_request(&world, one_more, 0, 2 * MIB, 0, SEC));
    world_done(&world);
}
END_TEST

START_TEST(quotas_that_add_up_to_the_capacity_still_work)
{
    start(64 * MIB);
    chat_limits()->max = batch_limits()->max = 32 * MIB;
    chat_limits()->min = batch_limits()->min = 32 * MIB;
    reconfigure();
    (void) world_lease(&world, chat, 32 * MIB);
    assert_refused(chat, world_request(&world, chat, 0, 2 * MIB, 0, 0), GMB_STATUS_EXHAUSTED,
        GMB_LIMIT_MEMORY_MAX);
    (void) world_lease(&world, batch, 32 * MIB);
    world_done(&world);
}
END_TEST

UNIT_MAIN("core_limits", two_requests_for_the_last_bytes_only_one_is_admitted,
    two_requests_below_memory_max_only_together_above_it,
    memory_max_gives_its_last_byte_and_no_more,
    what_a_lease_can_never_gain_is_told_with_what_it_has,
    a_permanent_refusal_is_never_called_a_temporary_one,
    memory_min_is_grantable_however_much_others_use, free_memory_is_never_more_than_there_is,
    clients_max_is_exact, a_tenant_with_many_clients_leaves_places_to_others,
    leases_max_counts_what_is_asked_for_too, a_client_has_at_most_1024_requests_waiting,
    a_tenant_has_at_most_4096_requests_waiting, quotas_that_add_up_to_the_capacity_still_work)
