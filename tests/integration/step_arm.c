/* The test's side of step.h. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/step.h"

void step_arm(const char *path, unsigned n, int signal, bool parent)
{
    char fresh[160];
    FILE *file;

    (void) snprintf(fresh, sizeof(fresh), "%s.fresh", path);
    file = fopen(fresh, "we");
    ck_assert_ptr_nonnull(file);
    (void) fprintf(file, "%u %d %d", n, signal, (int) parent);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(rename(fresh, path), 0);
}

bool step_taken(const char *path)
{
    return access(path, F_OK) < 0;
}

bool step_disarm(const char *path)
{
    return unlink(path) == 0;
}

#define EXIT_TAKEN 10
#define EXIT_WHOLE 11

bool step_run_apart(bool (*run)(int kind, unsigned n), int kind, unsigned n)
{
    pid_t pid = fork();
    int status;

    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        exit(run(kind, n) ? EXIT_TAKEN : EXIT_WHOLE);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) &&
                      (WEXITSTATUS(status) == EXIT_TAKEN || WEXITSTATUS(status) == EXIT_WHOLE),
        "the run that is interrupted at its step %u failed", n);
    return WEXITSTATUS(status) == EXIT_TAKEN;
}
