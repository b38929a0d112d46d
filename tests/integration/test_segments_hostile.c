/* What a reader that writes, another tenant, and a client that misspeaks can do about segments. */
#include <check.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "proto/frame.h"
#include "tests/integration/segments.h"
#include "tests/unit/unit.h"

#define WEIGHTS MIB(24)

static struct harness harness;
static struct member first, second;

static void begin(const char *text)
{
    harness_start(&harness, text);
    segment_pair_start(&harness, &first, &second);
}

static void end(void)
{
    segment_pair_end(&harness, &first, &second);
}

/* Waits for another look at the checksums than the first `seen`. */
static uint64_t verified(const char *name, uint64_t seen)
{
    Gmb__SegmentStatus status = {0};

    wait_until(!segment_status(&harness, name, &status) || status.verifications != seen ||
               status.state != STATE(SEALED));
    return status.verifications;
}

START_TEST(a_byte_that_a_reader_changed_is_found_and_served_to_nobody)
{
    Gmb__SegmentStatus status;

    begin(SEGMENT_BROKER HARNESS_TENANT);
    segment_make(&first, "llama", WEIGHTS, 5);
    segment_do(&second, 0, MEMBER_OPEN, "llama", 0);
    ck_assert_int_eq(segment_change(&harness, "llama", ACTION(VERIFY)), 1);
    ck_assert_uint_eq(verified("llama", 0), 1);
    /* Its mapping was for reading: its driver's courtesy, which it changes its mind about. */
    segment_do(&second, 0, MEMBER_POKE, "", WEIGHTS - 1);
    ck_assert_int_eq(segment_change(&harness, "llama", ACTION(VERIFY)), 1);
    segment_await(&harness, "llama", STATE(QUARANTINED));
    ck_assert(harness_logged(&harness, "segment llama of test on device 0 is in quarantine"));
    segment_do(&second, 0, MEMBER_RELEASE, "", 0);
    segment_do(&second, GMB_E_CONFLICT, MEMBER_OPEN, "llama", 0);
    ck_assert_ptr_nonnull(strstr(second.answer.text, "the 2M at 22M are not what was sealed"));
    /* With its last reader its memory goes, and its name tells what it was. */
    segment_do(&first, 0, MEMBER_RELEASE, "", 0);
    ck_assert(segment_status(&harness, "llama", &status));
    ck_assert_int_eq(status.state, STATE(QUARANTINED));
    ck_assert_uint_eq(status.bytes, 0);
    /* Who makes it anew gets other memory, and all of it is right. */
    segment_make(&second, "llama", WEIGHTS, 5);
    segment_do(&first, 0, MEMBER_OPEN, "llama", 0);
    ck_assert_int_eq(segment_compare(&first, 5), 0);
    ck_assert(segment_status(&harness, "llama", &status));
    ck_assert_int_eq(status.state, STATE(SEALED));
    ck_assert_uint_eq(segment_count(&harness), 1);
    end();
}
END_TEST

START_TEST(a_changed_byte_is_found_without_anybody_asking)
{
    begin(SEGMENT_BROKER "SegmentVerify=100ms\n" HARNESS_TENANT);
    segment_make(&first, "llama", WEIGHTS, 5);
    segment_make(&second, "other", WEIGHTS, 6);
    (void) verified("llama", 0);
    segment_do(&first, 0, MEMBER_POKE, "", 0);
    segment_await(&harness, "llama", STATE(QUARANTINED));
    /* The other one is none the worse for it. */
    (void) verified("other", verified("other", 0));
    ck_assert_int_eq(segment_compare(&second, 6), 0);
    end();
}
END_TEST

/* The writer that goes on writing behind its seal. */
START_TEST(a_writer_that_writes_on_is_found)
{
    begin(SEGMENT_BROKER HARNESS_TENANT);
    segment_make(&first, "llama", WEIGHTS, 5);
    segment_do(&first, 0, MEMBER_POKE, "", MIB(3));
    member_end(&first, SIGKILL);
    member_start(&first, &harness, 0);
    ck_assert_int_eq(segment_change(&harness, "", ACTION(VERIFY)), 1);
    segment_await(&harness, "llama", STATE(QUARANTINED));
    segment_do(&first, GMB_E_CONFLICT, MEMBER_OPEN, "llama", 0);
    end();
}
END_TEST

