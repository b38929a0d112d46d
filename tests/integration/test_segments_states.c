/*
 * What may happen to a node while a segment is in whatever state: its device fails, its tenant's
 * quota is changed, its tenant is taken out of the configuration or another one out of its share
 * group, its processes stop to answer.
 * Whoever waits is answered, what was sealed is what was sealed, and nothing stays charged.
 */
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/frame.h"
#include "tests/integration/segments.h"
#include "tests/unit/unit.h"

#define WEIGHTS MIB(16)
#define HOARD MIB(32) /* beside it `llama` doesn't fit into TENANT's limit */
#define SEED 11
#define TENANT "[Tenant test]\nUser=*\nMemoryMax=40M\n"
#define NOBODY "[Tenant other]\nUser=65534\n"
#define GROUP "[ShareGroup models]\nMemoryMax=40M\n[Tenant test]\nUser=0\nShareGroup=models\n"
#define WITHIN GROUP "[Tenant other]\nUser=65534\nShareGroup=models\n"
#define OUTSIDE GROUP "[Tenant other]\nUser=65534\n"

static struct harness harness;
static struct member first, second;
static bool first_waits, second_waits; /* for an answer */
static struct raw hoarder;
static uint64_t hoard; /* lease; 0: none */
static bool grouped;   /* what the states are of is a share group's */
static char fault_dir[SCRATCH_PATH_BYTES], fault[SCRATCH_PATH_BYTES + 8];

/* ------------------------------------------------------------------ states */

static void hoard_take(void)
{
    uint64_t id = grouped ? segment_ask_of(&hoarder, true, "hoard", HOARD, 0, SEGMENT_WAIT)
                          : raw_lease(&hoarder, HOARD, HARNESS_CHUNK, SEGMENT_WAIT);

    hoard = raw_expect_lease(&hoarder, id, (uint32_t) (HOARD / HARNESS_CHUNK));
}

static struct member_order llama(enum member_what what)
{
    struct member_order order = segment_order(what, "llama", WEIGHTS);

    order.group = grouped;
    return order;
}

static void act(struct member *member, enum member_what what)
{
    struct member_order order = llama(what);

    order.seed = SEED;
    ck_assert_msg(member_do(member, &order) == 0, "order %d: %s", what, member->answer.text);
}

static void make(void)
{
    act(&first, MEMBER_CREATE);
    act(&first, MEMBER_FILL);
    act(&first, MEMBER_SEAL);
}

static void tell(struct member *member, bool *waits, enum member_what what)
{
    const struct member_order order = llama(what);

    member_tell(member, &order);
    *waits = true;
}

/* The broker has done what it was told: `llama` isn't in that state any more. */
static void left_await(Gmb__SegmentState state)
{
    Gmb__SegmentStatus status;

    wait_until(segment_status(&harness, "llama", &status) && status.state != state);
}

/* It is found out and replaced; what it was told meanwhile is done by its successor. */
static void mover_stop(void)
{
    pid_t mover;

    wait_until(harness_movers(&harness, &mover, 1) == 1);
    ck_assert_int_eq(kill(mover, SIGSTOP), 0);
}

static void reach_asked(void)
{
    hoard_take();
    tell(&first, &first_waits, MEMBER_CREATE);
    segment_await(&harness, "llama", STATE(ASKED));
}

static void reach_writing(void)
{
    act(&first, MEMBER_CREATE);
    tell(&second, &second_waits, MEMBER_OPEN);
    segment_await_waiting(&harness, "llama", 1);
}

static void reach_sealing(void)
{
    reach_writing();
    mover_stop();
    tell(&first, &first_waits, MEMBER_SEAL);
    left_await(STATE(WRITING));
}

static void reach_sealed(void)
{
    make();
    act(&second, MEMBER_OPEN);
}

static void reach_idle(void)
{
    make();
    segment_do(&first, 0, MEMBER_RELEASE, "", 0);
    segment_await_readers(&harness, "llama", 0);
}

static void reach_demoting(void)
{
    reach_idle();
    mover_stop();
    segment_demote(&harness, "llama");
}

static void reach_demoted(void)
{
    reach_idle();
    segment_demote(&harness, "llama");
    segment_await(&harness, "llama", STATE(DEMOTED));
}

