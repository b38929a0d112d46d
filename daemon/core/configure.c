/*
 * A configuration is checked as a whole, then all memory that it needs is taken, and only then
 * anything changes: it is in force altogether or not at all. A tenant that a new configuration
 * doesn't name loses its guarantees and gets nothing new, and is kept until its last byte is back.
 */
#include "daemon/core/tenant.h"

#include <string.h>

#include "base/size.h"
#include "daemon/core/account.h"
#include "daemon/core/answer.h"
#include "daemon/core/pressure.h"
#include "daemon/core/reclaim.h"

/* One tenant's values by themselves. False after a refusal. */
static bool config_sane(
    struct core *core, const struct core_event *event, const struct core_tenant_config *config)
{
    char min[SIZE_TEXT_MAX], max[SIZE_TEXT_MAX];

    if (config->name[0] == '\0' || !memchr(config->name, '\0', sizeof(config->name))) {
        answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
            "a tenant's name has 1 to %d bytes", LIMIT_NAME_BYTES);
        return false;
    }
    if (config->priority > LIMIT_PRIORITY) {
        answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
            "tenant %s: Priority=%u is above %d", config->name, config->priority, LIMIT_PRIORITY);
        return false;
    }
    if (config->weight == 0 || config->weight > LIMIT_WEIGHT) {
        answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
            "tenant %s: Weight=%u is not within 1 and %d", config->name, config->weight,
            LIMIT_WEIGHT);
        return false;
    }
    for (uint32_t i = 0; i < core->device_count; i++) {
        if (config->memory[i].min <= config->memory[i].max)
            continue;
        size_format(min, config->memory[i].min);
        size_format(max, config->memory[i].max);
        answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
            "tenant %s: MemoryMin=%s is above MemoryMax=%s on device %u", config->name, min, max,
            i);
        return false;
    }
    return true;
}

/* Sum of MemoryMin on a device, which the guarantees of `sum` and `more` make. */
static bool guarantees_fit(
    struct core *core, const struct core_event *event, uint32_t index, uint64_t sum)
{
    char text[SIZE_TEXT_MAX], capacity[SIZE_TEXT_MAX];

    if (sum <= core->devices[index]->capacity)
        return true;
    size_format(text, sum);
    size_format(capacity, core->devices[index]->capacity);
    answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_GUARANTEED,
        "MemoryMin of all tenants is %s on device %u, whose capacity is %s", text, index, capacity);
    return false;
}

static bool configuration_sane(struct core *core, const struct core_event *event)
{
    const struct core_tenant_config *configs = event->configure.tenants;
    size_t count = event->configure.count;

    if (count > LIMIT_TENANTS || (count > 0 && !configs)) {
        answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
            "%zu tenants are configured, the broker takes %d", count, LIMIT_TENANTS);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (!config_sane(core, event, &configs[i]))
            return false;
        for (size_t j = 0; j < i; j++) {
            if (strcmp(configs[i].name, configs[j].name) != 0)
                continue;
            answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
                "tenant %s is there twice", configs[i].name);
            return false;
        }
    }
    if (event->configure.pressure &&
        !pressure_thresholds_sane(&event->configure.pressure->levels)) {
        answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
            "thresholds of pressure don't rise from level to level, or not above the hysteresis");
        return false;
    }
    for (uint32_t d = 0; d < core->device_count; d++) {
        uint64_t sum = 0;

        for (size_t i = 0; i < count; i++)
            sum = add_saturate(sum, configs[i].memory[d].min);
        if (!guarantees_fit(core, event, d, sum))
            return false;
    }
    return true;
}

/* Makes the tenants that aren't there yet, unconfigured. On failure none is left. */
static bool tenants_make(struct core *core, const struct core_event *event)
{
    const struct core_tenant_config *configs = event->configure.tenants;
    struct tenant *made[LIMIT_TENANTS];
    uint32_t count = 0;

    for (size_t i = 0; i < event->configure.count; i++) {
        if (tenant_find(core, configs[i].name))
            continue;
        if (core->tenant_count < LIMIT_TENANTS) {
            made[count] = tenant_new(core, configs[i].name);
            if (made[count]) {
                count++;
                continue;
            }
        }
        answer_refuse(core, event,
            core->tenant_count < LIMIT_TENANTS ? GMB_STATUS_INTERNAL : GMB_STATUS_INVALID,
            GMB_LIMIT_NONE, "tenant %s is one too many: %u are there, the broker takes %d",
            configs[i].name, core->tenant_count, LIMIT_TENANTS);
        while (count > 0)
            tenant_free(core, made[--count]);
        return false;
    }
    return true;
}

