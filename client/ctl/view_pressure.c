/* Devices, tenants on each, and what tenants were asked and answered: three tables. */
#include <inttypes.h>

#include "base/size.h"
#include "base/uuid.h"
#include "client/ctl/duration.h"
#include "client/ctl/table.h"
#include "client/ctl/view.h"

static const char *const device_headings[] = {"<DEVICE", "USED", "CAPACITY", "<LEVEL"};
static const char *const tenant_headings[] = {"<TENANT", "<DEVICE", "USED", "HEADROOM", "SOME10",
    "SOME60", "SOME300", "FULL10", "STALLED", "<LEVEL"};
static const char *const advice_headings[] = {"<TENANT", "ADVICE", "AGE", "<STEP", "<ANSWER",
    "CLAIMED", "USED-THEN", "USED-NOW", "LISTENERS", "<STATE"};

static const char *const levels[] = {"none", "low", "medium", "critical"};
static const enum style level_styles[] = {STYLE_GOOD, STYLE_PLAIN, STYLE_WARNING, STYLE_ALARM};

static void device_cell(struct table *table, const ProtobufCBinaryData *data)
{
    char text[UUID_TEXT_MAX] = "";
    struct uuid uuid;

    if (uuid_from_bytes(data->data, data->len, &uuid) == 0)
        (void) uuid_format(text, &uuid);
    table_cell(table, STYLE_PLAIN, "%.12s", text);
}

static void level_cell(struct table *table, uint32_t level)
{
    if (level < ARRAY_SIZE(levels))
        table_cell(table, level_styles[level], "%s", levels[level]);
    else
        table_cell(table, STYLE_ALARM, "%u", level);
}

/* Millionths of the time. */
static void share_cell(struct table *table, const Gmb__Stall *stall, uint32_t share)
{
    if (stall == NULL || share == 0)
        table_cell(table, STYLE_PLAIN, "%s", "");
    else
        table_cell(table, STYLE_PLAIN, "%.1f%%", share / 1e4);
}

static void stall_cells(struct table *table, const Gmb__TenantDevicePressure *device)
{
    const Gmb__Stall *some = device->some, *full = device->full;
    char total[DURATION_TEXT_MAX] = "";

    share_cell(table, some, some != NULL ? some->avg10 : 0);
    share_cell(table, some, some != NULL ? some->avg60 : 0);
    share_cell(table, some, some != NULL ? some->avg300 : 0);
    share_cell(table, full, full != NULL ? full->avg10 : 0);
    if (some != NULL && some->total_us > 0)
        (void) duration_format(total, MIN(some->total_us, UINT64_MAX / 1000) * 1000);
    table_cell(table, STYLE_PLAIN, "%s", total);
}

static int devices_print(const struct view *view, const Gmb__PressurePage *page)
{
    _cleanup_(table_free_ptr) struct table *table =
        table_new(device_headings, ARRAY_SIZE(device_headings));

    for (size_t i = 0; table != NULL && i < page->n_devices; i++) {
        device_cell(table, &page->devices[i]->uuid);
        table_size(table, STYLE_PLAIN, page->devices[i]->used_bytes);
        table_size(table, STYLE_PLAIN, page->devices[i]->capacity_bytes);
        level_cell(table, page->devices[i]->level);
    }
    return table_print(table, view->to, view->colour);
}

static int tenants_print(const struct view *view, const struct listing *pressures)
{
    _cleanup_(table_free_ptr) struct table *table =
        table_new(tenant_headings, ARRAY_SIZE(tenant_headings));

    for (size_t i = 0; table != NULL && i < pressures->count; i++) {
        const Gmb__TenantPressure *tenant = (const Gmb__TenantPressure *) pressures->items[i];

        for (size_t j = 0; j < tenant->n_devices; j++) {
            const Gmb__TenantDevicePressure *device = tenant->devices[j];

            table_cell(table, STYLE_PLAIN, "%s", tenant->name);
            device_cell(table, &device->uuid);
            table_size(table, STYLE_PLAIN, device->used_bytes);
            table_size(table, STYLE_PLAIN, device->headroom_bytes);
            stall_cells(table, device);
            level_cell(table, device->level);
        }
    }
    return table_print(table, view->to, view->colour);
}

