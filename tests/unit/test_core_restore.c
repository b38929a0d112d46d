/* A core that is made again of what the one before has written down. */
#include <errno.h>
#include <string.h>

#include "tests/unit/restart.h"

START_TEST(everything_is_what_it_was)
{
    struct core_tenant_device_view before, after;
    core_id lease, arena;

    arena_start(64 * MIB);
    lease = world_lease(&world, chat, 8 * MIB);
    arena = arena_new(batch, 4);
    arena_fill(batch, arena, 1, 2);
    (void) world_release(&world, chat, world_lease(&world, chat, 4 * MIB));
    before = world_use(&world, "chat", 0);
    ck_assert_uint_eq(before.leased, 8 * MIB);
    ck_assert_uint_eq(before.cached, 4 * MIB);
    restart();
    after = world_use(&world, "chat", 0);
    ck_assert_uint_eq(after.leased, 8 * MIB);
    ck_assert_uint_eq(after.cached, 4 * MIB);
    ck_assert_uint_eq(after.used, before.used);
    ck_assert_uint_eq(world_use(&world, "batch", 0).leased, 4 * MIB);
    assert_map(arena, ".##.");
    for (uint32_t i = 0; i < 4; i++)
        (void) chunk_number(lease, i);
    ck_assert_uint_eq(world_device(&world, 0).free, world_free(&world, 0));
}
END_TEST

START_TEST(a_client_that_is_back_goes_on_and_one_that_is_not_may_not_ask)
{
    uint64_t request;
    core_id lease;

    arena_start(64 * MIB);
    lease = world_lease(&world, chat, 8 * MIB);
    restart();
    request = world_shrink(&world, chat, lease, 1);
    assert_refused(chat, request, GMB_STATUS_INVALID, GMB_LIMIT_NONE);
    attach(chat);
    assert_done(chat, world_shrink(&world, chat, lease, 1));
    ck_assert_uint_eq(world_use(&world, "chat", 0).cached, 6 * MIB);
    world_kill(&world, chat);
    world_pass(&world, 20 * SEC);
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 0);
    ck_assert_uint_eq(world_device(&world, 0).free, 64 * MIB);
}
END_TEST

START_TEST(ids_are_never_given_twice)
{
    core_id lease, gone;

    arena_start(64 * MIB);
    lease = world_lease(&world, chat, 2 * MIB);
    gone = world_lease(&world, chat, 2 * MIB);
    (void) world_release(&world, chat, gone);
    restart();
    attach(chat);
    for (unsigned i = 0; i < 3; i++) {
        core_id next = world_lease(&world, chat, 2 * MIB);

        ck_assert(next != lease && next != gone);
    }
    ck_assert(world_client(&world, "chat") != chat);
}
END_TEST

/* Type and, of a chunk, the state of the records since `first`. */
static void assert_order(size_t first, const char *expected)
{
    static const char names[] = {'T', 'A', 'C', 'L', 'h', 's', 'c'};
    char found[64] = "";

    for (size_t i = first; i < world.record_count; i++)
        found[i - first] = names[world.records[i].type];
    ck_assert_str_eq(found, expected);
}

START_TEST(chunks_are_written_before_the_lease_that_counts_them)
{
    size_t first;
    core_id lease;

    arena_start(64 * MIB);
    (void) world_release(&world, chat, world_lease(&world, chat, 4 * MIB));
    first = world.record_count;
    lease = world_lease(&world, chat, 4 * MIB);
    assert_order(first, "ccL");
    first = world.record_count;
    (void) world_release(&world, chat, lease);
    assert_order(first, "ccL");
    /* A lease is given back from its end. */
    ck_assert_uint_eq(world.records[first].chunk.state, CORE_CHUNK_CACHED);
    ck_assert(world.records[first + 2].gone);
}
END_TEST

