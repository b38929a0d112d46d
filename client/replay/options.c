/* getopt_long over one table; values are parsed strictly, and what is wrong is said with the name
 * of the option. */
#include "client/replay/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"
#include "client/replay/arena_worker.h"
#include "client/replay/prefix_cache.h"
#include "client/replay/text.h"
#include "client/replay/trace.h"

enum option_code {
    OPTION_TRACE = 256, /* past every character */
    OPTION_TENANTS,
    OPTION_CONFIG,
    OPTION_WORKERS,
    OPTION_KV_BYTES,
    OPTION_PREFILL,
    OPTION_DECODE,
    OPTION_SPEED,
    OPTION_SCALE,
    OPTION_LIMIT,
    OPTION_JSON,
    OPTION_SOCKET,
    OPTION_CONTROL,
    OPTION_DEVICE_MEMORY,
    OPTION_SEED,
    OPTION_WAIT,
    OPTION_ARENA,
    OPTION_THINK,
    OPTION_PRIORITIES,
    OPTION_REQUEST_PRIORITIES,
    OPTION_BATCH,
    OPTION_LADDER,
    OPTION_LOAD,
    OPTION_POLICY,
    OPTION_BLOCKS,
    OPTION_BOUND,
    OPTION_WEIGHTS,
    OPTION_HELP,
    OPTION_VERSION,
};

static const struct option table[] = {
    {"trace", required_argument, NULL, OPTION_TRACE},
    {"tenants", required_argument, NULL, OPTION_TENANTS},
    {"config", required_argument, NULL, OPTION_CONFIG},
    {"workers", required_argument, NULL, OPTION_WORKERS},
    {"kv-bytes-per-token", required_argument, NULL, OPTION_KV_BYTES},
    {"prefill-rate", required_argument, NULL, OPTION_PREFILL},
    {"decode-rate", required_argument, NULL, OPTION_DECODE},
    {"speed", required_argument, NULL, OPTION_SPEED},
    {"scale", required_argument, NULL, OPTION_SCALE},
    {"limit", required_argument, NULL, OPTION_LIMIT},
    {"json", required_argument, NULL, OPTION_JSON},
    {"socket", required_argument, NULL, OPTION_SOCKET},
    {"control", required_argument, NULL, OPTION_CONTROL},
    {"device-memory", required_argument, NULL, OPTION_DEVICE_MEMORY},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"wait", required_argument, NULL, OPTION_WAIT},
    {"arena", no_argument, NULL, OPTION_ARENA},
    {"think", required_argument, NULL, OPTION_THINK},
    {"priorities", required_argument, NULL, OPTION_PRIORITIES},
    {"request-priorities", required_argument, NULL, OPTION_REQUEST_PRIORITIES},
    {"batch", required_argument, NULL, OPTION_BATCH},
    {"ladder", required_argument, NULL, OPTION_LADDER},
    {"load", required_argument, NULL, OPTION_LOAD},
    {"policy", required_argument, NULL, OPTION_POLICY},
    {"blocks", required_argument, NULL, OPTION_BLOCKS},
    {"bound", no_argument, NULL, OPTION_BOUND},
    {"weights", required_argument, NULL, OPTION_WEIGHTS},
    {"help", no_argument, NULL, OPTION_HELP},
    {"version", no_argument, NULL, OPTION_VERSION},
    {0},
};

