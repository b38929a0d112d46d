/*
 * What the next broker finds is less, more or other than what was stored: it starts, says so in the
 * log and to gmbctl, goes on with everything that is whole, and takes nobody's memory away.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/ledger/ledger_format.h"
#include "tests/integration/lessee.h"
#include "tests/integration/raw.h"
#include "tests/integration/tamper_arm.h"
#include "tests/unit/unit.h"

#define CHUNK HARNESS_CHUNK
#define PATIENCE_MS 60000

static struct harness harness;

/* A broker under a keeper that keeps `fds` (NULL: enough), whose successors are spoiled. */
static void begin(const char *fds, const char *more)
{
    const char *environment[] = {more, fds, NULL};

    tamper_start(&harness, NULL, more == NULL ? environment + 1 : environment);
}

static void end(void)
{
    tamper_stop(&harness);
}

/* Kills the broker; the next one finds what is spoiled so. */
static void succeed_spoiled(const char *what)
{
    tamper_arm(what);
    harness_keeper_renew(&harness);
    harness_succeed(&harness, SIGKILL);
    tamper_expect_done();
}

static void expect_said(const char *text)
{
    tamper_expect_said(&harness, text);
}

static uint64_t leased(void)
{
    Gmb__TenantDevice device;

    raw_tenant(&harness, "test", &device);
    return device.leased_bytes;
}

/* ------------------------------------------------------------------ fds */

START_TEST(what_has_no_room_in_the_store_is_said_and_its_lease_goes_on)
{
    Gmb__ControlReply *reply;
    struct raw raw;
    uint64_t lease, second;

    begin("HARNESS_FDS=3", NULL); /* the ledger, and at most two of four chunks */
    raw_connect(&raw, &harness);
    lease = raw_expect_lease(&raw, raw_lease(&raw, 4 * CHUNK, CHUNK, 0), 4);
    reply = raw_status(&harness);
    ck_assert_ptr_nonnull(strstr(reply->status->degraded, "fd store is full"));
    frame_message_free(&reply->base);
    ck_assert(harness_logged(&harness, "no room for more than 3 fds"));
    succeed_spoiled("");
    expect_said(" chunks have no memory here"); /* two, or three where the host tier is kept */
    ck_assert_uint_eq(leased(), 4 * CHUNK);
    ck_assert(raw_come_back(&raw, &harness));
    ck_assert_uint_eq(raw_resume_one(&raw, lease, 4), 0);
    ck_assert_uint_eq(leased(), 4 * CHUNK);
    /* Full again: both are said. */
    second = raw_expect_lease(&raw, raw_lease(&raw, 4 * CHUNK, CHUNK, 0), 4);
    reply = raw_status(&harness);
    ck_assert_ptr_nonnull(strstr(reply->status->degraded, "fd store is full"));
    ck_assert_ptr_nonnull(strstr(reply->status->degraded, " chunks have no memory here"));
    frame_message_free(&reply->base);
    raw_expect_done(&raw, raw_release(&raw, second));
    raw_expect_done(&raw, raw_release(&raw, lease));
    ck_assert_uint_eq(leased(), 0);
    raw_close(&raw);
    end();
}
END_TEST

/* i == 0: it is missing, 1: there are two of that name, and nobody knows which one it is. */
START_TEST(a_chunk_whose_fd_is_missing_stays_with_its_holder_alone)
{
    struct raw raw, other;
    uint64_t lease, second;

    begin(NULL, NULL);
    raw_connect(&raw, &harness);
    raw_connect(&other, &harness);
    lease = raw_expect_lease(&raw, raw_lease(&raw, 4 * CHUNK, CHUNK, 0), 4);
    second = raw_expect_lease(&other, raw_lease(&other, 2 * CHUNK, CHUNK, 0), 2);
    succeed_spoiled(_i == 0 ? "lose C1" : "twice C1");
    expect_said("1 chunks have no memory here");
    ck_assert_uint_eq(leased(), 6 * CHUNK);
    ck_assert(raw_come_back(&raw, &harness));
    ck_assert_uint_eq(raw_resume_one(&raw, lease, 4), 0);
    ck_assert(raw_come_back(&other, &harness));
    ck_assert_uint_eq(raw_resume_one(&other, second, 2), 0);
    ck_assert_uint_eq(leased(), 6 * CHUNK);
    raw_expect_done(&raw, raw_release(&raw, lease));
    raw_expect_done(&other, raw_release(&other, second));
    raw_close(&raw);
    raw_close(&other);
    end();
}
END_TEST

START_TEST(an_fd_that_no_record_names_is_let_go)
{
    struct raw raw;
    uint64_t lease;

    begin(NULL, NULL);
    raw_connect(&raw, &harness);
    lease = raw_expect_lease(&raw, raw_lease(&raw, 2 * CHUNK, CHUNK, 0), 2);
    succeed_spoiled("extra Czz");
    ck_assert(harness_logged(&harness, "1 file descriptors that no record names were let go"));
    expect_said("");
    ck_assert(raw_come_back(&raw, &harness));
    ck_assert_uint_eq(raw_resume_one(&raw, lease, 2), 0);
    raw_expect_done(&raw, raw_release(&raw, lease));
    raw_close(&raw);
    end();
}
END_TEST

