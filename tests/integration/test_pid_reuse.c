/*
 * A client dies while the broker is away, and its pid is given to another process before the broker
 * is back: that one is nobody. Made for real, in a pid namespace in which pids can be chosen.
 */
#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/holder.h"
#include "tests/unit/unit.h"

#define EXIT_SKIPPED 77

/* Field 22 of /proc/PID/stat. */
static unsigned long long start_of(pid_t pid)
{
    unsigned long long ticks = 0;
    char path[64];
    FILE *file;

    (void) snprintf(path, sizeof(path), "/proc/%d/stat", (int) pid);
    file = fopen(path, "re");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file,
                         "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d "
                         "%*d %*d %*d %*d %llu",
                         &ticks),
        1);
    ck_assert_int_eq(fclose(file), 0);
    return ticks;
}

/* A process with that pid, which comes with the token of the one before once it is told to; it ends
 * with 0 when it is greeted as somebody new. -errno where pids can't be chosen. */
static pid_t impostor_start(
    pid_t pid, const struct harness *harness, const uint8_t token[16], int go)
{
    struct clone_args arguments = {
        .exit_signal = SIGCHLD, .set_tid = (uint64_t) (uintptr_t) &pid, .set_tid_size = 1};
    struct raw raw = {.next_id = 1};
    long r = syscall(SYS_clone3, &arguments, sizeof(arguments));
    char byte;

    if (r != 0)
        return r > 0 ? (pid_t) r : -errno;
    memcpy(raw.token, token, sizeof(raw.token));
    if (read(go, &byte, 1) != 1)
        _exit(2);
    _exit(raw_come_back(&raw, harness) ? 1 : 0);
}

static void namespace_run(void)
{
    static struct harness harness;
    unsigned long long before;
    Gmb__TenantDevice device;
    pid_t holder, impostor;
    uint8_t token[16];
    int go[2], status;

    harness_start_kept(&harness, NULL, NULL);
    ck_assert_int_eq(pipe(go), 0);
    holder = holder_start(&harness, holder_take_lease, token, sizeof(token));
    before = start_of(holder);
    ck_assert_int_eq(kill(harness.keeper, SIGSTOP), 0);
    ck_assert_int_eq(kill(harness.pid, SIGKILL), 0);
    holder_kill(holder);
    /* Times of start are counted in hundredths of a second. */
    (void) usleep(30000);
    impostor = impostor_start(holder, &harness, token, go[0]);
    if (impostor < 0) {
        (void) printf("# pids can't be chosen here: %s\n", strerror(-impostor));
        ck_assert_int_eq(kill(harness.keeper, SIGCONT), 0);
        harness_succeed(&harness, 0);
        harness_discard(&harness);
        _exit(EXIT_SKIPPED);
    }
    ck_assert_int_eq(impostor, holder);
    ck_assert_uint_gt(start_of(impostor), before);
    ck_assert_int_eq(kill(harness.keeper, SIGCONT), 0);
    harness_succeed(&harness, 0);
    ck_assert(harness_logged(&harness, "1 client died meanwhile"));
    raw_tenant(&harness, "test", &device);
    ck_assert_uint_eq(device.leased_bytes, 0);
    ck_assert_int_eq(write(go[1], "", 1), 1);
    ck_assert_int_eq(waitpid(impostor, &status, 0), impostor);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    (void) close(go[0]);
    (void) close(go[1]);
    harness_stop(&harness);
}

START_TEST(a_process_with_the_pid_of_a_dead_client_is_nobody)
{
    int flags = CLONE_NEWPID | CLONE_NEWNS | (geteuid() == 0 ? 0 : CLONE_NEWUSER), status;
    pid_t pid;

    if (unshare(flags) < 0)
        unit_skip("no namespaces here: %s", strerror(errno));
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("proc", "/proc", "proc", 0, NULL) < 0)
            _exit(EXIT_SKIPPED);
        namespace_run();
        _exit(EXIT_SUCCESS);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIPPED)
        unit_skip("/proc can't be mounted here");
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS, "it failed there");
}
END_TEST

UNIT_MAIN("pid_reuse", a_process_with_the_pid_of_a_dead_client_is_nobody)
