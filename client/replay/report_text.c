/* The report for people: what was run, what happened to the requests, what sharing bought. */
#include <inttypes.h>

#include "base/clock.h"
#include "base/size.h"
#include "client/replay/arena_worker.h"
#include "client/replay/report.h"

static double ms(uint64_t ns)
{
    return (double) ns / (double) NSEC_PER_MSEC;
}

void report_print_choices(FILE *file, const struct run *run)
{
    const struct sizing *sizing = run->sizing;
    const struct options *options = run->options;
    char chunk[SIZE_TEXT_MAX], device[SIZE_TEXT_MAX], pooled[SIZE_TEXT_MAX], kv[SIZE_TEXT_MAX];

    fprintf(file, "trace     %s%s%s%s, %zu requests over %.0f s\n",
        options->trace ? options->trace : "", options->trace ? " (" : "",
        trace_format_name(run->trace->format), options->trace ? ")" : "", run->trace->count,
        (double) run->trace->duration_ns / (double) NSEC_PER_SEC);
    fprintf(file, "workers   %u tenant%s, %u process%s\n", run->tenants->count,
        PLURAL_S(run->tenants->count), run->workers, run->workers == 1 ? "" : "es");
    fprintf(file, "model     %s of KV a token, prefill %g tokens/s, decode %g tokens/s a request\n",
        size_format(kv, options->kv_bytes_per_token), sizing->model.prefill_rate,
        sizing->model.decode_rate);
    fprintf(file, "scale     bytes divided by %" PRIu64 "%s, chunks of %s\n", sizing->model.scale,
        options->scale > 0 ? "" : " (chosen; --scale)",
        size_format(chunk, sizing->model.chunk_bytes));
    if (sizing->weights_bytes > 0)
        fprintf(file, "weights   %s for each tenant, one copy for its workers\n",
            size_format(kv, sizing->weights_bytes));
    fprintf(file, "speed     %g times%s, about %.0f s\n", sizing->speed,
        options->speed > 0 ? "" : " (chosen; --speed)",
        (double) sizing->peaks.service_ns / (double) NSEC_PER_SEC / sizing->speed);
    fprintf(file, "device    %s%s; the trace would take %s if nobody waited\n",
        size_format(device, sizing->device_bytes),
        options->socket ? ", the broker's"
        : options->device_memory > 0 || options->device_percent > 0
            ? ", simulated"
            : ", simulated (chosen; --device-memory)",
        size_format(pooled, sizing->peaks.pooled_bytes));
    (void) fflush(file);
}

static void print_requests(FILE *file, const struct report *report)
{
    const struct report_part *all = &report->all;

    fprintf(file,
        "requests  %" PRIu64 ": %" PRIu64 " admitted at once, %" PRIu64 " waited, %" PRIu64
        " refused",
        all->requests, all->at_once, all->waited, all->refused);
    if (all->lost > 0)
        fprintf(file, ", %" PRIu64 " LOST", all->lost);
    fputc('\n', file);
    for (size_t i = 0; i < report->limit_count; i++)
        fprintf(file, "refused   %" PRIu64 " by %s\n", report->limits[i].refused,
            report->limits[i].name);
    fprintf(file, "waits     p50 %.1f ms, p99 %.1f ms; %" PRIu64 " preemptions\n",
        ms(all->wait_p50_ns), ms(all->wait_p99_ns), all->preempted);
}

static void print_tenants(FILE *file, const struct run *run, const struct report *report)
{
    char peak[SIZE_TEXT_MAX], own[SIZE_TEXT_MAX];

    fprintf(file, "\n%-16s %9s %9s %8s %8s %10s %10s %10s\n", "tenant", "requests", "at once",
        "waited", "refused", "wait p99", "peak", "static");
    for (uint32_t t = 0; t < run->tenants->count; t++) {
        const struct report_part *part = &report->tenants[t];

        fprintf(file,
            "%-16s %9" PRIu64 " %9" PRIu64 " %8" PRIu64 " %8" PRIu64 " %7.1f ms %10s %10s\n",
            run->tenants->items[t].name, part->requests, part->at_once, part->waited, part->refused,
            ms(part->wait_p99_ns), size_format(peak, part->peak_bytes),
            size_format(own, part->static_bytes));
    }
    fputc('\n', file);
}