/* ------------------------------------------------------------------ devices */

static uint64_t lease_on(struct raw *raw, unsigned device)
{
    Gmb__ControlReply *reply = raw_status(&harness);
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__LeaseRequest body;
    uint64_t lease;

    gmb__lease_request__init(&body);
    message.body_case = GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST;
    message.lease_request = &body;
    body.device = reply->status->devices[device]->uuid;
    body.bytes = 2 * CHUNK;
    body.chunk_bytes = CHUNK;
    lease = raw_expect_lease(raw, raw_send(raw, &message), 2);
    frame_message_free(&reply->base);
    return lease;
}

START_TEST(leases_on_a_device_that_is_gone_are_lost_and_no_others)
{
    struct raw there, gone;
    uint64_t stays, lost;

    begin(NULL, "GMB_SIM_DEVICES=2");
    raw_connect(&there, &harness);
    raw_connect(&gone, &harness);
    stays = lease_on(&there, 0);
    lost = lease_on(&gone, 1);
    succeed_spoiled("devices 0");
    expect_said("of devices that are gone");
    ck_assert_uint_eq(leased(), 2 * CHUNK);
    ck_assert(raw_come_back(&there, &harness));
    ck_assert_uint_eq(raw_resume_one(&there, stays, 2), 0);
    ck_assert(raw_come_back(&gone, &harness));
    ck_assert_uint_eq(raw_resume_one(&gone, lost, 2), 1);
    raw_close(&gone);
    /* And it is there again: what was dropped isn't. */
    succeed_spoiled("");
    ck_assert(raw_come_back(&there, &harness));
    ck_assert_uint_eq(raw_resume_one(&there, stays, 2), 0);
    raw_expect_done(&there, raw_release(&there, stays));
    raw_close(&there);
    end();
}
END_TEST

/* ------------------------------------------------------------------ a ledger of another version */

static struct board {
    atomic_bool held, look, looked, stop;
} * board;

/* Holds a lease, and says that its bytes are what they were. */
static void holder(struct lessee *lessee, void *data)
{
    gmb_lease *lease = lessee_take(lessee, 3, "held");

    (void) data;
    lessee_need(gmb_thread_start(lessee->session), "thread");
    lessee_write(lessee, lease, 5);
    atomic_store(&board->held, true);
    while (!atomic_load(&board->look))
        harness_breathe();
    lessee_check(lessee, lease, 5);
    atomic_store(&board->looked, true);
    while (!atomic_load(&board->stop))
        harness_breathe();
    lessee_check(lessee, lease, 5);
    lessee_need_or_later(gmb_lease_release(lease), "release");
}

static void wait_for(const atomic_bool *flag)
{
    uint64_t deadline = harness_now_ms() + PATIENCE_MS;

    while (!atomic_load(flag)) {
        ck_assert_uint_lt(harness_now_ms(), deadline);
        harness_breathe();
    }
}

/* i == 0: an older one, 1: a newer one, 2: no header is whole, 3: it isn't there. */
START_TEST(who_held_memory_in_a_ledger_that_cannot_be_read_holds_it_still)
{
    static const char *const spoiled[] = {"version 0", "version 7", "version 1279", "lose ledger"};
    static const char *const said[] = {
        "has version 0, this broker reads", "has version 7", "has version 1279", "it is missing"};
    struct lessee_process process;
    uint64_t all, lease;
    struct raw raw;

    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(board, MAP_FAILED);
    process = lessee_fork(holder, NULL);
    begin(NULL, NULL);
    lessee_go(&process, &harness);
    wait_for(&board->held);
    succeed_spoiled(spoiled[_i]);
    expect_said(said[_i]);
    ck_assert_uint_eq(leased(), 0);
    /* All that is free goes to somebody else, and is written by nobody but the holder. */
    all = harness_free_bytes(&harness) / CHUNK;
    ck_assert_uint_eq(all, HARNESS_MEMORY / CHUNK - 3);
    raw_connect(&raw, &harness);
    lease =
        raw_expect_lease(&raw, raw_lease(&raw, all * CHUNK, CHUNK, LESSEE_WAIT_NS), (uint32_t) all);
    raw_expect_error(&raw, raw_lease(&raw, CHUNK, CHUNK, 0), GMB_STATUS_EXHAUSTED);
    atomic_store(&board->look, true);
    wait_for(&board->looked);
    raw_expect_done(&raw, raw_release(&raw, lease));
    raw_close(&raw);
    atomic_store(&board->stop, true);
    lessee_join(&process);
    end();
}
END_TEST

/* ------------------------------------------------------------------ damaged bytes */

