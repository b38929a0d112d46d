/*
 * main() of a test: runs the listed libcheck tests, each in a process of its own, with a folder for
 * what they write (scratch.h).
 * The exit status says whether all passed; CK_TAP_LOG_FILE_NAME and the other CK_* variables work.
 */
#pragma once

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/macro.h"
#include "tests/unit/scratch.h"

/* How much a process may grow: a sanitizer keeps what was freed for a while. */
#ifdef __SANITIZE_ADDRESS__
#define UNIT_GROWTH(bytes) (4 * (bytes))
#else
#define UNIT_GROWTH(bytes) (bytes)
#endif

/* Runs a suite that was put together by hand, and frees it. */
static inline int unit_run_suite(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    int failed;

    scratch_begin();
    srunner_run_all(runner, CK_ENV);
    scratch_end();
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static inline int unit_run(const char *name, const TTest *const tests[], size_t count)
{
    Suite *suite = suite_create(name);
    TCase *tcase = tcase_create(name);

    for (size_t i = 0; i < count; i++)
        tcase_add_test(tcase, tests[i]);
    suite_add_tcase(suite, tcase);
    return unit_run_suite(suite);
}

/* Says so as TAP has it. */
static inline int unit_skip(const char *why)
{
    (void) printf("1..0 # SKIP %s\n", why);
    return EXIT_SUCCESS;
}

#define UNIT_MAIN(name, ...)                                                                       \
    int main(void)                                                                                 \
    {                                                                                              \
        const TTest *const tests[] = {__VA_ARGS__};                                                \
                                                                                                   \
        return unit_run(name, tests, ARRAY_SIZE(tests));                                           \
    }

/* The same where all of them need root: else they are skipped, and say `why`. */
#define UNIT_MAIN_OF_ROOT(name, why, ...)                                                          \
    int main(void)                                                                                 \
    {                                                                                              \
        const TTest *const tests[] = {__VA_ARGS__};                                                \
                                                                                                   \
        if (geteuid() != 0)                                                                        \
            return unit_skip(why);                                                                 \
        return unit_run(name, tests, ARRAY_SIZE(tests));                                           \
    }
