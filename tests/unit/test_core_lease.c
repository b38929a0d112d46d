/* Leases: sizes, growth, shrinking, return, and every way to ask for what makes no sense. */
#include "tests/unit/core.h"

static core_id client;

static void start(uint64_t total_bytes)
{
    world_start(total_bytes);
    client = world_client(&world, "chat");
    ck_assert_uint_ne(client, 0);
}

static struct core_lease_view lease_view(core_id lease)
{
    struct core_lease_view view;

    ck_assert(core_lease_get(world.core, lease, &view));
    return view;
}

START_TEST(a_lease_is_granted_and_its_memory_comes_back)
{
    core_id lease;

    start(GIB);
    lease = world_lease(&world, client, 100 * MIB);
    ck_assert_uint_eq(world_free(&world, 0), GIB - 100 * MIB);
    ck_assert_uint_eq(world_use(&world, "chat", 0).leased, 100 * MIB);
    ck_assert_uint_eq(world_device(&world, 0).free, GIB - 100 * MIB);
    assert_done(client, world_release(&world, client, lease));
    ck_assert_uint_eq(world_use(&world, "chat", 0).cached, 100 * MIB);
    world_pass(&world, 11 * SEC);
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 0);
    ck_assert_uint_eq(world_use(&world, "chat", 0).peak, 100 * MIB);
    ck_assert_uint_eq(world_free(&world, 0), GIB);
    ck_assert_uint_eq(world_device(&world, 0).free, GIB);
    world_done(&world);
}
END_TEST

START_TEST(chunks_are_chosen_so_that_at_most_64_make_a_lease)
{
    start(16 * GIB);
    ck_assert_uint_eq(lease_view(world_lease(&world, client, 1)).chunk_bytes, 2 * MIB);
    ck_assert_uint_eq(lease_view(world_lease(&world, client, 128 * MIB)).chunk_bytes, 2 * MIB);
    ck_assert_uint_eq(lease_view(world_lease(&world, client, 128 * MIB)).chunks, 64);
    ck_assert_uint_eq(lease_view(world_lease(&world, client, 128 * MIB + 1)).chunk_bytes, 4 * MIB);
    ck_assert_uint_eq(lease_view(world_lease(&world, client, 128 * MIB + 1)).chunks, 33);
    ck_assert_uint_eq(lease_view(world_lease(&world, client, 8 * GIB)).chunk_bytes, 128 * MIB);
    world_done(&world);
}
END_TEST

START_TEST(sizes_are_rounded_up_to_whole_chunks)
{
    uint64_t request;

    start(GIB);
    request = world_request(&world, client, 0, 10 * MIB + 1, 4 * MIB, 0);
    ck_assert_uint_eq(lease_view(assert_granted(client, request)).chunks, 3);
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 12 * MIB);
    world_done(&world);
}
END_TEST

START_TEST(chunk_sizes_are_multiples_of_the_granularity_up_to_1g)
{
    start(4 * GIB);
    (void) assert_granted(client, world_request(&world, client, 0, GIB, GIB, 0));
    (void) assert_granted(client, world_request(&world, client, 0, 1, 6 * MIB, 0));
    assert_refused(client, world_request(&world, client, 0, GIB, GIB + 2 * MIB, 0),
        GMB_STATUS_INVALID, GMB_LIMIT_NONE);
    assert_refused(
        client, world_request(&world, client, 0, 1, 1, 0), GMB_STATUS_INVALID, GMB_LIMIT_NONE);
    assert_refused(client, world_request(&world, client, 0, 1, 3 * MIB, 0), GMB_STATUS_INVALID,
        GMB_LIMIT_NONE);
    assert_refused(client, world_request(&world, client, 0, 1, UINT64_MAX, 0), GMB_STATUS_INVALID,
        GMB_LIMIT_NONE);
    world_done(&world);
}
END_TEST

