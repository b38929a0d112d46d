/* See config_key.h. A table of keys with the range of each. */
#include "daemon/config_key.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "daemon/mover_control.h"

#define PRIORITY_DEFAULT 500
#define WEIGHT_DEFAULT 100

static const struct {
    const char *name;
    uint64_t low, high; /* of plain numbers */
    bool infinity;      /* may be written `infinity` */
} keys[] = {
    [CONFIG_KEY_PRIORITY] = {"Priority", 0, 1000, false},
    [CONFIG_KEY_WEIGHT] = {"Weight", 1, 10000, false},
    [CONFIG_KEY_CLIENTS_MAX] = {"ClientsMax", 0, LIMIT_CLIENTS, true},
    [CONFIG_KEY_LEASES_MAX] = {"LeasesMax", 0, UINT32_MAX - 1, true},
    [CONFIG_KEY_QUANTIZED_TIER] = {"QuantizedTier", 0, MOVER_FORMAT_MAX - 1, false},
    [CONFIG_KEY_DEGRADE_LOW] = {"DegradeLow", .infinity = false},
    [CONFIG_KEY_DEGRADE_MEDIUM] = {"DegradeMedium", .infinity = false},
    [CONFIG_KEY_DEGRADE_CRITICAL] = {"DegradeCritical", .infinity = false},
    [CONFIG_KEY_MEMORY_MIN] = {"MemoryMin", .infinity = false},
    [CONFIG_KEY_MEMORY_LOW] = {"MemoryLow", .infinity = true},
    [CONFIG_KEY_MEMORY_HIGH] = {"MemoryHigh", .infinity = true},
    [CONFIG_KEY_MEMORY_MAX] = {"MemoryMax", .infinity = true},
    [CONFIG_KEY_HOST_MAX] = {"HostMax", .infinity = true},
};
static_assert(ARRAY_SIZE(keys) == CONFIG_KEY_MAX, "every key has a name and a range");

const char *config_key_name(enum config_key key)
{
    return (unsigned) key < CONFIG_KEY_MAX ? keys[key].name : "unknown";
}

int config_key_parse(const char *name, enum config_key *ret)
{
    for (unsigned i = 0; i < CONFIG_KEY_MAX; i++) {
        if (strcmp(name, keys[i].name) == 0) {
            *ret = (enum config_key) i;
            return 0;
        }
    }
    return -ENOENT;
}

bool config_key_is_memory(enum config_key key)
{
    return key >= CONFIG_KEY_MEMORY_MIN;
}

/* Digits alone, no sign, nothing behind. */
static bool number_parse(const char *text, size_t length, uint64_t *ret)
{
    uint64_t number = 0;

    if (length == 0)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        if (__builtin_mul_overflow(number, UINT64_C(10), &number) ||
            __builtin_add_overflow(number, (uint64_t) (text[i] - '0'), &number))
            return false;
    }
    *ret = number;
    return true;
}

static int memory_parse(enum config_key key, const char *text, struct config_value *ret,
    char reason[CONFIG_REASON_BYTES])
{
    struct config_value value = {0};
    size_t length = strlen(text);
    bool valid;

    value.percent = length > 0 && text[length - 1] == '%';
    if (value.percent)
        valid = number_parse(text, length - 1, &value.number) && value.number <= 100;
    else
        valid = size_parse(text, &value.number) == 0 &&
                (value.number != SIZE_INFINITY || keys[key].infinity);
    if (!valid) {
        (void) snprintf(reason, CONFIG_REASON_BYTES,
            "%s=%.64s is refused: it takes a size as 512M or 40G%s, or 0%% to 100%% of the device",
            keys[key].name, text, keys[key].infinity ? ", infinity" : "");
        return -EINVAL;
    }
    *ret = value;
    return 0;
}

static const char *const formats[] = {
    [MOVER_RAW] = "no",
    [MOVER_INT8] = "int8",
    [MOVER_FP8] = "fp8",
};
static_assert(ARRAY_SIZE(formats) == MOVER_FORMAT_MAX, "every format has a name");

static int format_parse(
    const char *text, struct config_value *ret, char reason[CONFIG_REASON_BYTES])
{
    for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
        if (strcmp(text, formats[i]) != 0)
            continue;
        *ret = (struct config_value){.number = i};
        return 0;
    }
    (void) snprintf(
        reason, CONFIG_REASON_BYTES, "QuantizedTier=%.64s is refused: it is int8, fp8 or no", text);
    return -EINVAL;
}

static bool is_rung(enum config_key key)
{
    return key >= CONFIG_KEY_DEGRADE_LOW && key <= CONFIG_KEY_DEGRADE_CRITICAL;
}

