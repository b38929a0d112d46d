/*
 * libcheck knows tests that passed and tests that failed. One that is skipped fails with a message
 * that begins so; it isn't counted, and its line is made what TAP has for it by a process that all
 * output goes through.
 */
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAILED "not ok "
/* Behind it processes that outlive their test may still have the pipe, and nothing to say. */
#define LAST "# all tests have run\n"

static void lines_pass(FILE *in)
{
    _cleanup_free_ char *line = NULL;
    size_t room = 0;

    while (getline(&line, &room, in) >= 0 && strstr(line, LAST) == NULL) {
        const char *reason =
            strncmp(line, FAILED, strlen(FAILED)) == 0 ? strstr(line, ": " UNIT_SKIPPED) : NULL;

        if (reason == NULL)
            (void) fputs(line, stdout);
        else
            (void) printf("ok %.*s %s", (int) (reason - line - (ptrdiff_t) strlen(FAILED)),
                line + strlen(FAILED), reason + strlen(": "));
        (void) fflush(stdout);
    }
}

/* Standard output goes through a process; what it was. -1: it goes where it went. */
static int pass_begin(pid_t *ret_pid)
{
    int ends[2], output;

    (void) fflush(stdout);
    output = dup(STDOUT_FILENO);
    if (output < 0)
        return -1;
    if (pipe(ends) < 0 || (*ret_pid = fork()) < 0) {
        (void) close(output);
        return -1;
    }
    if (*ret_pid == 0) {
        FILE *in;

        (void) close(ends[1]);
        in = fdopen(ends[0], "r");
        if (in != NULL)
            lines_pass(in);
        _exit(in == NULL);
    }
    (void) dup2(ends[1], STDOUT_FILENO);
    (void) close(ends[0]);
    (void) close(ends[1]);
    return output;
}

static void pass_end(pid_t pid, int output)
{
    if (output < 0)
        return;
    (void) fputs(LAST, stdout);
    (void) fflush(stdout);
    (void) dup2(output, STDOUT_FILENO);
    (void) close(output);
    (void) waitpid(pid, NULL, 0);
}

static int failed_count(SRunner *runner)
{
    TestResult **failures = srunner_failures(runner);
    int count = srunner_ntests_failed(runner), skipped = 0;

    for (int i = 0; i < count; i++)
        skipped += strncmp(tr_msg(failures[i]), UNIT_SKIPPED, strlen(UNIT_SKIPPED)) == 0;
    free(failures);
    return count - skipped;
}

int unit_run_suite(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    int failed, output;
    pid_t pass = 0;

    scratch_begin();
    output = pass_begin(&pass);
    srunner_run_all(runner, CK_ENV);
    pass_end(pass, output);
    scratch_end();
    failed = failed_count(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int unit_run(const char *name, const TTest *const tests[], size_t count)
{
    Suite *suite = suite_create(name);
    TCase *tcase = tcase_create(name);

    for (size_t i = 0; i < count; i++)
        tcase_add_test(tcase, tests[i]);
    suite_add_tcase(suite, tcase);
    return unit_run_suite(suite);
}
