/*
 * Inside of config.c: what one file's lines become before the devices' sizes are known.
 */
#pragma once

#include <assert.h>

#include "daemon/config.h"

static_assert(CONFIG_KEY_MAX <= 16, "the keys that were seen fit in their word");

/* One memory key of a tenant, for one device or all. */
struct config_setting {
    uint32_t tenant;
    bool all_devices;
    uint32_t device;
    enum config_key key;
    struct config_value value;
    const char *file; /* borrowed from the parser */
    unsigned line;
};

struct config_place {
    const char *file; /* borrowed from the parser; NULL: nowhere */
    unsigned line;
};

struct config_parser {
    struct config *config;
    size_t setting_count, setting_room;
    struct config_setting *settings;
    uint16_t seen[LIMIT_TENANTS][LIMIT_DEVICES + 1]; /* keys set, one bit each; 0: all devices */
    uint32_t broker_seen;                            /* keys of [Broker], one bit each */
    uint64_t reserve_any;                            /* of [Device *] */
    bool reserve_any_set;
    bool tier_set;
    struct config_place levels; /* where a threshold of pressure was set last */
    bool reserve_set[LIMIT_DEVICES];
    bool ipc_any, ipc_any_set, ipc_set[LIMIT_DEVICES]; /* Backend= */
    char *files[LIMIT_CONFIG_FILES + 1];
    size_t file_count;
    char *error; /* CONFIG_ERROR_BYTES; "" until something is wrong */
    int result;
};

/* Reads one file's text. What is wrong first stands in parser->error and ->result. */
void config_parse_text(
    struct config_parser *parser, const char *name, const char *text, size_t size);

/* Notes the first error, with its place; line 0 is the file as a whole. */
void config_fail(struct config_parser *parser, int result, const char *file, unsigned line,
    const char *format, ...) _printf_(5, 6);

/* `[Broker]` and `[Device …]`: -EINVAL with `reason`, -EEXIST for a second value. */
int config_broker_assign(struct config_parser *parser, const char *key, const char *value,
    char reason[CONFIG_REASON_BYTES]) _must_check_;
/* A rule's key (User, Group, Unit, CGroup): -ENOENT if it is none of them. */
int config_rule_assign(struct config_parser *parser, uint32_t tenant, const char *key,
    const char *value, char reason[CONFIG_REASON_BYTES]) _must_check_;
