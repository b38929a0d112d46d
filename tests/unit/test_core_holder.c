/* Arenas with several holders: what each has, and what it takes for a chunk to come back. */
#include "tests/unit/arena.h"

static core_id mate, third;

/* An arena of 8 indices that `chat` made, and two more clients of its tenant. */
static core_id shared_start(void)
{
    arena_start(32 * MIB);
    mate = world_client(&world, "chat");
    third = world_client(&world, "chat");
    return arena_new(chat, 8);
}

static void attach(core_id client, core_id lease)
{
    uint64_t request = world_attach(&world, client, lease);

    ck_assert_uint_eq(assert_granted(client, request), lease);
    ck_assert_uint_eq(world_answer(&world, client, request)->grant.count, 0);
}

static void share(core_id client, core_id lease, uint32_t first, uint32_t count)
{
    uint64_t request = world_share(&world, client, lease, first, count);

    ck_assert_uint_eq(assert_granted(client, request), lease);
    ck_assert_uint_eq(world_answer(&world, client, request)->grant.first, first);
    ck_assert_uint_eq(world_answer(&world, client, request)->grant.count, count);
}

/* One character for each index, `#` for a chunk that the client has. */
static void assert_has(core_id client, core_id lease, const char *map)
{
    for (uint32_t i = 0; map[i] != '\0'; i++)
        ck_assert_msg(core_holder_has(world.core, lease, client, i) == (map[i] == '#'),
            "index %u of %s", i, map);
}

static uint64_t leased_by(core_id client)
{
    struct core_client_view view = {0};

    while (core_client_next(world.core, view.id, &view)) {
        if (view.id == client)
            return view.leased;
    }
    return 0;
}

START_TEST(one_that_attaches_has_nothing_before_it_is_shared_with)
{
    core_id lease = shared_start();
    struct core_lease_view view;

    arena_fill(chat, lease, 0, 3);
    attach(mate, lease);
    assert_has(mate, lease, "........");
    arena_fill(chat, lease, 4, 1);
    assert_has(mate, lease, "........");
    share(mate, lease, 1, 2);
    assert_has(mate, lease, ".##.....");
    share(mate, lease, 4, 1);
    assert_has(mate, lease, ".##.#...");
    assert_has(chat, lease, "###.#...");
    assert_has(third, lease, "........");
    ck_assert(core_lease_get(world.core, lease, &view));
    ck_assert_uint_eq(view.holders, 2);
    ck_assert_uint_eq(view.client, chat);
    /* Each holds what it has; the tenant pays once. */
    ck_assert_uint_eq(leased_by(chat), 8 * MIB);
    ck_assert_uint_eq(leased_by(mate), 6 * MIB);
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 8 * MIB);
    world_done(&world);
}
END_TEST

START_TEST(what_is_filled_goes_to_all_who_take_part)
{
    core_id lease = shared_start();

    attach(mate, lease);
    attach(third, lease);
    share(mate, lease, 0, 0);
    arena_fill(chat, lease, 0, 2);
    arena_fill(mate, lease, 5, 1);
    assert_has(chat, lease, "##...#..");
    assert_has(mate, lease, "##...#..");
    assert_has(third, lease, "........");
    assert_invalid(third, world_fill(&world, third, lease, 6, 1, 0)); /* not before its part */
    share(third, lease, 0, 1);
    arena_fill(third, lease, 6, 1);
    assert_has(third, lease, "#.....#.");
    assert_has(chat, lease, "##...##.");
    ck_assert_uint_eq(world.creates, 4);
    world_done(&world);
}
END_TEST

START_TEST(fills_of_two_holders_never_take_the_same_index)
{
    core_id lease = shared_start();
    uint64_t first, second;

    attach(mate, lease);
    share(mate, lease, 0, 0);
    world.held_up = true;
    first = world_fill(&world, chat, lease, 2, 2, SEC);
    assert_invalid(mate, world_fill(&world, mate, lease, 3, 2, SEC));
    second = world_fill(&world, mate, lease, 4, 2, SEC);
    assert_invalid(chat, world_fill(&world, chat, lease, 5, 1, SEC));
    world_work(&world);
    assert_granted(chat, first);
    assert_granted(mate, second);
    assert_has(chat, lease, "..####..");
    assert_has(mate, lease, "..####..");
    world_done(&world);
}
END_TEST

START_TEST(a_chunk_comes_back_when_its_last_holder_returns_it)
{
    core_id lease = shared_start();

    attach(mate, lease);
    attach(third, lease);
    share(mate, lease, 0, 0);
    share(third, lease, 0, 0);
    arena_fill(chat, lease, 0, 2);
    assert_done(chat, world_return(&world, chat, lease, 0, 1));
    assert_map(lease, "##......");
    assert_invalid(chat, world_return(&world, chat, lease, 0, 1)); /* it has it no longer */
    assert_invalid(chat, world_fill(&world, chat, lease, 0, 1, 0));
    assert_done(third, world_return(&world, third, lease, 0, 2));
    assert_map(lease, "##......");
    ck_assert_uint_eq(world_use(&world, "chat", 0).leased, 4 * MIB);
    ck_assert_uint_eq(world_use(&world, "chat", 0).cached, 0);
    assert_done(mate, world_return(&world, mate, lease, 0, 1));
    assert_map(lease, ".#......");
    ck_assert_uint_eq(world_use(&world, "chat", 0).cached, 2 * MIB);
    arena_fill(chat, lease, 0, 1); /* the same one again, for all three */
    ck_assert_uint_eq(world.creates, 2);
    assert_has(chat, lease, "##......");
    assert_has(mate, lease, "##......");
    assert_has(third, lease, "#.......");
    world_done(&world);
}
END_TEST

