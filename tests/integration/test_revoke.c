/* A device full of workspaces, and a tenant that is entitled to some of it. */
#include <check.h>
#include <signal.h>
#include <unistd.h>

#include "tests/integration/orders.h"
#include "tests/unit/unit.h"

#define CHUNKS ((uint32_t) (HARNESS_MEMORY / HARNESS_CHUNK))
#define MIB(n) ((uint64_t) (n) << 20)
/* The test is one of them, its claimants are the other. */
#define THEY_GO_FIRST                                                                              \
    "[Tenant high]\nUser=65534\nPriority=900\n[Tenant low]\nUser=*\nPriority=100\n"
#define WE_GO_FIRST "[Tenant low]\nUser=65534\nPriority=100\n[Tenant high]\nUser=*\nPriority=900\n"

/* The next message, which must be a LeaseRevoke; the lease. */
static uint64_t expect_revoke(struct raw *raw, uint64_t *ret_bytes)
{
    Gmb__BrokerMessage *message = raw_receive(raw);
    uint64_t lease;

    ck_assert_ptr_nonnull(message);
    ck_assert_uint_eq(message->id, 0);
    ck_assert_int_eq(message->body_case, GMB__BROKER_MESSAGE__BODY_LEASE_REVOKE);
    ck_assert_uint_eq(message->lease_revoke->deadline_ns, 15 * UINT64_C(1000000000));
    lease = message->lease_revoke->lease;
    *ret_bytes = message->lease_revoke->bytes;
    frame_message_free(&message->base);
    return lease;
}

