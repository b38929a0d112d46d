/*
 * A chunk is granted again only when its holder has returned it, or is dead, and the memory is
 * really free; a restart of the broker in between changes nothing of that.
 */
#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/holder.h"
#include "tests/integration/orders.h"
#include "tests/unit/unit.h"

#define CHUNK HARNESS_CHUNK
#define CHUNKS ((uint32_t) (HARNESS_MEMORY / CHUNK))
#define MIB(n) ((uint64_t) (n) << 20)
#define WAIT_NS (UINT64_C(20) * 1000000000)
#define LOW 61184 /* a group */
#define REVOKE_NS (UINT64_C(15) * 1000000000)

/* Nothing has come, and nothing comes for a moment. */
static void expect_silence(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    ck_assert_int_eq(poll(&poll_fd, 1, 300), 0);
}

static uint64_t orphaned(const struct harness *harness)
{
    Gmb__ControlReply *reply = raw_status(harness);
    uint64_t bytes = reply->status->devices[0]->orphaned_bytes;

    frame_message_free(&reply->base);
    return bytes;
}

/* Leases what is there for everybody, less so many chunks. */
static uint64_t lease_all_but(struct raw *raw, uint32_t chunks)
{
    return raw_expect_lease(
        raw, raw_lease(raw, (CHUNKS - chunks) * CHUNK, CHUNK, WAIT_NS), CHUNKS - chunks);
}

