/* gmb-bench: runs every row, prints a table, and writes it as JSON where asked to. */
#include <check.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macro.h"
#include "tests/bench/bench.h"

#define ROWS_MAX 32

static int (*const benches[])(struct bench_row *rows, size_t max) = {
    bench_lease_roundtrip,
    bench_broker_rss,
    bench_core_step_scaling,
    bench_policy_decision,
    bench_reclaim_plan,
    bench_mover_bandwidth,
};

static int json_write(const char *path, const struct bench_row *from, size_t n)
{
    json_t *array = json_array();
    int r;

    for (size_t i = 0; i < n; i++) {
        json_t *row = json_pack("{s:s, s:f, s:s, s:f, s:f, s:f, s:b}", "name", from[i].name,
            "value", from[i].value, "unit", from[i].unit, "floor", from[i].floor, "ratio",
            from[i].ratio, "budget", from[i].budget, "met", from[i].met);

        if (row == NULL || json_array_append_new(array, row) < 0) {
            json_decref(array);
            return -ENOMEM;
        }
    }
    r = json_dump_file(array, path, JSON_INDENT(2));
    json_decref(array);
    return r < 0 ? -EIO : 0;
}

static void row_print(const struct bench_row *row)
{
    (void) printf("%-24s %12.3f %-5s %12.3f %8.2f %8.2f  %s\n", row->name, row->value, row->unit,
        row->floor, row->ratio, row->budget, row->met ? "met" : "MISSED");
    (void) fflush(stdout);
}

static struct bench_row rows[ROWS_MAX];
static size_t count;
static bool complete;

/* The harness's checks belong into a running test, so that is what the measurement is. */
START_TEST(measure)
{
    complete = true;
    for (size_t i = 0; i < ARRAY_SIZE(benches); i++) {
        int r = benches[i](rows + count, ROWS_MAX - count);

        if (r < 0) {
            (void) fprintf(stderr, "gmb-bench: row %zu: %s\n", i, strerror(-r));
            complete = false;
            continue;
        }
        for (int k = 0; k < r; k++)
            row_print(&rows[count++]);
    }
}
END_TEST

static bool measured(void)
{
    Suite *suite = suite_create("bench");
    TCase *tcase = tcase_create("bench");
    SRunner *runner;
    bool passed;

    tcase_add_test(tcase, measure);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_SILENT);
    passed = srunner_ntests_failed(runner) == 0;
    srunner_free(runner);
    return passed && complete;
}

int main(int argc, char **argv)
{
    const char *json = NULL;
    int status = EXIT_SUCCESS;

    if (argc == 3 && strcmp(argv[1], "--json") == 0) {
        json = argv[2];
    } else if (argc != 1) {
        (void) fprintf(stderr, "usage: gmb-bench [--json FILE]\n");
        return EXIT_FAILURE;
    }
    (void) setenv("GMBD", GMBD_PATH, 0);
    (void) setenv("GMBD_LOG_LEVEL", "notice", 0);
    (void) printf(
        "%-24s %12s %-5s %12s %8s %8s\n", "name", "value", "unit", "floor", "ratio", "budget");
    if (!measured()) {
        (void) fprintf(stderr, "gmb-bench: not every row could be measured\n");
        status = EXIT_FAILURE;
    }
    if (json != NULL && json_write(json, rows, count) < 0) {
        (void) fprintf(stderr, "gmb-bench: %s can't be written\n", json);
        status = EXIT_FAILURE;
    }
    return status;
}
