/* Segments, their stewards and their holders in a core that is made of records. */
#include "tests/unit/restart.h"

static core_id steward, mate, segment;

/* `chat` has written one of three chunks; its steward and another client may take part. */
static void segment_start(void)
{
    arena_start(64 * MIB);
    steward = world_steward(&world, "chat");
    mate = world_client(&world, "chat");
    segment = assert_granted(chat, world_segment(&world, chat, 0, 6 * MIB, 2 * MIB, SEC));
}

static void take_part(core_id client)
{
    assert_granted(client, world_attach(&world, client, segment));
    assert_granted(client, world_share(&world, client, segment, 0, 3));
}

static void assert_holders(uint32_t count)
{
    struct core_lease_view lease;

    ck_assert(core_lease_get(world.core, segment, &lease) == (count > 0));
    ck_assert(count == 0 || lease.holders == count);
}

START_TEST(an_unsealed_segment_is_its_writers_and_none_of_it_is_cached)
{
    segment_start();
    restart();
    assert_holders(1);
    assert_map(segment, "###");
    attach(chat);
    take_part(steward);
    assert_done(steward, world_release(&world, steward, segment));
    restart();
    world.leak_next = 3; /* whom the dead process gave it goes on to map it */
    world_kill(&world, chat);
    assert_holders(0);
    world_pass(&world, 10 * SEC);
    ck_assert_uint_eq(world_use(&world, "chat", 0).cached, 0);
    ck_assert_uint_eq(world_use(&world, "chat", 0).orphaned, 6 * MIB);
}
END_TEST

START_TEST(a_sealed_segment_stays_with_its_steward_and_its_readers)
{
    uint64_t releases;

    segment_start();
    take_part(steward);
    take_part(mate);
    releases = world.releases;
    restart();
    assert_holders(3);
    ck_assert(core_holder_has(world.core, segment, mate, 2));
    ck_assert(core_holder_has(world.core, segment, steward, 0));
    world_kill(&world, chat);
    world_kill(&world, mate);
    assert_holders(1);
    restart();
    assert_holders(1);
    world_pass(&world, 10 * SEC);
    ck_assert_uint_eq(world.releases, releases);
    ck_assert_uint_eq(world_use(&world, "chat", 0).leased, 6 * MIB);
    mate = world_client(&world, "chat");
    take_part(mate);
    assert_done(steward, world_release(&world, steward, segment));
    assert_done(mate, world_release(&world, mate, segment));
    world_pass(&world, 10 * SEC);
    ck_assert_uint_eq(world.releases, releases + 3);
    ck_assert_uint_eq(world_device(&world, 0).free, 64 * MIB);
}
END_TEST

START_TEST(a_segment_without_memory_stays_and_is_filled_again)
{
    segment_start();
    take_part(steward);
    assert_done(chat, world_release(&world, chat, segment));
    assert_done(steward, world_return(&world, steward, segment, 0, 3));
    restart();
    assert_holders(1);
    assert_map(segment, "...");
    ck_assert_uint_eq(
        assert_granted(steward, world_fill(&world, steward, segment, 0, 3, SEC)), segment);
    restart();
    assert_map(segment, "###");
    ck_assert(core_holder_has(world.core, segment, steward, 1));
}
END_TEST

/* Of what it asked for, the reader was told nothing yet. */
START_TEST(an_open_that_was_cut_off_holds_nothing)
{
    size_t cut;

    segment_start();
    take_part(steward);
    assert_granted(mate, world_attach(&world, mate, segment));
    cut = world.record_count;
    assert_granted(mate, world_share(&world, mate, segment, 0, 3));
    restart_with(cut, false, 0);
    assert_holders(3);
    ck_assert(!core_holder_has(world.core, segment, mate, 0));
    attach(mate);
    assert_done(mate, world_release(&world, mate, segment));
    assert_holders(2);
}
END_TEST

START_TEST(a_segment_whose_holder_was_not_written_ends)
{
    size_t cut;

    segment_start();
    cut = world.record_count - 1;
    ck_assert_int_eq(world.records[cut].type, CORE_RECORD_SEAT);
    ck_assert_int_eq(world.records[cut - 1].type, CORE_RECORD_LEASE);
    restart_with(cut, false, 0);
    assert_holders(0);
    world_pass(&world, 10 * SEC);
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 0);
}
END_TEST

START_TEST(a_steward_is_still_none_by_count_and_the_only_one)
{
    struct core_tenant_view tenant;
    uint32_t index;

    segment_start();
    take_part(steward);
    restart();
    ck_assert(core_tenant_find(world.core, "chat", &index));
    ck_assert(core_tenant_get(world.core, index, &tenant));
    ck_assert_uint_eq(tenant.clients, 2);
    ck_assert_uint_eq(world_steward(&world, "chat"), 0);
    assert_done(steward, world_release(&world, steward, segment));
    world_kill(&world, steward);
    ck_assert_uint_ne(world_steward(&world, "chat"), 0);
}
END_TEST

static bool client_there(core_id id)
{
    struct core_client_view view = {0};

    while (core_client_next(world.core, view.id, &view)) {
        if (view.id == id)
            return true;
    }
    return false;
}

START_TEST(who_is_to_be_kept_stays_without_holding_anything)
{
    struct core_event event = {
        .type = CORE_EVENT_CLIENT_DETACH,
        .client_detach.keep = true,
    };

    arena_start(64 * MIB);
    event.client = chat;
    world_step(&world, &event);
    ck_assert(client_there(chat));
    restart();
    ck_assert(client_there(chat));
    attach(chat);
    event.client_detach.keep = false;
    world_step(&world, &event);
    ck_assert(!client_there(chat));
}
END_TEST

START_TEST(who_was_kept_and_holds_nothing_is_let_go_when_it_is_said_again)
{
    struct core_event event = {
        .type = CORE_EVENT_CLIENT_DETACH,
        .client_detach.keep = true,
    };

    arena_start(64 * MIB);
    event.client = chat;
    world_step(&world, &event);
    restart();
    world_step(&world, &event);
    ck_assert(client_there(chat));
    event.client_detach.keep = false;
    world_step(&world, &event);
    ck_assert(!client_there(chat));
}
END_TEST

UNIT_MAIN("core_restore_segment", an_unsealed_segment_is_its_writers_and_none_of_it_is_cached,
    a_sealed_segment_stays_with_its_steward_and_its_readers,
    a_segment_without_memory_stays_and_is_filled_again, an_open_that_was_cut_off_holds_nothing,
    a_segment_whose_holder_was_not_written_ends, a_steward_is_still_none_by_count_and_the_only_one,
    who_is_to_be_kept_stays_without_holding_anything,
    who_was_kept_and_holds_nothing_is_let_go_when_it_is_said_again)
