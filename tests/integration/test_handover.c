/*
 * Memory that goes from one tenant to the other and back never carries bytes along. Two workers of
 * two users, a device too small for both: one takes most of it, looks at every byte, and writes;
 * the other one asks for as much, and gets it in one of the ways below. Where memory is shared over
 * CUDA IPC there are leases alone, and fresh memory of the driver holds garbage, which the broker
 * wipes. Elsewhere it holds zeros, among which bytes of anybody would be noticed.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/integration/handover.h"
#include "tests/integration/orders.h"
#include "tests/integration/segments.h"
#include "tests/integration/slabs.h"
#include "tests/unit/unit.h"

static struct harness harness;

/* `revoke`: more lines on leases that are asked back. */
static void configure(char ret[512], const char *revoke)
{
    (void) snprintf(ret, 512,
        HARNESS_BROKER
        "HostTier=64M\nMoverIdle=10s\nRevoke=yes\n%s" HANDOVER_DEVICE HANDOVER_TENANTS,
        revoke);
}

static void reload(const char *revoke)
{
    char text[512];

    configure(text, revoke);
    harness_configure(&harness, text);
    ck_assert_int_eq(raw_reload(&harness), GMB_STATUS_OK);
}

static void set(unsigned side, const char *key, const char *value)
{
    ck_assert_int_eq(raw_set(&harness, handover_names[side], key, value), GMB_STATUS_OK);
}

static void killed(unsigned side)
{
    handover_end(side, SIGKILL);
    handover_start(&harness, side);
}

static uint64_t leased(unsigned side)
{
    Gmb__TenantDevice tenant;

    raw_tenant(&harness, handover_names[side], &tenant);
    return tenant.leased_bytes;
}

/* ------------------------------------------------------------------ the other one */

/*
 * What it takes, and how it gives that back: a lease, or where there are pages an arena or a
 * segment in turns: the index of which.
 */
static unsigned taking;

static void next_asks(unsigned side)
{
    static const char first[] = {'t', 'a', 'm'};

    taking = raw_slabs() ? 0 : (taking + 1) % 3;
    handover_tell(1 - side, first[taking]);
}

static void next_has(unsigned side, unsigned round)
{
    static const char first[] = {'t', 'a', 'm'};
    static const char *const rest[] = {"cr", "uvx", "sdcr"};

    handover_expect(1 - side, round, first[taking]);
    handover_order(1 - side, round, rest[taking]);
}

/* ------------------------------------------------------------------ leases */

static void given_back(unsigned side, unsigned round)
{
    handover_order(side, round, "t");
    next_asks(side);
    handover_order(side, round, "cr");
    next_has(side, round);
}

static void killed_while_it_writes(unsigned side, unsigned round)
{
    handover_order(side, round, "tw");
    next_asks(side);
    killed(side);
    next_has(side, round);
}

/* It has more than it may have from now on, and gives it back or dies with it. */
static void above_its_quota(unsigned side, unsigned round)
{
    handover_order(side, round, "t");
    next_asks(side);
    set(side, "MemoryMax", "2M");
    ck_assert_uint_eq(leased(side), HANDOVER_BYTES);
    handover_order(side, round, "cr");
    next_has(side, round);
    set(side, "MemoryMax", "infinity");
}

static void killed_above_its_quota(unsigned side, unsigned round)
{
    handover_order(side, round, "tw");
    next_asks(side);
    set(side, "MemoryMax", "2M");
    ck_assert_uint_eq(leased(side), HANDOVER_BYTES);
    killed(side);
    next_has(side, round);
    set(side, "MemoryMax", "infinity");
}

/* The other one goes first for once, and this one is asked to give way. */
static void asked_back(unsigned side, unsigned round)
{
    set(1 - side, "Priority", "900");
    handover_order(side, round, "t");
    next_asks(side);
    handover_order(side, round, "k");
    next_has(side, round);
    set(1 - side, "Priority", "500");
}

/* It doesn't listen, writes on, and is killed for it. */
static void asked_back_in_vain(unsigned side, unsigned round)
{
    reload("RevokeTimeout=50ms\nKill=yes\n");
    set(1 - side, "Priority", "900");
    handover_order(side, round, "tw");
    next_asks(side);
    handover_await_killed(side, round);
    handover_start(&harness, side);
    next_has(side, round);
    reload("");
}

/* ------------------------------------------------------------------ brokers */

/* The keeper starts the successor at once, while what was given back is still kept. */
static void broker_killed(void)
{
    harness_succeed(&harness, SIGKILL);
    harness_keeper_renew(&harness);
}

/* What was leased is its holder's as before, unless it went with the process that had it. */
static void broker_killed_while_one_has_it(unsigned side, unsigned round)
{
    handover_order(side, round, "t");
    next_asks(side);
    broker_killed();
    handover_order(side, round, raw_slabs() ? "r" : "cr");
    next_has(side, round);
}

