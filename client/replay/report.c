/* Sums over the requests' outcomes. Every request is counted exactly once: completed at once,
 * completed after waiting, refused, or lost. */
#include "client/replay/report.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

const char *verdict_name(enum verdict verdict)
{
    static const char *const names[] = {
        [VERDICT_CLEAN] = "clean",
        [VERDICT_CORRUPT] = "corrupt",
        [VERDICT_LOST] = "lost",
        [VERDICT_ORPHANED] = "orphaned",
        [VERDICT_INTERRUPTED] = "interrupted",
    };
    static_assert(ARRAY_SIZE(names) == VERDICT_MAX, "a verdict without a name");

    return (unsigned) verdict < VERDICT_MAX ? names[verdict] : "unknown";
}

int verdict_exit_status(enum verdict verdict)
{
    static const int statuses[] = {
        [VERDICT_CLEAN] = 0,
        [VERDICT_CORRUPT] = 3,
        [VERDICT_LOST] = 4,
        [VERDICT_ORPHANED] = 5,
        [VERDICT_INTERRUPTED] = 130,
    };
    static_assert(ARRAY_SIZE(statuses) == VERDICT_MAX, "a verdict without a status");

    return (unsigned) verdict < VERDICT_MAX ? statuses[verdict] : 1;
}

void report_free(struct report *report)
{
    free(report->tenants);
    free(report->limits);
    *report = (struct report){0};
}

static void count(struct report_part *part, const struct stats_request *request)
{
    enum phase phase = (enum phase) atomic_load(&request->phase);

    part->requests++;
    part->stall_ns += atomic_load(&request->waited_ns);
    part->entitled += atomic_load(&request->entitled);
    part->entitled_refused += atomic_load(&request->entitled) && phase == PHASE_REFUSED;
    part->preempted += atomic_load(&request->preempted);
    if (phase == PHASE_REFUSED)
        part->refused++;
    else if (phase != PHASE_COMPLETED)
        part->lost++;
    else if (atomic_load(&request->waited))
        part->waited++;
    else
        part->at_once++;
}

static int count_limit(struct report *report, const char *name)
{
    struct report_limit *grown;

    for (size_t i = 0; i < report->limit_count; i++)
        if (strcmp(report->limits[i].name, name) == 0) {
            report->limits[i].refused++;
            return 0;
        }
    grown = reallocarray(report->limits, report->limit_count + 1, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    report->limits = grown;
    grown[report->limit_count] = (struct report_limit){.refused = 1};
    (void) snprintf(grown[report->limit_count].name, STATS_LIMIT_BYTES, "%s", name);
    report->limit_count++;
    return 0;
}

/* Percentiles of the waits of the requests first, first + step, … that completed. */
static void measure_waits(
    const struct stats *stats, size_t first, size_t step, uint64_t *waits, struct report_part *part)
{
    size_t n = 0;

    for (size_t i = first; i < stats->request_count; i += step)
        if (atomic_load(&stats->requests[i].phase) == PHASE_COMPLETED)
            waits[n++] = atomic_load(&stats->requests[i].waited_ns);
    stats_sort(waits, n);
    part->wait_p50_ns = stats_percentile(waits, n, 50);
    part->wait_p99_ns = stats_percentile(waits, n, 99);
}

static int count_requests(const struct run *run, struct report *report)
{
    const struct stats *stats = run->stats;
    const uint32_t tenants = run->tenants->count;
    _cleanup_free_ uint64_t *waits = calloc(stats->request_count, sizeof(*waits));
    int r;

    if (!waits)
        return -ENOMEM;
    for (size_t i = 0; i < stats->request_count; i++) {
        const struct stats_request *request = &stats->requests[i];

        count(&report->all, request);
        count(&report->tenants[i % tenants], request);
        if (atomic_load(&request->phase) != PHASE_REFUSED)
            continue;
        r = count_limit(report, request->limit);
        if (r < 0)
            return r;
    }
    measure_waits(stats, 0, 1, waits, &report->all);
    for (uint32_t t = 0; t < tenants; t++)
        measure_waits(stats, t, tenants, waits, &report->tenants[t]);
    return 0;
}

static void count_pages(struct report_part *part, const struct stats_worker *worker)
{
    part->evictions += atomic_load(&worker->evictions);
    part->restores += atomic_load(&worker->restores);
    part->reread += atomic_load(&worker->reread);
    part->dropped += atomic_load(&worker->dropped);
    part->restore_ns += atomic_load(&worker->restore_ns);
}

static void count_bytes(const struct run *run, struct report *report)
{
    const struct plan_peaks *peaks = &run->sizing->peaks;
    const uint64_t weights = run->sizing->weights_bytes;
    const uint32_t tenants = run->tenants->count;

    /* The weights are there all the time, so that they add to every peak: once for a tenant. */
    report->all.peak_bytes = atomic_load(&run->stats->all.peak) + tenants * weights;
    report->all.static_bytes = peaks->static_bytes + run->workers * weights;
    for (uint32_t t = 0; t < tenants; t++)
        report->tenants[t].peak_bytes = atomic_load(&run->stats->tenants[t].peak) + weights;
    for (uint32_t w = 0; w < run->workers; w++) {
        const struct stats_worker *worker = &run->stats->workers[w];

        report->tenants[w % tenants].static_bytes += peaks->worker_bytes[w] + weights;
        count_pages(&report->all, worker);
        count_pages(&report->tenants[w % tenants], worker);
        report->corrupt_bytes += atomic_load(&worker->corrupt_bytes);
        report->foreign_bytes += atomic_load(&worker->foreign_bytes);
        report->checked_bytes += atomic_load(&worker->checked_bytes);
        report->late_ns = MAX(report->late_ns, atomic_load(&worker->late_ns));
    }
    report->saved_ratio =
        1 - (double) report->all.peak_bytes / (double) MAX(report->all.static_bytes, UINT64_C(1));
}

static enum verdict judge(const struct run *run, const struct report *report)
{
    if (report->corrupt_bytes > 0)
        return VERDICT_CORRUPT;
    if (run->interrupted)
        return VERDICT_INTERRUPTED;
    if (report->all.lost > 0 || run->crashed > 0)
        return VERDICT_LOST;
    if (run->orphaned_known && run->orphaned_bytes > 0)
        return VERDICT_ORPHANED;
    return VERDICT_CLEAN;
}

int report_make(const struct run *run, struct report *ret)
{
    _cleanup_(report_free) struct report report = {0};
    const struct plan_shape shape = {.tenants = run->tenants->count, .workers = run->workers};
    int r;

    report.tenants = calloc(run->tenants->count, sizeof(*report.tenants));
    if (!report.tenants)
        return -ENOMEM;
    r = count_requests(run, &report);
    if (r < 0)
        return r;
    /* Each of the parts has a copy of the weights in it. */
    r = plan_static_refused(run->trace, &run->sizing->model, &shape,
        sub_saturate(run->sizing->device_bytes, run->workers * run->sizing->weights_bytes),
        &report.static_split_refused);
    if (r < 0)
        return r;
    r = report_count_pressure(run, &report);
    if (r < 0)
        return r;
    count_bytes(run, &report);
    report.completed = report.all.at_once + report.all.waited;
    report.static_completed = run->trace->count - report.static_split_refused;
    report.verdict = judge(run, &report);
    *ret = report;
    report = (struct report){0};
    return 0;
}
