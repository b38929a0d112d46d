/* Segments: leases that others read, and that a steward holds when nobody else does. */
#include "tests/unit/arena.h"

#define SIZE (6 * MIB) /* three chunks */

static core_id mate, steward;

/* `chat` writes one; another client of its tenant, and the tenant's steward, are there. */
static core_id segment_start(void)
{
    uint64_t request;

    arena_start(32 * MIB);
    mate = world_client(&world, "chat");
    steward = world_steward(&world, "chat");
    request = world_segment(&world, chat, 0, SIZE, 2 * MIB, SEC);
    ck_assert_uint_eq(world_answer(&world, chat, request)->grant.count, 3);
    return assert_granted(chat, request);
}

static void take_part(core_id client, core_id lease)
{
    assert_granted(client, world_attach(&world, client, lease));
    assert_granted(client, world_share(&world, client, lease, 0, 3));
}

static uint64_t releases(void)
{
    return world.releases;
}

START_TEST(it_is_granted_whole_and_charged_once)
{
    core_id lease = segment_start();
    struct core_lease_view view;

    take_part(steward, lease);
    take_part(mate, lease);
    ck_assert(core_lease_get(world.core, lease, &view));
    ck_assert_int_eq(view.kind, CORE_LEASE_SEGMENT);
    ck_assert_uint_eq(view.max_chunks, 3);
    ck_assert_uint_eq(view.chunks, 3);
    ck_assert_uint_eq(view.holders, 3);
    ck_assert_uint_eq(world_use(&world, "chat", 0).leased, SIZE);
    world_done(&world);
}
END_TEST

START_TEST(without_its_writer_an_unsealed_one_is_gone)
{
    core_id lease = segment_start();
    struct core_lease_view view;

    world_kill(&world, chat);
    ck_assert(!core_lease_get(world.core, lease, &view));
    world_pass(&world, SEC);
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 0);
    ck_assert_uint_eq(releases(), 3);
    world_done(&world);
}
END_TEST

START_TEST(its_steward_holds_it_when_every_process_is_dead)
{
    core_id lease = segment_start();
    struct core_lease_view view;

    take_part(steward, lease);
    take_part(mate, lease);
    world_kill(&world, chat);
    world_kill(&world, mate);
    ck_assert(core_lease_get(world.core, lease, &view));
    ck_assert_uint_eq(view.holders, 1);
    ck_assert_uint_eq(view.client, steward);
    world_pass(&world, SEC);
    ck_assert_uint_eq(world_use(&world, "chat", 0).leased, SIZE);
    ck_assert_uint_eq(releases(), 0);
    mate = world_client(&world, "chat");
    take_part(mate, lease);
    assert_done(mate, world_release(&world, mate, lease));
    assert_done(steward, world_release(&world, steward, lease));
    world_pass(&world, SEC);
    ck_assert_uint_eq(releases(), 3);
    world_done(&world);
}
END_TEST

/* A process that kept a mapping could write to what is made of them next. */
START_TEST(its_chunks_are_made_into_nothing_else)
{
    core_id lease = segment_start();
    uint64_t creates = world.creates;

    assert_done(chat, world_release(&world, chat, lease));
    ck_assert_uint_eq(world_use(&world, "chat", 0).cached, 0);
    assert_granted(chat, world_request(&world, chat, 0, SIZE, 2 * MIB, SEC));
    ck_assert_uint_eq(world.creates, creates + 3);
    world_done(&world);
}
END_TEST

START_TEST(its_steward_alone_empties_and_fills_it)
{
    core_id lease = segment_start();
    uint64_t fill;

    assert_invalid(chat, world_return(&world, chat, lease, 0, 1));
    assert_invalid(chat, world_fill(&world, chat, lease, 0, 1, 0));
    assert_invalid(chat, world_grow(&world, chat, lease, 2 * MIB, 0));
    assert_invalid(chat, world_shrink(&world, chat, lease, 1));
    take_part(steward, lease);
    assert_done(chat, world_release(&world, chat, lease));
    assert_done(steward, world_return(&world, steward, lease, 0, 3));
    assert_map(lease, "...");
    world_pass(&world, SEC);
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 0);
    fill = world_fill(&world, steward, lease, 0, 3, SEC);
    ck_assert_uint_eq(assert_granted(steward, fill), lease);
    assert_map(lease, "###");
    ck_assert_uint_eq(world_use(&world, "chat", 0).leased, SIZE);
    world_done(&world);
}
END_TEST

START_TEST(another_tenant_attaches_to_none)
{
    core_id lease = segment_start();

    take_part(steward, lease);
    assert_refused(
        batch, world_attach(&world, batch, lease), GMB_STATUS_DENIED, GMB_LIMIT_PERMISSION);
    world_done(&world);
}
END_TEST

