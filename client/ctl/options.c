/* Everything that can be wrong without asking the broker is found here, before anything is sent. */
#include "client/ctl/options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/size.h"
#include "client/text.h"

#define SOCKET_DEFAULT "/run/gmbd/control.sock"
/* As many as one request may carry: see proto/wire.c. */
#define ASSIGNMENTS_MAX 64
/* Of an argument in a message; what is longer is cut. */
#define WORD_BYTES 65

static const char *const command_names[] = {
    [COMMAND_STATUS] = "status",
    [COMMAND_TENANTS] = "tenants",
    [COMMAND_CLIENTS] = "clients",
    [COMMAND_LEASES] = "leases",
    [COMMAND_SET] = "set",
    [COMMAND_RELOAD] = "reload",
    [COMMAND_RECLAIM] = "reclaim",
    [COMMAND_EVICT] = "evict",
    [COMMAND_DRAIN] = "drain",
    [COMMAND_PRESSURE] = "pressure",
    [COMMAND_METRICS] = "metrics",
    [COMMAND_SEGMENTS] = "segments",
};
_Static_assert(ARRAY_SIZE(command_names) == COMMAND_MAX, "a name for each command");

enum option_code {
    OPTION_SOCKET = 256,
    OPTION_JSON,
    OPTION_DEVICE,
    OPTION_REVISION,
    OPTION_DRY_RUN,
    OPTION_UNDO,
    OPTION_WATCH,
    OPTION_REMOVE,
    OPTION_VERIFY,
    OPTION_DEMOTE,
    OPTION_RESTORE,
    OPTION_TENANT,
    OPTION_VERSION,
};

static const struct option long_options[] = {
    {"socket", required_argument, NULL, OPTION_SOCKET},
    {"json", no_argument, NULL, OPTION_JSON},
    {"device", required_argument, NULL, OPTION_DEVICE},
    {"revision", required_argument, NULL, OPTION_REVISION},
    {"dry-run", no_argument, NULL, OPTION_DRY_RUN},
    {"undo", no_argument, NULL, OPTION_UNDO},
    {"watch", no_argument, NULL, OPTION_WATCH},
    {"remove", no_argument, NULL, OPTION_REMOVE},
    {"verify", no_argument, NULL, OPTION_VERIFY},
    {"demote", no_argument, NULL, OPTION_DEMOTE},
    {"restore", no_argument, NULL, OPTION_RESTORE},
    {"tenant", required_argument, NULL, OPTION_TENANT},
    {"version", no_argument, NULL, OPTION_VERSION},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static void help(void)
{
    (void) fputs(
        "usage: gmbctl [OPTION...] COMMAND\n"
        "\n"
        "Asks the GPU memory broker of this node, and changes its limits.\n"
        "\n"
        "  status                    the broker and its devices\n"
        "  tenants                   limits and use of each tenant\n"
        "  clients                   connected processes\n"
        "  leases                    who holds what\n"
        "  segments [NAME]           shared weights, and what is to be done to them\n"
        "  set TENANT KEY=VALUE...   change limits, all of them or none\n"
        "  pressure                  levels, stall, what tenants were asked and did\n"
        "  metrics                   figures as text for a collector (OpenMetrics)\n"
        "  reload                    read the configuration files again\n"
        "  reclaim TENANT SIZE       make room for a tenant out of others' arenas\n"
        "  evict TENANT SIZE         move so much of a tenant's arenas to the host tier\n"
        "  drain UUID                grant nothing there, and move away what can be moved\n"
        "\n"
        "  --json                    for programs: sizes in bytes, null for no limit\n"
        "  --socket PATH             of the broker ($GMB_CONTROL_SOCKET,\n"
        "                            " SOCKET_DEFAULT ")\n"
        "  --revision N              set: only if the tenant is still at revision N\n"
        "  --device UUID             set: memory limits of this device alone;\n"
        "                            reclaim, evict: there; the first device otherwise;\n"
        "                            segments: those of this device alone\n"
        "  --dry-run                 reclaim, evict: only show what would be taken\n"
        "  --undo                    drain: take the device back to use\n"
        "  --watch                   pressure: again each second, until interrupted\n"
        "  --verify                  segments: compare them with their checksums\n"
        "  --demote, --restore       segments: move idle ones to the host tier, or back\n"
        "  --remove                  segments NAME: let nobody open it any more\n"
        "  --tenant TENANT           segments: of this tenant or share group alone\n"
        "  --version, --help\n"
        "\n"
        "Keys: MemoryMin MemoryLow MemoryHigh MemoryMax Priority Weight ClientsMax LeasesMax\n"
        "HostMax QuantizedTier DegradeLow DegradeMedium DegradeCritical\n"
        "Exit status: 0 done, 1 refused, 2 usage, 3 broker not reachable, 4 the revision is\n"
        "another one. gmbctl(1) has examples.\n",
        stdout);
}

static int usage_error(enum exit_status *ret_status, const char *format, ...) _printf_(2, 3);
static int usage_error(enum exit_status *ret_status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void) fputs("gmbctl: ", stderr);
    (void) vfprintf(stderr, format, args);
    (void) fputs("; gmbctl --help shows how\n", stderr);
    va_end(args);
    *ret_status = EXIT_USAGE;
    return -EINVAL;
}

