/* See options.h. */
#include "daemon/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "daemon/config.h"

enum option_code {
    OPTION_CONFIG = 256,
    OPTION_GPU,
    OPTION_CLIENT_SOCKET,
    OPTION_CONTROL_SOCKET,
    OPTION_LOG_LEVEL,
    OPTION_CHECK_CONFIG,
    OPTION_DBUS,
    OPTION_VERSION,
};

static const struct option long_options[] = {
    {"config", required_argument, NULL, OPTION_CONFIG},
    {"gpu", required_argument, NULL, OPTION_GPU},
    {"client-socket", required_argument, NULL, OPTION_CLIENT_SOCKET},
    {"control-socket", required_argument, NULL, OPTION_CONTROL_SOCKET},
    {"log-level", required_argument, NULL, OPTION_LOG_LEVEL},
    {"check-config", no_argument, NULL, OPTION_CHECK_CONFIG},
    {"dbus", required_argument, NULL, OPTION_DBUS},
    {"version", no_argument, NULL, OPTION_VERSION},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static void usage(void)
{
    (void) printf(
        "usage: gmbd [OPTION...]\n"
        "\n"
        "Owns the memory of this node's GPUs and leases it to the processes of its tenants.\n"
        "\n"
        "  --config FILE          configuration (" CONFIG_PATH_DEFAULT "), with FILE.d/*.conf\n"
        "  --gpu=auto|cuda|sim    driver; auto takes CUDA, sim a simulated GPU (auto)\n"
        "  --client-socket PATH   for tenants, instead of the configured one\n"
        "  --control-socket PATH  for operators, instead of the configured one\n"
        "  --log-level LEVEL      error, warning, notice, info or debug\n"
        "  --check-config         say whether the configuration is valid, and exit\n"
        "  --dbus=auto|yes|no     be on the system bus; auto: as a service, with sockets passed\n"
        "                         by systemd (auto)\n"
        "  --version              say the version, and exit\n"
        "  --help                 say this, and exit\n"
        "\n"
        "SIGHUP reads the configuration again; SIGTERM ends the broker.\n");
}

static int gpu_parse(const char *text, struct options *options)
{
    options->driver_auto = strcmp(text, "auto") == 0;
    if (options->driver_auto || gpu_driver_parse(text, &options->driver) == 0)
        return 0;
    (void) fprintf(stderr, "gmbd: --gpu=%s: it is auto, cuda or sim\n", text);
    return -EINVAL;
}

static int level_parse(const char *text, struct options *options)
{
    options->has_log_level = log_level_parse(text, &options->log_level) == 0;
    if (options->has_log_level)
        return 0;
    (void) fprintf(
        stderr, "gmbd: --log-level %s: it is error, warning, notice, info or debug\n", text);
    return -EINVAL;
}

static int dbus_parse(const char *text, struct options *options)
{
    static const char *const names[] = {
        [OPTIONS_DBUS_AUTO] = "auto",
        [OPTIONS_DBUS_YES] = "yes",
        [OPTIONS_DBUS_NO] = "no",
    };
    _Static_assert(ARRAY_SIZE(names) == OPTIONS_DBUS_MAX, "every choice has a name");

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (strcmp(names[i], text) == 0) {
            options->dbus = (enum options_dbus) i;
            return 0;
        }
    }
    (void) fprintf(stderr, "gmbd: --dbus=%s: it is auto, yes or no\n", text);
    return -EINVAL;
}

static int option_apply(int code, struct options *options)
{
    switch (code) {
    case OPTION_CONFIG:
        options->config = optarg;
        return OPTIONS_RUN;
    case OPTION_GPU:
        return gpu_parse(optarg, options);
    case OPTION_DBUS:
        return dbus_parse(optarg, options);
    case OPTION_CLIENT_SOCKET:
        options->client_socket = optarg;
        return OPTIONS_RUN;
    case OPTION_CONTROL_SOCKET:
        options->control_socket = optarg;
        return OPTIONS_RUN;
    case OPTION_LOG_LEVEL:
        return level_parse(optarg, options);
    case OPTION_CHECK_CONFIG:
        options->check_config = true;
        return OPTIONS_RUN;
    case OPTION_VERSION:
        (void) printf("gmbd " GMBD_VERSION "\n");
        return OPTIONS_DONE;
    case 'h':
        usage();
        return OPTIONS_DONE;
    default: /* getopt has said what is wrong */
        (void) fprintf(stderr, "gmbd: --help lists the options\n");
        return -EINVAL;
    }
}

int options_parse(int argc, char **argv, struct options *ret)
{
    struct options options = {.driver_auto = true};
    int code, r;

    while ((code = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
        r = option_apply(code, &options);
        if (r != OPTIONS_RUN)
            return r;
    }
    if (optind < argc) {
        (void) fprintf(
            stderr, "gmbd: unexpected argument '%s'; --help lists the options\n", argv[optind]);
        return -EINVAL;
    }
    *ret = options;
    return OPTIONS_RUN;
}