static void broker_killed_when_it_was_given_back(unsigned side, unsigned round)
{
    handover_order(side, round, "tr");
    broker_killed();
    next_asks(side);
    next_has(side, round);
}

static void broker_killed_behind_its_holder(unsigned side, unsigned round)
{
    handover_order(side, round, "tw");
    next_asks(side);
    handover_end(side, SIGKILL);
    broker_killed();
    handover_start(&harness, side);
    next_has(side, round);
}

static void broker_killed_before_its_holder(unsigned side, unsigned round)
{
    handover_order(side, round, "tw");
    broker_killed();
    next_asks(side);
    killed(side);
    next_has(side, round);
}

/* ------------------------------------------------------------------ slabs */

/* What was leased of it is given back as ever. */
static void slab_process_killed(unsigned side, unsigned round)
{
    handover_order(side, round, "t");
    next_asks(side);
    slab_kill(&harness);
    handover_order(side, round, "r");
    next_has(side, round);
}

/* ------------------------------------------------------------------ pages */

static void pages_freed(unsigned side, unsigned round)
{
    handover_order(side, round, "a");
    next_asks(side);
    handover_order(side, round, "uf");
    next_has(side, round);
    handover_order(side, round, "x");
}

static void arena_closed(unsigned side, unsigned round)
{
    handover_order(side, round, "a");
    next_asks(side);
    handover_order(side, round, "ux");
    next_has(side, round);
}

static void killed_while_it_writes_pages(unsigned side, unsigned round)
{
    handover_order(side, round, "aw");
    next_asks(side);
    killed(side);
    next_has(side, round);
}

/* For no other reason than that somebody waits. */
static void pages_evicted(unsigned side, unsigned round)
{
    handover_order(side, round, "au");
    next_asks(side);
    next_has(side, round);
    handover_order(side, round, "vx");
}

static void pages_evicted_by_an_operator(unsigned side, unsigned round)
{
    handover_order(side, round, "au");
    next_asks(side);
    /* Less where some of it is being taken for the next one already. */
    ck_assert_uint_le(order_evict(&harness, handover_names[side], HANDOVER_BYTES), HANDOVER_BYTES);
    next_has(side, round);
    handover_order(side, round, "vx");
}

/* Before anybody asks for it. */
static void pages_evicted_by_a_quota(unsigned side, unsigned round)
{
    handover_order(side, round, "au");
    set(side, "MemoryMax", "2M");
    wait_until(leased(side) <= HARNESS_CHUNK);
    next_asks(side);
    next_has(side, round);
    set(side, "MemoryMax", "infinity");
    handover_order(side, round, "vx");
}

static void broker_killed_while_pages_are_there(unsigned side, unsigned round)
{
    handover_order(side, round, "au");
    next_asks(side);
    broker_killed();
    next_has(side, round);
    handover_order(side, round, "vx");
}

/* ------------------------------------------------------------------ segments */

static void killed_before_the_seal(unsigned side, unsigned round)
{
    handover_order(side, round, "mw");
    next_asks(side);
    killed(side);
    next_has(side, round);
}

static void last_reader_lets_go(unsigned side, unsigned round)
{
    handover_order(side, round, "msd");
    next_asks(side);
    handover_order(side, round, "cr");
    next_has(side, round);
}

static void last_reader_killed(unsigned side, unsigned round)
{
    handover_order(side, round, "msd");
    next_asks(side);
    killed(side);
    next_has(side, round);
}

/* Nobody has it: it makes room, and comes back. */
static void segment_demoted(unsigned side, unsigned round)
{
    handover_order(side, round, "msr");
    next_asks(side);
    next_has(side, round);
    handover_order(side, round, "ocdr");
}

/* Its reader changed it: it is served to nobody any more. */
static void segment_quarantined(unsigned side, unsigned round)
{
    handover_order(side, round, "msp");
    ck_assert_int_ge(segment_change(&harness, "weights", ACTION(VERIFY)), 1);
    segment_await(&harness, "weights", STATE(QUARANTINED));
    next_asks(side);
    handover_order(side, round, "r");
    next_has(side, round);
    handover_order(side, round, "d");
}

static void broker_killed_before_the_seal(unsigned side, unsigned round)
{
    handover_order(side, round, "m");
    next_asks(side);
    broker_killed();
    killed(side);
    next_has(side, round);
}

static void broker_killed_while_a_segment_is_idle(unsigned side, unsigned round)
{
    handover_order(side, round, "msr");
    broker_killed();
    next_asks(side);
    next_has(side, round);
    handover_order(side, round, "ocdr");
}

/* ------------------------------------------------------------------ all of them */

enum where { EVERYWHERE, VMM, SLABS };