START_TEST(what_was_returned_and_is_held_all_the_same_is_nobodys_after_a_restart_either)
{
    Gmb__BrokerMessage *message;
    struct harness harness;
    uint64_t lease, id;
    struct raw raw;
    int held;

    harness_start_kept(&harness, NULL, NULL);
    raw_connect(&raw, &harness);
    (void) raw_lease(&raw, 2 * CHUNK, CHUNK, 0);
    message = raw_receive(&raw);
    ck_assert_ptr_nonnull(message);
    ck_assert_int_eq(message->body_case, GMB__BROKER_MESSAGE__BODY_GRANT);
    ck_assert_uint_eq(raw.fds.count, 2);
    held = fcntl(raw.fds.fds[1], F_DUPFD_CLOEXEC, 0);
    ck_assert_int_ge(held, 0);
    lease = message->grant->lease;
    frame_message_free(&message->base);
    fdset_close(&raw.fds);
    raw_expect_done(&raw, raw_release(&raw, lease));
    /* It is on its way back to the driver, or has just been given there. */
    harness_succeed(&harness, SIGKILL);
    wait_until(orphaned(&harness) == CHUNK);
    ck_assert(raw_come_back(&raw, &harness));
    ck_assert_uint_eq(raw_resume(&raw, NULL, 0, true), 0);
    lease = lease_all_but(&raw, 1);
    id = raw_lease(&raw, CHUNK, CHUNK, WAIT_NS);
    expect_silence(conn_fd(raw.conn));
    ck_assert_int_eq(close(held), 0);
    raw_expect_done(&raw, raw_release(&raw, raw_expect_lease(&raw, id, 1)));
    raw_expect_done(&raw, raw_release(&raw, lease));
    ck_assert_uint_eq(orphaned(&harness), 0);
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

/* It is stopped, so that it can't even come back. */
static pid_t silent_start(const struct harness *harness)
{
    uint8_t token[16];
    pid_t pid = holder_start(harness, holder_take_lease, token, sizeof(token));
    int status;

    ck_assert_int_eq(kill(pid, SIGSTOP), 0);
    ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
    ck_assert(WIFSTOPPED(status));
    return pid;
}

START_TEST(what_a_silent_process_holds_over_a_restart_is_its_own_until_it_is_dead)
{
    struct harness harness;
    uint64_t lease, id;
    struct raw raw;
    pid_t holder;

    harness_start_kept(&harness, NULL, NULL);
    holder = silent_start(&harness);
    harness_succeed(&harness, SIGKILL);
    raw_connect(&raw, &harness);
    lease = lease_all_but(&raw, HOLDER_CHUNKS);
    id = raw_lease(&raw, HOLDER_CHUNKS * CHUNK, CHUNK, WAIT_NS);
    expect_silence(conn_fd(raw.conn));
    holder_kill(holder);
    raw_expect_done(&raw, raw_release(&raw, raw_expect_lease(&raw, id, HOLDER_CHUNKS)));
    raw_expect_done(&raw, raw_release(&raw, lease));
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

/* The holder is asked for so much, and has all of the time for it. */
static void expect_revoke(struct raw *raw, uint64_t lease, uint64_t bytes)
{
    Gmb__BrokerMessage *message = raw_receive(raw);

    ck_assert_ptr_nonnull(message);
    ck_assert_int_eq(message->body_case, GMB__BROKER_MESSAGE__BODY_LEASE_REVOKE);
    ck_assert_uint_eq(message->lease_revoke->lease, lease);
    ck_assert_uint_eq(message->lease_revoke->bytes, bytes);
    ck_assert_uint_eq(message->lease_revoke->deadline_ns, REVOKE_NS);
    frame_message_free(&message->base);
}

/* i == 0: what was asked before the restart is given when it is asked again, 1: unasked. */
START_TEST(a_revocation_begins_anew_after_a_restart_and_grants_what_is_given_alone)
{
    struct claimant first, second;
    struct harness harness;
    Gmb__TenantDevice high;
    struct raw raw;
    uint64_t lease;

    unit_need_root();
    harness_start_kept(&harness,
        HARNESS_BROKER
        "Revoke=yes\nRevokeTimeout=15s\nKill=yes\n[Tenant high]\nUser=65534\nPriority=900\n"
        "[Tenant low]\nUser=*\nPriority=100\n",
        NULL);
    raw_connect(&raw, &harness);
    lease = raw_expect_lease(&raw, raw_lease(&raw, HARNESS_MEMORY, CHUNK, 0), CHUNKS);
    claimant_start(&first, &harness, MIB(256), 15000);
    expect_revoke(&raw, lease, MIB(256));
    harness_succeed(&harness, SIGKILL);
    ck_assert_int_eq(claimant_answer(&first), GMB_STATUS_INTERNAL); /* it heard no other */
    claimant_end(&first);
    ck_assert(raw_come_back(&raw, &harness));
    ck_assert_uint_eq(raw_resume_one(&raw, lease, CHUNKS), 0);
    if (_i == 1)
        raw_expect_done(&raw, raw_shrink(&raw, lease, CHUNKS - (uint32_t) (MIB(256) / CHUNK)));
    claimant_start(&second, &harness, MIB(256), 15000);
    if (_i == 0) {
        expect_revoke(&raw, lease, MIB(256));
        expect_silence(second.answer);
        raw_tenant(&harness, "high", &high);
        ck_assert_uint_eq(high.leased_bytes, 0);
        raw_expect_done(&raw, raw_shrink(&raw, lease, CHUNKS - (uint32_t) (MIB(256) / CHUNK)));
    }
    ck_assert_int_eq(claimant_answer(&second), GMB_STATUS_OK);
    raw_expect_done(&raw, raw_release(&raw, lease));
    claimant_end(&second);
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

/* Of a tenant of its own, by its group. */
static void low_take_lease(const struct harness *harness, void *told)
{
    ck_assert_int_eq(setgid(LOW), 0);
    holder_take_lease(harness, told);
}

#define AWAY_TENANTS                                                                               \
    "[Tenant high]\nUser=65534\nPriority=900\n[Tenant low]\nGroup=61184\nPriority=100\n"           \
    "[Tenant own]\nUser=*\nPriority=950\n"

/* i == 0: Kill=no, it waits in vain. 1: Kill=yes, the holder is ended. */
START_TEST(who_stays_away_is_revoked_and_its_memory_waits_for_its_death)
{
    struct claimant claimant;
    struct harness harness;
    uint8_t token[16];
    struct raw raw;
    pid_t holder;
    int status;

    unit_need_root();
    harness_start_kept(&harness,
        _i == 0 ? HARNESS_BROKER "Revoke=yes\nRevokeTimeout=500ms\nKill=no\n" AWAY_TENANTS
                : HARNESS_BROKER "Revoke=yes\nRevokeTimeout=500ms\nKill=yes\n" AWAY_TENANTS,
        NULL);
    holder = holder_start(&harness, low_take_lease, token, sizeof(token));
    ck_assert_int_eq(kill(holder, SIGSTOP), 0);
    harness_succeed(&harness, SIGKILL);
    raw_connect(&raw, &harness);
    (void) lease_all_but(&raw, HOLDER_CHUNKS);
    claimant_start(&claimant, &harness, HOLDER_CHUNKS * CHUNK, _i == 0 ? 3000 : 15000);
    if (_i == 0) {
        ck_assert_int_eq(claimant_answer(&claimant), GMB_STATUS_TIMED_OUT);
        ck_assert(harness_logged(&harness, "was revoked and isn't given back"));
        ck_assert_int_eq(harness_process_state(holder), 'T');
        holder_kill(holder);
    } else {
        ck_assert_int_eq(claimant_answer(&claimant), GMB_STATUS_OK);
        ck_assert_int_eq(waitpid(holder, &status, 0), holder);
        ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    claimant_end(&claimant);
    raw_close(&raw);
    harness_discard(&harness);
}
END_TEST

START_TEST(who_was_revoked_while_it_was_away_is_told_when_it_is_back)
{
    struct claimant claimant;
    struct harness harness;
    Gmb__BrokerMessage *message;
    struct raw raw;
    uint64_t lease;

    unit_need_root();
    harness_start_kept(&harness,
        HARNESS_BROKER "Revoke=yes\nRevokeTimeout=15s\n[Tenant high]\nUser=65534\nPriority=900\n"
                       "[Tenant low]\nUser=*\nPriority=100\n",
        NULL);
    raw_connect(&raw, &harness);
    lease = raw_expect_lease(&raw, raw_lease(&raw, HARNESS_MEMORY, CHUNK, 0), CHUNKS);
    harness_succeed(&harness, SIGKILL);
    claimant_start(&claimant, &harness, MIB(256), 15000);
    wait_until(harness_logged(&harness, ", away)"));
    ck_assert(raw_come_back(&raw, &harness));
    ck_assert_uint_eq(raw_resume_one(&raw, lease, CHUNKS), 0);
    message = raw_receive(&raw);
    ck_assert_ptr_nonnull(message);
    ck_assert_int_eq(message->body_case, GMB__BROKER_MESSAGE__BODY_LEASE_REVOKE);
    ck_assert_uint_eq(message->lease_revoke->lease, lease);
    ck_assert_uint_eq(message->lease_revoke->bytes, MIB(256));
    ck_assert_uint_lt(message->lease_revoke->deadline_ns, REVOKE_NS);
    frame_message_free(&message->base);
    expect_silence(claimant.answer);
    raw_expect_done(&raw, raw_shrink(&raw, lease, CHUNKS - (uint32_t) (MIB(256) / CHUNK)));
    ck_assert_int_eq(claimant_answer(&claimant), GMB_STATUS_OK);
    raw_expect_done(&raw, raw_release(&raw, lease));
    claimant_end(&claimant);
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

/* What the other has would fit better. */
START_TEST(who_is_there_is_revoked_before_who_is_away)
{
    struct raw raw, present;
    struct claimant claimant;
    struct harness harness;
    uint8_t token[16];
    uint64_t lease;
    pid_t holder;

    unit_need_root();
    harness_start_kept(
        &harness, HARNESS_BROKER "Revoke=yes\nRevokeTimeout=15s\nKill=yes\n" AWAY_TENANTS, NULL);
    holder = holder_start(&harness, low_take_lease, token, sizeof(token));
    ck_assert_int_eq(kill(holder, SIGSTOP), 0);
    harness_succeed(&harness, SIGKILL);
    raw_connect(&raw, &harness);
    (void) lease_all_but(&raw, 10);
    ck_assert_int_eq(setegid(LOW), 0);
    raw_connect(&present, &harness);
    ck_assert_int_eq(setegid(0), 0);
    lease = raw_expect_lease(&present, raw_lease(&present, 6 * CHUNK, CHUNK, 0), 6);
    claimant_start(&claimant, &harness, HOLDER_CHUNKS * CHUNK, 15000);
    expect_revoke(&present, lease, HOLDER_CHUNKS * CHUNK);
    raw_expect_done(&present, raw_shrink(&present, lease, 6 - HOLDER_CHUNKS));
    ck_assert_int_eq(claimant_answer(&claimant), GMB_STATUS_OK);
    ck_assert_int_eq(harness_process_state(holder), 'T');
    holder_kill(holder);
    claimant_end(&claimant);
    raw_close(&raw);
    raw_close(&present);
    harness_discard(&harness);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fence");
    TCase *tcase = tcase_create("fence");

    tcase_add_test(
        tcase, what_was_returned_and_is_held_all_the_same_is_nobodys_after_a_restart_either);
    tcase_add_test(tcase, what_a_silent_process_holds_over_a_restart_is_its_own_until_it_is_dead);
    tcase_add_loop_test(
        tcase, a_revocation_begins_anew_after_a_restart_and_grants_what_is_given_alone, 0, 2);
    tcase_add_loop_test(tcase, who_stays_away_is_revoked_and_its_memory_waits_for_its_death, 0, 2);
    tcase_add_test(tcase, who_is_there_is_revoked_before_who_is_away);
    tcase_add_test(tcase, who_was_revoked_while_it_was_away_is_told_when_it_is_back);
    suite_add_tcase(suite, tcase);
    return unit_run_suite(suite);
}
