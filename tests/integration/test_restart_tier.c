/*
 * The host tier over restarts of the broker: what it is to be changes, or what is left of it is
 * less, or something else, while pages lie there. They come back with their bytes, or are lost and
 * that is said; and what isn't used any more is given back.
 */
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/integration/folder.h"
#include "tests/integration/orders.h"
#include "tests/integration/pages.h"
#include "tests/integration/tamper_arm.h"
#include "tests/integration/worker.h"
#include "tests/unit/unit.h"

#define PAGE (UINT64_C(64) << 10)
#define PER_CHUNK ((uint32_t) (HARNESS_CHUNK / PAGE))
#define MIB(n) ((uint64_t) (n) << 20)
#define BROKER HARNESS_BROKER "MoverIdle=200ms\n"
/* 48 MiB: a slab of 32, and half of another. */
#define CHUNKS 24u
#define ALL (CHUNKS * PER_CHUNK)
#define SLAB_PAGES ((uint32_t) (MIB(32) / PAGE))

static struct harness harness;
static struct pages pages;
static char folder[SCRATCH_PATH_BYTES], other[SCRATCH_PATH_BYTES];

/* ------------------------------------------------------------------ helpers */

/* A tier as it is configured. */
struct shape {
    unsigned memory, disk; /* MiB; disk 0: HostTierPath= isn't set, either */
    const char *path;
};

static void shape_text(const struct shape *shape, char text[640])
{
    char disk[256] = "";

    if (shape->disk > 0)
        (void) snprintf(
            disk, sizeof(disk), "HostTierPath=%s\nHostTierDisk=%uM\n", shape->path, shape->disk);
    (void) snprintf(text, 640, BROKER "HostTier=%uM\n%s" HARNESS_TENANT, shape->memory, disk);
}

static void begin(const struct shape *shape)
{
    char text[640];

    shape_text(shape, text);
    tamper_start(&harness, text, NULL);
    pages_open(&pages, &harness, PAGE, HARNESS_CHUNK, MIB(128));
    pages_fill(&pages, ALL);
}

static void restart(const struct shape *shape)
{
    char text[640];

    shape_text(shape, text);
    harness_configure(&harness, text);
    harness_keeper_renew(&harness);
    harness_succeed(&harness, SIGKILL);
    pages_wait_connected(&pages);
}

/* The next broker finds what is spoiled so. */
static void restart_spoiled(const struct shape *shape, const char *what)
{
    tamper_arm(what);
    restart(shape);
    tamper_expect_done();
}

static void expect_said(const char *text)
{
    tamper_expect_said(&harness, text);
}

static void expect_lost(uint32_t count)
{
    char text[64];

    (void) snprintf(text, sizeof(text), "%u page%s of arenas lay in the host tier and are lost",
        count, PLURAL_S(count));
    expect_said(count > 0 ? text : "");
}

static Gmb__DeviceStatus device(void)
{
    char failure[LIMIT_TEXT_BYTES];
    Gmb__DeviceStatus device;

    raw_device(&harness, &device, failure);
    return device;
}

/* All of a start that found nothing in the tier. */
static void expect_shape(const struct shape *shape)
{
    Gmb__DeviceStatus status = device();

    ck_assert_uint_eq(status.tier_bytes, MIB(shape->memory + shape->disk));
    ck_assert_uint_eq(status.tier_disk_bytes, MIB(shape->disk));
    ck_assert_uint_eq(status.tier_used_bytes, 0);
}

/* Ends with a broker as the first one was; nothing lies in the tier. */
static void finish(const struct shape *shape)
{
    restart(shape);
    expect_shape(shape);
    pages_close(&pages);
    tamper_stop(&harness);
}

/* ------------------------------------------------------------------ another configuration */

#define NOWHERE "/nowhere/gmbd"

struct change {
    const char *name;
    struct shape before, after; /* path: NULL is the first folder, "" the other one */
    uint32_t memory, disk;      /* what may be held while pages of before lie there, MiB */
};

static const struct change changes[] = {
    {"the same", {32, 64}, {32, 64}, 32, 64},
    {"no memory", {32, 64}, {0, 64}, 32, 64},
    {"more memory", {32, 64}, {96, 64}, 32, 64},
    {"no tier", {32, 64}, {0, 0}, 32, 32},
    {"no tier, of memory alone", {64, 0}, {0, 0}, 64, 0},
    {"less memory", {128, 0}, {32, 0}, 64, 0},
    {"no disk", {32, 64}, {32, 0}, 32, 32},
    {"a smaller disk", {32, 128}, {32, 32}, 32, 32},
    {"a larger disk", {32, 64}, {32, 96}, 32, 64},
    {"another folder", {32, 64}, {32, 64, ""}, 32, 64},
    {"a folder that isn't there", {32, 64}, {32, 64, NOWHERE}, 32, 32},
    {"that, and no memory", {32, 64}, {0, 64, NOWHERE}, 32, 32},
    {"a disk, too", {64, 0}, {64, 64}, 64, 64},
    {"a disk instead", {64, 0}, {0, 64}, 64, 64},
    {"a disk of a disk alone away", {0, 64}, {64, 0}, 0, 64},
};

