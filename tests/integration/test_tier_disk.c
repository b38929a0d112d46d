/* A host tier that goes on on a disk: pages beyond memory, a disk that can't be had, and one that
 * fails under them. File systems of the tests' own are mounted where nobody else sees them, which
 * takes root. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "tests/integration/folder.h"
#include "tests/integration/orders.h"
#include "tests/integration/pages.h"
#include "tests/unit/unit.h"

#define PAGE (UINT64_C(64) << 10)
#define PER_CHUNK ((uint32_t) (HARNESS_CHUNK / PAGE))
#define MIB(n) ((uint64_t) (n) << 20)
#define BROKER HARNESS_BROKER "MoverIdle=200ms\n"
/* Two slabs: what 24 chunks need. */
#define CHUNKS 24
#define CAP_DAC_OVERRIDE_NUMBER 1
#define CAP_DAC_READ_SEARCH_NUMBER 2

static struct harness harness;
static struct pages pages;
static char folder[SCRATCH_PATH_BYTES];

/* ------------------------------------------------------------------ helpers */

static void broker_start_with(const char *path, const char *memory, const char *disk)
{
    char text[640];

    (void) snprintf(text, sizeof(text),
        BROKER "HostTier=%s\nHostTierPath=%s\nHostTierDisk=%s\n" HARNESS_TENANT, memory, path,
        disk);
    harness_start(&harness, text);
}

static uint64_t disk_used(void)
{
    char failure[LIMIT_TEXT_BYTES];
    Gmb__DeviceStatus device;

    raw_device(&harness, &device, failure);
    return device.tier_disk_used_bytes;
}

static void evict_until(uint64_t count)
{
    pages_evict(&pages, &harness, count);
}

static void wait_logged(const char *text)
{
    uint64_t deadline = harness_now_ms() + 2 * HARNESS_DEADLINE_MS;

    while (!harness_logged(&harness, text)) {
        ck_assert_msg(harness_now_ms() < deadline, "never logged: %s", text);
        harness_breathe();
    }
}

static void open_and_fill(uint32_t chunks)
{
    pages_open(&pages, &harness, PAGE, HARNESS_CHUNK, MIB(128));
    pages_fill(&pages, chunks * PER_CHUNK);
}

static void finish(void)
{
    pages_close(&pages);
    harness_stop(&harness);
}

/* ------------------------------------------------------------------ a disk that is there */

START_TEST(pages_beyond_memory_go_to_the_disk_and_come_back)
{
    pid_t mover;

    ck_assert_int_eq(scratch_make(folder), 0);
    broker_start_with(folder, "32M", "64M");
    open_and_fill(CHUNKS);
    evict_until(CHUNKS * PER_CHUNK);
    ck_assert_uint_eq(disk_used(), MIB(32));
    pages_check(&pages, 0, pages.count, 16);
    /* And where a mover dies meanwhile. */
    (void) order_evict(&harness, "test", MIB(512));
    ck_assert_uint_eq(harness_movers(&harness, &mover, 1), 1);
    ck_assert_int_eq(kill(mover, SIGKILL), 0);
    evict_until(CHUNKS * PER_CHUNK);
    ck_assert_uint_eq(harness_movers(&harness, &mover, 1), 1);
    ck_assert_int_eq(kill(mover, SIGKILL), 0);
    pages_check(&pages, 0, pages.count, 16);
    pages_close(&pages);
    ck_assert_uint_eq(disk_used(), 0);
    harness_stop(&harness);
    ck_assert_int_eq(scratch_remove(folder), 0);
}
END_TEST

START_TEST(a_disk_without_memory_before_it_will_do)
{
    ck_assert_int_eq(scratch_make(folder), 0);
    broker_start_with(folder, "0", "64M");
    open_and_fill(CHUNKS);
    evict_until(CHUNKS * PER_CHUNK);
    ck_assert_uint_eq(disk_used(), MIB(64));
    pages_check(&pages, 0, pages.count, 16);
    finish();
    ck_assert_int_eq(scratch_remove(folder), 0);
}
END_TEST

/* ------------------------------------------------------------------ a disk that can't be had */

struct refusal {
    const char *path; /* NULL: the test's folder, … */
    const char *type; /* … with such a file system */
    const char *options;
    unsigned long flags;
    bool forbidden;
    const char *expected;
};

