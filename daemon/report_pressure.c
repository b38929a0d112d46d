/* Levels, stall, advice and what was said to it, as operators see them. */
#include <string.h>

#include "daemon/pressure.h"
#include "daemon/pressure_message.h"
#include "daemon/report.h"

static void devices_fill(const struct broker *broker, struct report *report)
{
    Gmb__PressurePage *page = &report->body.pressure_page;

    for (uint32_t i = 0; i < broker->device_count; i++) {
        Gmb__DevicePressure *item = &report->list.pressures.devices[i];
        enum pressure_level level = PRESSURE_NONE;
        struct core_device_view view = {0};

        gmb__device_pressure__init(item);
        (void) core_device_get(broker->core, i, &view);
        (void) core_device_pressure(broker->core, i, &level, &item->used_bytes);
        item->uuid = report_uuid(broker, i);
        item->level = level;
        item->capacity_bytes = sub_saturate(view.total, view.reserve);
        report->list.pressures.device_pointers[i] = item;
    }
    page->n_devices = broker->device_count;
    page->devices = report->list.pressures.device_pointers;
}

static Gmb__Stall *stall_fill(
    const struct core_pressure_view *view, enum stall_line line, Gmb__Stall *stall)
{
    gmb__stall__init(stall);
    stall->avg10 = view->stall[line][STALL_AVG10];
    stall->avg60 = view->stall[line][STALL_AVG60];
    stall->avg300 = view->stall[line][STALL_AVG300];
    stall->total_us = view->stall_ns[line] / NSEC_PER_USEC;
    return stall;
}

/* One for each device, in the report's store from `first` on. */
static void uses_fill(
    const struct broker *broker, uint32_t tenant, struct report *report, size_t first)
{
    for (uint32_t i = 0; i < broker->device_count; i++) {
        Gmb__TenantDevicePressure *use = &report->list.pressures.uses[first + i];
        struct core_pressure_view view = {0};

        (void) core_pressure_get(broker->core, tenant, i, &view);
        gmb__tenant_device_pressure__init(use);
        use->uuid = report_uuid(broker, i);
        use->level = view.level;
        use->used_bytes = view.used;
        use->headroom_bytes = view.headroom;
        use->some =
            stall_fill(&view, STALL_SOME, &report->list.pressures.stalls[first + i][STALL_SOME]);
        use->full =
            stall_fill(&view, STALL_FULL, &report->list.pressures.stalls[first + i][STALL_FULL]);
        report->list.pressures.use_pointers[first + i] = use;
    }
}

/* Steps that somebody has answered. */
static size_t answers_fill(
    const struct advice *advice, Gmb__AdviceAnswer *answers, Gmb__AdviceAnswer **pointers)
{
    size_t count = 0;

    for (unsigned action = LADDER_NONE + 1; action < LADDER_ACTION_MAX; action++) {
        const struct advice_answer *from = &advice->answers[action];
        Gmb__AdviceAnswer *answer = &answers[count];

        if (from->clients[ADVICE_DONE] + from->clients[ADVICE_PARTLY] +
                from->clients[ADVICE_REFUSED] ==
            0)
            continue;
        gmb__advice_answer__init(answer);
        answer->action = (Gmb__DegradeAction) action;
        answer->done = from->clients[ADVICE_DONE];
        answer->partly = from->clients[ADVICE_PARTLY];
        answer->refused = from->clients[ADVICE_REFUSED];
        answer->freed_bytes = from->freed_bytes;
        pointers[count++] = answer;
    }
    return count;
}

static void advice_fill(const struct broker *broker, uint32_t tenant, struct report *report,
    size_t entry, Gmb__TenantPressure *item)
{
    const struct pressure_tenant *record = pressure_tenant_find(broker->pressure, tenant);
    uint64_t now = clock_now(broker->clock);
    struct core_advice_view advice = {0};

    (void) core_advice_get(broker->core, tenant, &advice);
    item->rung = advice.rung;
    item->advice = advice.id;
    item->advice_age_ns = advice.id > 0 ? sub_saturate(now, advice.since_ns) : 0;
    item->used_then_bytes = advice.used_then;
    item->used_now_bytes = advice.used_now;
    item->ignored =
        advice_ignored(broker->pressure, tenant, now, broker->config->advice_grace_ns, NULL, NULL);
    item->n_steps = pressure_steps_fill(&advice.steps, report->list.pressures.steps[entry],
        report->list.pressures.step_pointers[entry]);
    item->steps = report->list.pressures.step_pointers[entry];
    if (record == NULL)
        return;
    item->subscribers = record->listener_count;
    item->n_answers = answers_fill(&record->advice, report->list.pressures.answers[entry],
        report->list.pressures.answer_pointers[entry]);
    item->answers = report->list.pressures.answer_pointers[entry];
}

static void tenant_fill(
    const struct broker *broker, uint32_t tenant, struct report *report, size_t entry)
{
    Gmb__TenantPressure *item = &report->list.pressures.items[entry];
    size_t first = entry * broker->device_count;

    gmb__tenant_pressure__init(item);
    item->name = report->list.pressures.views[entry].name;
    uses_fill(broker, tenant, report, first);
    item->n_devices = broker->device_count;
    item->devices = &report->list.pressures.use_pointers[first];
    advice_fill(broker, tenant, report, entry, item);
    report->list.pressures.pointers[entry] = item;
}

void report_pressures(const struct broker *broker, const char *after, struct report *report)
{
    Gmb__PressurePage *page = &report->body.pressure_page;
    uint32_t tenant = 0;
    size_t count = 0;

    report_begin(report, GMB__CONTROL_REPLY__BODY_PRESSURE_PAGE);
    gmb__pressure_page__init(page);
    report->message.pressure_page = page;
    page->last = true;
    if (after[0] == '\0')
        devices_fill(broker, report);
    else if (core_tenant_find(broker->core, after, &tenant))
        tenant++;
    for (; tenant < LIMIT_TENANTS; tenant++) {
        if (!core_tenant_get(broker->core, tenant,
                &report->list.pressures.views[MIN(count, (size_t) REPORT_PRESSURES - 1)]))
            continue;
        if (count == REPORT_PRESSURES || (count + 1) * broker->device_count > REPORT_DEVICES) {
            page->last = false;
            break;
        }
        tenant_fill(broker, tenant, report, count++);
    }
    page->n_tenants = count;
    page->tenants = report->list.pressures.pointers;
}