static void reach_filling(void)
{
    reach_demoted();
    hoard_take();
    tell(&second, &second_waits, MEMBER_OPEN);
    segment_await(&harness, "llama", STATE(FILLING));
}

static void reach_restoring(void)
{
    reach_demoted();
    mover_stop();
    tell(&second, &second_waits, MEMBER_OPEN);
    left_await(STATE(DEMOTED));
    left_await(STATE(FILLING));
}

static void reach_quarantined(void)
{
    reach_sealed();
    segment_do(&first, 0, MEMBER_POKE, "", MIB(3));
    ck_assert_int_eq(segment_change(&harness, "llama", ACTION(VERIFY)), 1);
    segment_await(&harness, "llama", STATE(QUARANTINED));
}

static void reach_removed(void)
{
    Gmb__SegmentStatus status;

    reach_sealed();
    ck_assert_int_eq(segment_change(&harness, "llama", ACTION(REMOVE)), 1);
    ck_assert(segment_status(&harness, "llama", &status));
    ck_assert_int_eq(status.state, STATE(REMOVED));
}

static const struct {
    const char *name;
    void (*reach)(void);
    bool sealed;      /* its bytes are those of SEED, for whoever opens it */
    bool waits;       /* whoever opens it waits */
    bool idle_writer; /* who waits for it waits on */
} states[] = {
    {"asked", reach_asked, false, true, false},
    {"writing", reach_writing, false, true, true},
    {"sealing", reach_sealing, false, true, false},
    {"sealed", reach_sealed, true, false, false},
    {"demoting", reach_demoting, true, false, false},
    {"demoted", reach_demoted, true, false, false},
    {"filling", reach_filling, true, true, false},
    {"restoring", reach_restoring, true, true, false},
    {"quarantined", reach_quarantined, false, false, false},
    {"removed", reach_removed, false, false, false},
};

/* ------------------------------------------------------------------ around them */

static void begin_with(size_t state, const char *text)
{
    char faults[256];
    const char *const environment[] = {"GMB_SIM_FILL=none", faults, NULL};

    ck_assert_int_eq(scratch_make(fault_dir), 0);
    (void) snprintf(fault, sizeof(fault), "%s/lost", fault_dir);
    (void) snprintf(
        faults, sizeof(faults), "GMB_SIM_FAULTS=nvmlDeviceGetMemoryInfo@0:%s=15", fault);
    harness_start_with(&harness, text, environment);
    member_start(&first, &harness, 0);
    member_start(&second, &harness, 0);
    raw_connect(&hoarder, &harness);
    first_waits = second_waits = false;
    hoard = 0;
    segment_make(&second, "warm", MIB(2), 1); /* so that there is a mover */
    segment_do(&second, 0, MEMBER_RELEASE, "", 0);
    states[state].reach();
}

static void begin(size_t state)
{
    begin_with(state, SEGMENT_BROKER TENANT);
}

/* Who waits is answered, by whatever it is, and before its own time is over. */
static void answer_await(struct member *member, bool *waits)
{
    if (*waits) {
        ck_assert(member_ready(member, HARNESS_DEADLINE_MS));
        (void) member_answer(member);
    }
    *waits = false;
}

static void answers_await(void)
{
    answer_await(&first, &first_waits);
    answer_await(&second, &second_waits);
}

static void hoard_give(void)
{
    if (hoard != 0)
        raw_expect_done(&hoarder, raw_release(&hoarder, hoard));
    hoard = 0;
}

static void expect_no_use(const char *tenant)
{
    Gmb__TenantDevice use;

    wait_until((raw_tenant(&harness, tenant, &use), use.used_bytes == 0));
    ck_assert_uint_eq(use.evicted_bytes, 0);
}

static void end(void)
{

    hoard_give();
    raw_close(&hoarder);
    member_end(&first, SIGKILL);
    member_end(&second, SIGKILL);
    /* What its dead writer had goes by itself. */
    wait_until(segment_change(&harness, "", ACTION(REMOVE)) < 0 || segment_count(&harness) == 0);
    wait_until(segment_count(&harness) == 0);
    expect_no_use("test");
    if (grouped)
        expect_no_use("models");
    raw_expect_accounts(&harness);
    harness_stop(&harness);
    ck_assert_int_eq(scratch_remove(fault_dir), 0);
}