START_TEST(one_that_returned_a_chunk_can_have_it_again)
{
    core_id lease = shared_start();

    attach(mate, lease);
    share(mate, lease, 0, 0);
    arena_fill(chat, lease, 3, 1);
    assert_done(chat, world_return(&world, chat, lease, 3, 1));
    share(chat, lease, 3, 1);
    assert_done(mate, world_return(&world, mate, lease, 3, 1));
    assert_map(lease, "...#....");
    assert_done(chat, world_return(&world, chat, lease, 3, 1));
    assert_map(lease, "........");
    world_done(&world);
}
END_TEST

START_TEST(the_death_of_its_maker_does_not_end_an_arena)
{
    core_id lease = shared_start();
    struct core_lease_view view;

    arena_fill(chat, lease, 0, 4);
    attach(mate, lease);
    share(mate, lease, 0, 2);
    world_kill(&world, chat);
    ck_assert(core_lease_get(world.core, lease, &view));
    ck_assert_uint_eq(view.client, mate);
    ck_assert_uint_eq(view.holders, 1);
    assert_map(lease, "##......"); /* what only the dead one had is gone */
    world_pass(&world, SEC);
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 4 * MIB);
    arena_fill(mate, lease, 2, 1);
    assert_has(mate, lease, "###.....");
    assert_done(mate, world_release(&world, mate, lease));
    ck_assert(!core_lease_get(world.core, lease, &view));
    world_done(&world);
}
END_TEST

START_TEST(what_a_dead_holder_had_goes_to_no_other_process)
{
    core_id lease = shared_start();

    attach(mate, lease);
    share(mate, lease, 0, 0);
    arena_fill(chat, lease, 0, 2);
    assert_done(chat, world_return(&world, chat, lease, 1, 1));
    world_kill(&world, chat);
    world.held_up = true;
    /* The one that it had returned is kept for the tenant, the other goes to the driver. */
    assert_done(mate, world_return(&world, mate, lease, 0, 2));
    ck_assert_uint_eq(world_use(&world, "chat", 0).cached, 2 * MIB);
    ck_assert_uint_eq(world_use(&world, "chat", 0).releasing, 2 * MIB);
    world_work(&world);
    world_done(&world);
}
END_TEST

START_TEST(a_holder_that_leaves_takes_only_its_part_along)
{
    core_id lease = shared_start();
    uint64_t pending;

    attach(mate, lease);
    share(mate, lease, 0, 0);
    arena_fill(chat, lease, 0, 2);
    assert_done(mate, world_return(&world, mate, lease, 1, 1));
    world.held_up = true;
    pending = world_fill(&world, mate, lease, 2, 1, SEC);
    /* Its own request holds it, another's doesn't. */
    assert_invalid(mate, world_release(&world, mate, lease));
    assert_done(chat, world_release(&world, chat, lease));
    assert_map(lease, "#.......");
    world_work(&world);
    assert_granted(mate, pending);
    assert_has(mate, lease, "#.#.....");
    assert_has(chat, lease, "........");
    assert_refused(
        chat, world_fill(&world, chat, lease, 4, 1, 0), GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE);
    attach(chat, lease); /* it may come back */
    share(chat, lease, 2, 1);
    assert_has(chat, lease, "..#.....");
    world_done(&world);
}
END_TEST

START_TEST(a_detached_holder_keeps_what_it_has_and_gets_no_more)
{
    core_id lease = shared_start();

    attach(mate, lease);
    share(mate, lease, 0, 0);
    arena_fill(chat, lease, 0, 1);
    world_detach(&world, mate);
    arena_fill(chat, lease, 1, 1);
    assert_has(mate, lease, "#.......");
    assert_done(chat, world_return(&world, chat, lease, 0, 2));
    assert_map(lease, "#.......");
    assert_done(chat, world_release(&world, chat, lease));
    assert_map(lease, "#.......");
    world_kill(&world, mate);
    world_pass(&world, 11 * SEC);
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 0);
    world_done(&world);
}
END_TEST

START_TEST(an_arena_of_another_tenant_is_refused_as_one_that_is_not_there)
{
    core_id lease = shared_start();
    const struct core_action *foreign, *absent;
    char text[LIMIT_TEXT_BYTES];

    foreign = assert_refused(
        batch, world_attach(&world, batch, lease), GMB_STATUS_DENIED, GMB_LIMIT_PERMISSION);
    memcpy(text, foreign->refuse.text, sizeof(text));
    absent = assert_refused(
        batch, world_attach(&world, batch, lease + 1), GMB_STATUS_DENIED, GMB_LIMIT_PERMISSION);
    ck_assert_str_eq(absent->refuse.text, text);
    assert_refused(
        batch, world_share(&world, batch, lease, 0, 0), GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE);
    world_done(&world);
}
END_TEST