const char options_usage[] =
    "usage: gmb-replay [OPTION…]\n"
    "\n"
    "Replays a trace of LLM requests against gmbd: worker processes take the KV memory of each\n"
    "request, let it grow with every token, and give it back; every byte is written and checked.\n"
    "\n"
    "  --trace FILE            Azure CSV or Mooncake JSON lines (none: requests are generated)\n"
    "  --limit N               only the first N requests (generator: 2000)\n"
    "  --tenants N|NAME,…      tenants (3)\n"
    "  --workers N             worker processes for each tenant (2)\n"
    "  --config FILE           broker configuration with the tenants to use\n"
    "  --kv-bytes-per-token B  (131072: Llama-3.1-8B in 16 bit)\n"
    "  --weights SIZE          of each tenant's model, one copy for all of its workers (0)\n"
    "  --prefill-rate N        prompt tokens/s of one request (20000)\n"
    "  --decode-rate N         generated tokens/s of one request (40)\n"
    "  --speed X               time is X times faster (chosen: about a minute)\n"
    "  --scale N               bytes are divided by N (chosen: at most 512M at once)\n"
    "  --device-memory SIZE|N% of the simulated device, or of what the trace needs (95%)\n"
    "  --load N%               size the device so that the trace's peak need is N% of it\n"
    "  --arena                 each worker keeps all KV in pages of one arena, which the broker "
    "may\n"
    "                          evict; finished requests' pages stay until they are read once more\n"
    "  --think SECONDS         until then (10)\n"
    "  --priorities N,…        of the tenants, in turn (500,400,300,200,100)\n"
    "  --batch N               requests that a worker with an arena runs at once (64)\n"
    "  --request-priorities N,… of a worker's requests, in turn (100)\n"
    "  --ladder none|default|FILE what the tenants' workers are asked to do under pressure (none)\n"
    "  --wait SECONDS          how long a request may wait for memory (60)\n"
    "  --seed N                of the generator (1)\n"
    "  --socket PATH           use the broker there instead of one of our own\n"
    "  --control PATH          its control socket (control.sock beside the other)\n"
    "  --policy NAME           no broker: a prefix cache with that eviction policy over a "
    "Mooncake\n"
    "                          trace ('default': the one that is shipped)\n"
    "  --blocks N              blocks that this cache holds\n"
    "  --bound                 also what a clairvoyant would get\n"
    "  --json FILE             write the report there too (-: standard output)\n"
    "  --help, --version\n";

static bool parse_names(const char *text, struct options *options)
{
    size_t count = 1;

    for (const char *c = text; *c != '\0'; c++)
        count += *c == ',';
    if (count > OPTIONS_TENANTS_MAX)
        return false;
    free(options->names);
    options->name_count = 0;
    options->names = calloc(count, sizeof(*options->names));
    if (!options->names)
        return false;
    for (;;) {
        size_t size = strcspn(text, ",");

        if (size == 0 || size > LIMIT_NAME_BYTES)
            return false;
        memcpy(options->names[options->name_count++], text, size);
        text += size;
        if (*text == '\0')
            break;
        text++;
    }
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++)
            if (strcmp(options->names[i], options->names[j]) == 0)
                return false;
    options->tenants = (uint32_t) count;
    return true;
}

static bool parse_tenants(const char *text, struct options *options)
{
    uint64_t count;

    if (text[0] < '0' || text[0] > '9')
        return parse_names(text, options);
    if (!text_parse_uint(text, OPTIONS_TENANTS_MAX, &count) || count == 0)
        return false;
    options->tenants = (uint32_t) count;
    return true;
}

static bool parse_count(const char *text, uint64_t max, uint64_t *ret)
{
    uint64_t value;

    if (!text_parse_uint(text, max, &value) || value == 0)
        return false;
    *ret = value;
    return true;
}

static bool parse_size(const char *text, uint64_t *ret)
{
    uint64_t bytes;

    if (size_parse(text, &bytes) < 0 || bytes == 0 || bytes == SIZE_INFINITY)
        return false;
    *ret = bytes;
    return true;
}

/* "130%". */
static bool parse_percent(const char *text, uint32_t *ret)
{
    size_t size = strlen(text);
    char digits[8];
    uint64_t percent;

    if (size < 2 || size > sizeof(digits) || text[size - 1] != '%')
        return false;
    memcpy(digits, text, size - 1);
    digits[size - 1] = '\0';
    if (!parse_count(digits, 1000, &percent))
        return false;
    *ret = (uint32_t) percent;
    return true;
}

