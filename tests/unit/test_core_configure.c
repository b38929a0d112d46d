/* Configuration: all or nothing, limits in force at once, revisions. */
#include "tests/unit/core.h"

#include <stdio.h>
#include <string.h>

static core_id chat, batch;

static void start(uint64_t total_bytes)
{
    world_start(total_bytes);
    chat = world_client(&world, "chat");
    batch = world_client(&world, "batch");
}

static uint64_t revision_of(const char *name)
{
    struct core_tenant_view view;
    uint32_t index;

    ck_assert(core_tenant_find(world.core, name, &index));
    ck_assert(core_tenant_get(world.core, index, &view));
    return view.revision;
}

static void assert_config_refused(enum gmb_status status)
{
    const struct core_action *answer = world_configure(&world);

    ck_assert_int_eq(answer->type, CORE_ACTION_REFUSE);
    ck_assert_msg(answer->refuse.status == status, "%s", answer->refuse.text);
}

START_TEST(one_invalid_entry_changes_nothing)
{
    struct core_totals before, after;

    start(GIB);
    chat_limits()->max = 100 * MIB;
    reconfigure();
    core_totals_get(world.core, &before);
    chat_limits()->max = 200 * MIB;
    (void) world_tenant(&world, "third");
    world.tenants[2].weight = 0;
    assert_config_refused(GMB_STATUS_INVALID);
    core_totals_get(world.core, &after);
    ck_assert_uint_eq(after.tenants, 2);
    ck_assert_uint_eq(after.revision, before.revision);
    ck_assert_uint_eq(world_use(&world, "chat", 0).limits.max, 100 * MIB);
    world_done(&world);
}
END_TEST

START_TEST(values_are_held_to_their_ranges)
{
    struct core_tenant_config *tenant;

    start(GIB);
    tenant = &world.tenants[0];
    tenant->weight = LIMIT_WEIGHT;
    tenant->priority = LIMIT_PRIORITY;
    reconfigure();
    tenant->weight = LIMIT_WEIGHT + 1;
    assert_config_refused(GMB_STATUS_INVALID);
    tenant->weight = 1;
    tenant->priority = LIMIT_PRIORITY + 1;
    assert_config_refused(GMB_STATUS_INVALID);
    tenant->priority = 0;
    reconfigure();
    chat_limits()->min = chat_limits()->max = 10 * MIB;
    reconfigure();
    chat_limits()->min = 10 * MIB + 1;
    assert_config_refused(GMB_STATUS_INVALID);
    chat_limits()->min = 0;
    chat_limits()->high = chat_limits()->low = UINT64_MAX; /* above MemoryMax: allowed */
    reconfigure();
    tenant->name[0] = '\0';
    assert_config_refused(GMB_STATUS_INVALID);
    (void) strcpy(tenant->name, "batch");
    assert_config_refused(GMB_STATUS_INVALID);
    memset(tenant->name, 'x', sizeof(tenant->name));
    assert_config_refused(GMB_STATUS_INVALID);
    world_done(&world);
}
END_TEST

START_TEST(guarantees_may_fill_the_device_and_no_more)
{
    struct core_tenant_config chat_config;

    start(GIB);
    chat_limits()->min = 1000 * MIB;
    batch_limits()->min = 24 * MIB;
    reconfigure();
    batch_limits()->min = 24 * MIB + 1;
    assert_config_refused(GMB_STATUS_INVALID);
    batch_limits()->min = UINT64_MAX;
    assert_config_refused(GMB_STATUS_INVALID);
    chat_config = world.tenants[0];
    chat_config.memory[0].min = 1000 * MIB + 1;
    ck_assert_int_eq(world_set(&world, &chat_config, 0)->refuse.limit, GMB_LIMIT_GUARANTEED);
    /* Guarantees may move in one change. */
    chat_limits()->min = 24 * MIB;
    batch_limits()->min = 1000 * MIB;
    reconfigure();
    world_done(&world);
}
END_TEST

START_TEST(limit_lowered_to_zero_is_enforced_and_restored)
{
    core_id lease;
    struct core_tenant_device_view use;

    start(GIB);
    chat_limits()->max = 100 * MIB;
    reconfigure();
    lease = world_lease(&world, chat, 64 * MIB);
    (void) lease;
    assert_done(chat, world_release(&world, chat, world_lease(&world, chat, 32 * MIB)));
    chat_limits()->max = 0;
    reconfigure();
    use = world_use(&world, "chat", 0);
    ck_assert_uint_eq(use.limits.max, 0);
    ck_assert_uint_eq(use.leased, 64 * MIB); /* nobody is evicted */
    ck_assert_uint_eq(use.cached, 0);        /* what lay ready went at once */
    ck_assert_uint_eq(use.overage, 64 * MIB);
    assert_refused(chat, world_request(&world, chat, 0, 1, 0, SEC), GMB_STATUS_OVER_LIMIT,
        GMB_LIMIT_MEMORY_MAX);
    chat_limits()->max = 1;
    reconfigure();
    assert_refused(chat, world_request(&world, chat, 0, 1, 0, SEC), GMB_STATUS_OVER_LIMIT,
        GMB_LIMIT_MEMORY_MAX);
    chat_limits()->max = 100 * MIB; /* the first value again */
    reconfigure();
    ck_assert_uint_eq(world_use(&world, "chat", 0).overage, 0);
    (void) world_lease(&world, chat, 36 * MIB);
    assert_refused(
        chat, world_request(&world, chat, 0, 1, 0, 0), GMB_STATUS_EXHAUSTED, GMB_LIMIT_MEMORY_MAX);
    world_done(&world);
}
END_TEST

