/* Leases end to end in a world with one device of 1 GiB and 2 MiB granularity. */
#include "tests/core/world.h"
#include "tests/unit/unit.h"

static struct world world;

static void start(uint64_t total_bytes)
{
    world_init(&world, NULL, total_bytes, 0);
    world_tenant(&world, "chat");
    world_tenant(&world, "batch");
    ck_assert_int_eq(world_configure(&world)->type, CORE_ACTION_CONFIGURED);
}

static void assert_refused(core_id client, uint64_t request, enum gmb_status status, int limit)
{
    const struct core_action *answer = world_answer(&world, client, request);

    ck_assert_ptr_nonnull(answer);
    ck_assert_int_eq(answer->type, CORE_ACTION_REFUSE);
    ck_assert_msg(answer->refuse.status == status && (int) answer->refuse.limit == limit,
        "%s by %s: %s", status_name(answer->refuse.status), limit_name(answer->refuse.limit),
        answer->refuse.text);
}

START_TEST(a_lease_is_granted_and_its_memory_comes_back)
{
    core_id client, lease;
    struct core_lease_view view;

    start(GIB);
    client = world_client(&world, "chat");
    lease = world_lease(&world, client, 100 * MIB);
    ck_assert(core_lease_get(world.core, lease, &view));
    /* 2 MiB chunks would be 50: within 64. */
    ck_assert_uint_eq(view.chunk_bytes, 2 * MIB);
    ck_assert_uint_eq(view.chunks, 50);
    ck_assert_uint_eq(world_free(&world, 0), GIB - 100 * MIB);
    ck_assert_uint_eq(world_use(&world, "chat", 0).leased, 100 * MIB);

    world_release(&world, client, lease);
    ck_assert_uint_eq(world_use(&world, "chat", 0).cached, 100 * MIB);
    world_pass(&world, 11 * SEC);
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 0);
    ck_assert_uint_eq(world_free(&world, 0), GIB);
    world_done(&world);
}
END_TEST

START_TEST(two_requests_for_the_last_bytes_only_one_is_admitted)
{
    core_id a, b;
    uint64_t first, second;

    start(64 * MIB);
    a = world_client(&world, "chat");
    b = world_client(&world, "batch");
    world.held_up = true;
    first = world_request(&world, a, 0, 64 * MIB, 0, 0);
    second = world_request(&world, b, 0, 64 * MIB, 0, 0);
    assert_refused(b, second, GMB_STATUS_EXHAUSTED, GMB_LIMIT_DEVICE);
    world_work(&world);
    ck_assert_int_eq(world_answer(&world, a, first)->type, CORE_ACTION_GRANT);
    world_done(&world);
}
END_TEST

UNIT_MAIN("core_lease", a_lease_is_granted_and_its_memory_comes_back,
    two_requests_for_the_last_bytes_only_one_is_admitted)
