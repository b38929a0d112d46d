/*
 * Devices that share their memory over CUDA IPC, while what serves them fails: the slab process is
 * killed and stopped at each of its steps, the driver fails for a while and for good, quotas change
 * below what is leased, fds run out. Afterwards no byte is missing, whoever else there is has been
 * served, and a refusal says what refused.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "tests/integration/slab_talk.h"
#include "tests/integration/step.h"
#include "tests/unit/unit.h"

#define LONG UINT64_C(20000000000)
#define SHORT UINT64_C(100000000)
#define KEPT MIB(16)

/* The first device has slabs, the second one chunks. */
#define MIXED "GMB_SIM_DEVICES=2", "GMB_SIM_VMM=0,1"

/* ------------------------------------------------------------------ a fault for as long as */

struct fault {
    char folder[SCRATCH_PATH_BYTES], path[96], variable[256];
};

/* `call` is as GMB_SIM_FAULTS has it; nothing fails before fault_begin(). */
static void fault_make(struct fault *fault, const char *call, int code)
{
    ck_assert_int_eq(scratch_make(fault->folder), 0);
    ck_assert_int_eq(chmod(fault->folder, 0777), 0);
    (void) snprintf(fault->path, sizeof(fault->path), "%s/fault", fault->folder);
    (void) snprintf(fault->variable, sizeof(fault->variable), "GMB_SIM_FAULTS=%s:%s=%d", call,
        fault->path, code);
}

static void fault_begin(const struct fault *fault)
{
    FILE *file = fopen(fault->path, "we");

    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fclose(file), 0);
}

static void fault_end(const struct fault *fault)
{
    ck_assert_int_eq(unlink(fault->path), 0);
}

/* ------------------------------------------------------------------ killed and stopped */

enum place { IDLE, LEASED, STARTING, GREETED, MAKING, MADE, RETURNING, PLACE_MAX };

static const int signals[] = {SIGKILL, SIGSTOP};

struct stage {
    struct harness harness;
    struct raw raw;
    struct slab_told told;
    char folder[SCRATCH_PATH_BYTES], step[96];
    uint64_t kept, more, asked; /* leases; a request that waits. 0: none */
};

static void stage_open(struct stage *stage)
{
    static char variable[128], slab[200];
    static const char *const environment[] = {
        MIXED, "GMB_SIM_LATENCY=cuIpcGetMemHandle=300ms", variable, slab, NULL};

    ck_assert_int_eq(scratch_make(stage->folder), 0);
    ck_assert_int_eq(chmod(stage->folder, 0777), 0); /* gmbd-slab is another user */
    (void) snprintf(stage->step, sizeof(stage->step), "%s/step", stage->folder);
    (void) snprintf(variable, sizeof(variable), "%s=%s", STEP_VARIABLE, stage->step);
    (void) snprintf(slab, sizeof(slab), "GMB_SLAB=%s", getenv("GMBD_STEP_SLAB"));
    harness_start_with(&stage->harness, HARNESS_BROKER SLAB_TENANTS, environment);
    raw_connect(&stage->raw, &stage->harness);
}

/* The process that serves; waits for one that isn't `before`. */
static pid_t slab_find(const struct stage *stage, pid_t before)
{
    pid_t pid;

    wait_until((pid = harness_slab(&stage->harness)) != 0 && pid != before);
    return pid;
}

static void take_kept(struct stage *stage)
{
    stage->kept = slab_granted(
        &stage->raw, slab_lease(&stage->raw, &stage->harness, 0, KEPT, LONG), &stage->told);
}

static void ask(struct stage *stage)
{
    stage->asked = slab_lease(&stage->raw, &stage->harness, 0, MIB(32), LONG);
}

/* Gets the process to where it is to be; it gets the signal there. Returns it, or what it was. */
static pid_t interrupt(struct stage *stage, enum place place, int signal)
{
    pid_t pid, first;

    wait_until(harness_logged(&stage->harness, "is ready"));
    pid = first = slab_find(stage, 0);
    if (place != IDLE)
        take_kept(stage);
    if (place == STARTING || place == GREETED) {
        if (place == GREETED)
            step_arm(stage->step, 1, signal, false);
        ck_assert_int_eq(kill(pid, SIGKILL), 0);
        if (place == STARTING || signal == SIGSTOP)
            pid = slab_find(stage, first);
    }
    if (place == RETURNING)
        stage->more = slab_granted(
            &stage->raw, slab_lease(&stage->raw, &stage->harness, 0, MIB(32), LONG), &stage->told);
    if (place == MAKING || place == RETURNING)
        step_arm(stage->step, 1, signal, false);
    if (place == MAKING || place == MADE)
        ask(stage);
    if (place == RETURNING) {
        slab_returned(&stage->raw, raw_release(&stage->raw, stage->more), &stage->told);
        stage->more = 0;
    }
    if (place == MADE)
        wait_until(
            harness_free_bytes(&stage->harness) <= stage->harness.base_free_bytes - KEPT - MIB(32));
    if (place == GREETED || place == MAKING || place == RETURNING)
        wait_until(step_taken(stage->step));
    else
        ck_assert_int_eq(kill(pid, signal), 0);
    return pid;
}

