/* What main() of a test says of its tests, looked at from outside: it runs itself, with a mark. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/unit/unit.h"

#define INNER "UNIT_INNER"

START_TEST(passes)
{
    (void) printf("what it says itself\n");
}
END_TEST

START_TEST(is_skipped)
{
    unit_skip("there is no %s here", "moon");
    ck_abort_msg("it went on");
}
END_TEST

START_TEST(fails)
{
    ck_abort_msg("of # SKIP nothing");
}
END_TEST

/* Runs itself, with these tests; the exit status. */
static int inner_run(const char *which, char ret[1024])
{
    char command[256], path[192];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
    size_t done;
    FILE *file;
    int status;

    ck_assert_int_gt(length, 0);
    path[length] = '\0';
    (void) snprintf(command, sizeof(command), INNER "=%s exec '%s'", which, path);
    file = popen(command, "r");
    ck_assert_ptr_nonnull(file);
    done = fread(ret, 1, 1023, file);
    ret[done] = '\0';
    status = pclose(file);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

START_TEST(a_skipped_test_is_said_to_be_and_is_no_failure)
{
    char said[1024];

    ck_assert_int_eq(inner_run("skip", said), EXIT_SUCCESS);
    ck_assert_ptr_nonnull(strstr(said, "1..2\n"));
    ck_assert_ptr_nonnull(strstr(said, "what it says itself\n"));
    ck_assert_ptr_nonnull(strstr(said, "\nok 1 - "));
    ck_assert_ptr_nonnull(strstr(said, ":passes: Passed\n"));
    ck_assert_ptr_nonnull(strstr(said, "\nok 2 - "));
    ck_assert_ptr_nonnull(strstr(said, ":is_skipped # SKIP there is no moon here\n"));
    ck_assert_ptr_null(strstr(said, "not ok"));
}
END_TEST

START_TEST(a_failure_beside_it_is_one)
{
    char said[1024];

    ck_assert_int_eq(inner_run("fail", said), EXIT_FAILURE);
    ck_assert_ptr_nonnull(strstr(said, "\nok 2 - "));
    ck_assert_ptr_nonnull(strstr(said, "\nnot ok 3 - "));
    ck_assert_ptr_nonnull(strstr(said, ":fails: of # SKIP nothing\n"));
}
END_TEST

int main(void)
{
    const TTest *const inner[] = {passes, is_skipped, fails};
    const TTest *const outer[] = {
        a_skipped_test_is_said_to_be_and_is_no_failure, a_failure_beside_it_is_one};
    const char *which = getenv(INNER);

    if (which != NULL)
        return unit_run("inner", inner, strcmp(which, "fail") == 0 ? 3 : 2);
    return unit_run("unit", outer, ARRAY_SIZE(outer));
}