START_TEST(a_grant_that_was_cut_off_is_the_tenants_cache)
{
    size_t first;

    arena_start(64 * MIB);
    (void) world_release(&world, chat, world_lease(&world, chat, 4 * MIB));
    first = world.record_count;
    (void) world_lease(&world, chat, 4 * MIB);
    restart_with(first + 2, false, 0); /* both chunks, not the lease */
    ck_assert_uint_eq(world_use(&world, "chat", 0).cached, 4 * MIB);
    ck_assert_uint_eq(world_use(&world, "chat", 0).leased, 0);
}
END_TEST

START_TEST(a_return_that_was_cut_off_leaves_the_chunks_in_front)
{
    struct core_lease_view view;
    core_id lease;
    size_t first;

    arena_start(64 * MIB);
    lease = world_lease(&world, chat, 8 * MIB);
    first = world.record_count;
    (void) world_release(&world, chat, lease);
    restart_with(first + 3, false, 0); /* three chunks of four */
    ck_assert(core_lease_get(world.core, lease, &view));
    ck_assert_uint_eq(view.chunks, 1);
    ck_assert_uint_eq(world_use(&world, "chat", 0).cached, 6 * MIB);
}
END_TEST

START_TEST(a_chunk_without_its_memory_is_stuck_in_its_lease)
{
    core_id lease;
    size_t releases;

    arena_start(64 * MIB);
    lease = world_lease(&world, chat, 4 * MIB);
    lost[0] = chunk_number(lease, 1);
    lost_count = 1;
    /* The broker has no handle; the worker still maps it: to the driver it is another's. */
    world.devices[0].held -= 2 * MIB;
    world.devices[0].others += 2 * MIB;
    restart();
    ck_assert_uint_eq(world_use(&world, "chat", 0).leased, 4 * MIB);
    ck_assert_uint_eq(world_device(&world, 0).free, 60 * MIB);
    ck_assert_uint_eq(world_device(&world, 0).unaccounted, 0);
    releases = world.releases;
    attach(chat);
    /* It lets go: nothing is released, nothing is missing, and nobody gets it again. */
    world.devices[0].others -= 2 * MIB;
    assert_done(chat, world_shrink(&world, chat, lease, 1));
    world_pass(&world, 10 * SEC);
    ck_assert_uint_eq(world.releases, releases);
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 2 * MIB);
    ck_assert_uint_eq(world_device(&world, 0).free, 62 * MIB);
    ck_assert_uint_eq(world_device(&world, 0).orphaned, 0);
}
END_TEST

START_TEST(what_lay_ready_and_is_gone_is_free_once_it_is_seen)
{
    core_id lease;

    arena_start(64 * MIB);
    lease = world_lease(&world, chat, 4 * MIB);
    lost[0] = chunk_number(lease, 0);
    lost[1] = chunk_number(lease, 1);
    lost_count = 2;
    (void) world_release(&world, chat, lease);
    world.devices[0].held -= 4 * MIB;
    world.held_up = true;
    restart();
    ck_assert_uint_eq(world_use(&world, "chat", 0).cached, 0);
    world_pass(&world, SEC);
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 0);
    ck_assert_uint_eq(world_device(&world, 0).free, 64 * MIB);
}
END_TEST

START_TEST(a_release_that_was_not_done_is_done_again)
{
    size_t releases;

    arena_start(64 * MIB);
    (void) world_lease(&world, chat, 4 * MIB);
    world.held_up = true;
    world_kill(&world, chat);
    releases = world.releases;
    restart();
    world_pass(&world, SEC);
    ck_assert_uint_eq(world.releases, releases + 2);
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 0);
    ck_assert_uint_eq(world_device(&world, 0).free, 64 * MIB);
}
END_TEST

