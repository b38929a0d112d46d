/* What degradation cost whom, and what it gave: by the priority of requests, and by the step. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"
#include "client/gmb.h"
#include "client/replay/report.h"

static_assert(STATS_STEPS == GMB_DEGRADE_PAUSE_NEW + 1, "one count for each step");

static const struct {
    const char *name, *unit;
} steps[STATS_STEPS] = {
    [0] = {"none", ""},
    [GMB_DEGRADE_REDUCE_BATCH] = {"reduce-batch", "requests"},
    [GMB_DEGRADE_QUANTIZE_KV] = {"quantize-kv", "tokens"},
    [GMB_DEGRADE_SHRINK_CONTEXT] = {"shrink-context", "requests"},
    [GMB_DEGRADE_DROP_PREFIX_CACHE] = {"drop-prefix-cache", "sequences"},
    [GMB_DEGRADE_REJECT_BELOW_PRIORITY] = {"reject-below-priority", "requests"},
    [GMB_DEGRADE_PAUSE_NEW] = {"pause-new", "requests"},
};

const char *report_step_name(unsigned step)
{
    return step < STATS_STEPS ? steps[step].name : "unknown";
}

const char *report_step_unit(unsigned step)
{
    return step < STATS_STEPS ? steps[step].unit : "";
}

double report_goodput(const struct run *run, uint64_t tokens)
{
    double seconds = (double) run->seconds_ns / (double) NSEC_PER_SEC * run->sizing->speed;

    return seconds > 0 ? (double) tokens / seconds : 0;
}

static uint32_t priority_of(const struct run *run, size_t request)
{
    const struct priorities *priorities = run_request_priorities(run);

    return priorities->values[request / run->workers % priorities->count];
}

static void count_request(
    const struct run *run, size_t index, struct report_priority *part, uint64_t *waits)
{
    const struct stats_request *request = &run->stats->requests[index];
    enum phase phase = (enum phase) atomic_load(&request->phase);

    part->requests++;
    if (phase == PHASE_COMPLETED) {
        waits[part->completed++] = atomic_load(&request->waited_ns);
        part->tokens += run->trace->requests[index].generated_tokens;
    } else if (phase == PHASE_REFUSED) {
        part->refused++;
        part->rejected +=
            strcmp(request->limit, report_step_name(GMB_DEGRADE_REJECT_BELOW_PRIORITY)) == 0;
    }
}

/* The next lower one, or false: that was the last. */
static bool priority_next(const struct run *run, size_t found, uint32_t *priority)
{
    const struct priorities *priorities = run_request_priorities(run);
    bool any = false;
    uint32_t best = 0;

    for (size_t i = 0; i < priorities->count; i++) {
        uint32_t value = priorities->values[i];

        if ((found == 0 || value < *priority) && (!any || value > best)) {
            best = value;
            any = true;
        }
    }
    *priority = best;
    return any;
}

int report_count_pressure(const struct run *run, struct report *report)
{
    const size_t count = run->stats->request_count;
    _cleanup_free_ uint64_t *waits = calloc(count, sizeof(*waits));
    uint32_t priority = 0;

    if (!waits)
        return -ENOMEM;
    while (priority_next(run, report->priority_count, &priority)) {
        struct report_priority *part = &report->priorities[report->priority_count++];

        part->priority = priority;
        for (size_t i = 0; i < count; i++)
            if (priority_of(run, i) == priority)
                count_request(run, i, part, waits);
        stats_sort(waits, part->completed);
        part->wait_p50_ns = stats_percentile(waits, part->completed, 50);
        part->wait_p99_ns = stats_percentile(waits, part->completed, 99);
    }
    for (uint32_t w = 0; w < run->workers; w++) {
        for (unsigned i = 0; i < STATS_STEPS; i++) {
            const struct stats_step *step = &run->stats->workers[w].steps[i];

            report->steps[i].asked += atomic_load(&step->asked);
            report->steps[i].answered += atomic_load(&step->answered);
            report->steps[i].affected += atomic_load(&step->affected);
            report->steps[i].bytes += atomic_load(&step->bytes);
        }
    }
    return 0;
}

static double ms(uint64_t ns)
{
    return (double) ns / (double) NSEC_PER_MSEC;
}

void report_print_pressure(FILE *file, const struct run *run, const struct report *report)
{
    char bytes[SIZE_TEXT_MAX];
    uint64_t tokens = 0;
    bool any = false;

    fprintf(file, "\n%-16s %9s %10s %9s %9s %11s %11s %12s\n", "request priority", "requests",
        "completed", "rejected", "refused", "wait p50", "wait p99", "tokens/s");
    for (size_t i = 0; i < report->priority_count; i++) {
        const struct report_priority *part = &report->priorities[i];

        tokens += part->tokens;
        fprintf(file,
            "%-16u %9" PRIu64 " %10" PRIu64 " %9" PRIu64 " %9" PRIu64 " %8.1f ms %8.1f ms %12.1f\n",
            part->priority, part->requests, part->completed, part->rejected,
            part->refused - part->rejected, ms(part->wait_p50_ns), ms(part->wait_p99_ns),
            report_goodput(run, part->tokens));
    }
    for (unsigned i = 1; i < STATS_STEPS; i++)
        any = any || report->steps[i].asked > 0;
    if (any)
        fprintf(
            file, "\n%-22s %8s %9s %20s %10s\n", "step", "asked", "answered", "changed", "gave");
    for (unsigned i = 1; any && i < STATS_STEPS; i++) {
        const struct report_step *step = &report->steps[i];

        if (step->asked > 0)
            fprintf(file, "%-22s %8" PRIu64 " %9" PRIu64 " %10" PRIu64 " %9s %10s\n",
                report_step_name(i), step->asked, step->answered, step->affected,
                report_step_unit(i), size_format(bytes, step->bytes));
    }
    fprintf(file,
        "\ngoodput   %.1f generated tokens/s of completed requests, in the trace's time\n",
        report_goodput(run, tokens));
}