/* The keeper's copy; the caller's to close. */
static int ledger_borrow(void)
{
    char path[64], link[330], target[64];
    struct dirent *entry;
    int fd = -1;
    DIR *fds;

    (void) snprintf(path, sizeof(path), "/proc/%d/fd", (int) harness.keeper);
    fds = opendir(path);
    ck_assert_ptr_nonnull(fds);
    while (fd < 0 && (entry = readdir(fds)) != NULL) {
        ssize_t size;

        (void) snprintf(link, sizeof(link), "%s/%s", path, entry->d_name);
        size = readlink(link, target, sizeof(target) - 1);
        target[MAX(size, (ssize_t) 0)] = '\0';
        if (strstr(target, "gmbd-ledger") != NULL)
            fd = open(link, O_RDONLY | O_CLOEXEC);
    }
    (void) closedir(fds);
    ck_assert_int_ge(fd, 0);
    return fd;
}

/* Where bytes mean something: in headers, and the first records of each kind that were written. */
static size_t offsets_find(off_t *ret, size_t max)
{
    int fd = ledger_borrow();
    size_t count = 0;

    for (off_t i = 0; i < LEDGER_HEADERS; i++) {
        for (size_t k = 0; k < sizeof(struct ledger_header) && count < max; k++)
            ret[count++] = i * LEDGER_PAGE + (off_t) k;
    }
    for (unsigned type = 0; type < CORE_RECORD_MAX; type++) {
        for (uint32_t number = 0; number < 4; number++) {
            const struct ledger_region *region = &ledger_regions[type];
            off_t at = region->offset + (off_t) number * region->record_bytes;
            union disk_record record = {.bytes = {0}};

            ck_assert_int_eq(
                pread(fd, &record, region->record_bytes, at), (ssize_t) region->record_bytes);
            for (size_t k = 0; record.tenant.used + record.tenant.number != 0 &&
                               k < region->record_bytes && count < max;
                 k++)
                ret[count++] = at + (off_t) k;
        }
    }
    ck_assert_int_eq(close(fd), 0);
    return count;
}

/* One client more or less is known; whoever is has all that is whole. */
static void damaged_run(off_t offset)
{
    struct raw raws[2];
    uint64_t leases[2];
    /* Of headers and tenants there are two. */
    bool single = offset >= ledger_regions[CORE_RECORD_ACCOUNT].offset;
    unsigned resumed = 0;
    char what[32];

    for (unsigned i = 0; i < 2; i++) {
        raw_connect(&raws[i], &harness);
        leases[i] =
            raw_expect_lease(&raws[i], raw_lease(&raws[i], 2 * CHUNK, CHUNK, 1000000000), 2);
    }
    (void) snprintf(what, sizeof(what), "flip %lld", (long long) offset);
    succeed_spoiled(what);
    expect_said(single ? "the ledger doesn't add up: 1 damaged" : "");
    for (unsigned i = 0; i < 2; i++) {
        if (raw_come_back(&raws[i], &harness)) {
            if (raw_resume_one(&raws[i], leases[i], 2) == 0)
                raw_expect_done(&raws[i], raw_release(&raws[i], leases[i]));
            resumed++;
        }
    }
    ck_assert_msg(resumed > 0, "byte %lld made both clients nobody", (long long) offset);
    ck_assert_msg(single || resumed == 2, "byte %lld costs a client", (long long) offset);
    for (unsigned i = 0; i < 2; i++)
        raw_close(&raws[i]);
    /* What they had ends with them. */
    harness_settle(&harness);
}

START_TEST(a_damaged_byte_costs_at_most_what_it_belongs_to)
{
    static off_t offsets[8192];
    size_t each = strtoul(getenv("STORE_FLIPS_EACH"), NULL, 10), count;
    struct raw raw;
    uint64_t lease;

    begin(NULL, NULL);
    raw_connect(&raw, &harness);
    lease = raw_expect_lease(&raw, raw_lease(&raw, 2 * CHUNK, CHUNK, 0), 2);
    count = offsets_find(offsets, ARRAY_SIZE(offsets));
    raw_expect_done(&raw, raw_release(&raw, lease));
    raw_close(&raw);
    ck_assert_uint_gt(count, 2 * sizeof(struct ledger_header) + 300);
    harness_settle(&harness);
    for (size_t i = 0; i < count; i += each)
        damaged_run(offsets[i]);
    end();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("store");
    TCase *tcase = tcase_create("store");

    tcase_add_test(tcase, what_has_no_room_in_the_store_is_said_and_its_lease_goes_on);
    tcase_add_loop_test(tcase, a_chunk_whose_fd_is_missing_stays_with_its_holder_alone, 0, 2);
    tcase_add_test(tcase, an_fd_that_no_record_names_is_let_go);
    tcase_add_test(tcase, leases_on_a_device_that_is_gone_are_lost_and_no_others);
    tcase_add_loop_test(
        tcase, who_held_memory_in_a_ledger_that_cannot_be_read_holds_it_still, 0, 4);
    tcase_add_test(tcase, a_damaged_byte_costs_at_most_what_it_belongs_to);
    suite_add_tcase(suite, tcase);
    return unit_run_suite(suite);
}