/* The account is written before the chunks: cut off in between, more is written than there is. */
START_TEST(what_was_released_and_is_written_twice_is_counted_once)
{
    core_id lease;
    size_t cut;

    arena_start(16 * MIB);
    (void) world_lease(&world, batch, 4 * MIB);
    lease = world_lease(&world, chat, 8 * MIB);
    for (uint32_t i = 0; i < 4; i++)
        lost[lost_count++] = chunk_number(lease, i);
    (void) world_lease(&world, batch, 4 * MIB);
    world.leak_next = 4;
    cut = world.record_count;
    world_kill(&world, chat);
    world_pass(&world, SEC);
    while (world.records[cut].type != CORE_RECORD_ACCOUNT ||
           world.records[cut].account.suspects_bytes == 0)
        ck_assert_uint_lt(++cut, world.record_count);
    ck_assert_uint_eq(world.records[cut].account.suspects_bytes, 8 * MIB);
    restart_with(cut + 1, false, 0);
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 8 * MIB);
    ck_assert_uint_eq(world_use(&world, "batch", 0).leased, 8 * MIB);
    world.devices[0].leaked = 0;
    world_pass(&world, 20 * SEC);
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 0);
    ck_assert_uint_eq(world_device(&world, 0).free, 8 * MIB);
}
END_TEST

START_TEST(orphaned_bytes_stay_the_tenants)
{
    arena_start(64 * MIB);
    (void) world_lease(&world, chat, 4 * MIB);
    world.leak_next = 2;
    world_kill(&world, chat);
    world_pass(&world, 10 * SEC);
    ck_assert_uint_eq(world_use(&world, "chat", 0).orphaned, 4 * MIB);
    restart();
    world_pass(&world, 10 * SEC);
    ck_assert_uint_eq(world_use(&world, "chat", 0).orphaned, 4 * MIB);
    world.devices[0].leaked = 0;
    world_pass(&world, 10 * SEC);
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 0);
}
END_TEST

/* The record of the chunk with that number can't be read. */
static void damage(uint32_t number)
{
    for (size_t i = 0; i < world.record_count; i++) {
        if (world.records[i].type == CORE_RECORD_CHUNK && world.records[i].number == number) {
            world.records[i] = world.records[--world.record_count];
            i--;
        }
    }
}

START_TEST(a_hole_is_stuck_where_records_were_damaged)
{
    struct core_lease_view view;
    core_id lease;

    arena_start(64 * MIB);
    lease = world_lease(&world, chat, 8 * MIB);
    damage(chunk_number(lease, 1));
    damage(chunk_number(lease, 3));
    world.devices[0].held -= 4 * MIB;
    world.devices[0].others += 4 * MIB;
    restart_with(world.record_count, true, 0);
    ck_assert(core_lease_get(world.core, lease, &view));
    ck_assert_uint_eq(view.chunks, 4);
    ck_assert_uint_eq(world_use(&world, "chat", 0).leased, 8 * MIB);
    ck_assert_uint_eq(world_device(&world, 0).free, 56 * MIB);
}
END_TEST

START_TEST(chunks_of_a_lease_that_cannot_be_read_are_released_not_granted_again)
{
    core_id lease;

    arena_start(64 * MIB);
    lease = world_lease(&world, chat, 4 * MIB);
    for (size_t i = 0; i < world.record_count; i++) {
        if (world.records[i].type == CORE_RECORD_LEASE)
            world.records[i] = world.records[--world.record_count];
    }
    /* The worker maps them still: nothing comes back when they are released. */
    world.leak_next = 2;
    restart_with(world.record_count, true, 0);
    world_pass(&world, 10 * SEC);
    ck_assert(!core_lease_chunk(world.core, lease, 0, &lost[0], &lost[1]));
    ck_assert_uint_eq(world_use(&world, "chat", 0).cached, 0);
    ck_assert_uint_eq(world_use(&world, "chat", 0).orphaned, 4 * MIB);
    ck_assert_uint_eq(world_device(&world, 0).free, 60 * MIB);
}
END_TEST

/* The client gives the lease back, and goes on to map it. */
static void release_held(core_id client, core_id lease)
{
    world_step(&world, &(struct core_event){.type = CORE_EVENT_LEASE_RELEASE,
                           .lease_release = {.lease = lease, .held = true},
                           .client = client,
                           .request = 1000});
    assert_done(client, 1000);
}