static bool number_parse(const char *text, uint64_t *ret)
{
    uint64_t value = 0;

    if (*text == '\0')
        return false;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9' || __builtin_mul_overflow(value, UINT64_C(10), &value) ||
            __builtin_add_overflow(value, (uint64_t) (*text - '0'), &value))
            return false;
    }
    *ret = value;
    return true;
}

static int option_apply(int code, struct options *options, enum exit_status *ret_status)
{
    *ret_status = EXIT_OK;
    switch (code) {
    case OPTION_SOCKET:
        options->socket = optarg;
        return 0;
    case OPTION_JSON:
        options->json = true;
        return 0;
    case OPTION_DEVICE:
        options->has_device = uuid_parse(optarg, &options->device) == 0;
        return options->has_device
                   ? 0
                   : usage_error(
                         ret_status, "--device %s is no UUID such as gmbctl status shows", optarg);
    case OPTION_REVISION:
        if (number_parse(optarg, &options->revision) && options->revision > 0)
            return 0;
        return usage_error(ret_status, "--revision %s is no number above 0", optarg);
    case OPTION_DRY_RUN:
        options->dry_run = true;
        return 0;
    case OPTION_UNDO:
        options->undo = true;
        return 0;
    case OPTION_WATCH:
        options->watch = true;
        return 0;
    case OPTION_REMOVE:
    case OPTION_VERIFY:
    case OPTION_DEMOTE:
    case OPTION_RESTORE:
        if (options->segment != SEGMENT_LIST)
            return usage_error(
                ret_status, "segments takes one of --verify, --demote, --restore and --remove");
        options->segment = SEGMENT_REMOVE + (code - OPTION_REMOVE);
        return 0;
    case OPTION_TENANT:
        options->tenant = optarg;
        return 0;
    case OPTION_VERSION:
        (void) puts("gmbctl " GMBCTL_VERSION);
        return -ECANCELED;
    case 'h':
        help();
        return -ECANCELED;
    default: /* getopt has said what is wrong */
        (void) fputs("gmbctl: --help lists the options\n", stderr);
        *ret_status = EXIT_USAGE;
        return -EINVAL;
    }
}

/* What a frame can't carry, the broker would only call a breach of the protocol. */
static bool fits(const char *text, size_t bytes)
{
    char clean[LIMIT_TEXT_BYTES + 1];

    text_clean(clean, MIN(bytes + 1, sizeof(clean)), text);
    return strcmp(clean, text) == 0;
}

/* An argument as it may stand in a message. */
static const char *word(char shown[WORD_BYTES], const char *text)
{
    text_clean(shown, WORD_BYTES, text);
    return shown;
}

static int set_parse(int count, char **words, struct options *options, enum exit_status *ret_status)
{
    char shown[WORD_BYTES];

    if (count < 2)
        return usage_error(ret_status, "set takes a tenant and at least one KEY=VALUE");
    if (!fits(words[0], LIMIT_NAME_BYTES))
        return usage_error(ret_status, "%s can't be the name of a tenant", word(shown, words[0]));
    if (count - 1 > ASSIGNMENTS_MAX)
        return usage_error(ret_status, "set takes at most %d assignments", ASSIGNMENTS_MAX);
    options->tenant = words[0];
    options->assignments = words + 1;
    options->assignment_count = (size_t) count - 1;
    for (int i = 1; i < count; i++) {
        const char *equals = strchr(words[i], '=');

        if (equals == NULL || equals == words[i] || equals - words[i] > LIMIT_NAME_BYTES ||
            !fits(words[i], LIMIT_TEXT_BYTES))
            return usage_error(ret_status, "%s is no KEY=VALUE", word(shown, words[i]));
    }
    return 0;
}

