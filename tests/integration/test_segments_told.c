/* Who has a segment that was found changed is told of it: once it knows the lease, and in whatever
 * state its connection is. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/frame.h"
#include "tests/integration/segments.h"
#include "tests/unit/unit.h"

#define WEIGHTS MIB(4)

static struct harness harness;
static struct member first, second;

/* What memory holds plays no part, and writing it would take most of the time. */
static const char *const unfilled[] = {"GMB_SIM_FILL=none", NULL};

static void begin(const char *text)
{
    harness_start_with(&harness, text, unfilled);
    segment_pair_start(&harness, &first, &second);
}

static void end(void)
{
    segment_pair_end(&harness, &first, &second);
}

/* Its writer changes a byte of it, and the broker finds it. */
static void spoil(const char *name)
{
    segment_do(&first, 0, MEMBER_POKE, "", MIB(1));
    ck_assert_int_eq(segment_change(&harness, name, ACTION(VERIFY)), 1);
    segment_await(&harness, name, STATE(QUARANTINED));
}

static void expect_told(struct raw *raw, uint64_t lease)
{
    Gmb__BrokerMessage *message = raw_receive(raw);

    ck_assert_ptr_nonnull(message);
    ck_assert_uint_eq(message->id, 0);
    ck_assert_int_eq(message->body_case, GMB__BROKER_MESSAGE__BODY_SEGMENT_QUARANTINED);
    ck_assert_uint_eq(message->segment_quarantined->lease, lease);
    ck_assert_ptr_nonnull(strstr(message->segment_quarantined->text, "not what was sealed"));
    frame_message_free(&message->base);
}

START_TEST(its_readers_are_told_and_those_of_others_are_not)
{
    struct member other;
    struct raw raw;
    uint64_t lease, kept;

    begin(SEGMENT_BROKER HARNESS_TENANT);
    member_start(&other, &harness, 0);
    segment_make(&other, "other", WEIGHTS, 6);
    segment_make(&first, "llama", WEIGHTS, 5);
    segment_do(&second, 0, MEMBER_OPEN, "llama", 0);
    segment_do(&second, GMB_E_NOT_FOUND, MEMBER_HEAR, "", 0);
    raw_connect(&raw, &harness);
    lease = raw_expect_lease(&raw, segment_ask(&raw, "llama", 0, 0, 0), 2);
    kept = raw_expect_lease(&raw, segment_ask(&raw, "other", 0, 0, 0), 2);
    spoil("llama");
    expect_told(&raw, lease);
    segment_do(&second, 0, MEMBER_HEAR, "", SEGMENT_WAIT);
    segment_do(&first, 0, MEMBER_HEAR, "", SEGMENT_WAIT);
    segment_do(&other, GMB_E_NOT_FOUND, MEMBER_HEAR, "", 0);
    /* What is made anew is another one. */
    segment_do(&second, 0, MEMBER_RELEASE, "", 0);
    segment_make(&second, "llama", WEIGHTS, 5);
    segment_do(&second, GMB_E_NOT_FOUND, MEMBER_HEAR, "", 0);
    raw_expect_done(&raw, raw_release(&raw, lease));
    raw_expect_done(&raw, raw_release(&raw, kept));
    raw_close(&raw);
    member_end(&other, 0);
    end();
}
END_TEST

/* Three frames of grants don't fit on their way to who reads nothing: it hears behind them. */
START_TEST(who_is_still_being_granted_it_is_told_behind_the_last_grant)
{
    static const uint32_t chunks = 3 * LIMIT_FRAME_FDS;
    struct member_order order = segment_order(MEMBER_CREATE, "llama", chunks * HARNESS_CHUNK);
    struct raw raw;
    uint64_t id, lease;

    begin(SEGMENT_BROKER HARNESS_TENANT);
    order.chunk_bytes = HARNESS_CHUNK;
    ck_assert_int_eq(member_do(&first, &order), 0);
    segment_do(&first, 0, MEMBER_SEAL, "", 0);
    raw_connect(&raw, &harness);
    id = segment_ask(&raw, "llama", 0, 0, SEGMENT_WAIT);
    segment_await_readers(&harness, "llama", 2);
    spoil("llama");
    lease = raw_expect_lease(&raw, id, chunks);
    expect_told(&raw, lease);
    raw_expect_done(&raw, raw_release(&raw, lease));
    raw_close(&raw);
    end();
}
END_TEST

START_TEST(who_was_away_is_told_when_it_comes_back_and_each_time)
{
    struct raw raw;
    uint64_t lease;

    begin(SEGMENT_BROKER HARNESS_TENANT);
    segment_make(&first, "llama", WEIGHTS, 5);
    raw_connect(&raw, &harness);
    lease = raw_expect_lease(&raw, segment_ask(&raw, "llama", 0, 0, 0), 2);
    raw.conn = conn_free(raw.conn);
    spoil("llama");
    /* Its name is another one's meanwhile. */
    segment_make(&second, "llama", WEIGHTS, 6);
    for (unsigned i = 0; i < 3; i++) {
        ck_assert(raw_come_back(&raw, &harness));
        ck_assert_uint_eq(raw_resume_one(&raw, lease, 2), 0);
        expect_told(&raw, lease);
    }
    raw_expect_done(&raw, raw_release(&raw, lease));
    raw_close(&raw);
    end();
}
END_TEST