START_TEST(a_lease_has_at_most_65536_chunks)
{
    uint64_t most = UINT64_C(65536) * 2 * MIB;

    start(256 * GIB);
    assert_refused(client, world_request(&world, client, 0, most + 1, 2 * MIB, 0),
        GMB_STATUS_OVER_LIMIT, GMB_LIMIT_CHUNKS);
    assert_refused(client, world_request(&world, client, 0, UINT64_MAX, 2 * MIB, 0),
        GMB_STATUS_OVER_LIMIT, GMB_LIMIT_CHUNKS);
    assert_refused(client, world_request(&world, client, 0, UINT64_MAX, 0, 0),
        GMB_STATUS_OVER_LIMIT, GMB_LIMIT_CHUNKS);
    /* At the limit it is a question of memory alone. */
    world.devices[0].others = 256 * GIB - 2 * MIB;
    world_pass(&world, 6 * SEC);
    assert_refused(client, world_request(&world, client, 0, most, 2 * MIB, 0), GMB_STATUS_EXHAUSTED,
        GMB_LIMIT_DEVICE);
    world_done(&world);
}
END_TEST

START_TEST(a_lease_grows_behind_what_it_has)
{
    core_id lease;
    uint64_t request;
    const struct core_action *answer;

    start(GIB);
    lease = world_lease(&world, client, 10 * MIB);
    request = world_grow(&world, client, lease, 5 * MIB, 0);
    answer = world_answer(&world, client, request);
    ck_assert_uint_eq(assert_granted(client, request), lease);
    ck_assert_uint_eq(answer->grant.first, 5);
    ck_assert_uint_eq(answer->grant.count, 3);
    ck_assert_uint_eq(lease_view(lease).chunks, 8);
    world_done(&world);
}
END_TEST

START_TEST(a_lease_shrinks_from_its_end)
{
    core_id lease;
    uint32_t first, chunk, generation;

    start(GIB);
    lease = world_lease(&world, client, 10 * MIB);
    ck_assert(core_lease_chunk(world.core, lease, 0, &first, &generation));
    assert_done(client, world_shrink(&world, client, lease, 5)); /* all: nothing to do */
    assert_done(client, world_shrink(&world, client, lease, 1));
    ck_assert_uint_eq(lease_view(lease).chunks, 1);
    ck_assert(core_lease_chunk(world.core, lease, 0, &chunk, &generation));
    ck_assert_uint_eq(chunk, first);
    ck_assert(!core_lease_chunk(world.core, lease, 1, &chunk, &generation));
    ck_assert_uint_eq(world_use(&world, "chat", 0).cached, 8 * MIB);
    assert_refused(client, world_shrink(&world, client, lease, 2), GMB_STATUS_INVALID, 0);
    assert_refused(client, world_shrink(&world, client, lease, 0), GMB_STATUS_INVALID, 0);
    assert_refused(client, world_shrink(&world, client, lease, UINT32_MAX), GMB_STATUS_INVALID, 0);
    world_done(&world);
}
END_TEST

START_TEST(what_grows_can_not_be_returned_at_the_same_time)
{
    core_id lease;
    uint64_t request;

    start(64 * MIB);
    lease = world_lease(&world, client, 10 * MIB);
    (void) world_lease(&world, client, 54 * MIB);
    request = world_grow(&world, client, lease, 2 * MIB, SEC);
    assert_waits(client, request);
    assert_refused(client, world_release(&world, client, lease), GMB_STATUS_INVALID, 0);
    assert_refused(client, world_shrink(&world, client, lease, 1), GMB_STATUS_INVALID, 0);
    assert_refused(client, world_grow(&world, client, lease, 1, 0), GMB_STATUS_INVALID, 0);
    assert_done(client, world_cancel(&world, client, request));
    assert_refused(client, request, GMB_STATUS_CANCELLED, GMB_LIMIT_DEVICE);
    assert_done(client, world_release(&world, client, lease));
    world_done(&world);
}
END_TEST

START_TEST(leases_of_others_are_not_found)
{
    core_id lease, stranger;

    start(GIB);
    lease = world_lease(&world, client, 2 * MIB);
    stranger = world_client(&world, "chat");
    assert_refused(stranger, world_release(&world, stranger, lease), GMB_STATUS_NOT_FOUND, 0);
    assert_refused(stranger, world_grow(&world, stranger, lease, 1, 0), GMB_STATUS_NOT_FOUND, 0);
    assert_refused(stranger, world_shrink(&world, stranger, lease, 1), GMB_STATUS_NOT_FOUND, 0);
    assert_done(client, world_release(&world, client, lease));
    assert_refused(client, world_release(&world, client, lease), GMB_STATUS_NOT_FOUND, 0);
    world_done(&world);
}
END_TEST

