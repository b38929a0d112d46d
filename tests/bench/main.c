/* gmb-bench: runs every row or one measurement, prints a table, writes it as JSON where asked. */
#include <check.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/macro.h"
#include "tests/bench/bench.h"

#define ROWS_MAX 64

static const struct {
    const char *name;
    int (*run)(struct bench_row *rows, size_t max);
} benches[] = {
    {"lease_roundtrip", bench_lease_roundtrip},
    {"broker_rss", bench_broker_rss},
    {"core_step", bench_core_step_scaling},
    {"policy_decision", bench_policy_decision},
    {"reclaim_plan", bench_reclaim_plan},
    {"reclaim_latency", bench_reclaim_latency},
    {"mover_bandwidth", bench_mover_bandwidth},
    {"pressure_read", bench_pressure_read},
    {"pressure_latency", bench_pressure_latency},
    {"page_alloc_free", bench_page_alloc_free},
    {"fragmentation", bench_fragmentation},
    {"segment_attach", bench_segment_attach},
    {"restart_blackout", bench_restart_blackout},
};

static int json_write(const char *path, const struct bench_row *from, size_t n)
{
    json_t *array = json_array();
    int r;

    for (size_t i = 0; i < n; i++) {
        bool judged = from[i].budget > 0;
        json_t *row = json_pack("{s:s, s:f, s:s, s:f, s:f, s:o, s:o}", "name", from[i].name,
            "value", from[i].value, "unit", from[i].unit, "floor", from[i].floor, "ratio",
            from[i].ratio, "budget", judged ? json_real(from[i].budget) : json_null(), "met",
            judged ? json_boolean(from[i].met) : json_null());

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
    (void) printf(
        "%-26s %12.3f %-5s %12.3f %8.2f", row->name, row->value, row->unit, row->floor, row->ratio);
    if (row->budget > 0)
        (void) printf(" %8.2f  %s\n", row->budget, row->met ? "met" : "MISSED");
    else
        (void) printf(" %8s\n", "-");
    (void) fflush(stdout);
}

/* Shared with the process of each measurement. */
static struct result {
    struct bench_row rows[ROWS_MAX];
    size_t count, benches;
} * result;

static const char *only; /* the measurement asked for; NULL: all */

/*
 * The harness's checks belong into a running test, so that is what a measurement is. Each has a
 * process of its own, since the simulated driver of a process keeps the folder that it began with,
 * and an allocator that was loaded stays.
 */
START_TEST(measure)
{
    int r;

    if (only != NULL && strcmp(only, benches[_i].name) != 0) {
        result->benches++;
        return;
    }
    r = benches[_i].run(result->rows + result->count, ROWS_MAX - result->count);
    if (r < 0) {
        (void) fprintf(stderr, "gmb-bench: row %d: %s\n", _i, strerror(-r));
        return;
    }
    for (int i = 0; i < r; i++)
        row_print(&result->rows[result->count++]);
    result->benches++;
}
END_TEST

static bool measured(void)
{
    Suite *suite = suite_create("bench");
    TCase *tcase = tcase_create("bench");
    SRunner *runner;
    bool passed;

    tcase_add_loop_test(tcase, measure, 0, (int) ARRAY_SIZE(benches));
    tcase_set_timeout(tcase, 120);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_FORK);
    srunner_run_all(runner, CK_SILENT);
    passed = srunner_ntests_failed(runner) == 0;
    srunner_free(runner);
    return passed && result->benches == ARRAY_SIZE(benches);
}

/* Debian's jemalloc wants more static thread-local storage than dlopen(3) has left, and the linker
 * takes that setting at a program's start alone: the program starts again, once. */
static void restart_with_room(char **argv)
{
    static const char setting[] = "glibc.rtld.optional_static_tls=16384";
    const char *given = getenv("GLIBC_TUNABLES");
    char text[4096];
    int size;

    if (given != NULL && strstr(given, "optional_static_tls") != NULL)
        return;
    size = snprintf(text, sizeof(text), "%s%s%s", given != NULL ? given : "",
        given != NULL ? ":" : "", setting);
    if (size < 0 || (size_t) size >= sizeof(text) || setenv("GLIBC_TUNABLES", text, 1) < 0)
        return;
    (void) execv("/proc/self/exe", argv);
    (void) fprintf(stderr, "gmb-bench: can't start again for jemalloc: %s\n", strerror(errno));
}

static bool name_known(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(benches); i++) {
        if (strcmp(name, benches[i].name) == 0)
            return true;
    }
    return false;
}

static bool options_read(int argc, char **argv, const char **ret_json)
{
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 < argc && strcmp(argv[i], "--json") == 0)
            *ret_json = argv[i + 1];
        else if (i + 1 < argc && strcmp(argv[i], "--only") == 0 && name_known(argv[i + 1]))
            only = argv[i + 1];
        else
            return false;
    }
    return true;
}

static void usage_print(void)
{
    (void) fprintf(stderr, "usage: gmb-bench [--json FILE] [--only NAME], NAME one of");
    for (size_t i = 0; i < ARRAY_SIZE(benches); i++)
        (void) fprintf(stderr, " %s", benches[i].name);
    (void) fprintf(stderr, "\n");
}

int main(int argc, char **argv)
{
    const char *json = NULL;
    int status = EXIT_SUCCESS;

    if (!options_read(argc, argv, &json)) {
        usage_print();
        return EXIT_FAILURE;
    }
    restart_with_room(argv);
    result = mmap(NULL, sizeof(*result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (result == MAP_FAILED) {
        (void) fprintf(stderr, "gmb-bench: no memory for results\n");
        return EXIT_FAILURE;
    }
    (void) setenv("GMBD", GMBD_PATH, 0);
    (void) setenv("GMBD_KEEPER", GMBD_KEEPER_PATH, 0);
    (void) setenv("GMBD_LOG_LEVEL", "notice", 0);
    (void) printf(
        "%-26s %12s %-5s %12s %8s %8s\n", "name", "value", "unit", "floor", "ratio", "budget");
    if (!measured()) {
        (void) fprintf(stderr, "gmb-bench: not every row could be measured\n");
        status = EXIT_FAILURE;
    }
    if (json != NULL && json_write(json, result->rows, result->count) < 0) {
        (void) fprintf(stderr, "gmb-bench: %s can't be written\n", json);
        status = EXIT_FAILURE;
    }
    return status;
}