static int rung_parse(enum config_key key, const char *text, struct config_value *ret,
    char reason[CONFIG_REASON_BYTES])
{
    char why[LADDER_REASON_BYTES];
    struct ladder_rung rung;

    if (ladder_rung_parse(text, &rung, why) < 0) {
        (void) snprintf(reason, CONFIG_REASON_BYTES, "%s= is refused: %s", keys[key].name, why);
        return -EINVAL;
    }
    *ret = (struct config_value){.rung = rung};
    return 0;
}

int config_value_parse(enum config_key key, const char *text, struct config_value *ret,
    char reason[CONFIG_REASON_BYTES])
{
    uint64_t number;

    if (config_key_is_memory(key))
        return memory_parse(key, text, ret, reason);
    if (key == CONFIG_KEY_QUANTIZED_TIER)
        return format_parse(text, ret, reason);
    if (is_rung(key))
        return rung_parse(key, text, ret, reason);
    if (keys[key].infinity && strcmp(text, "infinity") == 0) {
        *ret = (struct config_value){.number = UINT32_MAX};
        return 0;
    }
    if (!number_parse(text, strlen(text), &number) || number < keys[key].low ||
        number > keys[key].high) {
        (void) snprintf(reason, CONFIG_REASON_BYTES,
            "%s=%.64s is refused: it takes a number from %llu to %llu%s", keys[key].name, text,
            (unsigned long long) keys[key].low, (unsigned long long) keys[key].high,
            keys[key].infinity ? ", or infinity" : "");
        return -EINVAL;
    }
    *ret = (struct config_value){.number = number};
    return 0;
}

/* Rounded down; exact for every capacity. */
static uint64_t value_bytes(const struct config_value *value, uint64_t capacity)
{
    if (!value->percent)
        return value->number;
    return capacity / 100 * value->number + capacity % 100 * value->number / 100;
}

void config_value_apply(struct core_tenant_config *tenant, enum config_key key,
    const struct config_value *value, uint32_t device, uint64_t capacity)
{
    struct core_memory_limits *memory = &tenant->memory[device];

    switch (key) {
    case CONFIG_KEY_PRIORITY:
        tenant->priority = (uint32_t) value->number;
        break;
    case CONFIG_KEY_WEIGHT:
        tenant->weight = (uint32_t) value->number;
        break;
    case CONFIG_KEY_CLIENTS_MAX:
        tenant->clients_max = (uint32_t) value->number;
        break;
    case CONFIG_KEY_LEASES_MAX:
        tenant->leases_max = (uint32_t) value->number;
        break;
    case CONFIG_KEY_QUANTIZED_TIER:
        tenant->tier_format = (uint32_t) value->number;
        break;
    case CONFIG_KEY_DEGRADE_LOW:
        tenant->ladder.rungs[PRESSURE_LOW] = value->rung;
        break;
    case CONFIG_KEY_DEGRADE_MEDIUM:
        tenant->ladder.rungs[PRESSURE_MEDIUM] = value->rung;
        break;
    case CONFIG_KEY_DEGRADE_CRITICAL:
        tenant->ladder.rungs[PRESSURE_CRITICAL] = value->rung;
        break;
    case CONFIG_KEY_MEMORY_MIN:
        memory->min = value_bytes(value, capacity);
        break;
    case CONFIG_KEY_MEMORY_LOW:
        memory->low = value_bytes(value, capacity);
        break;
    case CONFIG_KEY_MEMORY_HIGH:
        memory->high = value_bytes(value, capacity);
        break;
    case CONFIG_KEY_MEMORY_MAX:
        memory->max = value_bytes(value, capacity);
        break;
    case CONFIG_KEY_HOST_MAX:
        memory->host_max = value_bytes(value, capacity);
        break;
    case CONFIG_KEY_MAX:
        break;
    }
}

void config_tenant_init(struct core_tenant_config *tenant, const char *name)
{
    *tenant = (struct core_tenant_config){
        .priority = PRIORITY_DEFAULT,
        .weight = WEIGHT_DEFAULT,
        .clients_max = UINT32_MAX,
        .leases_max = UINT32_MAX,
    };
    (void) snprintf(tenant->name, sizeof(tenant->name), "%s", name);
    for (size_t i = 0; i < LIMIT_DEVICES; i++)
        tenant->memory[i] = (struct core_memory_limits){
            .high = SIZE_INFINITY, .max = SIZE_INFINITY, .host_max = SIZE_INFINITY};
}

bool config_name_valid(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    size_t length = strlen(name);

    return length > 0 && length <= LIMIT_NAME_BYTES && strchr(letters, name[0]) != NULL &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-@:") ==
               length;
}
