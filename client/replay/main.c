/*
 * gmb-replay: trace, sizes, broker, run, report. What it says goes to standard output, the live
 * line and what went wrong to standard error; with `--json -` standard output is the JSON's alone.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/replay/broker_config.h"
#include "client/replay/generator.h"
#include "client/replay/prefix.h"
#include "client/replay/probe.h"
#include "client/replay/report.h"

#define EXIT_USAGE 2

static int load(const struct options *options, struct trace *ret)
{
    _cleanup_(trace_close_ptr) struct trace_reader *reader = NULL;
    struct generator_params params = generator_defaults;
    struct trace_error error = {0};
    int r;

    params.seed = options->seed;
    if (options->limit > 0)
        params.requests = options->limit;
    if (options->trace) {
        r = trace_open(options->trace, &reader, &error);
    } else {
        r = generator_new(&params, &reader);
        if (r < 0)
            (void) trace_fail(&error, r, 0, "no memory");
    }
    if (r == 0)
        r = trace_load(reader, options->limit, ret, &error);
    if (r < 0 && error.line > 0)
        fprintf(stderr, "gmb-replay: %s:%llu: %s\n", options->trace,
            (unsigned long long) error.line, error.text);
    else if (r < 0)
        fprintf(stderr, "gmb-replay: %s: %s\n", options->trace ? options->trace : "generator",
            error.text);
    return r;
}

/* With somebody else's broker: what its device is like, and under which name we are known. */
static int ask_broker(
    const struct options *options, struct tenants *tenants, struct sizing_wish *wish)
{
    struct probe probe = {0};
    int r = probe_broker(options->socket, &probe);

    if (r < 0 || !probe.good) {
        fprintf(stderr, "gmb-replay: %s: %s\n", options->socket, r < 0 ? strerror(-r) : probe.text);
        return r < 0 ? r : -ECONNREFUSED;
    }
    (void) snprintf(tenants->items[0].name, sizeof(tenants->items[0].name), "%s", probe.tenant);
    wish->granularity_bytes = probe.device.granularity_bytes;
    wish->capacity_bytes = MIN(probe.device.capacity_bytes, probe.device.memory_max_bytes);
    wish->bytes_are_cheap = probe.driver == GPU_DRIVER_CUDA;
    return 0;
}

static int choose_sizes(const struct options *options, const struct trace *trace,
    struct tenants *tenants, struct run *run, struct sizing *ret)
{
    struct sizing_wish wish = {
        .kv_bytes_per_token = options->kv_bytes_per_token,
        .prefill_rate = options->prefill_rate,
        .decode_rate = options->decode_rate,
        .scale = options->scale,
        .weights_bytes = options->weights,
        .speed = options->speed,
        .device_bytes = options->device_memory,
        .device_percent = options->device_percent,
        .load_percent = options->load_percent,
        .arenas = options->arena && !options->config && !options->socket,
    };
    char text[TENANTS_ERROR_BYTES];
    uint32_t wanted;
    int r;

    r = tenants_choose(options, tenants, text);
    if (r < 0 || text[0] != '\0')
        fprintf(stderr, "gmb-replay: %s\n", text[0] != '\0' ? text : strerror(-r));
    if (r == 0 && options->socket)
        r = ask_broker(options, tenants, &wish);
    if (r < 0)
        return r;
    /* Where fewer tenants came out than were asked for, the workers are as many all the same. */
    wanted = options->config ? tenants->count : options->tenants > 0 ? options->tenants : 3;
    run->workers = options->workers * MAX(wanted, tenants->count);
    wish.shape = (struct plan_shape){.tenants = tenants->count, .workers = run->workers};
    r = sizing_choose(trace, &wish, ret);
    if (r < 0)
        fprintf(stderr, "gmb-replay: the trace's memory can't be planned: %s\n", strerror(-r));
    return r;
}

/* Runs and reports; the exit status. */
static int play(struct run *run, FILE *out)
{
    _cleanup_(report_free) struct report report = {0};
    int r;

    r = stats_new(run->tenants->count, run->workers, run->trace->count, &run->stats);
    if (r == 0)
        r = run_trace(run);
    if (r == 0)
        r = report_make(run, &report);
    if (r < 0) {
        fprintf(stderr, "gmb-replay: cannot run: %s\n", strerror(-r));
        return EXIT_FAILURE;
    }
    report_print(out, run, &report);
    if (run->options->json) {
        r = report_write_json(run->options->json, run, &report);
        if (r < 0) {
            fprintf(stderr, "gmb-replay: %s: %s\n", run->options->json, strerror(-r));
            return EXIT_FAILURE;
        }
    }
    return verdict_exit_status(report.verdict);
}

static int play_with_broker(struct run *run, FILE *out)
{
    const struct options *options = run->options;
    struct broker broker = {0};
    char error[BROKER_ERROR_BYTES], control[BROKER_PATH_BYTES], ladder[BROKER_LADDER_BYTES];
    int status = broker_ladder_read(options->ladder, ladder);

    if (status < 0) {
        fprintf(stderr, "gmb-replay: %s: %s\n", options->ladder, strerror(-status));
        return EXIT_FAILURE;
    }

    if (options->socket) {
        const char *slash = strrchr(options->socket, '/');

        (void) snprintf(control, sizeof(control), "%.*scontrol.sock",
            slash ? (int) (slash + 1 - options->socket) : 0, options->socket);
        run->client_socket = options->socket;
        run->control_socket = options->control ? options->control : control;
    } else {
        if (broker_start(run->sizing, run->tenants, options->config, ladder, &broker, error) < 0) {
            fprintf(stderr, "gmb-replay: %s\n", error);
            return EXIT_FAILURE;
        }
        run->client_socket = broker.client_socket;
        run->control_socket = broker.control_socket;
    }
    report_print_choices(out, run);
    status = play(run, out);
    if (broker_stop(&broker) < 0) {
        fprintf(stderr, "gmb-replay: gmbd didn't end well\n");
        if (status == EXIT_SUCCESS)
            status = EXIT_FAILURE;
    }
    return status;
}

static int replay(const struct options *options)
{
    _cleanup_(trace_free) struct trace trace = {0};
    _cleanup_(tenants_free) struct tenants tenants = {0};
    _cleanup_(sizing_free) struct sizing sizing = {0};
    FILE *out = options->json && strcmp(options->json, "-") == 0 ? stderr : stdout;
    struct run run = {.options = options, .trace = &trace, .tenants = &tenants, .sizing = &sizing};
    int status;

    if (load(options, &trace) < 0)
        return EXIT_FAILURE;
    if (options->policy)
        return prefix_replay(options, &trace, out);
    if (choose_sizes(options, &trace, &tenants, &run, &sizing) < 0)
        return EXIT_FAILURE;
    status = play_with_broker(&run, out);
    run.stats = stats_free(run.stats);
    return status;
}

int main(int argc, char *argv[])
{
    _cleanup_(options_free) struct options options = {0};

    switch (options_parse(argc, argv, &options)) {
    case OPTIONS_OK:
        return replay(&options);
    case OPTIONS_HELP:
        fputs(options_usage, stdout);
        return EXIT_SUCCESS;
    case OPTIONS_VERSION:
        puts("gmb-replay " REPLAY_VERSION);
        return EXIT_SUCCESS;
    default: /* OPTIONS_WRONG, and no memory */
        return EXIT_USAGE;
    }
}