START_TEST(a_workspace_has_one_holder_and_a_client_is_one_once)
{
    core_id lease = shared_start(), workspace = world_lease(&world, chat, 4 * MIB);

    assert_invalid(mate, world_attach(&world, mate, workspace));
    assert_invalid(chat, world_attach(&world, chat, lease));
    attach(mate, lease);
    assert_invalid(mate, world_attach(&world, mate, lease));
    world_done(&world);
}
END_TEST

START_TEST(only_what_others_have_is_shared)
{
    core_id lease = shared_start();
    uint64_t pending;

    arena_fill(chat, lease, 0, 2);
    attach(mate, lease);
    world.held_up = true;
    pending = world_fill(&world, chat, lease, 2, 1, SEC);
    assert_invalid(mate, world_share(&world, mate, lease, 1, 2)); /* being made */
    assert_invalid(mate, world_share(&world, mate, lease, 7, 1));
    assert_invalid(mate, world_share(&world, mate, lease, 8, 1));
    assert_invalid(mate, world_share(&world, mate, lease, 1, UINT32_MAX));
    assert_invalid(mate, world_share(&world, mate, lease, UINT32_MAX, 2));
    assert_invalid(chat, world_share(&world, chat, lease, 0, 1)); /* it has it */
    share(mate, lease, 8, 0);
    world_work(&world);
    assert_granted(chat, pending);
    assert_has(mate, lease, "..#.....");
    world_done(&world);
}
END_TEST

START_TEST(holders_of_one_arena_have_a_bound)
{
    core_id lease, last = 0;

    lease = shared_start();
    for (unsigned i = 1; i < LIMIT_LEASE_HOLDERS; i++) {
        last = world_client(&world, "chat");
        attach(last, lease);
    }
    assert_refused(
        mate, world_attach(&world, mate, lease), GMB_STATUS_EXHAUSTED, GMB_LIMIT_HOLDERS);
    world_kill(&world, last);
    attach(mate, lease);
    assert_refused(
        third, world_attach(&world, third, lease), GMB_STATUS_EXHAUSTED, GMB_LIMIT_HOLDERS);
    world_done(&world);
}
END_TEST

START_TEST(attached_clients_of_one_tenant_have_a_bound)
{
    core_id clients[8], leases[LIMIT_HOLDERS_PER_TENANT / 8], extra;

    (void) shared_start();
    for (unsigned i = 0; i < ARRAY_SIZE(clients); i++)
        clients[i] = world_client(&world, "chat");
    for (unsigned k = 0; k < ARRAY_SIZE(leases); k++) {
        world.answer_count = world.record_count = 0; /* all of them are too many to be kept */
        leases[k] = arena_new(chat, 1);
        for (unsigned i = 0; i < ARRAY_SIZE(clients); i++)
            attach(clients[i], leases[k]);
    }
    assert_refused(
        mate, world_attach(&world, mate, leases[0]), GMB_STATUS_EXHAUSTED, GMB_LIMIT_HOLDERS);
    extra = world_client(&world, "batch");
    attach(extra, arena_new(batch, 1)); /* of one tenant */
    /* One that leaves, the first one too, makes room for one. */
    assert_done(chat, world_release(&world, chat, leases[7]));
    attach(mate, leases[0]);
    assert_refused(
        mate, world_attach(&world, mate, leases[1]), GMB_STATUS_EXHAUSTED, GMB_LIMIT_HOLDERS);
    world_done(&world);
}
END_TEST

START_TEST(a_tenant_that_is_no_longer_configured_attaches_to_nothing)
{
    core_id lease = shared_start();

    world.tenant_count = 0;
    reconfigure();
    assert_refused(mate, world_attach(&world, mate, lease), GMB_STATUS_DENIED, GMB_LIMIT_NONE);
    world_done(&world);
}
END_TEST

UNIT_MAIN("core_holder", one_that_attaches_has_nothing_before_it_is_shared_with,
    what_is_filled_goes_to_all_who_take_part, fills_of_two_holders_never_take_the_same_index,
    a_chunk_comes_back_when_its_last_holder_returns_it, one_that_returned_a_chunk_can_have_it_again,
    the_death_of_its_maker_does_not_end_an_arena, what_a_dead_holder_had_goes_to_no_other_process,
    a_holder_that_leaves_takes_only_its_part_along,
    a_detached_holder_keeps_what_it_has_and_gets_no_more,
    an_arena_of_another_tenant_is_refused_as_one_that_is_not_there,
    a_workspace_has_one_holder_and_a_client_is_one_once, only_what_others_have_is_shared,
    holders_of_one_arena_have_a_bound, attached_clients_of_one_tenant_have_a_bound,
    a_tenant_that_is_no_longer_configured_attaches_to_nothing)