START_TEST(absurd_requests_are_refused_and_end_nothing)
{
    struct core_event event = {.type = CORE_EVENT_LEASE_REQUEST};

    start(GIB);
    assert_refused(client, world_request(&world, client, 0, 0, 0, 0), GMB_STATUS_INVALID, 0);
    assert_refused(client, world_request(&world, client, 1, 1, 0, 0), GMB_STATUS_NOT_FOUND, 0);
    assert_refused(
        client, world_request(&world, client, UINT32_MAX, 1, 0, 0), GMB_STATUS_NOT_FOUND, 0);
    assert_refused(
        UINT64_MAX, world_request(&world, UINT64_MAX, 0, 1, 0, 0), GMB_STATUS_NOT_FOUND, 0);
    event.client = client; /* request id 0 */
    event.lease_request.bytes = 1;
    world_step(&world, &event);
    ck_assert_int_eq(world.actions.count > 0 ? world.actions.items[0].type : 0, CORE_ACTION_REFUSE);
    event = (struct core_event){.type = CORE_EVENT_MAX};
    world_step(&world, &event);
    event = (struct core_event){.type = CORE_EVENT_CHUNK_CREATED};
    event.chunk.chunk = event.chunk.generation = UINT32_MAX;
    world_step(&world, &event);
    (void) world_lease(&world, client, GIB);
    world_done(&world);
}
END_TEST

START_TEST(a_request_id_in_flight_is_not_taken_twice)
{
    struct core_event event = {.type = CORE_EVENT_LEASE_REQUEST};

    start(64 * MIB);
    (void) world_lease(&world, client, 64 * MIB);
    event.client = client;
    event.request = world_request(&world, client, 0, 2 * MIB, 0, SEC);
    event.lease_request.bytes = 2 * MIB;
    world_step(&world, &event);
    assert_refused(client, event.request, GMB_STATUS_INVALID, 0);
    world_done(&world);
}
END_TEST

START_TEST(two_processes_of_a_tenant_share_one_limit)
{
    core_id other;

    start(GIB);
    chat_limits()->max = 100 * MIB;
    reconfigure();
    other = world_client(&world, "chat");
    (void) world_lease(&world, client, 60 * MIB);
    assert_refused(other, world_request(&world, other, 0, 42 * MIB, 0, 0), GMB_STATUS_EXHAUSTED,
        GMB_LIMIT_MEMORY_MAX);
    (void) world_lease(&world, other, 40 * MIB);
    world_done(&world);
}
END_TEST

START_TEST(a_device_is_charged_for_its_own_chunks_alone)
{
    uint64_t request;

    world_init(&world, NULL, GIB, 0);
    world_device_add(&world, GIB, 0);
    (void) world_tenant(&world, "chat");
    reconfigure();
    client = world_client(&world, "chat");
    request = world_request(&world, client, 1, 64 * MIB, 0, 0);
    world_release(&world, client, assert_granted(client, request));
    (void) world_lease(&world, client, 32 * MIB);
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 32 * MIB);
    ck_assert_uint_eq(world_use(&world, "chat", 1).used, 64 * MIB);
    world_pass(&world, 11 * SEC);
    ck_assert_uint_eq(world_use(&world, "chat", 1).used, 0);
    ck_assert_uint_eq(world_device(&world, 0).free, GIB - 32 * MIB);
    world_done(&world);
}
END_TEST

UNIT_MAIN("core_lease", a_lease_is_granted_and_its_memory_comes_back,
    chunks_are_chosen_so_that_at_most_64_make_a_lease, sizes_are_rounded_up_to_whole_chunks,
    chunk_sizes_are_multiples_of_the_granularity_up_to_1g, a_lease_has_at_most_65536_chunks,
    a_lease_grows_behind_what_it_has, a_lease_shrinks_from_its_end,
    what_grows_can_not_be_returned_at_the_same_time, leases_of_others_are_not_found,
    absurd_requests_are_refused_and_end_nothing, a_request_id_in_flight_is_not_taken_twice,
    two_processes_of_a_tenant_share_one_limit, a_device_is_charged_for_its_own_chunks_alone)