START_TEST(a_lease_that_ends_while_it_is_held_is_no_cache)
{
    arena_start(64 * MIB);
    world.leak_next = 2;
    release_held(chat, world_lease(&world, chat, 4 * MIB));
    ck_assert_uint_eq(world_use(&world, "chat", 0).cached, 0);
    world_pass(&world, 10 * SEC);
    ck_assert_uint_eq(world_use(&world, "chat", 0).orphaned, 4 * MIB);
}
END_TEST

START_TEST(what_one_holder_goes_on_to_map_is_no_cache_when_another_returns_it_to_a_later_core)
{
    core_id arena, mate;

    arena_start(64 * MIB);
    mate = world_client(&world, "chat");
    arena = arena_new(chat, 2);
    arena_fill(chat, arena, 0, 2);
    assert_granted(mate, world_attach(&world, mate, arena));
    assert_granted(mate, world_share(&world, mate, arena, 0, 1));
    release_held(chat, arena);
    assert_map(arena, "#.");
    restart();
    attach(mate);
    world.leak_next = 1;
    assert_done(mate, world_return(&world, mate, arena, 0, 1));
    ck_assert_uint_eq(world_use(&world, "chat", 0).cached, 0);
    world_pass(&world, 10 * SEC);
    ck_assert_uint_eq(world_use(&world, "chat", 0).orphaned, 2 * MIB);
}
END_TEST

/* A cut must not make a hole: what lies behind one counts as given back by a holder who is done. */
START_TEST(wherever_a_lease_ends_that_is_held_none_of_it_is_cached)
{
    core_id lease;
    size_t first;

    for (size_t cut = 0; cut <= 5; cut++) { /* four chunks, the lease */
        arena_start(64 * MIB);
        lease = world_lease(&world, chat, 8 * MIB);
        first = world.record_count;
        world.leak_next = 4;
        release_held(chat, lease);
        restart_with(first + cut, false, 0);
        ck_assert_uint_eq(world_use(&world, "chat", 0).cached, 0);
        ck_assert_uint_eq(world_use(&world, "chat", 0).leased, 8 * MIB - MIN(cut, 4u) * 2 * MIB);
        world_done(&world);
    }
}
END_TEST

START_TEST(a_reserve_that_was_raised_takes_nothing_away)
{
    core_id lease;

    arena_start(64 * MIB);
    lease = world_lease(&world, chat, 48 * MIB);
    restart_with(world.record_count, false, 32 * MIB);
    ck_assert_uint_eq(world_use(&world, "chat", 0).leased, 48 * MIB);
    ck_assert_uint_eq(world_device(&world, 0).free, 0);
    ck_assert_uint_eq(world_device(&world, 0).reserve, 16 * MIB);
    attach(chat);
    assert_done(chat, world_release(&world, chat, lease));
}
END_TEST

START_TEST(a_drained_device_stays_drained)
{
    uint64_t request;

    arena_start(64 * MIB);
    world_drain(&world, 0, false);
    restart();
    attach(chat);
    request = world_request(&world, chat, 0, 2 * MIB, 0, 0);
    assert_refused(chat, request, GMB_STATUS_EXHAUSTED, GMB_LIMIT_DRAINING);
}
END_TEST

START_TEST(an_empty_configuration_takes_nothing_from_those_who_are_restored)
{
    arena_start(64 * MIB);
    (void) world_lease(&world, chat, 4 * MIB);
    world.tenant_count = 0;
    restart();
    world_pass(&world, 100 * SEC);
    ck_assert_uint_eq(world_use(&world, "chat", 0).leased, 4 * MIB);
    world_kill(&world, chat);
    world_pass(&world, SEC);
    ck_assert_uint_eq(world_device(&world, 0).free, 64 * MIB);
}
END_TEST

/* ------------------------------------------------------------------ nonsense */

static struct core *fresh;

