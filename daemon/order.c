/*
 * The report that carries an answer is the operators', of whom several may wait: so it is filled
 * when the answer is there, and sent before anybody else fills it.
 */
#include "daemon/order.h"

#include <string.h>

#include "base/log.h"
#include "daemon/arena.h"

struct order {
    struct reclaim_order order;
    struct broker *broker;
    struct report *report;
    order_answer answer; /* NULL: nobody waits */
    void *data;
    bool drain;
};

static void reclaim_answer(struct order *order, struct hosting *hosting,
    const struct reclaim_step *steps, size_t count, uint64_t planned,
    enum reclaim_shortfall shortfall)
{
    const struct survey *survey = &hosting->reclaim.survey;

    report_plan_begin(order->report, planned,
        shortfall != RECLAIM_COMPLETE ? reclaim_shortfall_name(shortfall) : "");
    for (size_t i = 0; i < count; i++) {
        const struct reclaim_chunk *row = &survey->chunks[steps[i].chunk];
        struct core_tenant_view tenant = {.name = ""};

        (void) core_tenant_get(order->broker->core, row->tenant, &tenant);
        if (!report_plan_add(
                order->report, tenant.name, &survey->rows[steps[i].chunk], row, &steps[i]))
            break;
    }
}

static void drain_answer(struct order *order, const struct hosting *hosting, uint64_t planned)
{
    struct core_device_view view = {0};

    (void) core_device_get(order->broker->core, hosting->device, &view);
    report_drained(order->report, planned, sub_saturate(view.leased, planned));
}

static void on_done(struct reclaim_order *base, struct hosting *hosting,
    const struct reclaim_step *steps, size_t count, uint64_t planned,
    enum reclaim_shortfall shortfall)
{
    struct order *order = container_of(base, struct order, order);

    if (order->answer != NULL) {
        if (order->drain)
            drain_answer(order, hosting, planned);
        else
            reclaim_answer(order, hosting, steps, count, planned, shortfall);
        order->answer(order->data, order->report);
    }
    free(order);
}

static struct order *order_new(
    struct broker *broker, order_answer answer, void *data, struct report *report)
{
    struct order *order = calloc(1, sizeof(*order));

    if (order == NULL) {
        report_error(report, GMB_STATUS_INTERNAL, GMB_LIMIT_NONE, "the broker has no host memory");
        return NULL;
    }
    order->broker = broker;
    order->report = report;
    order->answer = answer;
    order->data = data;
    order->order.done = on_done;
    order->order.request.beneficiary = order->order.request.from = UINT32_MAX;
    return order;
}

struct order *order_reclaim(struct broker *broker, const Gmb__Reclaim *body, order_answer answer,
    void *data, struct report *report)
{
    struct order *order;
    uint32_t tenant, device;

    if (!core_tenant_find(broker->core, body->tenant, &tenant)) {
        report_error(
            report, GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE, "there is no tenant %s", body->tenant);
        return NULL;
    }
    if (!broker_device_find(broker, body->device.data, body->device.len, &device)) {
        report_error(report, GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE, "there is no such device");
        return NULL;
    }
    if (body->bytes == 0) {
        report_error(report, GMB_STATUS_INVALID, GMB_LIMIT_NONE, "nothing is to be moved");
        return NULL;
    }
    order = order_new(broker, answer, data, report);
    if (order == NULL)
        return NULL;
    order->order.request.bytes = body->bytes;
    order->order.dry_run = body->dry_run;
    if (body->from_tenant)
        order->order.request.from = tenant;
    else
        order->order.request.beneficiary = tenant;
    reclaim_give(broker->hosting[device], &order->order);
    return order;
}

struct order *order_drain(struct broker *broker, const Gmb__Drain *body, order_answer answer,
    void *data, struct report *report)
{
    struct core_event event = {.type = CORE_EVENT_DEVICE_DRAIN, .device_drain.undo = body->undo};
    struct hosting *hosting;
    struct order *order;

    if (!broker_device_find(
            broker, body->device.data, body->device.len, &event.device_drain.device)) {
        report_error(report, GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE, "there is no such device");
        return NULL;
    }
    order = order_new(broker, answer, data, report);
    if (order == NULL)
        return NULL;
    hosting = broker->hosting[event.device_drain.device];
    hosting->draining = !body->undo;
    hosting->drain_ns = 0;
    broker_step(broker, &event);
    order->drain = true;
    order->order.dry_run = body->undo;
    order->order.request.whole_device = true;
    order->order.request.bytes = body->undo ? 0 : UINT64_MAX;
    reclaim_give(hosting, &order->order);
    return order;
}

void order_forget(struct order *order)
{
    if (order != NULL)
        order->answer = NULL;
}
