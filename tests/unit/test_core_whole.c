/*
 * Devices where a lease is one chunk, and devices whose chunks the shell has lost: what lies ready
 * there goes, what is leased is never granted again.
 */
#include "tests/unit/core.h"

static core_id client, other;

/* Device 0 gives chunks, device 1 whole slabs; two clients of two tenants. */
static void start(uint64_t whole_bytes)
{
    world_init(&world, NULL, GIB, 0);
    world_device_add_whole(&world, whole_bytes);
    (void) world_tenant(&world, "chat");
    (void) world_tenant(&world, "batch");
    reconfigure();
    client = world_client(&world, "chat");
    other = world_client(&world, "batch");
    ck_assert_uint_ne(client, 0);
    ck_assert_uint_ne(other, 0);
}

static struct core_lease_view lease_view(core_id lease)
{
    struct core_lease_view view;

    ck_assert(core_lease_get(world.core, lease, &view));
    return view;
}

static core_id slab(core_id who, uint64_t bytes)
{
    return assert_granted(who, world_request(&world, who, 1, bytes, 0, 0));
}

/* Number and generation of the slab. */
static uint64_t slab_name(core_id lease)
{
    uint32_t number, generation;

    ck_assert(core_lease_chunk(world.core, lease, 0, &number, &generation));
    return (uint64_t) generation << 32 | number;
}

START_TEST(a_lease_is_one_slab_of_its_own_size)
{
    struct core_lease_view view;

    start(8 * GIB);
    view = lease_view(slab(client, 100 * MIB + 1));
    ck_assert_uint_eq(view.chunks, 1);
    ck_assert_uint_eq(view.chunk_bytes, 102 * MIB);
    /* Larger than any chunk of virtual memory. */
    view = lease_view(slab(client, 5 * GIB));
    ck_assert_uint_eq(view.chunks, 1);
    ck_assert_uint_eq(view.chunk_bytes, 5 * GIB);
    ck_assert_uint_eq(world_use(&world, "chat", 1).leased, 5 * GIB + 102 * MIB);
    /* The other device is as ever. */
    view = lease_view(assert_granted(client, world_request(&world, client, 0, 5 * MIB, 0, 0)));
    ck_assert_uint_eq(view.chunks, 3);
    world_done(&world);
}
END_TEST

START_TEST(a_chunk_size_is_taken_when_it_holds_the_lease)
{
    start(8 * GIB);
    ck_assert_uint_eq(
        lease_view(assert_granted(client, world_request(&world, client, 1, 3 * MIB, 8 * MIB, 0)))
            .chunk_bytes,
        8 * MIB);
    assert_refused(client, world_request(&world, client, 1, 9 * MIB, 8 * MIB, 0),
        GMB_STATUS_UNSUPPORTED, GMB_LIMIT_NONE);
    assert_refused(client, world_request(&world, client, 1, MIB, 3 * MIB, 0),
        GMB_STATUS_UNSUPPORTED, GMB_LIMIT_NONE);
    assert_refused(client, world_request(&world, client, 1, MIB, 10 * GIB, 0),
        GMB_STATUS_UNSUPPORTED, GMB_LIMIT_NONE);
    world_done(&world);
}
END_TEST

START_TEST(more_than_the_device_has_is_refused_by_it)
{
    const struct core_action *answer;

    start(GIB);
    answer = assert_refused(client, world_request(&world, client, 1, GIB + 1, 0, SEC),
        GMB_STATUS_OVER_LIMIT, GMB_LIMIT_DEVICE);
    ck_assert_uint_eq(answer->refuse.requested_bytes, GIB + 1);
    ck_assert_uint_eq(answer->refuse.available_bytes, GIB);
    assert_refused(client, world_request(&world, client, 1, UINT64_MAX, 0, 0),
        GMB_STATUS_OVER_LIMIT, GMB_LIMIT_DEVICE);
    (void) slab(client, GIB);
    world_done(&world);
}
END_TEST