static int give(const struct core_record *record)
{
    return core_restore(fresh, record, true, false);
}

static const struct core_record tenant_record = {
    .type = CORE_RECORD_TENANT, .number = 3, .tenant.name = "a"};
static const struct core_record client_record = {
    .type = CORE_RECORD_CLIENT, .number = 5, .generation = 2, .client.tenant = 3};
static const struct core_record lease_record = {.type = CORE_RECORD_LEASE,
    .number = 1,
    .generation = 1,
    .lease = {.client = UINT64_C(2) << 32 | 6, .tenant = 3, .count = 2, .chunk_bytes = 2 * MIB}};
static const struct core_record chunk_record = {.type = CORE_RECORD_CHUNK,
    .number = 9,
    .generation = 1,
    .chunk = {.tenant = 3,
        .state = CORE_CHUNK_LEASED,
        .index = 1,
        .lease = UINT64_C(1) << 32 | 2,
        .bytes = 2 * MIB}};

static void fresh_make(void)
{
    struct core *ours;

    world_start(64 * MIB);
    ck_assert_int_eq(core_new(&core_options_default, &fresh), 0);
    ours = world.core;
    world.core = fresh;
    world_device_add(&world, 64 * MIB, 0);
    world.core = ours;
}

static void fresh_end(void)
{
    ck_assert_int_eq(core_restore_end(fresh, false, 100), 0);
    ck_assert_pstr_eq(core_check(fresh), NULL);
    fresh = core_free(fresh);
}

START_TEST(tenants_and_clients_that_contradict_are_refused)
{
    struct core_record bad;

    fresh_make();
    ck_assert_int_eq(give(&client_record), -EINVAL); /* its tenant isn't known */
    ck_assert_int_eq(give(&tenant_record), 0);
    ck_assert_int_eq(give(&tenant_record), -EINVAL);
    bad = tenant_record;
    bad.number = LIMIT_TENANTS;
    ck_assert_int_eq(give(&bad), -EINVAL);
    memset(bad.tenant.name, 'x', sizeof(bad.tenant.name));
    bad.number = 4;
    ck_assert_int_eq(give(&bad), -EINVAL);
    ck_assert_int_eq(give(&lease_record), -EINVAL); /* nor its client */
    ck_assert_int_eq(give(&client_record), 0);
    ck_assert_int_eq(give(&client_record), -EEXIST);
    bad = client_record;
    bad.number = LIMIT_CLIENTS + LIMIT_TENANTS; /* stewards have places, too */
    ck_assert_int_eq(give(&bad), -EINVAL);
    bad = client_record;
    bad.number++;
    bad.generation = 0;
    ck_assert_int_eq(give(&bad), -EINVAL);
    fresh_end();
}
END_TEST

START_TEST(leases_and_chunks_that_contradict_are_refused)
{
    struct core_record bad;

    fresh_make();
    ck_assert_int_eq(give(&tenant_record), 0);
    ck_assert_int_eq(give(&client_record), 0);
    bad = lease_record;
    bad.lease.device = 1;
    ck_assert_int_eq(give(&bad), -EINVAL);
    bad = lease_record;
    bad.lease.count = LIMIT_LEASE_CHUNKS + 1;
    ck_assert_int_eq(give(&bad), -EINVAL);
    bad.lease.count = 64 * MIB / bad.lease.chunk_bytes + 1; /* more than the device has */
    ck_assert_int_eq(give(&bad), -EINVAL);
    bad = lease_record;
    bad.lease.chunk_bytes = MIB;
    ck_assert_int_eq(give(&bad), -EINVAL);
    ck_assert_int_eq(give(&lease_record), 0);
    bad = chunk_record;
    bad.chunk.bytes = 0;
    ck_assert_int_eq(give(&bad), -EINVAL);
    bad = chunk_record;
    bad.chunk.tenant = 4;
    ck_assert_int_eq(give(&bad), -EINVAL);
    bad = chunk_record;
    bad.chunk.tenant = CORE_NOBODY;
    ck_assert_int_eq(give(&bad), -EINVAL);
    bad = chunk_record;
    bad.chunk.state = (enum core_record_state) 7;
    ck_assert_int_eq(give(&bad), -EINVAL);
    bad = chunk_record;
    bad.number = LIMIT_CHUNKS_TOTAL;
    ck_assert_int_eq(give(&bad), -EINVAL);
    /* More than the device has. */
    bad = chunk_record;
    bad.chunk.bytes = 66 * MIB;
    ck_assert_int_eq(give(&bad), -EINVAL);
    ck_assert_int_eq(give(&chunk_record), 0);
    ck_assert_int_eq(give(&chunk_record), -EEXIST);
    fresh_end();
}
END_TEST