static bool config_differs(const struct tenant *tenant, const struct core_tenant_config *config)
{
    for (uint32_t i = 0; i < tenant->account_count; i++) {
        if (memcmp(&tenant->accounts[i].limits, &config->memory[i],
                sizeof(struct core_memory_limits)) != 0)
            return true;
    }
    return !tenant->configured || tenant->priority != config->priority ||
           tenant->weight != config->weight || tenant->clients_max != config->clients_max ||
           tenant->leases_max != config->leases_max || tenant->tier_format != config->tier_format ||
           memcmp(&tenant->ladder, &config->ladder, sizeof(tenant->ladder)) != 0;
}

static void config_apply(
    struct core *core, struct tenant *tenant, const struct core_tenant_config *config)
{
    if (!config_differs(tenant, config))
        return;
    if (tenant->dropped)
        core->dropped_tenants--;
    tenant->dropped = false;
    tenant->configured = true;
    tenant->revision = core->revision;
    tenant->priority = config->priority;
    tenant->weight = config->weight;
    tenant->clients_max = config->clients_max;
    tenant->leases_max = config->leases_max;
    tenant->tier_format = config->tier_format;
    tenant->ladder = config->ladder;
    pressure_ladder_changed(core, tenant);
    for (uint32_t i = 0; i < tenant->account_count; i++) {
        account_set_limits(&tenant->accounts[i], &config->memory[i]);
        reclaim_overage(core, &tenant->accounts[i]);
        core->devices[i]->drain = true;
    }
}

/* No longer named: no guarantee, nothing new, and what lies ready goes back. */
static void config_drop(struct core *core, struct tenant *tenant)
{
    if (!tenant->configured)
        return;
    tenant->configured = false;
    tenant->dropped = true;
    core->dropped_tenants++;
    tenant->revision = core->revision;
    for (uint32_t i = 0; i < tenant->account_count; i++) {
        struct account *account = &tenant->accounts[i];
        struct core_memory_limits limits = account->limits;

        limits.min = limits.low = 0;
        account_set_limits(account, &limits);
        reclaim_overage(core, account);
        core->devices[i]->drain = true;
    }
}

static bool config_names(const struct core_event *event, const struct tenant *tenant)
{
    for (size_t i = 0; i < event->configure.count; i++) {
        if (strcmp(event->configure.tenants[i].name, tenant->name) == 0)
            return true;
    }
    return false;
}

static void configured(struct core *core, const struct core_event *event)
{
    struct core_action *action = answer_add(core, CORE_ACTION_CONFIGURED);

    action->cookie = event->cookie;
    action->configured.revision = core->revision;
}

void tenant_configure_event(struct core *core, const struct core_event *event)
{
    if (!configuration_sane(core, event) || !tenants_make(core, event))
        return;
    if (event->configure.pressure)
        pressure_configure(core, event->configure.pressure);
    core->revision++;
    /* First those that lose: guarantees may move from one tenant to another. */
    for (uint32_t i = 0; i < core->tenant_high; i++) {
        struct tenant *tenant = core->tenants[i];

        if (tenant && !config_names(event, tenant))
            config_drop(core, tenant);
    }
    for (size_t i = 0; i < event->configure.count; i++) {
        const struct core_tenant_config *config = &event->configure.tenants[i];

        config_apply(core, tenant_find(core, config->name), config);
    }
    configured(core, event);
}

void tenant_set_event(struct core *core, const struct core_event *event)
{
    const struct core_tenant_config *config = event->tenant_set.tenant;
    uint64_t expected = event->tenant_set.expected_revision;
    struct tenant *tenant;

    if (!config || !config_sane(core, event, config)) {
        if (!config)
            answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE, "no values");
        return;
    }
    tenant = tenant_find(core, config->name);
    if (!tenant || !tenant->configured) {
        answer_refuse(
            core, event, GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE, "no tenant %s", config->name);
        return;
    }
    if (expected != 0 && expected != tenant->revision) {
        answer_refuse(core, event, GMB_STATUS_CONFLICT, GMB_LIMIT_NONE,
            "tenant %s was changed meanwhile: its revision is %llu, not %llu", tenant->name,
            (unsigned long long) tenant->revision, (unsigned long long) expected);
        return;
    }
    for (uint32_t i = 0; i < core->device_count; i++) {
        uint64_t others = sub_saturate(core->devices[i]->min_sum, tenant->accounts[i].limits.min);

        if (!guarantees_fit(core, event, i, add_saturate(others, config->memory[i].min)))
            return;
    }
    core->revision++;
    config_apply(core, tenant, config);
    configured(core, event);
}
