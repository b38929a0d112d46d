/* The command line of gmbd. */
#pragma once

#include "base/log.h"
#include "gpu/gpu.h"

enum options_dbus {
    OPTIONS_DBUS_AUTO, /* as a service: where the sockets are the service manager's */
    OPTIONS_DBUS_YES,
    OPTIONS_DBUS_NO,
    OPTIONS_DBUS_MAX
};

struct options {
    const char *config; /* NULL: the default path, which may be missing */
    bool driver_auto;   /* cuda where there is one */
    enum gpu_driver driver;
    const char *client_socket, *control_socket; /* NULL: the configuration's */
    bool has_log_level;
    enum log_level log_level;
    bool check_config;
    enum options_dbus dbus;
};

enum options_outcome {
    OPTIONS_RUN = 0,
    OPTIONS_DONE = 1, /* --help or --version was answered */
};

/* -EINVAL after a line on standard error. Strings are borrowed from `argv`. */
int options_parse(int argc, char **argv, struct options *ret) _must_check_;