static bool parse_device(const char *text, struct options *options)
{
    options->device_memory = 0;
    options->device_percent = 0;
    return text[0] != '\0' && text[strlen(text) - 1] == '%'
               ? parse_percent(text, &options->device_percent)
               : parse_size(text, &options->device_memory);
}

static bool parse_priorities(const char *text, struct priorities *ret)
{
    char one[16];

    for (ret->count = 0;;) {
        size_t size = strcspn(text, ",");
        uint64_t value;

        if (size >= sizeof(one) || ret->count == OPTIONS_PRIORITIES_MAX)
            return false;
        memcpy(one, text, size);
        one[size] = '\0';
        if (!text_parse_uint(one, LIMIT_PRIORITY, &value))
            return false;
        ret->values[ret->count++] = (uint32_t) value;
        if (text[size] == '\0')
            return true;
        text += size + 1;
    }
}

static bool parse_wait(const char *text, uint64_t *ret_ns)
{
    double seconds;

    if (!text_parse_positive(text, &seconds) ||
        seconds > (double) LIMIT_WAIT_NS / (double) NSEC_PER_SEC)
        return false;
    *ret_ns = (uint64_t) (seconds * (double) NSEC_PER_SEC);
    return true;
}

static bool take_number(int option, const char *text, struct options *options)
{
    uint64_t number;

    switch (option) {
    case OPTION_TENANTS:
        return parse_tenants(text, options);
    case OPTION_WORKERS:
        if (!parse_count(text, OPTIONS_WORKERS_MAX, &number))
            return false;
        options->workers = (uint32_t) number;
        return true;
    case OPTION_KV_BYTES:
        return parse_size(text, &options->kv_bytes_per_token);
    case OPTION_PREFILL:
        return text_parse_positive(text, &options->prefill_rate);
    case OPTION_DECODE:
        return text_parse_positive(text, &options->decode_rate);
    case OPTION_SPEED:
        return text_parse_positive(text, &options->speed);
    case OPTION_SCALE:
        return parse_count(text, UINT64_C(1) << 40, &options->scale);
    case OPTION_LIMIT:
        return parse_count(text, TRACE_REQUESTS_MAX, &options->limit);
    case OPTION_WEIGHTS:
        return parse_size(text, &options->weights);
    case OPTION_DEVICE_MEMORY:
        return parse_device(text, options);
    case OPTION_THINK:
        return text_parse_positive(text, &options->think);
    case OPTION_PRIORITIES:
        return parse_priorities(text, &options->priorities);
    case OPTION_REQUEST_PRIORITIES:
        return parse_priorities(text, &options->request_priorities);
    case OPTION_BATCH:
        if (!parse_count(text, ARENA_BATCH_MAX, &number))
            return false;
        options->batch = (uint32_t) number;
        return true;
    case OPTION_LOAD:
        return parse_percent(text, &options->load_percent);
    case OPTION_SEED:
        return text_parse_uint(text, UINT64_MAX, &options->seed);
    case OPTION_WAIT:
        return parse_wait(text, &options->wait_ns);
    case OPTION_BLOCKS:
        return parse_count(text, PREFIX_CACHE_BLOCKS_MAX, &options->blocks);
    default: /* those with a text for a value */
        return *text != '\0';
    }
}

static void take_text(int option, const char *text, struct options *options)
{
    if (option == OPTION_TRACE)
        options->trace = text;
    else if (option == OPTION_CONFIG)
        options->config = text;
    else if (option == OPTION_JSON)
        options->json = text;
    else if (option == OPTION_SOCKET)
        options->socket = text;
    else if (option == OPTION_CONTROL)
        options->control = text;
    else if (option == OPTION_POLICY)
        options->policy = text;
    else if (option == OPTION_LADDER)
        options->ladder = text;
}