/* Also of one whose name was taken from it, and no process but the reader knows of it. */
START_TEST(the_next_broker_tells_it_again)
{
    struct raw raw;
    uint64_t lease;

    harness_start_kept(&harness, SEGMENT_BROKER HARNESS_TENANT, unfilled);
    member_start(&first, &harness, 0);
    segment_make(&first, "llama", WEIGHTS, 5);
    raw_connect(&raw, &harness);
    lease = raw_expect_lease(&raw, segment_ask(&raw, "llama", 0, 0, 0), 2);
    spoil("llama");
    expect_told(&raw, lease);
    segment_do(&first, 0, MEMBER_HEAR, "", SEGMENT_WAIT);
    for (unsigned i = 0; i < 2; i++) {
        harness_succeed(&harness, SIGKILL);
        ck_assert(raw_come_back(&raw, &harness));
        ck_assert_uint_eq(raw_resume_one(&raw, lease, 2), 0);
        expect_told(&raw, lease);
        if (i == 0)
            wait_until(segment_change(&harness, "llama", ACTION(REMOVE)) == 1);
    }
    /* The library has called for it once. */
    segment_do(&first, 0, MEMBER_HEAR, "", 0);
    segment_do(&first, 0, MEMBER_RELEASE, "", 0);
    raw_expect_done(&raw, raw_release(&raw, lease));
    raw_close(&raw);
    member_end(&first, 0);
    segments_clear(&harness);
    harness_stop(&harness);
}
END_TEST

START_TEST(guests_of_a_share_group_are_told)
{
    struct member_order order = segment_order(MEMBER_CREATE, "llama", WEIGHTS);
    struct member stranger;

    unit_need_root();
    begin(SEGMENT_BROKER "[ShareGroup models]\n[Tenant other]\nUser=65534\nShareGroup=models\n"
                         "[Tenant test]\nUser=0\nShareGroup=models\n");
    member_start(&stranger, &harness, SEGMENT_STRANGER);
    order.group = 1;
    ck_assert_int_eq(member_do(&first, &order), 0);
    segment_do(&first, 0, MEMBER_SEAL, "", 0);
    order.what = MEMBER_OPEN;
    ck_assert_int_eq(member_do(&stranger, &order), 0);
    spoil("llama");
    segment_do(&stranger, 0, MEMBER_HEAR, "", SEGMENT_WAIT);
    member_end(&stranger, 0);
    end();
}
END_TEST

enum { MANY = 200 }; /* more than what is on its way to who reads nothing */

static void names_make(char name[16], unsigned i)
{
    (void) snprintf(name, 16, "layer-%u", i);
}

/* Makes it by hand, of one chunk; the chunk's fd, so that it can be changed. */
static int layer_make(struct raw *writer, unsigned i)
{
    Gmb__BrokerMessage *grant;
    char name[16];
    uint64_t lease;
    int fd;

    names_make(name, i);
    (void) segment_ask(writer, name, HARNESS_CHUNK, 0, SEGMENT_WAIT);
    grant = raw_receive(writer);
    ck_assert_ptr_nonnull(grant);
    ck_assert_int_eq(grant->body_case, GMB__BROKER_MESSAGE__BODY_GRANT);
    lease = grant->grant->lease;
    frame_message_free(&grant->base);
    fd = fdset_take(&writer->fds, 0);
    raw_expect_done(writer, segment_seal_ask(writer, lease));
    raw_expect_done(writer, raw_release(writer, lease));
    return fd;
}

/* It reads nothing and says nothing while the events come: the last of them comes all the same. */
START_TEST(who_reads_late_misses_none_and_holds_nobody_up)
{
    bool heard[MANY] = {false};
    uint64_t leases[MANY];
    struct raw writer, raw;
    char name[16];

    begin(SEGMENT_BROKER HARNESS_TENANT);
    raw_connect(&writer, &harness);
    raw_connect(&raw, &harness);
    for (unsigned i = 0; i < MANY; i++) {
        int fd = layer_make(&writer, i);

        names_make(name, i);
        leases[i] = raw_expect_lease(&raw, segment_ask(&raw, name, 0, 0, 0), 1);
        ck_assert_int_eq(pwrite(fd, "?", 1, 12345), 1);
        (void) close(fd);
    }
    ck_assert_int_eq(segment_change(&harness, "", ACTION(VERIFY)), MANY);
    wait_until(harness_log_count(&harness, "is in quarantine") == MANY);
    segment_make(&first, "another", WEIGHTS, 1);
    for (unsigned told = 0; told < MANY; told++) {
        Gmb__BrokerMessage *message = raw_receive(&raw);
        unsigned fitting = 0;

        ck_assert_ptr_nonnull(message);
        ck_assert_int_eq(message->body_case, GMB__BROKER_MESSAGE__BODY_SEGMENT_QUARANTINED);
        for (unsigned i = 0; i < MANY; i++) {
            bool fits = !heard[i] && leases[i] == message->segment_quarantined->lease;

            heard[i] = heard[i] || fits;
            fitting += fits;
        }
        ck_assert_uint_eq(fitting, 1); /* each of them, once */
        frame_message_free(&message->base);
    }
    for (unsigned i = 0; i < MANY; i++)
        raw_expect_done(&raw, raw_release(&raw, leases[i]));
    raw_close(&raw);
    raw_close(&writer);
    end();
}
END_TEST

UNIT_MAIN("integration: readers of changed segments",
    its_readers_are_told_and_those_of_others_are_not,
    who_is_still_being_granted_it_is_told_behind_the_last_grant,
    who_was_away_is_told_when_it_comes_back_and_each_time, the_next_broker_tells_it_again,
    guests_of_a_share_group_are_told, who_reads_late_misses_none_and_holds_nobody_up)
