/*
 * Keys of a tenant, and their values: one parser for the configuration files and for
 * `gmbctl set`, so that the two can't disagree.
 */
#pragma once

#include "base/macro.h"
#include "daemon/core/core.h"

enum config_key {
    CONFIG_KEY_PRIORITY,
    CONFIG_KEY_WEIGHT,
    CONFIG_KEY_CLIENTS_MAX,
    CONFIG_KEY_LEASES_MAX,
    CONFIG_KEY_QUANTIZED_TIER,
    CONFIG_KEY_DEGRADE_LOW,
    CONFIG_KEY_DEGRADE_MEDIUM,
    CONFIG_KEY_DEGRADE_CRITICAL,
    CONFIG_KEY_MEMORY_MIN, /* from here on: one value for each device */
    CONFIG_KEY_MEMORY_LOW,
    CONFIG_KEY_MEMORY_HIGH,
    CONFIG_KEY_MEMORY_MAX,
    CONFIG_KEY_HOST_MAX,
    CONFIG_KEY_MAX
};

#define CONFIG_REASON_BYTES 384

struct config_value {
    bool percent;            /* `number` is percent of the device's capacity, 0 … 100 */
    uint64_t number;         /* bytes, SIZE_INFINITY, or the plain number */
    struct ladder_rung rung; /* of Degrade…= */
};

/* Name as it is written; never NULL, "unknown" outside the enum. */
const char *config_key_name(enum config_key key);
/* Names are matched exactly. -ENOENT. */
int config_key_parse(const char *name, enum config_key *ret) _must_check_;
bool config_key_is_memory(enum config_key key);

/* -EINVAL with a sentence in `reason` that says what the key takes. `ret` is written on success
 * only: no malformed value ever reads as "no limit". */
int config_value_parse(enum config_key key, const char *text, struct config_value *ret,
    char reason[CONFIG_REASON_BYTES]) _must_check_;

/* Puts the value into `tenant`, for memory keys at `device`, whose capacity is given in bytes. */
void config_value_apply(struct core_tenant_config *tenant, enum config_key key,
    const struct config_value *value, uint32_t device, uint64_t capacity);

/* A tenant with no limits, no guarantees and middle priority. */
void config_tenant_init(struct core_tenant_config *tenant, const char *name);
/* 1 to LIMIT_NAME_BYTES of letters, digits and `._-@:`, the first a letter or digit. */
bool config_name_valid(const char *name);