static void path_set(struct shape *shape)
{
    if (shape->path == NULL)
        shape->path = folder;
    else if (shape->path[0] == '\0')
        shape->path = other;
}

/* A folder that isn't there gives no disk. */
static struct shape shape_had(const struct shape *shape)
{
    struct shape had = *shape;

    if (strcmp(had.path, NOWHERE) == 0)
        had.disk = 0;
    return had;
}

START_TEST(pages_come_back_whatever_the_tier_is_to_be_now)
{
    struct change change = changes[_i];
    Gmb__DeviceStatus status;
    struct shape had;

    ck_assert_int_eq(scratch_make(folder), 0);
    ck_assert_int_eq(scratch_make(other), 0);
    path_set(&change.before);
    path_set(&change.after);
    had = shape_had(&change.after);
    begin(&change.before);
    pages_evict(&pages, &harness, ALL);
    restart(&change.after);
    status = device();
    ck_assert_msg(status.tier_bytes == MIB(change.memory + change.disk), "%s: %llu MiB",
        change.name, (unsigned long long) (status.tier_bytes >> 20));
    ck_assert_uint_eq(status.tier_disk_bytes, MIB(change.disk));
    expect_lost(0);
    ck_assert_uint_eq(pages_stats(&pages).evicted_pages, ALL);
    /* And over another one that takes it back, and one that doesn't. */
    restart(&change.before);
    restart(&change.after);
    expect_lost(0);
    ck_assert_uint_eq(pages_stats(&pages).evicted_pages, ALL);
    pages_check(&pages, 0, pages.count, 16);
    /* Nothing lies there: the next start makes it as it is to be, and the one behind finds that. */
    restart(&change.after);
    expect_shape(&had);
    if (had.memory + had.disk >= CHUNKS * 2) {
        pages_evict(&pages, &harness, ALL);
        restart(&change.after);
        ck_assert_uint_eq(pages_stats(&pages).evicted_pages, ALL);
        expect_lost(0);
    }
    pages_check(&pages, 0, pages.count, 16);
    finish(&change.before);
    ck_assert_int_eq(scratch_remove(folder), 0);
    ck_assert_int_eq(scratch_remove(other), 0);
}
END_TEST

/* ------------------------------------------------------------------ something else is left */

struct spoil {
    const char *how; /* for the program between keeper and broker */
    uint32_t lost;
    const char *said; /* NULL: no more than that */
};

#define ON_DISK (ALL - SLAB_PAGES)
#define NOT_OURS "can't be taken over (it is none of ours)"
#define NOT_OURS_DISK "what is kept as the host tier's file on the disk is none of ours"

static const struct spoil spoils[] = {
    {"lose H0", ALL, NULL},
    {"lose D0", ON_DISK, NULL},
    {"twice H0", ALL, NULL},
    {"twice D0", ON_DISK, NULL},
    {"become H0 fifo", ALL, NOT_OURS},
    {"become H0 socket", ALL, NOT_OURS},
    {"become H0 folder", ALL, NOT_OURS},
    {"become H0 null", ALL, NOT_OURS},
    {"become H0 zero", ALL, NOT_OURS},
    {"become H0 file", ALL, NOT_OURS},
    {"become H0 odd", ALL, NOT_OURS},
    {"become H0 huge", ALL, NOT_OURS},
    {"become H0 empty", ALL, NULL},
    {"become D0 fifo", ON_DISK, NOT_OURS_DISK},
    {"become D0 socket", ON_DISK, NOT_OURS_DISK},
    {"become D0 folder", ON_DISK, NOT_OURS_DISK},
    {"become D0 null", ON_DISK, NOT_OURS_DISK},
    {"become D0 zero", ON_DISK, NOT_OURS_DISK},
    {"become D0 file", ON_DISK, NOT_OURS_DISK},
    {"become D0 huge", ON_DISK, NOT_OURS_DISK},
};

