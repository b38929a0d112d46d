/* See holder.h. */
#include "tests/integration/holder.h"

#include <check.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

pid_t holder_start(const struct harness *harness, holder_take *take, void *told, size_t bytes)
{
    int ready[2];
    pid_t pid;

    ck_assert_int_eq(pipe(ready), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        take(harness, told);
        (void) !write(ready[1], told, bytes);
        for (;;)
            (void) pause();
    }
    /* Nothing can be read when it ended before. */
    (void) close(ready[1]);
    ck_assert_int_eq(read(ready[0], told, bytes), bytes);
    (void) close(ready[0]);
    return pid;
}

void holder_kill(pid_t pid)
{
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

void holder_take_lease(const struct harness *harness, void *told)
{
    struct raw raw;

    raw_connect(&raw, harness);
    (void) raw_expect_lease(
        &raw, raw_lease(&raw, HOLDER_CHUNKS * HARNESS_CHUNK, HARNESS_CHUNK, 0), HOLDER_CHUNKS);
    memcpy(told, raw.token, sizeof(raw.token));
}