static int _printf_(1, 2) wrong(const char *format, ...)
{
    va_list args;

    fputs("gmb-replay: ", stderr);
    va_start(args, format);
    (void) vfprintf(stderr, format, args);
    va_end(args);
    fputs("; see --help\n", stderr);
    return OPTIONS_WRONG;
}

/* What the prefix cache needs; the rest of the command line is for a broker. */
static int check_policy(const struct options *options)
{
    char names[256] = "default";

    if (!options->policy)
        return options->blocks > 0 ? wrong("--blocks goes with --policy")
               : options->bound    ? wrong("--bound goes with --policy")
                                   : OPTIONS_OK;
    for (unsigned i = 0; eviction_at(i) != NULL; i++) {
        size_t used = strlen(names);

        (void) snprintf(names + used, sizeof(names) - used, ", %s", eviction_at(i)->name);
    }
    if (eviction_find(options->policy) == NULL)
        return wrong("no policy '%s': there are %s", options->policy, names);
    if (options->blocks == 0)
        return wrong("--policy wants --blocks");
    if (!options->trace)
        return wrong("--policy wants a --trace that names its blocks");
    if (options->socket || options->config || options->arena || options->weights > 0)
        return wrong("--policy runs without a broker: no --socket, --config, --arena or --weights");
    return OPTIONS_OK;
}

static int check(const struct options *options)
{
    if (options->socket && options->config)
        return wrong("--config is for a broker of our own, not with --socket");
    if (options->socket && (options->device_memory > 0 || options->device_percent > 0))
        return wrong("--device-memory is for a device of our own, not with --socket");
    if (options->load_percent > 0 &&
        (options->socket || options->device_memory > 0 || options->device_percent > 0))
        return wrong("--load sizes a device of our own: not with --socket or --device-memory");
    if (options->ladder && (options->socket || options->config))
        return wrong("--ladder is for tenants of our own, not with --socket or --config");
    if ((options->ladder || options->batch > 0 || options->request_priorities.count > 0) &&
        !options->arena)
        return wrong("--ladder, --batch and --request-priorities go with --arena");
    if (options->priorities.count > 0 && (options->socket || options->config))
        return wrong("--priorities is for tenants of our own, not with --socket or --config");
    if (options->think > 0 && !options->arena)
        return wrong("--think goes with --arena");
    if (options->control && !options->socket)
        return wrong("--control goes with --socket");
    if (MAX(options->tenants, 1u) * options->workers > OPTIONS_WORKERS_MAX)
        return wrong("more than %u worker processes", OPTIONS_WORKERS_MAX);
    return OPTIONS_OK;
}

int options_parse(int argc, char *const argv[], struct options *ret)
{
    _cleanup_(options_free) struct options options = {
        .workers = 2,
        .kv_bytes_per_token = 131072,
        .prefill_rate = 20000,
        .decode_rate = 40,
        .seed = 1,
        .wait_ns = 60 * NSEC_PER_SEC,
    };
    int option, place = 0, r;

    optind = 1;
    opterr = 1;
    while ((option = getopt_long(argc, argv, "h", table, &place)) != -1) {
        if (option == OPTION_HELP || option == 'h')
            return OPTIONS_HELP;
        if (option == OPTION_VERSION)
            return OPTIONS_VERSION;
        if (option == '?')
            return OPTIONS_WRONG;
        if (option == OPTION_BOUND)
            options.bound = true;
        else if (option == OPTION_ARENA)
            options.arena = true;
        else if (!take_number(option, optarg, &options))
            return wrong("--%s makes no sense as '%s'", table[place].name, optarg);
        take_text(option, optarg, &options);
    }
    if (optind < argc)
        return wrong("what is '%s'?", argv[optind]);
    r = check(&options);
    if (r == OPTIONS_OK)
        r = check_policy(&options);
    if (r != OPTIONS_OK)
        return r;
    *ret = options;
    options.names = NULL;
    return OPTIONS_OK;
}

void options_free(struct options *options)
{
    free(options->names);
    options->names = NULL;
}