START_TEST(a_steward_is_no_client_by_count_and_a_tenant_has_one)
{
    struct core_tenant_view tenant;
    struct core_client_view client = {0};
    uint32_t index, seen = 0;

    (void) segment_start();
    ck_assert(core_tenant_find(world.core, "chat", &index));
    ck_assert(core_tenant_get(world.core, index, &tenant));
    ck_assert_uint_eq(tenant.clients, 2);
    while (core_client_next(world.core, client.id, &client)) {
        ck_assert_uint_ne(client.id, steward);
        seen++;
    }
    ck_assert_uint_eq(seen, 3);
    ck_assert_uint_eq(world_steward(&world, "chat"), 0);
    ck_assert_uint_eq(world_steward(&world, "nobody"), 0);
    world_kill(&world, steward);
    ck_assert_uint_ne(world_steward(&world, "chat"), 0);
    world_done(&world);
}
END_TEST

START_TEST(a_tenant_that_is_configured_no_longer_keeps_its_steward)
{
    core_id lease = segment_start();
    struct core_lease_view view;
    uint32_t index;

    take_part(steward, lease);
    world_kill(&world, chat);
    world_kill(&world, mate);
    assert_done(steward, world_return(&world, steward, lease, 0, 3));
    world.tenant_count = 0;
    ck_assert_int_eq(world_configure(&world)->type, CORE_ACTION_CONFIGURED);
    world_pass(&world, SEC);
    /* Empty, it costs no memory, and is there all the same. */
    ck_assert(core_tenant_find(world.core, "chat", &index));
    ck_assert(core_lease_get(world.core, lease, &view));
    assert_done(steward, world_release(&world, steward, lease));
    world_kill(&world, steward);
    ck_assert(!core_tenant_find(world.core, "chat", &index));
    world_done(&world);
}
END_TEST

START_TEST(segments_of_a_tenant_are_bounded)
{
    uint64_t request;

    arena_start((LIMIT_SEGMENTS_PER_TENANT + 8) * 2 * MIB);
    for (unsigned i = 0; i < LIMIT_SEGMENTS_PER_TENANT; i++)
        assert_granted(chat, world_segment(&world, chat, 0, 2 * MIB, 2 * MIB, 0));
    request = world_segment(&world, chat, 0, 2 * MIB, 2 * MIB, 0);
    assert_refused(chat, request, GMB_STATUS_EXHAUSTED, GMB_LIMIT_LEASES_MAX);
    assert_granted(batch, world_segment(&world, batch, 0, 2 * MIB, 2 * MIB, 0));
    world_done(&world);
}
END_TEST

START_TEST(its_readers_are_bounded)
{
    core_id lease = segment_start(), client = 0;
    uint64_t request;

    take_part(steward, lease);
    for (unsigned i = 2; i < LIMIT_SEGMENT_HOLDERS; i++) {
        client = world_client(&world, "chat");
        assert_granted(client, world_attach(&world, client, lease));
    }
    request = world_attach(&world, mate, lease);
    assert_refused(mate, request, GMB_STATUS_EXHAUSTED, GMB_LIMIT_HOLDERS);
    world_kill(&world, client);
    assert_granted(mate, world_attach(&world, mate, lease));
    world_done(&world);
}
END_TEST

START_TEST(one_that_waits_for_memory_is_asked_for_as_a_lease_is)
{
    uint64_t hog, request;
    core_id lease;

    arena_start(8 * MIB);
    hog = world_request(&world, batch, 0, 6 * MIB, 2 * MIB, 0);
    lease = assert_granted(batch, hog);
    request = world_segment(&world, chat, 0, SIZE, 2 * MIB, SEC);
    ck_assert(world_answer(&world, chat, request) == NULL);
    assert_done(batch, world_release(&world, batch, lease));
    world_pass(&world, SEC / 2);
    assert_granted(chat, request);
    request = world_segment(&world, chat, 0, SIZE, 2 * MIB, SEC / 10);
    world_pass(&world, SEC);
    assert_refused(chat, request, GMB_STATUS_TIMED_OUT, GMB_LIMIT_DEVICE);
    request = world_segment(&world, chat, 0, 16 * MIB, 2 * MIB, SEC);
    assert_refused(chat, request, GMB_STATUS_OVER_LIMIT, GMB_LIMIT_DEVICE);
    world_done(&world);
}
END_TEST

UNIT_MAIN("core: segments", it_is_granted_whole_and_charged_once,
    without_its_writer_an_unsealed_one_is_gone, its_steward_holds_it_when_every_process_is_dead,
    its_chunks_are_made_into_nothing_else, its_steward_alone_empties_and_fills_it,
    another_tenant_attaches_to_none, a_steward_is_no_client_by_count_and_a_tenant_has_one,
    a_tenant_that_is_configured_no_longer_keeps_its_steward, segments_of_a_tenant_are_bounded,
    its_readers_are_bounded, one_that_waits_for_memory_is_asked_for_as_a_lease_is)