START_TEST(another_tenant_has_no_part_in_it)
{
    struct member stranger;
    Gmb__SegmentStatus status;
    struct member_order order = segment_order(MEMBER_OPEN, "llama", 0);
    char known[256];

    unit_need_root();
    begin(SEGMENT_BROKER "[Tenant other]\nUser=65534\n[Tenant test]\nUser=0\n");
    member_start(&stranger, &harness, SEGMENT_STRANGER);
    segment_make(&first, "llama", WEIGHTS, 5);
    ck_assert_int_eq(member_do(&stranger, &order), GMB_E_NOT_FOUND);
    ck_assert_str_eq(stranger.answer.text, "other has no segment llama on this device");
    segment_do(&stranger, GMB_E_NOT_FOUND, MEMBER_REMOVE, "llama", 0);
    (void) strncpy(known, stranger.answer.text, sizeof(known));
    segment_do(&stranger, GMB_E_NOT_FOUND, MEMBER_REMOVE, "never was", 0);
    ck_assert_str_eq(stranger.answer.text, known);
    /* The same name is another segment. */
    segment_make(&stranger, "llama", MIB(4), 6);
    segment_do(&second, 0, MEMBER_OPEN, "llama", 0);
    ck_assert_uint_eq(second.answer.bytes, WEIGHTS);
    ck_assert_int_eq(segment_compare(&second, 5), 0);
    ck_assert(segment_status(&harness, "llama", &status));
    ck_assert_uint_eq(segment_count(&harness), 2);
    member_end(&stranger, 0);
    end();
}
END_TEST

START_TEST(a_share_group_pays_for_what_its_tenants_share)
{
    struct member stranger, alone;
    struct member_order order = segment_order(MEMBER_CREATE, "llama", WEIGHTS);
    Gmb__TenantDevice use;

    unit_need_root();
    begin(SEGMENT_BROKER "[ShareGroup models]\nMemoryMax=32M\n"
                         "[Tenant other]\nUser=65534\nShareGroup=models\n"
                         "[Tenant test]\nUser=0\nShareGroup=models\nMemoryMax=8M\n"
                         "[Tenant alone]\nUser=65533\n");
    member_start(&stranger, &harness, SEGMENT_STRANGER);
    member_start(&alone, &harness, 65533);
    order.group = 1;
    ck_assert_int_eq(member_do(&first, &order), 0);
    segment_do(&first, 0, MEMBER_SEAL, "", 0);
    order.what = MEMBER_OPEN;
    ck_assert_int_eq(member_do(&stranger, &order), 0);
    ck_assert_uint_eq(stranger.answer.bytes, WEIGHTS);
    raw_tenant(&harness, "models", &use);
    ck_assert_uint_eq(use.leased_bytes, WEIGHTS);
    raw_tenant(&harness, "test", &use);
    ck_assert_uint_eq(use.used_bytes, 0);
    /* Whoever made it plays no part, and who isn't in the group has none. */
    member_end(&first, SIGKILL);
    member_end(&stranger, SIGKILL);
    ck_assert_int_eq(member_do(&alone, &order), GMB_E_DENIED);
    ck_assert_int_eq(member_do(&second, &order), 0);
    segment_do(&second, GMB_E_NOT_FOUND, MEMBER_OPEN, "llama", 0);
    order.what = MEMBER_CREATE;
    order.bytes = MIB(16);
    strcpy(order.name, "more");
    order.wait_ns = UINT64_C(100000000);
    ck_assert_int_eq(member_do(&second, &order), GMB_E_TIMED_OUT);
    ck_assert_str_eq(second.answer.limit, "MemoryMax");
    member_start(&first, &harness, 0);
    member_end(&alone, 0);
    end();
}
END_TEST

static uint64_t run_ask(struct raw *raw, uint64_t lease, bool fill)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__ArenaFill filling = GMB__ARENA_FILL__INIT;
    Gmb__ArenaReturn giving = GMB__ARENA_RETURN__INIT;

    filling.lease = giving.lease = lease;
    filling.count = giving.count = 1;
    if (fill) {
        message.body_case = GMB__CLIENT_MESSAGE__BODY_ARENA_FILL;
        message.arena_fill = &filling;
    } else {
        message.body_case = GMB__CLIENT_MESSAGE__BODY_ARENA_RETURN;
        message.arena_return = &giving;
    }
    return raw_send(raw, &message);
}