/* While it is stopped its device's requests wait, and may be given up; everything else goes on. */
static void expect_stopped(struct stage *stage, enum place place, pid_t pid)
{
    struct slab_told told = {0};
    struct raw raw, gone;
    uint64_t id, cancel;

    wait_until(harness_process_state(pid) == 'T');
    raw_connect(&gone, &stage->harness);
    (void) slab_lease(&gone, &stage->harness, 0, MIB(8), LONG);
    raw_close(&gone);
    raw_connect(&raw, &stage->harness);
    id = slab_lease(&raw, &stage->harness, 0, MIB(8), LONG);
    cancel = raw_cancel(&raw, id);
    slab_returned(&raw, cancel, &told);
    slab_refused(&raw, id, GMB_STATUS_CANCELLED, "", &told);
    raw_close(&raw);
    /* One that starts may have the simulator's lock, for which its whole node waits. */
    if (place != STARTING)
        slab_other_served(&stage->harness, 1);
    ck_assert_int_eq(harness_process_state(pid), 'T');
    ck_assert_int_eq(kill(pid, SIGCONT), 0);
}

START_TEST(a_slab_process_killed_or_stopped_at_any_step_costs_what_it_held_alone)
{
    enum place place = (enum place)(_i % PLACE_MAX);
    int signal = signals[_i / PLACE_MAX];
    bool successor = place == STARTING || place == GREETED, lost;
    static struct stage stage;
    Gmb__TenantDevice tenant;
    pid_t pid;

    stage_open(&stage);
    pid = interrupt(&stage, place, signal);
    if (signal == SIGSTOP)
        expect_stopped(&stage, place, pid);
    lost = signal == SIGKILL || successor;
    if (stage.asked == 0)
        ask(&stage);
    stage.more = slab_granted(&stage.raw, stage.asked, &stage.told);
    slab_other_served(&stage.harness, 0);
    /* One that was killed before it was ready had nothing. */
    ck_assert_uint_ge(slab_losses(&stage.harness), lost ? 1 : 0);
    ck_assert_uint_le(slab_losses(&stage.harness), lost ? 1 + (place == STARTING) : 0);
    ck_assert_uint_eq(stage.told.lost, slab_losses(&stage.harness));
    ck_assert_uint_eq(stage.told.failed, 0);
    slab_account(&stage.harness, &tenant);
    ck_assert_uint_eq(tenant.leased_bytes, MIB(32) + (stage.kept != 0 ? KEPT : 0));
    if (stage.kept != 0)
        slab_returned(&stage.raw, raw_release(&stage.raw, stage.kept), &stage.told);
    slab_returned(&stage.raw, raw_release(&stage.raw, stage.more), &stage.told);
    slab_expect_nothing_left(&stage.harness);
    raw_close(&stage.raw);
    harness_stop(&stage.harness);
    ck_assert_int_eq(scratch_remove(stage.folder), 0);
}
END_TEST