START_TEST(a_worker_that_answers_lives_on_and_the_requester_is_granted)
{
    struct claimant claimant;
    struct harness harness;
    Gmb__TenantDevice tenant;
    uint64_t leases[2], asked, bytes;
    struct raw raw;

    unit_need_root();
    harness_start(
        &harness, HARNESS_BROKER "Revoke=yes\nRevokeTimeout=15s\nKill=yes\n" THEY_GO_FIRST);
    raw_connect(&raw, &harness);
    for (int i = 0; i < 2; i++)
        leases[i] = raw_expect_lease(
            &raw, raw_lease(&raw, HARNESS_MEMORY / 2, HARNESS_CHUNK, 0), CHUNKS / 2);
    /* One of the two lies wholly within what is missing: the younger. The other gives the rest. */
    claimant_start(&claimant, &harness, HARNESS_MEMORY / 2 + MIB(64), 15000);
    asked = expect_revoke(&raw, &bytes);
    ck_assert_uint_eq(asked, leases[1]);
    ck_assert_uint_eq(bytes, HARNESS_MEMORY / 2);
    asked = expect_revoke(&raw, &bytes);
    ck_assert_uint_eq(asked, leases[0]);
    /* Of a slab there is no part to give. */
    ck_assert_uint_eq(bytes, raw_slabs() ? HARNESS_MEMORY / 2 : MIB(64));
    raw_expect_done(&raw, raw_release(&raw, leases[1]));
    if (raw_slabs()) {
        raw_expect_done(&raw, raw_release(&raw, leases[0]));
        ck_assert_int_eq(claimant_answer(&claimant), GMB_STATUS_OK);
        claimant_end(&claimant);
        raw_close(&raw);
        harness_stop(&harness);
        return;
    }
    raw_expect_done(
        &raw, raw_shrink(&raw, leases[0], CHUNKS / 2 - (uint32_t) (MIB(64) / HARNESS_CHUNK)));
    ck_assert_int_eq(claimant_answer(&claimant), GMB_STATUS_OK);
    raw_tenant(&harness, "low", &tenant);
    ck_assert_uint_eq(tenant.leased_bytes, HARNESS_MEMORY / 2 - MIB(64));
    raw_expect_done(&raw, raw_release(&raw, leases[0]));
    ck_assert(!harness_logged(&harness, "isn't given back"));
    claimant_end(&claimant);
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

START_TEST(one_below_its_memory_min_is_given_what_it_lacks_of_it_by_a_higher_priority)
{
    struct claimant claimant;
    struct harness harness;
    uint64_t lease, bytes;
    struct raw raw;

    unit_need_root();
    harness_start(&harness,
        HARNESS_BROKER "Revoke=yes\nRevokeTimeout=15s\n[Tenant owed]\nUser=65534\nPriority=1\n"
                       "[Tenant full]\nUser=*\nPriority=100\n");
    raw_connect(&raw, &harness);
    lease = raw_expect_lease(&raw, raw_lease(&raw, HARNESS_MEMORY, HARNESS_CHUNK, 0), CHUNKS);
    ck_assert_int_eq(raw_set(&harness, "owed", "MemoryMin", "256M"), GMB_STATUS_OK);
    claimant_start(&claimant, &harness, MIB(256), 15000);
    ck_assert_uint_eq(expect_revoke(&raw, &bytes), lease);
    ck_assert_uint_eq(bytes, raw_slabs() ? HARNESS_MEMORY : MIB(256));
    if (raw_slabs()) {
        raw_expect_done(&raw, raw_release(&raw, lease));
        ck_assert_int_eq(claimant_answer(&claimant), GMB_STATUS_OK);
        claimant_end(&claimant);
        raw_close(&raw);
        harness_stop(&harness);
        return;
    }
    raw_expect_done(&raw, raw_shrink(&raw, lease, CHUNKS - (uint32_t) (MIB(256) / HARNESS_CHUNK)));
    ck_assert_int_eq(claimant_answer(&claimant), GMB_STATUS_OK);
    raw_expect_done(&raw, raw_release(&raw, lease));
    claimant_end(&claimant);
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

/* The claimant has everything and reads nothing. */
static void ignorant_start(struct claimant *claimant, const struct harness *harness)
{
    claimant_start(claimant, harness, HARNESS_MEMORY, 15000);
    ck_assert_int_eq(claimant_answer(claimant), GMB_STATUS_OK);
}

START_TEST(one_that_ignores_it_is_warned_and_then_killed_where_that_is_allowed)
{
    struct claimant claimant;
    struct harness harness;
    uint64_t lease;
    struct raw raw;

    unit_need_root();
    harness_start(
        &harness, HARNESS_BROKER "Revoke=yes\nRevokeTimeout=200ms\nKill=yes\n" WE_GO_FIRST);
    ignorant_start(&claimant, &harness);
    raw_connect(&raw, &harness);
    lease =
        raw_expect_lease(&raw, raw_lease(&raw, MIB(512), HARNESS_CHUNK, UINT64_MAX), CHUNKS / 2);
    ck_assert(harness_logged(&harness, "others are asked instead"));
    ck_assert(harness_logged(&harness, "it kept revoked workspaces past their deadline"));
    raw_expect_done(&raw, raw_release(&raw, lease));
    claimant_end(&claimant);
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

/* Asks for half of the device and is refused in the end; the limit is named. */
static void expect_timeout(struct raw *raw, uint64_t wait_ns)
{
    uint64_t id = raw_lease(raw, MIB(512), HARNESS_CHUNK, wait_ns);
    Gmb__BrokerMessage *message = raw_receive(raw);

    ck_assert_ptr_nonnull(message);
    ck_assert_uint_eq(message->id, id);
    ck_assert_int_eq(message->body_case, GMB__BROKER_MESSAGE__BODY_ERROR);
    ck_assert_uint_eq(message->error->status, GMB_STATUS_TIMED_OUT);
    ck_assert_uint_eq(message->error->limit, GMB_LIMIT_DEVICE);
    frame_message_free(&message->base);
}

START_TEST(one_that_ignores_it_is_only_warned_where_killing_is_not_allowed)
{
    struct claimant claimant;
    struct harness harness;
    Gmb__TenantDevice tenant;
    struct raw raw;

    unit_need_root();
    harness_start(&harness, HARNESS_BROKER "Revoke=yes\nRevokeTimeout=200ms\n" WE_GO_FIRST);
    ignorant_start(&claimant, &harness);
    raw_connect(&raw, &harness);
    expect_timeout(&raw, 5 * UINT64_C(1000000000));
    ck_assert(harness_logged(&harness, "others are asked instead"));
    ck_assert(harness_logged(&harness, "forbidden by the configuration"));
    raw_tenant(&harness, "low", &tenant);
    ck_assert_uint_eq(tenant.leased_bytes, HARNESS_MEMORY);
    ck_assert_int_eq(kill(claimant.pid, 0), 0);
    claimant_end(&claimant);
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

START_TEST(nothing_is_revoked_unless_the_configuration_says_so)
{
    struct claimant claimant;
    struct harness harness;
    Gmb__TenantDevice tenant;
    struct raw raw;

    unit_need_root();
    harness_start(&harness, HARNESS_BROKER "RevokeTimeout=50ms\nKill=yes\n" WE_GO_FIRST);
    ignorant_start(&claimant, &harness);
    raw_connect(&raw, &harness);
    expect_timeout(&raw, UINT64_C(1000000000));
    ck_assert(!harness_logged(&harness, "revoked"));
    raw_tenant(&harness, "low", &tenant);
    ck_assert_uint_eq(tenant.leased_bytes, HARNESS_MEMORY);
    claimant_end(&claimant);
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

START_TEST(an_equal_is_asked_for_nothing)
{
    struct claimant claimant;
    struct harness harness;
    struct raw raw;

    unit_need_root();
    harness_start(&harness, HARNESS_BROKER "Revoke=yes\nRevokeTimeout=50ms\nKill=yes\n"
                                           "[Tenant one]\nUser=65534\n[Tenant two]\nUser=*\n");
    ignorant_start(&claimant, &harness);
    raw_connect(&raw, &harness);
    expect_timeout(&raw, UINT64_C(1000000000));
    ck_assert(harness_logged(&harness, "1 workspaces looked at, 0B of 0 revoked"));
    ck_assert(!harness_logged(&harness, "isn't given back"));
    ck_assert_int_eq(kill(claimant.pid, 0), 0);
    claimant_end(&claimant);
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

START_TEST(nothing_follows_when_the_memory_is_no_longer_needed)
{
    struct claimant claimant;
    struct harness harness;
    uint64_t end;
    struct raw raw;

    unit_need_root();
    harness_start(&harness, HARNESS_BROKER "Revoke=yes\nRevokeTimeout=2s\nKill=yes\n" WE_GO_FIRST);
    ignorant_start(&claimant, &harness);
    raw_connect(&raw, &harness);
    expect_timeout(&raw, UINT64_C(500000000));
    ck_assert(harness_logged(&harness, raw_slabs() ? "1G of 1 revoked" : "512M of 1 revoked"));
    for (end = harness_now_ms() + 5000; harness_now_ms() < end;)
        harness_breathe();
    ck_assert(!harness_logged(&harness, "isn't given back"));
    ck_assert_int_eq(kill(claimant.pid, 0), 0);
    claimant_end(&claimant);
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

UNIT_MAIN("revoke", a_worker_that_answers_lives_on_and_the_requester_is_granted,
    one_below_its_memory_min_is_given_what_it_lacks_of_it_by_a_higher_priority,
    one_that_ignores_it_is_warned_and_then_killed_where_that_is_allowed,
    one_that_ignores_it_is_only_warned_where_killing_is_not_allowed,
    nothing_is_revoked_unless_the_configuration_says_so, an_equal_is_asked_for_nothing,
    nothing_follows_when_the_memory_is_no_longer_needed)