static const struct refusal refusals[] = {
    {.path = "/nowhere/gmbd", .expected = "No such file or directory"},
    {.path = "/proc/version", .expected = "Not a directory"},
    {.path = "/proc", .expected = "none without a name"},
    {.type = "tmpfs", .options = "size=8m", .expected = "No space left on device"},
    {.type = "tmpfs", .flags = MS_RDONLY, .expected = "Read-only file system"},
    {.type = "ramfs", .expected = "reserves no room"},
    {.type = "tmpfs", .forbidden = true, .expected = "Permission denied"},
};

/* Root may enter any folder, unless it gives that up for itself and its children. */
static bool refusal_prepare(const struct refusal *refusal)
{
    if (refusal->path != NULL)
        return true;
    if (!folder_mount(folder, refusal->type, refusal->flags, refusal->options))
        return false;
    return !refusal->forbidden || (chown(folder, 65534, 65534) == 0 && chmod(folder, 0700) == 0 &&
                                      prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE_NUMBER) == 0 &&
                                      prctl(PR_CAPBSET_DROP, CAP_DAC_READ_SEARCH_NUMBER) == 0);
}

START_TEST(a_disk_that_cannot_be_had_is_named_and_memory_goes_on)
{
    const struct refusal *refusal = &refusals[_i];
    const char *path = refusal->path != NULL ? refusal->path : folder;
    char failure[LIMIT_TEXT_BYTES];
    Gmb__DeviceStatus device;

    ck_assert_int_eq(scratch_make(folder), 0);
    if (!refusal_prepare(refusal))
        unit_skip("it can't be made so here");
    broker_start_with(path, "32M", "64M");
    ck_assert(harness_logged(&harness, path) && harness_logged(&harness, refusal->expected));
    raw_device(&harness, &device, failure);
    ck_assert_uint_eq(device.tier_bytes, MIB(32));
    ck_assert_uint_eq(device.tier_disk_bytes, 0);
    ck_assert_msg(
        strstr(failure, path) != NULL && strstr(failure, refusal->expected) != NULL, "%s", failure);
    open_and_fill(16);
    evict_until(16 * PER_CHUNK);
    pages_check(&pages, 0, pages.count, 16);
    finish();
}
END_TEST

START_TEST(without_memory_and_disk_there_is_no_tier)
{
    char failure[LIMIT_TEXT_BYTES];
    Gmb__DeviceStatus device;

    broker_start_with("/nowhere/gmbd", "0", "64M");
    raw_device(&harness, &device, failure);
    ck_assert_uint_eq(device.tier_bytes, 0);
    open_and_fill(4);
    /* A chunk that came ahead of need may go, a page may not. */
    ck_assert_uint_le(order_evict(&harness, "test", MIB(64)), HARNESS_CHUNK);
    pages_check(&pages, 0, pages.count, 16);
    ck_assert_uint_eq(pages_stats(&pages).evictions, 0);
    finish();
}
END_TEST

/* ------------------------------------------------------------------ a disk that fails */

/* What was in a file that was cut to nothing, until it is put back. */
static char *saved;
static off_t saved_bytes;

static void file_break(int fd)
{
    struct stat stat;

    ck_assert_int_eq(fstat(fd, &stat), 0);
    saved_bytes = stat.st_size;
    saved = malloc((size_t) saved_bytes);
    ck_assert_ptr_nonnull(saved);
    ck_assert_int_eq(pread(fd, saved, (size_t) saved_bytes, 0), saved_bytes);
    ck_assert_int_eq(ftruncate(fd, 0), 0);
}

static void file_mend(int fd)
{
    ck_assert_int_eq(pwrite(fd, saved, (size_t) saved_bytes, 0), saved_bytes);
    free(saved);
}

/* Pins what lies there, which begins a restore of each page. */
static void pages_want(void)
{
    ck_assert_int_eq(gmb_page_pin(pages.arena, pages.count, pages.pages), GMB_PIN_WAITING);
}