START_TEST(a_slab_does_not_grow_and_shrinks_to_nothing_less)
{
    core_id lease;

    start(GIB);
    lease = slab(client, 8 * MIB);
    assert_refused(client, world_grow(&world, client, lease, 2 * MIB, 0), GMB_STATUS_UNSUPPORTED,
        GMB_LIMIT_NONE);
    assert_done(client, world_shrink(&world, client, lease, 1));
    assert_refused(
        client, world_shrink(&world, client, lease, 0), GMB_STATUS_INVALID, GMB_LIMIT_NONE);
    assert_done(client, world_release(&world, client, lease));
    world_done(&world);
}
END_TEST

START_TEST(there_are_no_arenas_and_no_segments_on_such_a_device)
{
    start(GIB);
    assert_refused(client, world_arena(&world, client, 1, 2 * MIB, 16), GMB_STATUS_UNSUPPORTED,
        GMB_LIMIT_NONE);
    assert_refused(client, world_segment(&world, client, 1, 2 * MIB, 0, 0), GMB_STATUS_UNSUPPORTED,
        GMB_LIMIT_NONE);
    ck_assert_ptr_nonnull(
        world_answer(&world, client, world_arena(&world, client, 0, 2 * MIB, 16)));
    world_done(&world);
}
END_TEST

START_TEST(a_slab_goes_back_to_its_tenant_and_to_no_other)
{
    uint64_t first, again;
    core_id lease;

    start(GIB);
    lease = slab(client, 64 * MIB);
    first = slab_name(lease);
    assert_done(client, world_release(&world, client, lease));
    lease = slab(client, 64 * MIB);
    again = slab_name(lease);
    ck_assert_uint_eq(again, first);
    assert_done(client, world_release(&world, client, lease));
    /* 64 MiB of the same size lie ready, of the other tenant's. */
    ck_assert_uint_ne(slab_name(slab(other, 64 * MIB)), first);
    ck_assert_uint_eq(world.creates, 2);
    world_done(&world);
}
END_TEST

START_TEST(what_lies_ready_makes_room_for_the_slab_of_another)
{
    core_id lease;
    uint64_t request;

    start(GIB);
    lease = slab(client, 700 * MIB);
    request = world_request(&world, other, 1, 600 * MIB, 0, 10 * SEC);
    assert_waits(other, request);
    assert_done(client, world_release(&world, client, lease));
    world_pass(&world, SEC);
    (void) assert_granted(other, request);
    world_done(&world);
}
END_TEST

START_TEST(a_gang_has_a_slab_here_and_chunks_there)
{
    const struct core_gang_part parts[] = {
        {.device = 0, .bytes = 64 * MIB}, {.device = 1, .bytes = 64 * MIB}};
    uint64_t request;

    start(GIB);
    request = world_gang(&world, client, parts, 2, 0);
    ck_assert_uint_eq(lease_view(world_part(&world, client, request, 0)->grant.lease).chunks, 32);
    ck_assert_uint_eq(lease_view(world_part(&world, client, request, 1)->grant.lease).chunks, 1);
    world_done(&world);
}
END_TEST

START_TEST(lost_chunks_that_lie_ready_are_released)
{
    core_id lease;

    start(GIB);
    lease = slab(client, 64 * MIB);
    assert_done(client, world_release(&world, client, lease));
    ck_assert_uint_eq(world_use(&world, "chat", 1).cached, 64 * MIB);
    ck_assert_uint_eq(world.releases, 0);
    world_stale(&world, 1);
    ck_assert_uint_eq(world_use(&world, "chat", 1).cached, 0);
    ck_assert_uint_eq(world.releases, 1);
    world_pass(&world, SEC);
    ck_assert_uint_eq(world_free(&world, 1), GIB);
    world_done(&world);
}
END_TEST