/* Whoever opens it has what was sealed. */
static void expect_bytes_for(size_t state, unsigned uid)
{
    struct member third;

    if (!states[state].sealed)
        return;
    member_start(&third, &harness, uid);
    act(&third, MEMBER_OPEN);
    ck_assert_msg(segment_compare(&third, SEED) == 0, "from %s: other bytes", states[state].name);
    member_end(&third, 0);
}

static void expect_bytes(size_t state)
{
    expect_bytes_for(state, 0);
}

/* ------------------------------------------------------------------ what happens */

static void expect_failed(void)
{
    Gmb__BrokerMessage *message = raw_receive(&hoarder);

    ck_assert_ptr_nonnull(message);
    ck_assert_int_eq(message->body_case, GMB__BROKER_MESSAGE__BODY_DEVICE_FAILED);
    frame_message_free(&message->base);
}

START_TEST(a_device_that_fails)
{
    for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
        int fd;

        begin(i);
        fd = open(fault, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
        ck_assert_int_ge(fd, 0);
        (void) close(fd);
        expect_failed();
        answers_await();
        segment_do(&first, GMB_E_GPU, MEMBER_CREATE, "new", MIB(2));
        ck_assert_int_eq(unlink(fault), 0);
        end();
    }
}
END_TEST

START_TEST(a_quota_that_is_changed)
{
    for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
        begin(i);
        ck_assert_int_eq(raw_set(&harness, "test", "MemoryMax", "2M"), GMB_STATUS_OK);
        segment_expect_read(&hoarder);
        ck_assert_int_eq(raw_set(&harness, "test", "MemoryMax", "infinity"), GMB_STATUS_OK);
        hoard_give();
        if (!states[i].idle_writer)
            answers_await();
        expect_bytes(i);
        end();
    }
}
END_TEST

START_TEST(a_tenant_that_is_taken_out_and_put_back)
{
    for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
        begin(i);
        segments_reload(&harness, SEGMENT_BROKER NOBODY);
        segments_reload(&harness, SEGMENT_BROKER TENANT);
        hoard_give();
        if (!states[i].idle_writer)
            answers_await();
        expect_bytes(i);
        end();
    }
}
END_TEST

/* Of the other tenant of the group, which waits for it where one waits. */
static void stranger_opens(size_t state)
{
    const struct member_order order = llama(MEMBER_OPEN);
    struct member stranger;

    member_start(&stranger, &harness, SEGMENT_STRANGER);
    if (states[state].waits) {
        member_tell(&stranger, &order);
        segment_await_waiting(&harness, "llama", second_waits ? 2 : 1);
    }
    segments_reload(&harness, SEGMENT_BROKER OUTSIDE);
    hoard_give();
    if (!states[state].waits)
        member_tell(&stranger, &order);
    answer_await(&first, &first_waits);
    if (state <= 1) /* nobody seals it yet */
        act(&first, MEMBER_SEAL);
    ck_assert_int_eq(member_answer(&stranger), GMB_E_DENIED);
    answer_await(&second, &second_waits);
    member_end(&stranger, 0);
}

/* And back. Who is left, and who is in it again, have what was sealed. */
START_TEST(a_share_group_that_a_tenant_is_taken_out_of)
{
    unit_need_root();
    grouped = true;
    for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
        begin_with(i, SEGMENT_BROKER WITHIN);
        stranger_opens(i);
        expect_bytes(i);
        segments_reload(&harness, SEGMENT_BROKER WITHIN);
        expect_bytes_for(i, SEGMENT_STRANGER);
        end();
    }
}
END_TEST

START_TEST(processes_that_answer_nothing)
{
    for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
        begin(i);
        ck_assert_int_eq(kill(first.pid, SIGSTOP), 0);
        ck_assert_int_eq(kill(second.pid, SIGSTOP), 0);
        hoard_give();
        expect_bytes(i);
        end();
    }
}
END_TEST

UNIT_MAIN("integration: states of segments", a_device_that_fails, a_quota_that_is_changed,
    a_tenant_that_is_taken_out_and_put_back, a_share_group_that_a_tenant_is_taken_out_of,
    processes_that_answer_nothing)