START_TEST(what_isnt_there_any_more_is_lost_alone_and_said)
{
    const struct spoil *spoil = &spoils[_i];
    const struct shape shape = {32, 64, folder};

    ck_assert_int_eq(scratch_make(folder), 0);
    begin(&shape);
    pages_evict(&pages, &harness, ALL);
    restart_spoiled(&shape, spoil->how);
    expect_lost(spoil->lost);
    ck_assert_msg(spoil->said == NULL || harness_logged(&harness, spoil->said), "%s", spoil->how);
    ck_assert_uint_eq(pages_check_or_lost(&pages), spoil->lost);
    /* What came in its place is kept as ever. */
    pages_fill(&pages, 4 * PER_CHUNK);
    pages_evict(&pages, &harness, pages.count - spoil->lost);
    restart(&shape);
    expect_lost(0);
    ck_assert_uint_eq(pages_stats(&pages).evicted_pages, pages.count - spoil->lost);
    ck_assert_uint_eq(pages_check_or_lost(&pages), spoil->lost);
    finish(&shape);
    ck_assert_int_eq(scratch_remove(folder), 0);
}
END_TEST

/* ------------------------------------------------------------------ a file on the disk, cut */

/* Of a tier that is on the disk alone: two slabs, both with pages. */
struct cutting {
    const char *how;
    uint32_t lost;  /* said at the start, … */
    uint32_t later; /* … and found when they are wanted */
};

static const struct cutting cuttings[] = {
    {"cut D0:41943040", ALL - SLAB_PAGES, 0},
    {"hollow D0:33554432", 0, ALL - SLAB_PAGES},
    {"cut D0:33554431", ALL, 0},
    {"cut D0:0", ALL, 0},
    {"hollow D0:0", 0, ALL},
};

START_TEST(a_file_that_was_cut_costs_the_pages_that_lay_behind_it_alone)
{
    const struct cutting *cutting = &cuttings[_i];
    const struct shape shape = {0, 64, folder};

    ck_assert_int_eq(scratch_make(folder), 0);
    begin(&shape);
    pages_evict(&pages, &harness, ALL);
    restart_spoiled(&shape, cutting->how);
    expect_lost(cutting->lost);
    ck_assert_uint_eq(pages_check_or_lost(&pages), cutting->lost + cutting->later);
    /* What comes then is kept as ever, on a disk as it is configured. */
    finish(&shape);
    ck_assert_int_eq(scratch_remove(folder), 0);
}
END_TEST

static bool logged_disk_full(void)
{
    (void) order_evict(&harness, "test", MIB(512));
    return harness_logged(&harness, "No space left on device; it is tried again");
}

/* Its room was reserved, and is others' now. */
START_TEST(a_disk_that_is_full_at_the_restart_costs_what_lay_there_and_no_more)
{
    const struct shape shape = {32, 64, folder};
    int filler;

    ck_assert_int_eq(scratch_make(folder), 0);
    if (!folder_mount(folder, "tmpfs", 0, "size=80m"))
        unit_skip("no file system can be mounted here");
    begin(&shape);
    pages_evict(&pages, &harness, ALL);
    restart_spoiled(&shape, "hollow D0:0");
    filler = folder_fill(folder);
    expect_lost(0);
    ck_assert_uint_eq(pages_check_or_lost(&pages), ON_DISK);
    pages_fill(&pages, 8 * PER_CHUNK);
    wait_until(logged_disk_full());
    ck_assert_uint_eq(pages_check_or_lost(&pages), ON_DISK);
    (void) close(filler);
    finish(&shape);
}
END_TEST

/* Any fd under a name of the broker's: it starts, says so, and serves. */
static const char *const becomes[] = {"ledger fifo", "ledger zero", "ledger huge", "C1 socket",
    "C1 folder", "T0 fifo", "T0 empty", "P0 folder", "P0 zero", "P0 empty", "E0 fifo", "E0 null"};

START_TEST(whatever_lies_under_a_name_the_broker_starts_and_says_so)
{
    const struct shape shape = {64, 0, NULL};
    const char *name = becomes[_i];
    char what[64];

    (void) snprintf(what, sizeof(what), "become %s", name);
    begin(&shape);
    restart_spoiled(&shape, what);
    expect_said(name[0] == 'l'   ? "can't be read"
                : name[0] == 'C' ? " chunks have no memory here"
                                 : "1 arena of the broker before can't be gone on with");
    pages_close(&pages);
    pages_open(&pages, &harness, PAGE, HARNESS_CHUNK, MIB(128));
    pages_fill(&pages, ALL);
    pages_evict(&pages, &harness, ALL);
    restart(&shape);
    expect_lost(0);
    ck_assert_uint_eq(pages_stats(&pages).evicted_pages, ALL);
    pages_check(&pages, 0, pages.count, 16);
    finish(&shape);
}
END_TEST

/* ------------------------------------------------------------------ who has it still */

