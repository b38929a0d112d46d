/* A library built to assert: the process that misuses a page is ended where it does. */
#include <signal.h>
#include <sys/wait.h>

#include "tests/arena/bed.h"
#include "tests/unit/unit.h"

static struct bed bed;

/* The signal that ends a child which frees page 0 twice, or pins it and frees it, or uses it
 * properly. */
static int child_end(int what)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        uint32_t page;

        (void) arena_pages_alloc(&bed.pool, 1, &page, 1);
        if (what == 1)
            (void) arena_pages_pin(bed.table, 1, &page, 1);
        (void) arena_pages_unref(bed.table, 1, &page);
        if (what == 2)
            (void) arena_pages_unref(bed.table, 1, &page);
        _exit(0);
    }
    ck_assert_int_gt(pid, 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

START_TEST(misuse_aborts)
{
    bed_begin(&bed, 4, 1);
    bed_open_all(&bed);
    ck_assert_int_eq(child_end(0), 0);
    ck_assert_int_eq(child_end(1), SIGABRT);
    ck_assert_int_eq(child_end(2), SIGABRT);
    bed_end(&bed);
}
END_TEST

UNIT_MAIN("arena debug", misuse_aborts)
