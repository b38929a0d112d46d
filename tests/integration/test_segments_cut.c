/*
 * The broker is killed behind every write of its ledger while segments are written, sealed, opened,
 * moved to the host tier and back, and removed: one run for each write. Whatever was written is
 * enough for the next one, and its processes notice nothing but the time.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/integration/segments.h"
#include "tests/integration/step.h"
#include "tests/unit/unit.h"

/* Two chunks; of two segments the tenant has room for one. */
#define WEIGHTS MIB(4)
#define BROKER SEGMENT_BROKER "[Tenant test]\nUser=*\nMemoryMax=6M\n"
/* A run in which no write is left to be cut off is the last; there are fewer writes than that. */
#define WRITES_MAX 600

static struct harness harness;
static struct member first, second;

static void make(struct member *member, const char *name, uint64_t seed)
{
    struct member_order order = segment_order(MEMBER_CREATE, name, WEIGHTS);

    order.chunk_bytes = HARNESS_CHUNK;
    ck_assert_msg(member_do(member, &order) == 0, "create: %s", member->answer.text);
    order = segment_order(MEMBER_FILL, "", 0);
    order.seed = seed;
    ck_assert_int_eq(member_do(member, &order), 0);
    segment_do(member, 0, MEMBER_SEAL, "", 0);
}

static void open_and_compare(struct member *member, const char *name, uint64_t seed)
{
    segment_do(member, 0, MEMBER_OPEN, name, 0);
    ck_assert_int_eq(segment_compare(member, seed), 0);
}

/* Nobody looks for a broker to give something back: who asks for something says it, too. */
static void release(struct member *member)
{
    segment_do(member, 0, MEMBER_RELEASE, "", 0);
    segment_come_back(member);
}

/* Whether it was done is not known when the connection ends. */
static void remove_it(struct member *member, const char *name)
{
    const struct member_order order = segment_order(MEMBER_REMOVE, name, 0);
    int r = GMB_E_DISCONNECTED;

    for (unsigned i = 0; r == GMB_E_DISCONNECTED && i < 3; i++) {
        r = member_do(member, &order);
        segment_come_back(member);
    }
    ck_assert_msg(r == 0 || r == GMB_E_NOT_FOUND, "remove: %s", member->answer.text);
}

static void script(void)
{
    make(&first, "old", 1);
    open_and_compare(&second, "old", 1);
    release(&first);
    ck_assert_int_eq(segment_compare(&second, 1), 0);
    release(&second);
    make(&first, "new", 2); /* for which the other one goes to the host tier … */
    release(&first);
    open_and_compare(&second, "old", 1); /* … and comes back, for which this one goes */
    remove_it(&first, "old");
    ck_assert_int_eq(segment_compare(&second, 1), 0);
    release(&second);
    open_and_compare(&second, "new", 2);
    remove_it(&second, "new");
    release(&second);
}

/* False when the run had fewer writes. There is one kind of interruption. */
static bool run_cut(int kind, unsigned write)
{
    char path[128], environment[160];
    const char *const extra[] = {environment, NULL};
    FILE *file;
    bool cut;

    (void) kind;
    (void) snprintf(path, sizeof(path), "%s/cut", getenv("CUT_FOLDER"));
    (void) snprintf(environment, sizeof(environment), "GMBD_CUT=%s", path);
    harness_start_kept(&harness, BROKER, extra);
    segment_pair_start(&harness, &first, &second);
    file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    (void) fprintf(file, "%u", write);
    ck_assert_int_eq(fclose(file), 0);
    script();
    member_end(&first, 0);
    member_end(&second, 0);
    cut = unlink(path) < 0; /* whoever removes it, the test or the broker, decides */
    if (cut)
        harness_succeed(&harness, 0);
    wait_until(segment_count(&harness) == 0);
    harness_stop(&harness);
    return cut;
}

START_TEST(cut_off_at_any_write_no_segment_is_lost)
{
    unsigned long each = strtoul(getenv("CUT_EACH"), NULL, 10);
    char folder[SCRATCH_PATH_BYTES];
    unsigned write = 1;

    ck_assert_int_eq(scratch_make(folder), 0);
    (void) setenv("CUT_FOLDER", folder, 1);
    (void) setenv("GMBD_UNDER_KEEPER", getenv("GMBD_CUT_PROGRAM"), 1);
    (void) setenv("MEMBER_PATIENT", "1", 1);
    while (write < WRITES_MAX && step_run_apart(run_cut, 0, write))
        write += (unsigned) each;
    ck_assert_uint_lt(write, WRITES_MAX);
    /* Fewer would mean that the broker writes nothing down. */
    ck_assert_uint_gt(write, 40);
    ck_assert_int_eq(scratch_remove(folder), 0);
}
END_TEST

UNIT_MAIN("integration: segments cut off", cut_off_at_any_write_no_segment_is_lost)
