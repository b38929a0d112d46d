/*
 * The program behind worker.h: `integration-worker SOCKET PAGE_BYTES CHUNK_BYTES PAGES`, orders on
 * fd 3, answers on fd 4. A program of its own, since no driver survives a fork. What fails ends it.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/integration/pages.h"

#define ORDERS_FD 3
#define ANSWERS_FD 4

static char **arguments;

/* The checks of pages.c belong into a running test. */
START_TEST(serve)
{
    static struct pages pages;
    struct harness harness = {0};
    uint64_t answer = 1;
    char order;

    (void) snprintf(harness.client_socket, sizeof(harness.client_socket), "%s", arguments[1]);
    pages_open(&pages, &harness, strtoull(arguments[2], NULL, 10), strtoull(arguments[3], NULL, 10),
        UINT64_C(512) << 20);
    pages_fill(&pages, (uint32_t) strtoul(arguments[4], NULL, 10));
    (void) !write(ANSWERS_FD, &answer, sizeof(answer));
    while (read(ORDERS_FD, &order, 1) == 1) {
        if (order == 'c')
            pages_check(&pages, 0, pages.count, 100);
        answer = order == 'e' ? pages_stats(&pages).evicted_pages : 1;
        (void) !write(ANSWERS_FD, &answer, sizeof(answer));
    }
    pages_close(&pages);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("worker");
    TCase *tcase = tcase_create("worker");
    SRunner *runner = srunner_create(suite);
    int failed;

    if (argc != 5)
        return EXIT_FAILURE;
    arguments = argv;
    (void) unsetenv("CK_TAP_LOG_FILE_NAME"); /* the test's, on the same output */
    tcase_add_test(tcase, serve);
    suite_add_tcase(suite, tcase);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_SILENT);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
