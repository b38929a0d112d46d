/*
 * The broker is killed behind every write of its ledger, one run for each: whatever was written is
 * enough for the next one, and the worker notices nothing but the time. Before and after the
 * script's end what the broker says is held is what the worker has, and what the driver says is
 * used.
 */
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/integration/kills.h"
#include "tests/integration/raw.h"
#include "tests/integration/step.h"
#include "tests/unit/unit.h"

#define CHUNK HARNESS_CHUNK
/* A run in which no write is left to be cut off is the last; there are fewer writes than that. */
#define WRITES_MAX 900
/* Fewer would mean that the broker writes nothing down. */
#define WRITES_MIN 25

static const struct kills_script *script;

/* Whether each device has leased what the worker has of it; says in `reason` what isn't so. */
static bool held(const struct harness *harness, const uint64_t bytes[2], char reason[128])
{
    Gmb__ControlReply *reply = raw_status(harness);
    bool same = true;

    for (size_t i = 0; i < reply->status->n_devices; i++) {
        const Gmb__DeviceStatus *device = reply->status->devices[i];

        if (device->leased_bytes == bytes[i])
            continue;
        (void) snprintf(reason, 128, "device %zu: %" PRIu64 " bytes are leased instead of %" PRIu64,
            i, device->leased_bytes, bytes[i]);
        same = false;
    }
    frame_message_free(&reply->base);
    return same;
}

/* With those that rest, as often as they say; what they have may change while they do. */
static void expect_held(const struct harness *harness, bool nothing)
{
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS, bytes[2] = {0};
    char reason[128];

    raw_expect_accounts(harness);
    for (;;) {
        for (size_t i = 0; i < ARRAY_SIZE(bytes); i++)
            bytes[i] = nothing ? 0 : atomic_load(&kills_rest->bytes[i]);
        if (held(harness, bytes, reason))
            break;
        ck_assert_msg(harness_now_ms() < deadline, "%s", reason);
        harness_breathe();
    }
    raw_expect_accounts(harness);
}

static struct kills_rest *rest_new(void)
{
    struct kills_rest *rest =
        mmap(NULL, sizeof(*rest), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    ck_assert_ptr_ne(rest, MAP_FAILED);
    atomic_store(&rest->wanted, true);
    return rest;
}

static void cut_arm(const char *path, unsigned write)
{
    FILE *file = fopen(path, "we");

    ck_assert_ptr_nonnull(file);
    (void) fprintf(file, "%u", write);
    ck_assert_int_eq(fclose(file), 0);
}

/* False when the run had fewer writes. */
static bool run_cut(int kind, unsigned write)
{
    static struct harness harness;
    char path[128], environment[160];
    const char *const extra[] = {environment, NULL};
    struct lessee_process worker;
    bool cut;

    (void) kind; /* there is one */
    (void) snprintf(path, sizeof(path), "%s/cut", getenv("CUT_FOLDER"));
    (void) snprintf(environment, sizeof(environment), "GMBD_CUT=%s", path);
    (void) setenv("GMB_SIM_DEVICES", script->devices, 1);
    kills_rest = rest_new();
    worker = lessee_fork(script->work, NULL);
    harness_start_kept(&harness, KILLS_CONFIG, extra);
    cut_arm(path, write);
    lessee_go(&worker, &harness);
    wait_until(atomic_load(&kills_rest->rests) || !lessee_runs(&worker));
    cut = access(path, F_OK) < 0;
    if (cut) {
        harness_succeed(&harness, 0);
        expect_held(&harness, false);
    }
    atomic_store(&kills_rest->wanted, false);
    lessee_join(&worker);
    if (!cut && unlink(path) < 0) { /* whoever removes it, the test or the broker, decides */
        cut = true;
        harness_succeed(&harness, 0);
    }
    expect_held(&harness, true);
    harness_stop(&harness);
    return cut;
}

START_TEST(cut_off_at_any_write_nothing_is_lost)
{
    unsigned each = (unsigned) strtoul(getenv("CUT_EACH"), NULL, 10);
    char folder[SCRATCH_PATH_BYTES];
    unsigned write = 1;

    script = kills_find(getenv("CUT_SCRIPT"));
    ck_assert_ptr_nonnull(script);
    ck_assert_int_eq(scratch_make(folder), 0);
    (void) setenv("CUT_FOLDER", folder, 1);
    (void) setenv("GMBD_UNDER_KEEPER", getenv("GMBD_CUT_PROGRAM"), 1);
    while (write < WRITES_MAX && step_run_apart(run_cut, 0, write))
        write += each;
    ck_assert_uint_lt(write, WRITES_MAX);
    ck_assert_uint_gt(write, WRITES_MIN);
    ck_assert_int_eq(scratch_remove(folder), 0);
}
END_TEST

UNIT_MAIN("ledger_cut", cut_off_at_any_write_nothing_is_lost)