START_TEST(what_is_said_of_somebody_elses_lease_is_said_of_none)
{
    struct raw raw;
    uint64_t lease, mine;

    begin(SEGMENT_BROKER HARNESS_TENANT);
    raw_connect(&raw, &harness);
    mine = raw_expect_lease(&raw, segment_ask(&raw, "mine", MIB(4), 0, SEGMENT_WAIT), 2);
    segment_do(&first, 0, MEMBER_CREATE, "llama", WEIGHTS);
    lease = mine + 1; /* the next one that the broker made */
    raw_expect_error(&raw, segment_seal_ask(&raw, lease), GMB_STATUS_NOT_FOUND);
    raw_expect_error(&raw, raw_release(&raw, lease), GMB_STATUS_NOT_FOUND);
    raw_expect_error(&raw, run_ask(&raw, lease, true), GMB_STATUS_NOT_FOUND);
    raw_expect_error(&raw, run_ask(&raw, lease, false), GMB_STATUS_NOT_FOUND);
    /* And of its own it is whole or given back. */
    raw_expect_error(&raw, run_ask(&raw, mine, true), GMB_STATUS_INVALID);
    raw_expect_error(&raw, run_ask(&raw, mine, false), GMB_STATUS_INVALID);
    raw_expect_error(&raw, raw_shrink(&raw, mine, 1), GMB_STATUS_INVALID);
    raw_expect_error(&raw, raw_grow(&raw, mine, MIB(2)), GMB_STATUS_INVALID);
    raw_expect_done(&raw, segment_seal_ask(&raw, mine));
    raw_expect_done(&raw, segment_seal_ask(&raw, mine));
    raw_expect_error(&raw, run_ask(&raw, mine, false), GMB_STATUS_INVALID);
    raw_expect_done(&raw, raw_release(&raw, mine));
    raw_expect_error(&raw, segment_seal_ask(&raw, mine), GMB_STATUS_NOT_FOUND);
    raw_close(&raw);
    segment_do(&first, 0, MEMBER_SEAL, "", 0);
    end();
}
END_TEST

START_TEST(a_seal_is_asked_for_again_by_who_came_back_and_answered_once)
{
    struct raw raw;
    uint64_t lease, id;
    pid_t mover;

    begin("[Broker]\nHostTier=256M\n" HARNESS_TENANT);
    segment_make(&first, "first", MIB(4), 5);
    raw_connect(&raw, &harness);
    lease = raw_expect_lease(&raw, segment_ask(&raw, "llama", MIB(4), 0, SEGMENT_WAIT), 2);
    /* It is found out and replaced; until then the segment stays as it is. */
    wait_until(harness_movers(&harness, &mover, 1) == 1);
    ck_assert_int_eq(kill(mover, SIGSTOP), 0);
    (void) segment_seal_ask(&raw, lease);
    segment_expect_read(&raw);
    raw_close(&raw);
    ck_assert(raw_come_back(&raw, &harness));
    ck_assert_uint_eq(raw_resume_one(&raw, lease, 2), 0);
    id = segment_seal_ask(&raw, lease);
    raw_expect_done(&raw, id);
    segment_expect_state(&harness, "llama", STATE(SEALED));
    raw_expect_done(&raw, raw_release(&raw, lease));
    raw_close(&raw);
    end();
}
END_TEST

START_TEST(who_only_waits_is_bounded_as_a_client_and_as_a_tenant_and_is_forgotten)
{
    struct raw crowd[SEGMENT_CROWD], raw;
    uint64_t id, cancelled;

    begin(SEGMENT_BROKER HARNESS_TENANT);
    segment_do(&first, 0, MEMBER_CREATE, "llama", WEIGHTS);
    raw_connect(&raw, &harness);
    cancelled = segment_crowd_start(crowd, &harness, false, "llama", WEIGHTS);
    raw_expect_error(&raw, segment_ask(&raw, "llama", 0, 0, SEGMENT_WAIT), GMB_STATUS_EXHAUSTED);
    id = raw_cancel(&crowd[0], cancelled);
    raw_expect_done(&crowd[0], id);
    raw_expect_error(&crowd[0], cancelled, GMB_STATUS_CANCELLED);
    raw_expect_error(&crowd[0], raw_cancel(&crowd[0], cancelled), GMB_STATUS_NOT_FOUND);
    /* Its tenant has one place again, which isn't for one that has all that a client may have. */
    raw_expect_error(
        &crowd[1], segment_ask(&crowd[1], "llama", 0, 0, SEGMENT_WAIT), GMB_STATUS_EXHAUSTED);
    id = segment_ask(&raw, "llama", 0, 0, SEGMENT_WAIT);
    segment_await_waiting(&harness, "llama", LIMIT_SEGMENT_WAITERS);
    segment_crowd_end(crowd);
    segment_await_waiting(&harness, "llama", 1);
    segment_do(&first, 0, MEMBER_SEAL, "", 0);
    raw_expect_done(&raw, raw_release(&raw, raw_expect_lease(&raw, id, 12)));
    raw_close(&raw);
    end();
}
END_TEST