/* Once with the lost memory mapped, once without: it is its holder's until that gives it back. */
START_TEST(others_wait_for_what_is_lost_until_its_holder_lets_go)
{
    static const char *const environment[] = {MIXED, NULL};
    static struct harness harness;
    bool mapped = _i == 1;
    Gmb__TenantDevice tenant;
    struct slab_told told = {0};
    CUipcMemHandle handle;
    CUdeviceptr address;
    struct raw raw;
    uint64_t lease;
    pid_t waiter;

    harness_start_with(&harness, HARNESS_BROKER SLAB_TENANTS, environment);
    slab_driver_begin();
    raw_connect(&raw, &harness);
    lease = slab_take(&raw, MIB(512), &handle);
    if (mapped)
        ck_assert_int_eq(slab_open(&handle, &address), CUDA_SUCCESS);
    waiter = slab_other_start(&harness, 0, MIB(768));
    slab_kill(&harness);
    wait_until(slab_losses(&harness) == 1);
    slab_refused(&raw, slab_lease(&raw, &harness, 0, MIB(768), SHORT), GMB_STATUS_TIMED_OUT,
        "device 0", &told);
    ck_assert_uint_eq(told.lost, 1);
    ck_assert_int_eq(waitpid(waiter, NULL, WNOHANG), 0);
    slab_returned(&raw, raw_release(&raw, lease), &told);
    if (mapped) {
        wait_until((slab_account(&harness, &tenant), tenant.orphaned_bytes == MIB(512)));
        ck_assert_int_eq(waitpid(waiter, NULL, WNOHANG), 0);
        ck_assert_int_eq(slab_driver.ipc_close_mem_handle(address), CUDA_SUCCESS);
    }
    slab_other_join(waiter);
    slab_expect_nothing_left(&harness);
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

/* ------------------------------------------------------------------ the driver */

struct driver_row {
    const char *call;
    int code;
    enum gmb_status status;
    const char *text;  /* of the refusal */
    const char *cause; /* why the device is out of service; NULL: it isn't */
    bool restart;      /* it matters to a process that starts */
};

#define FAILED "the driver failed to create memory"
#define OUT "device 0 is out of service"

static const struct driver_row driver_rows[] = {
    {"cuMemAlloc_v2", 2, GMB_STATUS_TIMED_OUT, "device 0", NULL, false},
    {"cuMemAlloc_v2", 999, GMB_STATUS_GPU, FAILED, "cuMemAlloc_v2", false},
    {"cuMemAlloc_v2", 101, GMB_STATUS_GPU, OUT, "cuMemAlloc_v2", false},
    {"cuMemsetD8_v2", 999, GMB_STATUS_GPU, FAILED, "cuMemsetD8_v2", false},
    {"cuIpcGetMemHandle", 999, GMB_STATUS_GPU, FAILED, "cuIpcGetMemHandle", false},
    {"cuCtxPushCurrent_v2", 999, GMB_STATUS_GPU, FAILED, "cuCtxPushCurrent_v2", false},
    {"nvmlDeviceGetMemoryInfo@0", 15, GMB_STATUS_GPU, OUT, "nvmlDeviceGetMemoryInfo", false},
    {"cuDevicePrimaryCtxRetain", 2, GMB_STATUS_TIMED_OUT, "device 0", NULL, true},
    {"cuDevicePrimaryCtxRetain", 999, GMB_STATUS_GPU, FAILED, "gmbd-slab can't be used", true},
};

/* Asks until the device is out of service. Meanwhile a request is granted, waits in vain, or is
 * refused as the row says; afterwards all are refused by name. */
static void fail_device(const struct harness *harness, struct raw *raw,
    const struct driver_row *row, struct slab_told *told)
{
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;
    char failure[LIMIT_TEXT_BYTES] = "";
    bool named = false;

    while (failure[0] == '\0') {
        Gmb__BrokerMessage *message =
            slab_answer(raw, slab_lease(raw, harness, 0, MIB(8), SHORT), told);

        ck_assert_uint_lt(harness_now_ms(), deadline);
        if (message->body_case == GMB__BROKER_MESSAGE__BODY_GRANT) {
            slab_returned(raw, raw_release(raw, message->grant->lease), told);
        } else {
            const char *text = message->error->text;
            bool as_said =
                message->error->status == (uint32_t) row->status && strstr(text, row->text) != NULL;

            named = named || as_said;
            ck_assert_msg(as_said || message->error->status == GMB_STATUS_TIMED_OUT ||
                              strstr(text, OUT) != NULL,
                "%s", text);
        }
        frame_message_free(&message->base);
        slab_failure(harness, failure);
    }
    slab_refused(raw, slab_lease(raw, harness, 0, MIB(8), LONG), GMB_STATUS_GPU, OUT, told);
    ck_assert(named || strcmp(row->text, OUT) == 0);
    ck_assert_msg(strstr(failure, row->cause) != NULL, "%s", failure);
    ck_assert_uint_eq(told->failed, 1);
}

START_TEST(what_the_driver_does_to_slabs_is_told_and_leaves_nothing_behind)
{
    const struct driver_row *row = &driver_rows[_i];
    static struct harness harness;
    struct fault fault;
    const char *const environment[] = {MIXED, fault.variable, NULL};
    struct slab_told told = {0};
    uint64_t kept, more;
    struct raw raw;

    fault_make(&fault, row->call, row->code);
    harness_start_with(&harness, HARNESS_BROKER SLAB_TENANTS, environment);
    raw_connect(&raw, &harness);
    kept = slab_granted(&raw, slab_lease(&raw, &harness, 0, KEPT, LONG), &told);
    fault_begin(&fault);
    if (row->restart)
        slab_kill(&harness);
    if (row->cause != NULL)
        fail_device(&harness, &raw, row, &told);
    else
        for (unsigned i = 0; i < 8; i++)
            slab_refused(
                &raw, slab_lease(&raw, &harness, 0, MIB(8), SHORT), row->status, row->text, &told);
    slab_other_served(&harness, 1);
    fault_end(&fault);
    if (row->cause == NULL) {
        more = slab_granted(&raw, slab_lease(&raw, &harness, 0, MIB(8), LONG), &told);
        slab_other_served(&harness, 0);
        slab_returned(&raw, raw_release(&raw, more), &told);
    }
    slab_returned(&raw, raw_release(&raw, kept), &told);
    ck_assert_uint_eq(told.lost, row->restart);
    ck_assert_uint_eq(told.failed, row->cause != NULL);
    slab_expect_nothing_left(&harness);
    raw_close(&raw);
    harness_stop(&harness);
    ck_assert_int_eq(scratch_remove(fault.folder), 0);
}
END_TEST

/* The memory is its tenant's, as orphaned, until the driver takes it. */
START_TEST(a_slab_that_the_driver_does_not_free_is_charged_until_it_does)
{
    static struct harness harness;
    struct fault fault;
    const char *const environment[] = {MIXED, fault.variable, NULL};
    Gmb__TenantDevice tenant;
    struct slab_told told = {0};
    struct raw raw;
    uint64_t lease;

    fault_make(&fault, "cuMemFree_v2", 999);
    harness_start_with(&harness, HARNESS_BROKER SLAB_TENANTS, environment);
    raw_connect(&raw, &harness);
    lease = slab_granted(&raw, slab_lease(&raw, &harness, 0, KEPT, LONG), &told);
    fault_begin(&fault);
    slab_returned(&raw, raw_release(&raw, lease), &told);
    wait_until((slab_account(&harness, &tenant), tenant.orphaned_bytes == KEPT));
    ck_assert(harness_logged(&harness, "releasing a chunk failed: cuMemFree_v2"));
    fault_end(&fault);
    slab_other_served(&harness, 0);
    slab_expect_nothing_left(&harness);
    raw_close(&raw);
    harness_stop(&harness);
    ck_assert_int_eq(scratch_remove(fault.folder), 0);
}
END_TEST

/* ------------------------------------------------------------------ quotas */

struct quota_row {
    const char *max;
    uint64_t mib;           /* asked beside 64 that are leased */
    enum gmb_status status; /* GMB_STATUS_OK: granted */
    uint64_t overage_mib;
};

static const struct quota_row quota_rows[] = {
    {"128M", 64, GMB_STATUS_OK, 0},
    {"128M", 66, GMB_STATUS_EXHAUSTED, 0},
    {"128M", 130, GMB_STATUS_OVER_LIMIT, 0},
    {"64M", 2, GMB_STATUS_EXHAUSTED, 0},
    {"62M", 2, GMB_STATUS_EXHAUSTED, 2},
    {"32M", 34, GMB_STATUS_OVER_LIMIT, 32},
    {"0", 2, GMB_STATUS_OVER_LIMIT, 64},
    {"infinity", 512, GMB_STATUS_OK, 0},
};

START_TEST(a_quota_that_changes_with_slabs_out_counts_whole_slabs)
{
    static struct harness harness;
    Gmb__TenantDevice tenant;
    struct slab_told told = {0};
    uint64_t lease, id;
    struct raw raw;

    harness_start_with(&harness, HARNESS_BROKER SLAB_TENANTS, slabs_only);
    raw_connect(&raw, &harness);
    lease = slab_granted(&raw, raw_lease(&raw, MIB(64), 0, LONG), &told);
    for (size_t i = 0; i < ARRAY_SIZE(quota_rows); i++) {
        const struct quota_row *row = &quota_rows[i];

        ck_assert_int_eq(raw_set(&harness, "test", "MemoryMax", row->max), GMB_STATUS_OK);
        id = raw_lease(&raw, MIB(row->mib), 0, 0);
        if (row->status == GMB_STATUS_OK)
            slab_returned(&raw, raw_release(&raw, slab_granted(&raw, id, &told)), &told);
        else
            slab_refused(&raw, id, row->status, "MemoryMax", &told);
        slab_account(&harness, &tenant);
        ck_assert_uint_eq(tenant.overage_bytes, MIB(row->overage_mib));
        slab_other_served(&harness, 0);
    }
    /* Raised, it serves who waits; lowered below use, it holds what is lost as what isn't. */
    ck_assert_int_eq(raw_set(&harness, "test", "MemoryMax", "64M"), GMB_STATUS_OK);
    id = raw_lease(&raw, MIB(32), 0, LONG);
    slab_other_served(&harness, 0);
    ck_assert_int_eq(raw_set(&harness, "test", "MemoryMax", "96M"), GMB_STATUS_OK);
    slab_returned(&raw, raw_release(&raw, slab_granted(&raw, id, &told)), &told);
    ck_assert_int_eq(raw_set(&harness, "test", "MemoryMax", "32M"), GMB_STATUS_OK);
    slab_kill(&harness);
    wait_until(slab_losses(&harness) == 1);
    slab_account(&harness, &tenant);
    ck_assert_uint_eq(tenant.overage_bytes, MIB(32));
    id = raw_lease(&raw, MIB(32), 0, LONG);
    slab_returned(&raw, raw_release(&raw, lease), &told);
    slab_returned(&raw, raw_release(&raw, slab_granted(&raw, id, &told)), &told);
    ck_assert_uint_eq(told.lost, 1);
    slab_expect_nothing_left(&harness);
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

/* ------------------------------------------------------------------ fds */

START_TEST(a_slab_process_that_no_fd_is_left_for_is_started_when_there_is_one)
{
    struct rlimit before, none;
    char failure[LIMIT_TEXT_BYTES];
    static struct harness harness;
    struct slab_told told = {0};
    uint64_t lease, until;
    struct raw raw;

    harness_start_with(&harness, HARNESS_BROKER SLAB_TENANTS, slabs_only);
    raw_connect(&raw, &harness);
    lease = slab_granted(&raw, raw_lease(&raw, KEPT, 0, LONG), &told);
    ck_assert_int_eq(prlimit(harness.pid, RLIMIT_NOFILE, NULL, &before), 0);
    none = (struct rlimit){3, before.rlim_max};
    ck_assert_int_eq(prlimit(harness.pid, RLIMIT_NOFILE, &none, NULL), 0);
    slab_kill(&harness);
    wait_until(harness_logged(&harness, "can't be started yet: Too many open files"));
    /* As long as four starts in a row would have had. */
    until = harness_now_ms() + 1500;
    while (harness_now_ms() < until)
        slab_refused(
            &raw, raw_lease(&raw, MIB(8), 0, SHORT), GMB_STATUS_TIMED_OUT, "device 0", &told);
    ck_assert_int_eq(prlimit(harness.pid, RLIMIT_NOFILE, &before, NULL), 0);
    slab_returned(&raw,
        raw_release(&raw, slab_granted(&raw, raw_lease(&raw, MIB(8), 0, LONG), &told)), &told);
    slab_failure(&harness, failure);
    ck_assert_str_eq(failure, "");
    slab_other_served(&harness, 0);
    slab_returned(&raw, raw_release(&raw, lease), &told);
    ck_assert_uint_eq(told.lost, 1);
    ck_assert_uint_eq(told.failed, 0);
    slab_expect_nothing_left(&harness);
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("slabs faults");
    TCase *tcase = tcase_create("slabs faults");

    tcase_add_loop_test(tcase,
        a_slab_process_killed_or_stopped_at_any_step_costs_what_it_held_alone, 0,
        PLACE_MAX * (int) ARRAY_SIZE(signals));
    tcase_add_loop_test(tcase, others_wait_for_what_is_lost_until_its_holder_lets_go, 0, 2);
    tcase_add_loop_test(tcase, what_the_driver_does_to_slabs_is_told_and_leaves_nothing_behind, 0,
        (int) ARRAY_SIZE(driver_rows));
    tcase_add_test(tcase, a_slab_that_the_driver_does_not_free_is_charged_until_it_does);
    tcase_add_test(tcase, a_quota_that_changes_with_slabs_out_counts_whole_slabs);
    tcase_add_test(tcase, a_slab_process_that_no_fd_is_left_for_is_started_when_there_is_one);
    suite_add_tcase(suite, tcase);
    return unit_run_suite(suite);
}