START_TEST(lost_chunks_that_are_leased_are_released_when_they_are_returned)
{
    core_id lease, kept;
    uint64_t lost;

    start(GIB);
    lease = slab(client, 64 * MIB);
    lost = slab_name(lease);
    kept = assert_granted(client, world_request(&world, client, 0, 64 * MIB, 0, 0));
    world_stale(&world, 1);
    ck_assert_uint_eq(world_use(&world, "chat", 1).leased, 64 * MIB);
    assert_done(client, world_release(&world, client, lease));
    ck_assert_uint_eq(world_use(&world, "chat", 1).cached, 0);
    ck_assert_uint_ne(slab_name(slab(client, 64 * MIB)), lost);
    /* Chunks of other devices aren't lost. */
    assert_done(client, world_release(&world, client, kept));
    ck_assert_uint_eq(world_use(&world, "chat", 0).cached, 64 * MIB);
    world_done(&world);
}
END_TEST

START_TEST(a_request_that_has_lost_chunks_is_put_together_anew)
{
    const struct core_gang_part parts[] = {
        {.device = 0, .bytes = 64 * MIB}, {.device = 1, .bytes = 64 * MIB}};
    uint64_t request, lost;
    core_id lease;

    start(GIB);
    lease = slab(client, 64 * MIB);
    lost = slab_name(lease);
    assert_done(client, world_release(&world, client, lease));
    /* The slab of the second part is there, the first part's chunks are on their way. */
    world.held_up = true;
    request = world_gang(&world, client, parts, 2, 10 * SEC);
    ck_assert_uint_eq(world_use(&world, "chat", 1).leased, 64 * MIB);
    world_stale(&world, 1);
    ck_assert_uint_eq(world_use(&world, "chat", 1).leased, 0);
    assert_waits(client, request);
    world.held_up = false;
    world_work(&world);
    world_pass(&world, SEC);
    ck_assert_uint_ne(slab_name(world_part(&world, client, request, 1)->grant.lease), lost);
    world_done(&world);
}
END_TEST

START_TEST(a_request_that_may_not_wait_is_refused_with_its_lost_chunks)
{
    const struct core_gang_part parts[] = {
        {.device = 0, .bytes = 64 * MIB}, {.device = 1, .bytes = 64 * MIB}};
    uint64_t request;

    start(GIB);
    assert_done(client, world_release(&world, client, slab(client, 64 * MIB)));
    world.held_up = true;
    request = world_gang(&world, client, parts, 2, 0);
    world_stale(&world, 1);
    assert_refused(client, request, GMB_STATUS_EXHAUSTED, GMB_LIMIT_DRIVER);
    world.held_up = false;
    world_work(&world);
    world_pass(&world, SEC);
    ck_assert_uint_eq(world_free(&world, 1), GIB);
    world_done(&world);
}
END_TEST

START_TEST(losing_what_is_not_there_changes_nothing)
{
    start(GIB);
    world_stale(&world, 1);
    world_stale(&world, 7);
    (void) slab(client, 64 * MIB);
    world_done(&world);
}
END_TEST

UNIT_MAIN("core_whole", a_lease_is_one_slab_of_its_own_size,
    a_chunk_size_is_taken_when_it_holds_the_lease, more_than_the_device_has_is_refused_by_it,
    a_slab_does_not_grow_and_shrinks_to_nothing_less,
    there_are_no_arenas_and_no_segments_on_such_a_device,
    a_slab_goes_back_to_its_tenant_and_to_no_other,
    what_lies_ready_makes_room_for_the_slab_of_another, a_gang_has_a_slab_here_and_chunks_there,
    lost_chunks_that_lie_ready_are_released,
    lost_chunks_that_are_leased_are_released_when_they_are_returned,
    a_request_that_has_lost_chunks_is_put_together_anew,
    a_request_that_may_not_wait_is_refused_with_its_lost_chunks,
    losing_what_is_not_there_changes_nothing)