START_TEST(what_is_returned_above_a_lowered_limit_is_not_kept)
{
    core_id first, second;

    start(GIB);
    first = world_lease(&world, chat, 64 * MIB);
    second = world_lease(&world, chat, 64 * MIB);
    chat_limits()->max = 64 * MIB;
    reconfigure();
    assert_done(chat, world_release(&world, chat, first));
    ck_assert_uint_eq(world_use(&world, "chat", 0).used, 64 * MIB);
    ck_assert_uint_eq(world_use(&world, "chat", 0).cached, 0);
    assert_done(chat, world_release(&world, chat, second)); /* within it: kept */
    ck_assert_uint_eq(world_use(&world, "chat", 0).cached, 64 * MIB);
    world_done(&world);
}
END_TEST

START_TEST(a_raised_limit_lets_the_waiting_through)
{
    uint64_t request;

    start(GIB);
    chat_limits()->max = 64 * MIB;
    reconfigure();
    (void) world_lease(&world, chat, 64 * MIB);
    request = world_request(&world, chat, 0, 2 * MIB, 0, 60 * SEC);
    assert_waits(chat, request);
    chat_limits()->max = 66 * MIB;
    reconfigure();
    (void) assert_granted(chat, request);
    world_done(&world);
}
END_TEST

START_TEST(a_limit_lowered_below_what_waits_refuses_it)
{
    uint64_t request;

    start(GIB);
    (void) world_lease(&world, batch, GIB);
    request = world_request(&world, chat, 0, 4 * MIB, 0, 60 * SEC);
    assert_waits(chat, request);
    chat_limits()->max = 4 * MIB - 1;
    reconfigure();
    assert_refused(chat, request, GMB_STATUS_OVER_LIMIT, GMB_LIMIT_MEMORY_MAX);
    world_done(&world);
}
END_TEST

START_TEST(an_empty_configuration_evicts_nobody)
{
    uint64_t waiting;
    uint32_t index;

    start(GIB);
    (void) world_lease(&world, chat, 64 * MIB);
    (void) world_lease(&world, batch, 960 * MIB);
    waiting = world_request(&world, chat, 0, 2 * MIB, 0, 60 * SEC);
    world.tenant_count = 0;
    reconfigure();
    ck_assert_uint_eq(world_use(&world, "chat", 0).leased, 64 * MIB);
    ck_assert_uint_eq(world.releases, 0);
    assert_refused(chat, waiting, GMB_STATUS_DENIED, 0);
    assert_refused(chat, world_request(&world, chat, 0, 1, 0, 0), GMB_STATUS_DENIED, 0);
    ck_assert_uint_eq(world_client(&world, "chat"), 0);
    /* Forgotten with the last byte. */
    world_kill(&world, chat);
    ck_assert(!core_tenant_find(world.core, "chat", &index));
    ck_assert(core_tenant_find(world.core, "batch", &index));
    world_done(&world);
}
END_TEST

START_TEST(a_tenant_that_comes_back_is_the_same)
{
    core_id lease;

    start(GIB);
    lease = world_lease(&world, chat, 64 * MIB);
    world.tenant_count = 0;
    reconfigure();
    world.tenant_count = 2;
    reconfigure();
    ck_assert_uint_eq(world_use(&world, "chat", 0).leased, 64 * MIB);
    (void) world_lease(&world, chat, 2 * MIB);
    assert_done(chat, world_release(&world, chat, lease));
    ck_assert_uint_eq(world_use(&world, "chat", 0).cached, 64 * MIB);
    world_done(&world);
}
END_TEST

