/* Limits that change while they are in use, and configurations that are refused. */

#include "base/error.h"
#include "base/size.h"
#include "tests/integration/raw.h"
#include "tests/unit/unit.h"

START_TEST(a_malformed_configuration_keeps_the_old_one)
{
    static const char *const malformed[] = {
        "[Tenant test]\nUser=*\nMemoryMax=lots\n",
        "[Tenant test]\nUser=*\nMemoryMax=\n",
        "[Tenant test]\nUser=*\nMemoryMin=2G\n",
        "[Tenant test]\nUser=*\nMemoryMaximum=1G\n",
        "[Tennant test]\nUser=*\n",
        "[Tenant test\nUser=*\n",
    };
    Gmb__TenantDevice tenant;
    struct harness harness;

    harness_start(&harness, HARNESS_BROKER "[Tenant test]\nUser=*\nMemoryMax=64M\n");
    for (size_t i = 0; i < ARRAY_SIZE(malformed); i++) {
        harness_configure(&harness, malformed[i]);
        ck_assert_int_eq(raw_reload(&harness), GMB_STATUS_INVALID);
        raw_tenant(&harness, "test", &tenant);
        ck_assert_uint_eq(tenant.memory_max, 64 << 20);
    }
    harness_configure(&harness, HARNESS_BROKER "[Tenant test]\nUser=*\nMemoryMax=50%\n");
    ck_assert_int_eq(raw_reload(&harness), GMB_STATUS_OK);
    raw_tenant(&harness, "test", &tenant);
    ck_assert_uint_eq(tenant.memory_max, HARNESS_MEMORY / 2);
    harness_stop(&harness);
}
END_TEST

/* As much more for the tenant: of the lease or, since a slab doesn't grow, in another one. */
static uint64_t take_more(struct raw *raw, uint64_t lease, uint64_t bytes, uint32_t chunks)
{
    uint64_t id = raw_slabs() ? raw_lease(raw, bytes, 0, 0) : raw_grow(raw, lease, bytes);

    return raw_expect_lease(raw, id, chunks);
}

START_TEST(a_limit_lowered_below_use_holds_and_is_restored)
{
    static const char *const lowered[] = {"4M", "0"};
    Gmb__TenantDevice tenant;
    struct harness harness;
    struct raw raw;
    uint64_t lease, more[2];

    harness_start(&harness, HARNESS_BROKER "[Tenant test]\nUser=*\nMemoryMax=64M\n");
    raw_connect(&raw, &harness);
    lease = raw_expect_lease(&raw, raw_lease(&raw, 32 << 20, HARNESS_CHUNK, 0), 16);
    for (size_t i = 0; i < ARRAY_SIZE(lowered); i++) {
        uint64_t limit;

        ck_assert_int_eq(size_parse(lowered[i], &limit), 0);
        ck_assert_int_eq(raw_set(&harness, "test", "MemoryMax", lowered[i]), GMB_STATUS_OK);
        raw_tenant(&harness, "test", &tenant);
        ck_assert_uint_eq(tenant.memory_max, limit);
        ck_assert_uint_eq(tenant.overage_bytes, (32 << 20) - limit);
        if (raw_slabs()) /* another one: a slab doesn't grow */
            raw_expect_error(&raw, raw_lease(&raw, 6 << 20, 0, 0), GMB_STATUS_OVER_LIMIT);
        else
            raw_expect_error(&raw, raw_grow(&raw, lease, 1), GMB_STATUS_OVER_LIMIT);
    }
    ck_assert_int_eq(raw_set(&harness, "test", "MemoryMax", "64M"), GMB_STATUS_OK);
    more[0] = take_more(&raw, lease, 32 << 20, 32);
    raw_tenant(&harness, "test", &tenant);
    ck_assert_uint_eq(tenant.overage_bytes, 0);
    ck_assert_int_eq(raw_set(&harness, "test", "MemoryMax", "infinity"), GMB_STATUS_OK);
    more[1] = take_more(&raw, lease, 1, 33);
    for (size_t i = 0; raw_slabs() && i < ARRAY_SIZE(more); i++)
        raw_expect_done(&raw, raw_release(&raw, more[i]));
    raw_expect_done(&raw, raw_release(&raw, lease));
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_malformed_set_changes_nothing)
{
    Gmb__TenantDevice tenant;
    struct harness harness;

    harness_start(&harness, HARNESS_BROKER "[Tenant test]\nUser=*\nMemoryMax=64M\n");
    ck_assert_int_eq(raw_set(&harness, "test", "MemoryMax", "-1"), GMB_STATUS_INVALID);
    ck_assert_int_eq(raw_set(&harness, "test", "MemoryMax", "101%"), GMB_STATUS_INVALID);
    ck_assert_int_eq(raw_set(&harness, "test", "MemoryMaxx", "1G"), GMB_STATUS_INVALID);
    ck_assert_int_eq(raw_set(&harness, "nobody", "MemoryMax", "1G"), GMB_STATUS_NOT_FOUND);
    ck_assert_int_ne(raw_set(&harness, "test", "MemoryMin", "2G"), GMB_STATUS_OK);
    raw_tenant(&harness, "test", &tenant);
    ck_assert_uint_eq(tenant.memory_max, 64 << 20);
    ck_assert_uint_eq(tenant.memory_min, 0);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_process_of_no_tenant_is_refused_whatever_its_environment_says)
{
    struct harness harness;
    struct raw raw;

    harness_start(&harness, HARNESS_BROKER "[Tenant other]\nUser=4000000000\n");
    (void) setenv("GMB_TENANT", "other", 1);
    raw_dial(&raw, &harness);
    raw_expect_error(&raw, raw_hello(&raw, 1), GMB_STATUS_DENIED);
    raw_expect_end(&raw);
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

START_TEST(clients_max_refuses_the_one_above_it)
{
    struct harness harness;
    struct raw first, second;

    harness_start(&harness, HARNESS_BROKER "[Tenant test]\nUser=*\nClientsMax=1\n");
    raw_connect(&first, &harness);
    raw_dial(&second, &harness);
    raw_expect_error(&second, raw_hello(&second, 1), GMB_STATUS_EXHAUSTED);
    raw_expect_end(&second);
    raw_close(&second);
    raw_close(&first);
    harness_stop(&harness);
}
END_TEST

UNIT_MAIN("config", a_malformed_configuration_keeps_the_old_one,
    a_limit_lowered_below_use_holds_and_is_restored, a_malformed_set_changes_nothing,
    a_process_of_no_tenant_is_refused_whatever_its_environment_says,
    clients_max_refuses_the_one_above_it)