START_TEST(holders_and_stewards_that_contradict_are_refused)
{
    static const struct core_record seat = {.type = CORE_RECORD_SEAT,
        .number = 4,
        .generation = 1,
        .holder = {.open = true, .lease = UINT64_C(1) << 32 | 2, .client = UINT64_C(2) << 32 | 6}};
    struct core_record bad, lease = lease_record;

    fresh_make();
    ck_assert_int_eq(give(&seat), -ESTALE);
    ck_assert_int_eq(give(&tenant_record), 0);
    ck_assert_int_eq(give(&client_record), 0);
    ck_assert_int_eq(give(&seat), -ESTALE);
    lease.lease.kind = CORE_LEASE_SEGMENT;
    lease.lease.max = 2;
    ck_assert_int_eq(give(&lease), 0);
    bad = seat;
    bad.number = LIMIT_SEATS;
    ck_assert_int_eq(give(&bad), -EINVAL);
    bad = seat;
    bad.generation = 0;
    ck_assert_int_eq(give(&bad), -EINVAL);
    ck_assert_int_eq(give(&seat), 0);
    bad = seat;
    bad.number++;
    ck_assert_int_eq(give(&bad), -EINVAL); /* it holds it already */
    /* In a place, as of an arena. */
    bad = (struct core_record){.type = CORE_RECORD_HOLDER,
        .number = 1 * LIMIT_LEASE_HOLDERS + 1,
        .generation = 1,
        .holder = seat.holder};
    ck_assert_int_eq(give(&bad), -EINVAL);
    bad = client_record;
    bad.number = 7;
    bad.client.steward = true;
    ck_assert_int_eq(give(&bad), 0);
    bad.number = 8;
    ck_assert_int_eq(give(&bad), -EINVAL); /* another one of the tenant's */
    fresh_end();
}
END_TEST

UNIT_MAIN("core_restore", everything_is_what_it_was,
    a_client_that_is_back_goes_on_and_one_that_is_not_may_not_ask, ids_are_never_given_twice,
    chunks_are_written_before_the_lease_that_counts_them,
    a_grant_that_was_cut_off_is_the_tenants_cache,
    a_return_that_was_cut_off_leaves_the_chunks_in_front,
    a_chunk_without_its_memory_is_stuck_in_its_lease,
    what_lay_ready_and_is_gone_is_free_once_it_is_seen, a_release_that_was_not_done_is_done_again,
    what_was_released_and_is_written_twice_is_counted_once, orphaned_bytes_stay_the_tenants,
    a_hole_is_stuck_where_records_were_damaged,
    chunks_of_a_lease_that_cannot_be_read_are_released_not_granted_again,
    a_lease_that_ends_while_it_is_held_is_no_cache,
    what_one_holder_goes_on_to_map_is_no_cache_when_another_returns_it_to_a_later_core,
    wherever_a_lease_ends_that_is_held_none_of_it_is_cached,
    a_reserve_that_was_raised_takes_nothing_away, a_drained_device_stays_drained,
    an_empty_configuration_takes_nothing_from_those_who_are_restored,
    tenants_and_clients_that_contradict_are_refused, leases_and_chunks_that_contradict_are_refused,
    holders_and_stewards_that_contradict_are_refused)
