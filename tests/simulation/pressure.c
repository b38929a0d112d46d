/*
 * Ladders, waits for restored pages, and what must hold of levels and advice beyond core_check():
 * nobody is told of a tenant that has no client, figures come at most once a millisecond, another
 * level really is another one, advice comes with a larger id each time and only for other steps.
 */
#include "tests/simulation/model.h"

#include <string.h>

static const char *const rungs[] = {
    "",
    "reduce-batch 0.75",
    "reduce-batch 0.5, drop-prefix-cache 0.5",
    "quantize-kv int8, shrink-context 8192",
    "reject-below-priority 50, pause-new",
};

void model_ladder(struct model *model, struct ladder *ladder)
{
    char reason[LADDER_REASON_BYTES];

    for (unsigned i = PRESSURE_LOW; i < PRESSURE_LEVEL_MAX; i++) {
        if (ladder_rung_parse(
                rungs[model_below(model, ARRAY_SIZE(rungs))], &ladder->rungs[i], reason) < 0)
            model_fail(model, "%s", reason);
    }
}

void model_restore_wait(struct model *model, struct model_client *client)
{
    struct core_event event = {
        .type = CORE_EVENT_RESTORE_WAIT,
        .restore_wait.device = (uint32_t) model_below(model, MODEL_DEVICES + 1),
        .restore_wait.waits = model_chance(model, 2),
        .client = client->id,
    };

    model_step(model, &event);
}

void model_watch_pressure(struct model *model, const struct core_action *action)
{
    struct model_shown *shown;
    struct core_pressure_view view;
    struct core_tenant_view tenant;

    if (action->pressure.device >= MODEL_DEVICES || action->pressure.tenant >= MODEL_SHOWN ||
        !core_tenant_get(model->core, action->pressure.tenant, &tenant) ||
        !core_pressure_get(model->core, action->pressure.tenant, action->pressure.device, &view))
        return; /* gone within the same step */
    shown = &model->shown[action->pressure.tenant][action->pressure.device];
    if (shown->at_ns != 0 && !action->pressure.level && strcmp(shown->name, tenant.name) == 0 &&
        model->core_ns - shown->at_ns < CORE_PRESSURE_INTERVAL_NS)
        model_fail(model, "figures of %s are shown twice within a millisecond", tenant.name);
    memcpy(shown->name, tenant.name, sizeof(shown->name));
    shown->at_ns = model->core_ns;
    model->levels += action->pressure.level;
    model->level_seen[view.level]++;
}

void model_watch_quiet(struct model *model)
{
    struct core_tenant_view tenant;

    for (uint32_t i = 0; i < MODEL_SHOWN; i++) {
        if (core_tenant_get(model->core, i, &tenant) && tenant.clients == 0)
            memset(model->shown[i], 0, sizeof(model->shown[i]));
    }
}

void model_watch_advice(struct model *model, const struct core_action *action)
{
    struct core_advice_view view;
    struct model_asked *asked;
    struct core_tenant_view tenant;

    if (action->advice.tenant >= MODEL_SHOWN ||
        !core_tenant_get(model->core, action->advice.tenant, &tenant) ||
        !core_advice_get(model->core, action->advice.tenant, &view))
        return;
    asked = &model->asked[action->advice.tenant];
    if (strcmp(asked->name, tenant.name) != 0)
        *asked = (struct model_asked){0};
    memcpy(asked->name, tenant.name, sizeof(asked->name));
    if (view.id < asked->id)
        model_fail(model, "advice %llu comes after %llu", (unsigned long long) view.id,
            (unsigned long long) asked->id);
    asked->id = view.id;
    if (tenant.clients == 0 && view.steps.present != 0)
        model_fail(model, "tenant %s has no client and is asked for steps", tenant.name);
    model->advices++;
}