/* As it stands in the configuration. */
static void step_cell(struct table *table, const Gmb__AdviceStep *step)
{
    if (step->action == GMB__DEGRADE_ACTION__DEGRADE_REDUCE_BATCH)
        table_cell(table, STYLE_PLAIN, "reduce-batch %g", step->factor);
    else if (step->action == GMB__DEGRADE_ACTION__DEGRADE_DROP_PREFIX_CACHE)
        table_cell(table, STYLE_PLAIN, "drop-prefix-cache %g", step->factor);
    else if (step->action == GMB__DEGRADE_ACTION__DEGRADE_QUANTIZE_KV)
        table_cell(table, STYLE_PLAIN, "quantize-kv %s", step->value == 1 ? "int8" : "fp8");
    else if (step->action == GMB__DEGRADE_ACTION__DEGRADE_SHRINK_CONTEXT)
        table_cell(table, STYLE_PLAIN, "shrink-context %" PRIu64, step->value);
    else if (step->action == GMB__DEGRADE_ACTION__DEGRADE_REJECT_BELOW_PRIORITY)
        table_cell(table, STYLE_PLAIN, "reject-below-priority %" PRIu64, step->value);
    else if (step->action == GMB__DEGRADE_ACTION__DEGRADE_PAUSE_NEW)
        table_cell(table, STYLE_PLAIN, "pause-new");
    else
        table_cell(table, STYLE_PLAIN, "step %d", (int) step->action);
}

static void answer_cells(
    struct table *table, const Gmb__TenantPressure *tenant, Gmb__DegradeAction action)
{
    for (size_t i = 0; i < tenant->n_answers; i++) {
        const Gmb__AdviceAnswer *answer = tenant->answers[i];

        if (answer->action != action)
            continue;
        table_cell(table, answer->refused > 0 ? STYLE_WARNING : STYLE_GOOD,
            "%u done, %u partly, %u refused", answer->done, answer->partly, answer->refused);
        table_size(table, STYLE_PLAIN, answer->freed_bytes);
        return;
    }
    table_cell(table, STYLE_PLAIN, "%s", "");
    table_cell(table, STYLE_PLAIN, "%s", "");
}

static void advice_add(struct table *table, const Gmb__TenantPressure *tenant)
{
    char age[DURATION_TEXT_MAX];

    for (size_t i = 0; i < tenant->n_steps; i++) {
        table_cell(table, STYLE_PLAIN, "%s", tenant->name);
        table_cell(table, STYLE_PLAIN, "%" PRIu64, tenant->advice);
        table_cell(table, STYLE_PLAIN, "%s", duration_format(age, tenant->advice_age_ns));
        step_cell(table, tenant->steps[i]);
        answer_cells(table, tenant, tenant->steps[i]->action);
        table_size(table, STYLE_PLAIN, tenant->used_then_bytes);
        table_size(table, STYLE_PLAIN, tenant->used_now_bytes);
        table_cell(table, STYLE_PLAIN, "%u", tenant->subscribers);
        table_cell(table, tenant->ignored ? STYLE_ALARM : STYLE_PLAIN, "%s",
            tenant->ignored          ? "ignored"
            : tenant->n_answers == 0 ? "asked"
                                     : "answered");
    }
}

static int advice_print(const struct view *view, const struct listing *pressures)
{
    _cleanup_(table_free_ptr) struct table *table =
        table_new(advice_headings, ARRAY_SIZE(advice_headings));

    for (size_t i = 0; table != NULL && i < pressures->count; i++)
        advice_add(table, (const Gmb__TenantPressure *) pressures->items[i]);
    return table_print(table, view->to, view->colour);
}

int view_pressure(const struct view *view, const struct listing *pressures)
{
    bool asked = false;
    int r;

    for (size_t i = 0; i < pressures->count; i++)
        asked = asked || ((const Gmb__TenantPressure *) pressures->items[i])->n_steps > 0;
    r = devices_print(view, pressures->replies[0]->pressure_page);
    if (r == 0) {
        (void) fputc('\n', view->to);
        r = tenants_print(view, pressures);
    }
    /* What nobody was asked takes no room. */
    if (r == 0 && asked) {
        (void) fputc('\n', view->to);
        r = advice_print(view, pressures);
    }
    return r;
}