START_TEST(two_operators_do_not_overwrite_each_other_unseen)
{
    struct core_tenant_config mine;
    uint64_t seen, batch_revision;
    uint32_t index;

    start(GIB);
    seen = revision_of("chat");
    batch_revision = revision_of("batch");
    ck_assert(core_tenant_find(world.core, "chat", &index));
    ck_assert(core_tenant_config_get(world.core, index, &mine));
    mine.memory[0].max = 10 * MIB;
    ck_assert_int_eq(world_set(&world, &mine, seen)->type, CORE_ACTION_CONFIGURED);
    ck_assert_uint_gt(revision_of("chat"), seen);
    mine.memory[0].max = 20 * MIB;
    ck_assert_int_eq(world_set(&world, &mine, seen)->refuse.status, GMB_STATUS_CONFLICT);
    ck_assert_uint_eq(world_use(&world, "chat", 0).limits.max, 10 * MIB);
    ck_assert_int_eq(world_set(&world, &mine, 0)->type, CORE_ACTION_CONFIGURED);
    ck_assert_uint_eq(world_use(&world, "chat", 0).limits.max, 20 * MIB);
    /* Only what changed has a new revision. */
    ck_assert_uint_eq(revision_of("batch"), batch_revision);
    (void) strcpy(mine.name, "nobody");
    ck_assert_int_eq(world_set(&world, &mine, 0)->refuse.status, GMB_STATUS_NOT_FOUND);
    ck_assert_int_eq(world_set(&world, NULL, 0)->refuse.status, GMB_STATUS_INVALID);
    world_done(&world);
}
END_TEST

START_TEST(a_reload_without_a_change_changes_no_tenant)
{
    uint64_t seen;

    start(GIB);
    seen = revision_of("chat");
    batch_limits()->max = 10 * MIB;
    reconfigure();
    ck_assert_uint_eq(revision_of("chat"), seen);
    ck_assert_uint_gt(revision_of("batch"), seen);
    world_done(&world);
}
END_TEST

START_TEST(a_dropped_tenant_is_guaranteed_nothing)
{
    start(64 * MIB);
    batch_limits()->min = 32 * MIB;
    reconfigure();
    (void) world_lease(&world, batch, 2 * MIB);
    assert_refused(chat, world_request(&world, chat, 0, 62 * MIB, 0, 0), GMB_STATUS_OVER_LIMIT,
        GMB_LIMIT_GUARANTEED);
    world.tenant_count = 1;
    reconfigure();
    (void) world_lease(&world, chat, 62 * MIB);
    world_done(&world);
}
END_TEST

START_TEST(the_broker_takes_1024_tenants)
{
    static struct core_tenant_config tenants[LIMIT_TENANTS + 1];
    struct core_event event = {.type = CORE_EVENT_CONFIGURE};
    struct core_totals totals;

    world_init(&world, NULL, GIB, 0);
    for (unsigned i = 0; i < LIMIT_TENANTS + 1; i++) {
        tenants[i] = (struct core_tenant_config){.weight = 1};
        (void) snprintf(tenants[i].name, sizeof(tenants[i].name), "tenant%u", i);
    }
    event.configure.tenants = tenants;
    event.configure.count = LIMIT_TENANTS + 1;
    world_step(&world, &event);
    ck_assert_int_eq(world.answers[world.answer_count - 1].type, CORE_ACTION_REFUSE);
    event.configure.count = LIMIT_TENANTS;
    world_step(&world, &event);
    core_totals_get(world.core, &totals);
    ck_assert_uint_eq(totals.tenants, LIMIT_TENANTS);
    /* Those that are no longer named hold nothing: forgotten in the same step. */
    event.configure.count = 1;
    world_step(&world, &event);
    core_totals_get(world.core, &totals);
    ck_assert_uint_eq(totals.tenants, 1);
    world_done(&world);
}
END_TEST

START_TEST(devices_come_before_tenants_and_make_sense)
{
    struct core_event event = {.type = CORE_EVENT_DEVICE_ADD};
    struct core_totals totals;

    world_init(&world, NULL, GIB, 0);
    event.device_add.total_bytes = GIB;
    event.device_add.reserve_bytes = GIB + 1;
    event.device_add.granularity_bytes = 2 * MIB;
    world_step(&world, &event);
    event.device_add.reserve_bytes = 0;
    event.device_add.granularity_bytes = 0;
    world_step(&world, &event);
    event.device_add.granularity_bytes = 2 * MIB;
    event.device_add.total_bytes = UINT64_MAX;
    world_step(&world, &event);
    (void) world_tenant(&world, "chat");
    reconfigure();
    event.device_add.total_bytes = GIB;
    world_step(&world, &event);
    core_totals_get(world.core, &totals);
    ck_assert_uint_eq(totals.devices, 1);
    world_done(&world);
}
END_TEST

UNIT_MAIN("core_configure", one_invalid_entry_changes_nothing, values_are_held_to_their_ranges,
    guarantees_may_fill_the_device_and_no_more, limit_lowered_to_zero_is_enforced_and_restored,
    what_is_returned_above_a_lowered_limit_is_not_kept, a_raised_limit_lets_the_waiting_through,
    a_limit_lowered_below_what_waits_refuses_it, an_empty_configuration_evicts_nobody,
    a_tenant_that_comes_back_is_the_same, a_reload_without_a_change_changes_no_tenant,
    a_dropped_tenant_is_guaranteed_nothing, two_operators_do_not_overwrite_each_other_unseen,
    the_broker_takes_1024_tenants, devices_come_before_tenants_and_make_sense)
