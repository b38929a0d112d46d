/* See options.h. */
#include "daemon/keeper/options.h"

#include <errno.h>
#include <getopt.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/keeper/store.h"

#define FDS_MAX_DEFAULT 16384
#define SECONDS_MAX 86400

enum option_code {
    OPTION_LISTEN = 256,
    OPTION_FDS,
    OPTION_WATCHDOG,
    OPTION_STOP_TIMEOUT,
    OPTION_VERSION,
};

static const struct option long_options[] = {
    {"listen", required_argument, NULL, OPTION_LISTEN},
    {"fds", required_argument, NULL, OPTION_FDS},
    {"watchdog", required_argument, NULL, OPTION_WATCHDOG},
    {"stop-timeout", required_argument, NULL, OPTION_STOP_TIMEOUT},
    {"version", no_argument, NULL, OPTION_VERSION},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static void usage(void)
{
    (void) printf(
        "usage: gmbd-keeper [OPTION...] [--] COMMAND [ARGUMENT...]\n"
        "\n"
        "Runs the broker where there is no systemd, holds its fds, and starts it again.\n"
        "\n"
        "  --listen NAME=PATH[:MODE[:GROUP]]  a socket to bind and pass on (mode 0666)\n"
        "  --fds N                 fds to hold at most (16384)\n"
        "  --watchdog SECONDS      end a broker that says nothing for so long (off)\n"
        "  --stop-timeout SECONDS  from SIGTERM to SIGKILL (90)\n"
        "  --version               say the version, and exit\n"
        "  --help                  say this, and exit\n"
        "\n"
        "SIGTERM, SIGINT and SIGHUP go to the broker; SIGUSR1 ends it and starts another one in\n"
        "its place. SIGUSR2 makes the keeper become a newer program of the same path, with the\n"
        "broker and its fds.\n");
}

static int number_parse(const char *option, const char *text, unsigned long max, uint64_t *ret)
{
    char *end;
    unsigned long value;

    errno = 0;
    value = strtoul(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || text[0] == '-' || value == 0 || value > max) {
        (void) fprintf(
            stderr, "gmbd-keeper: --%s %s: it is a number from 1 to %lu\n", option, text, max);
        return -EINVAL;
    }
    *ret = value;
    return 0;
}

static int mode_parse(char *text, struct keeper_listen *listen)
{
    char *group = strchr(text, ':'), *end;
    const struct group *entry;
    unsigned long mode;

    if (group != NULL)
        *group++ = '\0';
    mode = strtoul(text, &end, 8);
    if (end == text || *end != '\0' || mode > 0777) {
        (void) fprintf(stderr, "gmbd-keeper: --listen: mode %s: it is octal, as 0660\n", text);
        return -EINVAL;
    }
    listen->mode = (mode_t) mode;
    if (group == NULL)
        return 0;
    entry = getgrnam(group);
    if (entry == NULL) {
        (void) fprintf(stderr, "gmbd-keeper: --listen: there is no group %s\n", group);
        return -EINVAL;
    }
    listen->gid = entry->gr_gid;
    return 0;
}

static int listen_parse(const char *option, struct keeper_options *options)
{
    _cleanup_free_ char *text = strdup(option);
    struct keeper_listen listen = {.name = text, .mode = 0666, .gid = (gid_t) -1};
    char *path, *mode;

    if (text == NULL)
        return -ENOMEM;
    path = strchr(text, '=');
    if (options->listen_count == OPTIONS_LISTEN_MAX) {
        (void) fprintf(stderr, "gmbd-keeper: --listen: at most %d of them\n", OPTIONS_LISTEN_MAX);
        return -EINVAL;
    }
    if (path != NULL)
        *path++ = '\0';
    if (path == NULL || path[0] != '/' || !store_name_valid(text)) {
        (void) fprintf(stderr,
            "gmbd-keeper: --listen %s: it is NAME=PATH[:MODE[:GROUP]], the path absolute\n", text);
        return -EINVAL;
    }
    listen.path = path;
    mode = strchr(path, ':');
    if (mode != NULL) {
        int r;

        *mode++ = '\0';
        r = mode_parse(mode, &listen);
        if (r < 0)
            return r;
    }
    listen.text = TAKE_PTR(text);
    options->listen[options->listen_count++] = listen;
    return 0;
}

static int option_apply(int code, struct keeper_options *options)
{
    uint64_t value = 0;
    int r;

    switch (code) {
    case OPTION_LISTEN:
        return listen_parse(optarg, options);
    case OPTION_FDS:
        r = number_parse("fds", optarg, 1 << 20, &value);
        options->fds_max = value;
        return r;
    case OPTION_WATCHDOG:
        r = number_parse("watchdog", optarg, SECONDS_MAX, &value);
        options->watchdog_ns = value * NSEC_PER_SEC;
        return r;
    case OPTION_STOP_TIMEOUT:
        r = number_parse("stop-timeout", optarg, SECONDS_MAX, &value);
        options->stop_timeout_ns = value * NSEC_PER_SEC;
        return r;
    case OPTION_VERSION:
        (void) printf("gmbd-keeper %s\n", GMBD_VERSION);
        return KEEPER_OPTIONS_DONE;
    case 'h':
        usage();
        return KEEPER_OPTIONS_DONE;
    default:
        return -EINVAL;
    }
}

void keeper_options_clear(struct keeper_options *options)
{
    for (size_t i = 0; i < options->listen_count; i++)
        free(options->listen[i].text);
    options->listen_count = 0;
}

int keeper_options_parse(int argc, char **argv, struct keeper_options *ret)
{
    struct keeper_options options = {
        .fds_max = FDS_MAX_DEFAULT,
        .stop_timeout_ns = 90 * NSEC_PER_SEC,
    };
    int code;

    optind = 1;
    /* "+": what follows the command is the command's. */
    while ((code = getopt_long(argc, argv, "+h", long_options, NULL)) != -1) {
        int r = option_apply(code, &options);

        if (r != KEEPER_OPTIONS_RUN) {
            keeper_options_clear(&options);
            return r;
        }
    }
    options.command = &argv[optind];
    if (options.command[0] == NULL) {
        (void) fprintf(stderr, "gmbd-keeper: no command; --help says more\n");
        keeper_options_clear(&options);
        return -EINVAL;
    }
    *ret = options;
    return KEEPER_OPTIONS_RUN;
}