static int move_parse(
    int count, char **words, struct options *options, enum exit_status *ret_status)
{
    if (count != 2 || !fits(words[0], LIMIT_NAME_BYTES))
        return usage_error(ret_status, "this takes a tenant and a size");
    options->tenant = words[0];
    if (size_parse(words[1], &options->bytes) < 0 || options->bytes == 0 ||
        options->bytes == SIZE_INFINITY)
        return usage_error(ret_status, "argument 2 is no size as 512M or 4G");
    if (options->revision != 0 || options->undo)
        return usage_error(ret_status, "--revision is for set, --undo for drain");
    return 0;
}

static int drain_parse(
    int count, char **words, struct options *options, enum exit_status *ret_status)
{
    if (count != 1 || uuid_parse(words[0], &options->device) < 0)
        return usage_error(ret_status, "drain takes the UUID of a device");
    options->has_device = true;
    if (options->revision != 0 || options->dry_run)
        return usage_error(ret_status, "--revision is for set, --dry-run for reclaim and evict");
    return 0;
}

static int segments_parse(
    int count, char **words, struct options *options, enum exit_status *ret_status)
{
    if (count > 1 || (count == 1 && !fits(words[0], LIMIT_NAME_BYTES)) ||
        (options->tenant != NULL && !fits(options->tenant, LIMIT_NAME_BYTES)))
        return usage_error(ret_status, "segments takes the name of one at most");
    options->name = count == 1 ? words[0] : NULL;
    if (options->segment == SEGMENT_REMOVE && count == 0)
        return usage_error(ret_status, "--remove takes the name of a segment");
    if (options->revision != 0 || options->dry_run || options->undo)
        return usage_error(ret_status, "--revision, --dry-run and --undo are not for segments");
    return 0;
}

static int command_parse(
    int count, char **words, struct options *options, enum exit_status *ret_status)
{
    char shown[WORD_BYTES];
    size_t i = 0;

    if (count == 0)
        return usage_error(ret_status, "a command is missing");
    while (i < COMMAND_MAX && strcmp(command_names[i], words[0]) != 0)
        i++;
    if (i == COMMAND_MAX)
        return usage_error(ret_status, "there is no command %s", word(shown, words[0]));
    options->command = (enum command) i;
    if (options->command == COMMAND_SEGMENTS && !options->watch)
        return segments_parse(count - 1, words + 1, options, ret_status);
    if (options->segment != SEGMENT_LIST || options->tenant != NULL)
        return usage_error(
            ret_status, "--verify, --demote, --restore, --remove and --tenant are for segments");
    if (options->watch && options->command != COMMAND_PRESSURE)
        return usage_error(ret_status, "--watch is for pressure");
    if (options->json && options->command == COMMAND_METRICS)
        return usage_error(ret_status, "metrics has a form of its own: no --json");
    if (options->command == COMMAND_RECLAIM || options->command == COMMAND_EVICT)
        return move_parse(count - 1, words + 1, options, ret_status);
    if (options->command == COMMAND_DRAIN)
        return drain_parse(count - 1, words + 1, options, ret_status);
    if (options->dry_run || options->undo)
        return usage_error(ret_status, "--dry-run is for reclaim and evict, --undo for drain");
    if (options->command == COMMAND_SET)
        return set_parse(count - 1, words + 1, options, ret_status);
    if (count > 1)
        return usage_error(ret_status, "%s takes no arguments", command_names[i]);
    if (options->has_device || options->revision != 0)
        return usage_error(ret_status, "--device and --revision are for set");
    return 0;
}

int options_parse(int argc, char **argv, struct options *ret, enum exit_status *ret_status)
{
    struct options options = {.socket = getenv("GMB_CONTROL_SOCKET")};
    int code, r;

    if (options.socket == NULL || options.socket[0] == '\0')
        options.socket = SOCKET_DEFAULT;
    while ((code = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
        r = option_apply(code, &options, ret_status);
        if (r < 0)
            return r;
    }
    r = command_parse(argc - optind, argv + optind, &options, ret_status);
    if (r < 0)
        return r;
    *ret = options;
    return 0;
}
