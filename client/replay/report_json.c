/* The report for programs. Keys are stable: none is renamed, new ones may come. */
#include <errno.h>
#include <jansson.h>

#include "base/clock.h"
#include "client/replay/arena_worker.h"
#include "client/replay/report.h"

static json_t *integer(uint64_t value)
{
    return json_integer((json_int_t) MIN(value, (uint64_t) INT64_MAX));
}

static json_t *milliseconds(uint64_t ns)
{
    return json_real((double) ns / (double) NSEC_PER_MSEC);
}

static uint64_t page_bytes(const struct run *run)
{
    return run->sizing->model.chunk_bytes / ARENA_PAGES_PER_CHUNK;
}

/* Each set takes the value's reference; any failure shows as -1, summed up by the caller. */
static int set_part(json_t *object, const struct report_part *part)
{
    return json_object_set_new(object, "requests_total", integer(part->requests)) |
           json_object_set_new(object, "admitted_at_once", integer(part->at_once)) |
           json_object_set_new(object, "waited", integer(part->waited)) |
           json_object_set_new(object, "refused", integer(part->refused)) |
           json_object_set_new(object, "lost", integer(part->lost)) |
           json_object_set_new(object, "preempted", integer(part->preempted)) |
           json_object_set_new(object, "wait_ms_p50", milliseconds(part->wait_p50_ns)) |
           json_object_set_new(object, "wait_ms_p99", milliseconds(part->wait_p99_ns)) |
           json_object_set_new(object, "peak_bytes", integer(part->peak_bytes)) |
           json_object_set_new(object, "static_peak_bytes", integer(part->static_bytes)) |
           json_object_set_new(object, "stall_ms", milliseconds(part->stall_ns));
}

static int set_pages(json_t *object, const struct run *run, const struct report_part *part)
{
    if (!run->options->arena)
        return 0;
    return json_object_set_new(object, "evictions", integer(part->evictions)) |
           json_object_set_new(object, "restores", integer(part->restores)) |
           json_object_set_new(object, "moved_bytes",
               integer((part->evictions + part->restores) * page_bytes(run))) |
           json_object_set_new(object, "restore_wait_ms", milliseconds(part->restore_ns)) |
           json_object_set_new(object, "reread_pages", integer(part->reread)) |
           json_object_set_new(object, "dropped_pages", integer(part->dropped)) |
           json_object_set_new(object, "entitled", integer(part->entitled)) |
           json_object_set_new(object, "entitled_refused", integer(part->entitled_refused));
}

static int set_results(json_t *object, const struct run *run, const struct report *report)
{
    return json_object_set_new(object, "saved_ratio", json_real(report->saved_ratio)) |
           json_object_set_new(
               object, "static_split_refused", integer(report->static_split_refused)) |
           json_object_set_new(object, "completed", integer(report->completed)) |
           json_object_set_new(
               object, "static_split_completed", integer(report->static_completed)) |
           json_object_set_new(object, "corrupt_bytes", integer(report->corrupt_bytes)) |
           json_object_set_new(object, "foreign_bytes", integer(report->foreign_bytes)) |
           json_object_set_new(object, "checked_bytes", integer(report->checked_bytes)) |
           json_object_set_new(object, "orphaned_bytes",
               run->orphaned_known ? integer(run->orphaned_bytes) : json_null()) |
           json_object_set_new(object, "workers_failed", integer(run->crashed)) |
           json_object_set_new(object, "workers_killed", integer(run->killed)) |
           json_object_set_new(object, "late_ms_max", milliseconds(report->late_ns)) |
           json_object_set_new(
               object, "seconds", json_real((double) run->seconds_ns / (double) NSEC_PER_SEC)) |
           json_object_set_new(object, "result", json_string(verdict_name(report->verdict)));
}

