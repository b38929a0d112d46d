/*
 * A device of 256 GiB whose bytes are never touched: what is measured is the broker's books and the
 * driver's, which lives in the same process.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/bench/bench.h"
#include "tests/integration/raw.h"

#define CLIENTS 1000
#define CHUNKS 100 /* of each */
#define BUDGET_MIB 32

/* Resident MiB of a process; 0 when it can't be read. */
static double resident_mib(pid_t pid)
{
    char path[32], line[128];
    unsigned long kib = 0;
    FILE *file;

    (void) snprintf(path, sizeof(path), "/proc/%d/status", (int) pid);
    file = fopen(path, "re");
    if (file == NULL)
        return 0;
    while (fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "VmRSS: %lu kB", &kib) == 1)
            break;
    }
    (void) fclose(file);
    return (double) kib / 1024;
}

void bench_fds_raise(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void) setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int bench_broker_rss(struct bench_row *rows, size_t max)
{
    static const char *const environment[] = {"GMB_SIM_MEMORY=256G", "GMB_SIM_FILL=none", NULL};
    static struct raw raws[CLIENTS];
    double idle_mib, full_mib;
    struct harness harness;

    if (max < 1)
        return -ENOSPC;
    bench_fds_raise();
    harness_start_with(
        &harness, "[Broker]\nObserveInterval=1h\n[Tenant bench]\nUser=*\n", environment);
    idle_mib = resident_mib(harness.pid);
    for (size_t i = 0; i < CLIENTS; i++) {
        raw_connect(&raws[i], &harness);
        (void) raw_expect_lease(&raws[i],
            raw_lease(&raws[i], CHUNKS * HARNESS_CHUNK, HARNESS_CHUNK, UINT64_MAX), CHUNKS);
    }
    full_mib = resident_mib(harness.pid);
    for (size_t i = 0; i < CLIENTS; i++)
        raw_close(&raws[i]);
    harness_discard(&harness);
    if (idle_mib <= 0 || full_mib <= 0)
        return -EIO;
    rows[0] = (struct bench_row){
        .name = "broker_rss",
        .value = full_mib,
        .unit = "MiB",
        .floor = idle_mib,
        .ratio = full_mib / idle_mib,
        .budget = BUDGET_MIB,
        .met = full_mib <= BUDGET_MIB,
    };
    return 1;
}
