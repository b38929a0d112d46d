/*
 * main() of a test: runs the listed libcheck tests, each in a process of its own, with a folder for
 * what they write (scratch.h).
 * The exit status says whether all passed; CK_TAP_LOG_FILE_NAME and the other CK_* variables work.
 */
#pragma once

#include <check.h>
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

/* Runs a suite that was put together by hand, and frees it; the exit status. */
int unit_run_suite(Suite *suite);
int unit_run(const char *name, const TTest *const tests[], size_t count);

/* Ends the test, which is reported as skipped: nothing was proved, for that reason. Of the calling
 * test's process alone, and before there is anything to undo. */
#define UNIT_SKIPPED "# SKIP "
#define unit_skip(...) ck_abort_msg(UNIT_SKIPPED __VA_ARGS__)
/* Skips it unless this process is root's: nobody else can be several users. */
#define unit_need_root()                                                                           \
    do {                                                                                           \
        if (geteuid() != 0)                                                                        \
            unit_skip("it takes root");                                                            \
    } while (0)

#define UNIT_MAIN(name, ...)                                                                       \
    int main(void)                                                                                 \
    {                                                                                              \
        const TTest *const tests[] = {__VA_ARGS__};                                                \
                                                                                                   \
        return unit_run(name, tests, ARRAY_SIZE(tests));                                           \
    }