START_TEST(a_name_has_bounds_and_a_request_one_answer)
{
    char name[LIMIT_NAME_BYTES + 2];
    struct raw raw;
    uint64_t id;

    begin(SEGMENT_BROKER HARNESS_TENANT);
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    raw_connect(&raw, &harness);
    raw_expect_error(&raw, segment_ask(&raw, name, MIB(2), 0, 0), GMB_STATUS_INVALID);
    raw_expect_error(&raw, segment_ask(&raw, "", MIB(2), 0, 0), GMB_STATUS_INVALID);
    name[LIMIT_NAME_BYTES] = '\0';
    id = raw_expect_lease(&raw, segment_ask(&raw, name, MIB(2), 0, 0), 1);
    raw_expect_done(&raw, raw_release(&raw, id));
    /* Who goes before it is granted leaves nothing. */
    segment_do(&second, 0, MEMBER_CREATE, "small", MIB(4));
    (void) segment_ask(&raw, "big", HARNESS_MEMORY - MIB(2), 0, SEGMENT_WAIT);
    raw_close(&raw);
    segment_do(&first, 0, MEMBER_CREATE, "big", MIB(4));
    end();
}
END_TEST

/* A segment's first chunk as its writer has it; the lease. */
static uint64_t create_by_hand(struct raw *raw, const char *name, int *ret_fd)
{
    uint64_t id = segment_ask(raw, name, MIB(4), 0, SEGMENT_WAIT), lease;
    Gmb__BrokerMessage *message = raw_receive(raw);

    ck_assert_ptr_nonnull(message);
    ck_assert_uint_eq(message->id, id);
    ck_assert_int_eq(message->body_case, GMB__BROKER_MESSAGE__BODY_GRANT);
    ck_assert_uint_eq(message->grant->n_chunks, message->grant->total_chunks);
    *ret_fd = fdset_take(&raw->fds, 0);
    lease = message->grant->lease;
    frame_message_free(&message->base);
    return lease;
}

/*
 * On the simulator nothing keeps it from that: a chunk is a file there, and only memfds have seals.
 * The mover, which reads everybody's memory, takes no fd of another size, and goes on.
 */
START_TEST(a_chunk_that_its_holder_shrank_harms_nobody_else)
{
    uint64_t shrunk, sealed;
    struct raw raw;
    int fds[2];

    begin(SEGMENT_BROKER HARNESS_TENANT);
    segment_make(&first, "llama", WEIGHTS, 5);
    raw_connect(&raw, &harness);
    shrunk = create_by_hand(&raw, "shrunk", &fds[0]);
    ck_assert_int_eq(ftruncate(fds[0], 4096), 0);
    raw_expect_error(&raw, segment_seal_ask(&raw, shrunk), GMB_STATUS_GPU);
    sealed = create_by_hand(&raw, "sealed", &fds[1]);
    raw_expect_done(&raw, segment_seal_ask(&raw, sealed));
    ck_assert_int_eq(ftruncate(fds[1], 4096), 0);
    ck_assert_int_eq(segment_change(&harness, "", ACTION(VERIFY)), 2);
    ck_assert_uint_eq(verified("llama", 0), 1);
    segment_do(&second, 0, MEMBER_OPEN, "llama", 0);
    ck_assert_int_eq(segment_compare(&second, 5), 0);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        (void) close(fds[i]);
    raw_expect_done(&raw, raw_release(&raw, shrunk));
    raw_expect_done(&raw, raw_release(&raw, sealed));
    raw_close(&raw);
    end();
}
END_TEST

UNIT_MAIN("integration: hostile segments",
    a_byte_that_a_reader_changed_is_found_and_served_to_nobody,
    a_changed_byte_is_found_without_anybody_asking, a_writer_that_writes_on_is_found,
    another_tenant_has_no_part_in_it, a_share_group_pays_for_what_its_tenants_share,
    what_is_said_of_somebody_elses_lease_is_said_of_none,
    a_seal_is_asked_for_again_by_who_came_back_and_answered_once,
    a_chunk_that_its_holder_shrank_harms_nobody_else,
    who_only_waits_is_bounded_as_a_client_and_as_a_tenant_and_is_forgotten,
    a_name_has_bounds_and_a_request_one_answer)
