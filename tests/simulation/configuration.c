/* Operators: quotas, priorities and ladders at random, at times ones that are refused. */
#include "tests/simulation/model.h"

#include <string.h>

static void random_limits(struct model *model, struct core_memory_limits *limits)
{
    *limits = (struct core_memory_limits){0, 0, UINT64_MAX, UINT64_MAX};
    if (model_chance(model, 3))
        limits->min = model_below(model, 100 * MIB);
    if (model_chance(model, 2))
        limits->max =
            model_chance(model, 8) ? model_below(model, 2) : model_below(model, 600 * MIB);
    if (model_chance(model, 2))
        limits->high = model_below(model, 300 * MIB);
    if (model_chance(model, 4))
        limits->low = model_below(model, 300 * MIB);
    if (limits->min > limits->max && !model_chance(model, 20))
        limits->min = limits->max;
}

static void random_config(struct model *model, unsigned tenant, struct core_tenant_config *config)
{
    memset(config, 0, sizeof(*config));
    memcpy(config->name, model->names[tenant], sizeof(model->names[tenant]));
    config->priority = (uint32_t) model_below(model, 3) * 100;
    config->weight = 1 + (uint32_t) model_below(model, 300);
    config->clients_max = model_chance(model, 4) ? (uint32_t) model_below(model, 8) : UINT32_MAX;
    config->leases_max = model_chance(model, 4) ? (uint32_t) model_below(model, 40) : UINT32_MAX;
    for (unsigned i = 0; i < MODEL_DEVICES; i++)
        random_limits(model, &config->memory[i]);
    if (model_chance(model, 2))
        model_ladder(model, &config->ladder);
    if (model_chance(model, 30))
        config->weight = 0;
}

void model_lowered(struct model *model)
{
    memset(model->lowered, true, sizeof(model->lowered));
    model->changes++;
}

void model_configure(struct model *model)
{
    static struct core_tenant_config configs[MODEL_TENANTS];
    struct core_event event = {.type = CORE_EVENT_CONFIGURE, .cookie = 2};
    size_t count = 0;

    for (unsigned i = 0; i < MODEL_TENANTS; i++) {
        if (!model_chance(model, 25))
            random_config(model, i, &configs[count++]);
    }
    event.configure.tenants = configs;
    event.configure.count = model_chance(model, 80) ? 0 : count;
    model_lowered(model);
    model_step(model, &event);
}

void model_tenant_set(struct model *model)
{
    static struct core_tenant_config config;
    struct core_event event = {.type = CORE_EVENT_TENANT_SET, .cookie = 3};

    random_config(model, (unsigned) model_below(model, MODEL_TENANTS), &config);
    event.tenant_set.tenant = &config;
    event.tenant_set.expected_revision = model_chance(model, 5) ? model_below(model, 50) : 0;
    model_lowered(model);
    model_step(model, &event);
}