/* The tier's memory as the keeper has it: the caller's. */
static int memory_open(void)
{
    char path[64], target[64];

    for (int i = 3; i < 256; i++) {
        ssize_t length;

        (void) snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int) harness.keeper, i);
        length = readlink(path, target, sizeof(target) - 1);
        target[length > 0 ? length : 0] = '\0';
        if (strstr(target, "gmbd-host-tier") != NULL)
            return open(path, O_RDWR | O_CLOEXEC);
    }
    ck_abort_msg("the keeper has no tier");
}

static bool memory_empty(void)
{
    int fd = memory_open();
    struct stat stat;

    ck_assert_int_eq(fstat(fd, &stat), 0);
    (void) close(fd);
    return stat.st_blocks == 0;
}

START_TEST(what_a_mover_of_before_still_has_can_be_fetched_and_is_left_alone)
{
    const struct shape shape = {64, 0, NULL};
    int fd;

    begin(&shape);
    pages_evict(&pages, &harness, ALL);
    fd = memory_open();
    ck_assert_int_eq(flock(fd, LOCK_SH), 0);
    restart(&shape);
    expect_said("a mover of the broker before still runs");
    pages_check(&pages, 0, pages.count, 16);
    (void) order_evict(&harness, "test", MIB(512));
    pages_check(&pages, 0, pages.count, 16);
    ck_assert_uint_eq(pages_stats(&pages).evicted_pages, 0);
    (void) close(fd);
    restart(&shape);
    expect_lost(0);
    pages_evict(&pages, &harness, ALL);
    pages_check(&pages, 0, pages.count, 16);
    finish(&shape);
}
END_TEST

START_TEST(a_stopped_mover_ends_with_its_broker_and_costs_nothing)
{
    const struct shape shape = {64, 0, NULL};
    pid_t mover;

    begin(&shape);
    pages_evict(&pages, &harness, ALL / 2);
    (void) order_evict(&harness, "test", MIB(512));
    ck_assert_uint_eq(harness_movers(&harness, &mover, 1), 1);
    ck_assert_int_eq(kill(mover, SIGSTOP), 0);
    restart(&shape);
    wait_until(strchr("Z?", harness_process_state(mover)) != NULL);
    expect_said("");
    pages_check(&pages, 0, pages.count, 16);
    finish(&shape);
}
END_TEST

static bool evicts(struct worker *worker)
{
    (void) order_evict(&harness, "test", MIB(512));
    return worker_evicted(worker) > 0;
}

START_TEST(memory_of_workers_that_died_with_the_broker_is_given_back)
{
    const struct shape shape = {64, 0, NULL};
    struct worker worker;

    begin(&shape);
    worker_start(&worker, &harness, PAGE, HARNESS_CHUNK, ALL / 2);
    pages_close(&pages);
    wait_until(evicts(&worker));
    ck_assert(!memory_empty());
    harness_keeper_renew(&harness);
    worker_end(&worker, SIGKILL);
    harness_succeed(&harness, SIGKILL);
    wait_until(memory_empty());
    tamper_stop(&harness);
}
END_TEST

static void add(Suite *suite, const char *name, const TTest *test, int count)
{
    const char *text = getenv("RESTART_TIER_EACH"); /* one in so many is tried */
    int each = text != NULL ? atoi(text) : 1;
    TCase *tcase = tcase_create(name);

    for (int i = 0; i < count; i += each)
        tcase_add_loop_test(tcase, test, i, i + 1);
    suite_add_tcase(suite, tcase);
}

int main(void)
{
    Suite *suite = suite_create("integration_restart_tier");

    add(suite, "changes", pages_come_back_whatever_the_tier_is_to_be_now,
        (int) ARRAY_SIZE(changes));
    add(suite, "spoils", what_isnt_there_any_more_is_lost_alone_and_said, (int) ARRAY_SIZE(spoils));
    add(suite, "cuttings", a_file_that_was_cut_costs_the_pages_that_lay_behind_it_alone,
        (int) ARRAY_SIZE(cuttings));
    add(suite, "full", a_disk_that_is_full_at_the_restart_costs_what_lay_there_and_no_more, 1);
    add(suite, "names", whatever_lies_under_a_name_the_broker_starts_and_says_so,
        (int) ARRAY_SIZE(becomes));
    add(suite, "left", what_a_mover_of_before_still_has_can_be_fetched_and_is_left_alone, 1);
    add(suite, "stopped", a_stopped_mover_ends_with_its_broker_and_costs_nothing, 1);
    add(suite, "dead", memory_of_workers_that_died_with_the_broker_is_given_back, 1);
    return unit_run_suite(suite);
}