static int set_choices(json_t *object, const struct run *run)
{
    const struct sizing *sizing = run->sizing;
    const struct options *options = run->options;

    return json_object_set_new(
               object, "trace", options->trace ? json_string(options->trace) : json_null()) |
           json_object_set_new(
               object, "format", json_string(trace_format_name(run->trace->format))) |
           json_object_set_new(object, "workers", integer(run->workers)) |
           json_object_set_new(object, "scale", integer(sizing->model.scale)) |
           json_object_set_new(object, "speed", json_real(sizing->speed)) |
           json_object_set_new(
               object, "kv_bytes_per_token", integer(sizing->model.kv_bytes_per_token)) |
           json_object_set_new(object, "prefill_rate", json_real(sizing->model.prefill_rate)) |
           json_object_set_new(object, "decode_rate", json_real(sizing->model.decode_rate)) |
           json_object_set_new(object, "chunk_bytes", integer(sizing->model.chunk_bytes)) |
           json_object_set_new(object, "device_bytes", integer(sizing->device_bytes)) |
           json_object_set_new(object, "weights_bytes", integer(sizing->weights_bytes)) |
           json_object_set_new(object, "pooled_peak_bytes", integer(sizing->peaks.pooled_bytes));
}

static json_t *priority_json(const struct run *run, const struct report_priority *part)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:f}", "priority",
        integer(part->priority), "requests_total", integer(part->requests), "completed",
        integer(part->completed), "refused", integer(part->refused), "rejected",
        integer(part->rejected), "wait_ms_p50", milliseconds(part->wait_p50_ns), "wait_ms_p99",
        milliseconds(part->wait_p99_ns), "goodput_tokens_s", report_goodput(run, part->tokens));
}

static json_t *step_json(const struct report_step *step)
{
    return json_pack("{s:o, s:o, s:o, s:o}", "asked", integer(step->asked), "answered",
        integer(step->answered), "affected", integer(step->affected), "bytes",
        integer(step->bytes));
}

/* Goodput, each priority, and each step of the ladder. */
static int set_pressure(json_t *object, const struct run *run, const struct report *report)
{
    json_t *priorities = json_array(), *steps = json_object();
    uint64_t tokens = 0;
    int failed = 0;

    if (!run->options->arena) {
        json_decref(priorities);
        json_decref(steps);
        return 0;
    }
    for (size_t i = 0; i < report->priority_count; i++) {
        tokens += report->priorities[i].tokens;
        failed |= json_array_append_new(priorities, priority_json(run, &report->priorities[i]));
    }
    for (unsigned i = 1; i < STATS_STEPS; i++)
        failed |= json_object_set_new(steps, report_step_name(i), step_json(&report->steps[i]));
    return failed | json_object_set_new(object, "priorities", priorities) |
           json_object_set_new(object, "ladder", steps) |
           json_object_set_new(object, "goodput_tokens_s", json_real(report_goodput(run, tokens)));
}

static json_t *tenants_json(const struct run *run, const struct report *report)
{
    json_t *array = json_array();

    for (uint32_t t = 0; t < run->tenants->count; t++) {
        json_t *object = json_object();

        if (json_object_set_new(object, "name", json_string(run->tenants->items[t].name)) |
            set_part(object, &report->tenants[t]) | set_pages(object, run, &report->tenants[t]) |
            json_object_set_new(object, "priority", integer(run->tenants->items[t].priority)) |
            json_array_append_new(array, object)) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *limits_json(const struct report *report)
{
    json_t *object = json_object();

    for (size_t i = 0; i < report->limit_count; i++)
        if (json_object_set_new(
                object, report->limits[i].name, integer(report->limits[i].refused))) {
            json_decref(object);
            return NULL;
        }
    return object;
}

int report_write_json(const char *path, const struct run *run, const struct report *report)
{
    const size_t flags = JSON_INDENT(2) | JSON_REAL_PRECISION(15);
    json_t *object = json_object();
    int r;

    if (set_part(object, &report->all) | set_pages(object, run, &report->all) |
        set_results(object, run, report) | set_pressure(object, run, report) |
        json_object_set_new(object, "refused_by", limits_json(report)) |
        json_object_set_new(object, "tenants", tenants_json(run, report)) |
        set_choices(object, run)) {
        json_decref(object);
        return -ENOMEM;
    }
    errno = 0;
    if (path[0] == '-' && path[1] == '\0') {
        r = json_dumpf(object, stdout, flags);
        (void) putchar('\n');
    } else {
        r = json_dump_file(object, path, flags);
    }
    json_decref(object);
    if (r < 0)
        return errno != 0 ? -errno : -EIO;
    return 0;
}