static void print_pages(FILE *file, const struct run *run, const struct report *report)
{
    const uint64_t page_bytes = run->sizing->model.chunk_bytes / ARENA_PAGES_PER_CHUNK;
    char moved[SIZE_TEXT_MAX];

    fprintf(file, "%-16s %8s %10s %10s %10s %10s %12s %10s\n", "tenant", "priority", "evictions",
        "restores", "moved", "stall", "within min", "refused");
    for (uint32_t t = 0; t < run->tenants->count; t++) {
        const struct report_part *part = &report->tenants[t];

        fprintf(file,
            "%-16s %8u %10" PRIu64 " %10" PRIu64 " %10s %8.1f s %12" PRIu64 " %10" PRIu64 "\n",
            run->tenants->items[t].name, run->tenants->items[t].priority, part->evictions,
            part->restores, size_format(moved, (part->evictions + part->restores) * page_bytes),
            ms(part->stall_ns) / 1000, part->entitled, part->entitled_refused);
    }
    fprintf(file,
        "\npages     %s each; %" PRIu64 " read again after their request, %" PRIu64
        " found dropped\n",
        size_format(moved, page_bytes), report->all.reread, report->all.dropped);
}

static void print_failures(FILE *file, const struct run *run)
{
    for (uint32_t w = 0; w < run->workers; w++) {
        const struct stats_worker *worker = &run->stats->workers[w];
        enum worker_state state = (enum worker_state) atomic_load(&worker->state);

        if (state != WORKER_STATE_FINISHED && state != WORKER_STATE_STOPPED)
            fprintf(file, "worker %u of %s: %s\n", w,
                run->tenants->items[w % run->tenants->count].name,
                worker->text[0] != '\0' ? worker->text : worker_state_name(state));
    }
}

void report_print(FILE *file, const struct run *run, const struct report *report)
{
    char peak[SIZE_TEXT_MAX], own[SIZE_TEXT_MAX], checked[SIZE_TEXT_MAX], left[SIZE_TEXT_MAX];

    print_tenants(file, run, report);
    if (run->options->arena)
        print_pages(file, run, report);
    print_requests(file, report);
    if (run->options->arena)
        report_print_pressure(file, run, report);
    fprintf(file, "peak      %s leased; %s for each worker would need %s: %.1f %% saved\n",
        size_format(peak, report->all.peak_bytes),
        run->sizing->weights_bytes > 0 ? "own weights and a private pool" : "a private pool",
        size_format(own, report->all.static_bytes), 100 * report->saved_ratio);
    fprintf(file,
        "split     the same device in %u equal parts would have refused %" PRIu64 " requests",
        run->workers, report->static_split_refused);
    if (run->sizing->weights_bytes > 0)
        fprintf(file, " and completed %" PRIu64 "; %" PRIu64 " were", report->static_completed,
            report->completed);
    fputc('\n', file);
    fprintf(file,
        "bytes     %s written and checked, %" PRIu64 " corrupt (%" PRIu64 " of other tenants)\n",
        size_format(checked, report->checked_bytes), report->corrupt_bytes, report->foreign_bytes);
    if (run->orphaned_known)
        fprintf(file, "orphaned  %s\n", size_format(left, run->orphaned_bytes));
    else
        fprintf(file, "orphaned  unknown: the broker's control socket doesn't answer\n");
    fprintf(file, "time      %.1f s, arrivals at most %.0f ms late\n",
        (double) run->seconds_ns / (double) NSEC_PER_SEC, ms(report->late_ns));
    print_failures(file, run);
    fprintf(file, "result    %s\n", verdict_name(report->verdict));
}