static const struct {
    void (*hand_over)(unsigned side, unsigned round);
    enum where where;
} ways[] = {
    {given_back, EVERYWHERE},
    {killed_while_it_writes, EVERYWHERE},
    {above_its_quota, EVERYWHERE},
    {killed_above_its_quota, EVERYWHERE},
    {asked_back, EVERYWHERE},
    {asked_back_in_vain, EVERYWHERE},
    {broker_killed_while_one_has_it, EVERYWHERE},
    {broker_killed_when_it_was_given_back, EVERYWHERE},
    {broker_killed_behind_its_holder, EVERYWHERE},
    {broker_killed_before_its_holder, EVERYWHERE},
    {slab_process_killed, SLABS},
    {pages_freed, VMM},
    {arena_closed, VMM},
    {killed_while_it_writes_pages, VMM},
    {pages_evicted, VMM},
    {pages_evicted_by_an_operator, VMM},
    {pages_evicted_by_a_quota, VMM},
    {broker_killed_while_pages_are_there, VMM},
    {killed_before_the_seal, VMM},
    {last_reader_lets_go, VMM},
    {last_reader_killed, VMM},
    {segment_demoted, VMM},
    {segment_quarantined, VMM},
    {broker_killed_before_the_seal, VMM},
    {broker_killed_while_a_segment_is_idle, VMM},
};

START_TEST(memory_never_carries_bytes_to_another_tenant)
{
    const char *const environment[] = {
        HANDOVER_MEMORY, raw_slabs() ? "GMB_SIM_FILL=garbage" : "GMB_SIM_FILL=none", NULL};
    const char *given = getenv("HANDOVERS");
    unsigned wanted = given != NULL ? (unsigned) strtoul(given, NULL, 10) : 100, handovers = 0;
    char text[512];

    unit_need_root();
    configure(text, "");
    harness_start_kept(&harness, text, environment);
    harness_keeper_renew(&harness);
    for (unsigned side = 0; side < HANDOVER_SIDES; side++)
        handover_start(&harness, side);
    for (unsigned turn = 0; handovers < wanted; turn++) {
        for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
            if (ways[i].where == (raw_slabs() ? VMM : SLABS))
                continue;
            ways[i].hand_over(turn % HANDOVER_SIDES, handovers);
            handovers += 2; /* this way, and back to the same side, which is the next to take */
        }
    }
    for (unsigned side = 0; side < HANDOVER_SIDES; side++)
        handover_end(side, 0);
    harness_stop(&harness);
}
END_TEST

/* ------------------------------------------------------------------ who keeps it open */

enum { KEPT = 6 };

/* The first tenant's slab, which this process has opened and filled; its lease is given back. */
static CUdeviceptr keep_open(struct raw *raw, const uint8_t *bytes)
{
    CUipcMemHandle handle;
    CUdeviceptr address;
    uint64_t lease = slab_take(raw, HANDOVER_BYTES, &handle);

    ck_assert_int_eq(slab_open(&handle, &address), CUDA_SUCCESS);
    ck_assert_int_eq(slab_driver.memcpy_htod(address, bytes, HANDOVER_BYTES), CUDA_SUCCESS);
    raw_expect_done(raw, raw_release(raw, lease));
    return address;
}

/* Of what is written on either side nothing is seen on the other. */
static void expect_apart(CUdeviceptr kept, const uint8_t *bytes)
{
    static uint8_t found[HANDOVER_BYTES];

    ck_assert_int_eq(slab_driver.memcpy_dtoh(found, kept, sizeof(found)), CUDA_SUCCESS);
    ck_assert_int_eq(memcmp(found, bytes, sizeof(found)), 0);
    ck_assert_int_eq(slab_driver.memcpy_htod(kept, bytes, sizeof(found)), CUDA_SUCCESS);
}

START_TEST(who_keeps_a_slab_open_has_its_own_bytes_alone)
{
    static const char *const environment[] = {"GMB_SIM_FILL=garbage", NULL};
    static uint8_t bytes[HANDOVER_BYTES];
    Gmb__TenantDevice tenant;
    CUdeviceptr kept[KEPT];
    struct raw raw;

    if (!raw_slabs())
        return;
    unit_need_root();
    harness_start_with(&harness, HARNESS_BROKER HANDOVER_TENANTS, environment);
    slab_driver_begin();
    memset(bytes, 0xa5, sizeof(bytes));
    raw_connect(&raw, &harness);
    handover_start(&harness, 1);
    for (unsigned i = 0; i < KEPT; i++) {
        kept[i] = keep_open(&raw, bytes);
        handover_order(1, i, "t");
        for (unsigned k = 0; k <= i; k++)
            expect_apart(kept[k], bytes);
        handover_order(1, i, "cr");
    }
    wait_until((raw_tenant(&harness, handover_names[0], &tenant),
        tenant.orphaned_bytes == KEPT * HANDOVER_BYTES));
    for (unsigned i = 0; i < KEPT; i++)
        ck_assert_int_eq(slab_driver.ipc_close_mem_handle(kept[i]), CUDA_SUCCESS);
    wait_until((raw_tenant(&harness, handover_names[0], &tenant), tenant.used_bytes == 0));
    handover_end(1, 0);
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

UNIT_MAIN("handover", memory_never_carries_bytes_to_another_tenant,
    who_keeps_a_slab_open_has_its_own_bytes_alone)