START_TEST(a_disk_that_cannot_be_read_costs_no_page)
{
    char failure[LIMIT_TEXT_BYTES];
    Gmb__DeviceStatus device;
    pid_t before, after;
    int fd;

    ck_assert_int_eq(scratch_make(folder), 0);
    if (!folder_mount(folder, "tmpfs", 0, "size=128m"))
        unit_skip("a file system can't be mounted here");
    broker_start_with(folder, "32M", "64M");
    open_and_fill(CHUNKS);
    evict_until(CHUNKS * PER_CHUNK);
    ck_assert_uint_eq(harness_movers(&harness, &before, 1), 1);
    fd = folder_file(folder, harness.pid);
    file_break(fd);
    pages_want();
    wait_logged("pread");
    raw_device(&harness, &device, failure);
    ck_assert_msg(strstr(failure, "pread") != NULL, "%s", failure);
    ck_assert_str_eq(strstr(failure, "pread"), failure);
    /* Tries go on, and what lay in memory comes back all the same. */
    wait_logged("it is tried again in 4 s");
    ck_assert_uint_eq(pages_stats(&pages).evicted_pages, (CHUNKS - 16) * PER_CHUNK);
    file_mend(fd);
    ck_assert_int_eq(gmb_page_wait(pages.arena, pages.count, pages.pages,
                         2 * HARNESS_DEADLINE_MS * UINT64_C(1000000)),
        GMB_PIN_READY);
    ck_assert_int_eq(gmb_page_unpin(pages.arena, pages.count, pages.pages), 0);
    wait_logged("works again");
    raw_device(&harness, &device, failure);
    ck_assert_str_eq(failure, "");
    pages_check(&pages, 0, pages.count, 16);
    /* Nobody mapped the file: its end was no end of the mover. */
    ck_assert_uint_eq(harness_movers(&harness, &after, 1), 1);
    ck_assert_int_eq(after, before);
    (void) close(fd);
    finish();
}
END_TEST

START_TEST(a_disk_that_cannot_be_written_keeps_pages_on_the_device)
{
    int fd, filler;

    ck_assert_int_eq(scratch_make(folder), 0);
    if (!folder_mount(folder, "tmpfs", 0, "size=128m"))
        unit_skip("a file system can't be mounted here");
    broker_start_with(folder, "32M", "64M");
    open_and_fill(CHUNKS);
    fd = folder_file(folder, harness.pid);
    ck_assert_int_eq(ftruncate(fd, 0), 0);
    filler = folder_fill(folder);
    evict_until(16 * PER_CHUNK);
    (void) order_evict(&harness, "test", MIB(512));
    wait_logged("pwrite: No space left on device");
    wait_logged("but for a disk that fails");
    ck_assert_uint_eq(pages_stats(&pages).evicted_pages, 16 * PER_CHUNK);
    (void) close(filler);
    evict_until(CHUNKS * PER_CHUNK);
    wait_logged("works again");
    ck_assert_uint_eq(disk_used(), MIB(32));
    pages_check(&pages, 0, pages.count, 16);
    (void) close(fd);
    finish();
}
END_TEST

START_TEST(what_can_be_computed_again_is_not_waited_for_for_ever)
{
    const struct gmb_page_hint hint = {.parent = UINT32_MAX, .tokens = 16, .recomputable = 1};
    int fd;

    ck_assert_int_eq(scratch_make(folder), 0);
    if (!folder_mount(folder, "tmpfs", 0, "size=128m"))
        unit_skip("a file system can't be mounted here");
    broker_start_with(folder, "0", "64M");
    open_and_fill(2);
    for (uint32_t i = 0; i < pages.count; i++)
        ck_assert_int_eq(gmb_page_set_hint(pages.arena, pages.pages[i], &hint), 0);
    evict_until(pages.count);
    fd = folder_file(folder, harness.pid);
    ck_assert_int_eq(ftruncate(fd, 0), 0);
    pages_want();
    ck_assert_int_eq(gmb_page_wait(pages.arena, pages.count, pages.pages,
                         2 * HARNESS_DEADLINE_MS * UINT64_C(1000000)),
        GMB_PIN_LOST);
    (void) close(fd);
    finish();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("integration_tier_disk");
    TCase *tcase = tcase_create("integration_tier_disk");

    tcase_add_test(tcase, pages_beyond_memory_go_to_the_disk_and_come_back);
    tcase_add_test(tcase, a_disk_without_memory_before_it_will_do);
    tcase_add_loop_test(tcase, a_disk_that_cannot_be_had_is_named_and_memory_goes_on, 0,
        (int) ARRAY_SIZE(refusals));
    tcase_add_test(tcase, without_memory_and_disk_there_is_no_tier);
    tcase_add_test(tcase, a_disk_that_cannot_be_read_costs_no_page);
    tcase_add_test(tcase, a_disk_that_cannot_be_written_keeps_pages_on_the_device);
    tcase_add_test(tcase, what_can_be_computed_again_is_not_waited_for_for_ever);
    suite_add_tcase(suite, tcase);
    return unit_run_suite(suite);
}
