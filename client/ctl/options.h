/* gmbctl's command line. */
#pragma once

#include "base/uuid.h"

/* What scripts can rely on; gmbctl(1) explains each. */
enum exit_status {
    EXIT_OK = 0,
    EXIT_REFUSED = 1,
    EXIT_USAGE = 2,
    EXIT_UNREACHABLE = 3,
    EXIT_CONFLICT = 4,
    EXIT_STATUS_MAX
};

enum command {
    COMMAND_STATUS,
    COMMAND_TENANTS,
    COMMAND_CLIENTS,
    COMMAND_LEASES,
    COMMAND_SET,
    COMMAND_RELOAD,
    COMMAND_RECLAIM,
    COMMAND_EVICT,
    COMMAND_DRAIN,
    COMMAND_PRESSURE,
    COMMAND_METRICS,
    COMMAND_SEGMENTS,
    COMMAND_MAX
};

/* What is to be done to segments. */
enum segment_option {
    SEGMENT_LIST,
    SEGMENT_REMOVE,
    SEGMENT_VERIFY,
    SEGMENT_DEMOTE,
    SEGMENT_RESTORE,
    SEGMENT_OPTION_MAX
};

/* Strings are borrowed from the arguments. */
struct options {
    enum command command;
    const char *socket;
    bool json;
    bool has_device;
    struct uuid device;
    uint64_t revision; /* 0: whatever it is */
    const char *tenant;
    char **assignments; /* each holds a `=` */
    size_t assignment_count;
    uint64_t bytes; /* RECLAIM, EVICT */
    bool dry_run, undo;
    bool watch; /* PRESSURE: again and again */
    enum segment_option segment;
    const char *name; /* SEGMENTS; NULL: all of them */
};

/* 0: run. Else the program is to end with *ret_status; what is wrong, or asked for, was said. */
int options_parse(int argc, char **argv, struct options *ret, enum exit_status *ret_status);
