/*
 * A change comes as an action of the core: the page is written, watches are looked at, and if a
 * level is another, whoever listens is marked. Sending is the end of the loop's round, so that a
 * rise is on its way in the same round; what is beyond one round's share comes with the next.
 */
#include "daemon/pressure.h"

#include <errno.h>
#include <event2/event.h>

#include "daemon/broker.h"
#include "daemon/watch.h"

/* Frames of one round: some hundred µs, in which nobody else is served. */
#define PUMP_FRAMES 128

static_assert(CORE_PRESSURE_INTERVAL_NS >= STATUS_INTERVAL_NS, "a reader has time to read");
static_assert((unsigned) PRESSURE_LEVEL_MAX <= 16, "a level fits in the page's four bits");

/* ------------------------------------------------------------------ time */

static void timer_set(struct pressure *pressure)
{
    uint64_t wait_ns = sub_saturate(pressure->due_ns, clock_now(pressure->broker->clock));
    uint64_t wait_us = (wait_ns + NSEC_PER_USEC - 1) / NSEC_PER_USEC;
    struct timeval wait = {
        .tv_sec = (time_t) (wait_us / 1000000),
        .tv_usec = (suseconds_t) (wait_us % 1000000),
    };

    (void) event_add(pressure->turn, &wait);
}

void pressure_at(struct pressure *pressure, uint64_t at_ns)
{
    if (at_ns >= pressure->due_ns)
        return;
    pressure->due_ns = at_ns;
    timer_set(pressure);
}

/* ------------------------------------------------------------------ the page */

static uint64_t head_of(const struct pressure *pressure, uint32_t device,
    const struct core_pressure_view *view, const struct core_advice_view *advice)
{
    uint64_t head = (uint64_t) view->level << STATUS_LEVEL_SHIFT |
                    (uint64_t) view->device_level << STATUS_DEVICE_LEVEL_SHIFT |
                    (uint64_t) advice->rung << STATUS_RUNG_SHIFT;

    if (ladder_rung_has(&advice->steps, LADDER_PAUSE_NEW))
        head |= STATUS_FLAG_PAUSE_NEW;
    if (view->draining || !pressure->broker->devices[device].healthy)
        head |= STATUS_FLAG_FAILED;
    return head;
}

static void page_write(struct pressure *pressure, struct pressure_tenant *tenant, uint32_t device,
    const struct core_pressure_view *view)
{
    struct core_advice_view advice = {0};
    struct status_copy copy = {
        .used = view->used,
        .min = view->limits.min,
        .low = view->limits.low,
        .high = view->limits.high,
        .max = view->limits.max,
        .headroom = view->headroom,
        .reachable = view->reachable,
        .some_total_us = view->stall_ns[STALL_SOME] / NSEC_PER_USEC,
        .full_total_us = view->stall_ns[STALL_FULL] / NSEC_PER_USEC,
        .some_avg10 = view->stall[STALL_SOME][STALL_AVG10],
        .some_avg60 = view->stall[STALL_SOME][STALL_AVG60],
        .full_avg10 = view->stall[STALL_FULL][STALL_AVG10],
        .full_avg60 = view->stall[STALL_FULL][STALL_AVG60],
        .wait_estimate_ns = view->wait_mean_ns,
        .waiting = view->waiting,
        .updated_ns = clock_now(pressure->broker->clock),
    };

    (void) core_advice_get(pressure->broker->core, tenant->index, &advice);
    copy.advice = advice.id;
    if (ladder_rung_has(&advice.steps, LADDER_REJECT_BELOW_PRIORITY))
        copy.reject_below = advice.steps.reject_below;
    status_write(tenant->status, device, head_of(pressure, device, view, &advice), &copy);
}

static void pages_write(struct pressure *pressure, struct pressure_tenant *tenant)
{
    for (uint32_t i = 0; i < pressure->broker->device_count; i++) {
        struct core_pressure_view view;

        if (core_pressure_get(pressure->broker->core, tenant->index, i, &view))
            page_write(pressure, tenant, i, &view);
    }
}

/* ------------------------------------------------------------------ who listens */

static void listener_wait(struct pressure *pressure, struct listener *listener)
{
    if (!list_linked(&listener->pending_link))
        list_append(&pressure->pending, &listener->pending_link);
}

static void state_mark(struct pressure *pressure, struct pressure_device *device, uint64_t now)
{
    uint64_t bit = UINT64_C(1) << (device - device->tenant->devices);

    list_remove(&device->late_link);
    device->event_ns = now;
    list_for_each(listener, &device->tenant->listeners, struct listener, link)
    {
        listener->devices |= bit;
        listener_wait(pressure, listener);
    }
}

/* At once, unless the last event was only just now. */
static void state_tell(struct pressure *pressure, struct pressure_device *device)
{
    uint64_t now = clock_now(pressure->broker->clock);
    uint64_t next_ns = device->event_ns + PRESSURE_EVENT_NS;

    if (list_empty(&device->tenant->listeners) || list_linked(&device->late_link))
        return;
    if (device->event_ns == 0 || next_ns <= now) {
        state_mark(pressure, device, now);
    } else {
        list_append(&pressure->late, &device->late_link);
        pressure_at(pressure, next_ns);
    }
}

void pressure_join(struct session *session, struct pressure_tenant *tenant)
{
    session->listener.tenant = tenant;
}

void pressure_subscribe(struct session *session)
{
    struct listener *listener = &session->listener;
    uint32_t count = (uint32_t) session->broker->device_count;

    if (!list_linked(&listener->link)) {
        list_append(&listener->tenant->listeners, &listener->link);
        listener->tenant->listener_count++;
    }
    listener->devices = count == 0 ? 0 : UINT64_MAX >> (64 - count);
    listener->advice = true;
    listener_wait(session->broker->pressure, listener);
}

void pressure_unsubscribe(struct session *session)
{
    struct listener *listener = &session->listener;

    if (list_linked(&listener->link))
        listener->tenant->listener_count--;
    list_remove(&listener->link);
    list_remove(&listener->pending_link);
    listener->devices = 0;
    listener->advice = false;
}

void pressure_leave(struct session *session)
{
    pressure_unsubscribe(session);
    watch_end_all(session);
    session->listener.tenant = NULL;
}

void pressure_resume(struct session *session)
{
    if (session->listener.devices != 0 || session->listener.advice)
        listener_wait(session->broker->pressure, &session->listener);
}

void pressure_pump(struct pressure *pressure)
{
    unsigned left = PUMP_FRAMES;
    struct listener *listener;

    while (left > 0 &&
           (listener = list_first(&pressure->pending, struct listener, pending_link)) != NULL) {
        list_remove(&listener->pending_link);
        session_tell(container_of(listener, struct session, listener), &left);
    }
    if (!list_empty(&pressure->pending))
        pressure_at(pressure, 0);
}

/* ------------------------------------------------------------------ actions */

void pressure_changed(struct pressure *pressure, const struct core_action *action)
{
    struct pressure_tenant *tenant = pressure_tenant_find(pressure, action->pressure.tenant);
    uint32_t device = action->pressure.device;
    struct core_pressure_view view;

    if (action->pressure.level)
        observers_pressed(&pressure->broker->observers, action->pressure.tenant, device);
    if (tenant == NULL || !core_pressure_get(pressure->broker->core, tenant->index, device, &view))
        return;
    page_write(pressure, tenant, device, &view);
    watch_look(tenant, device, &view, clock_now(pressure->broker->clock));
    if (action->pressure.level)
        state_tell(pressure, &tenant->devices[device]);
}

void pressure_advised(struct pressure *pressure, const struct core_action *action)
{
    struct pressure_tenant *tenant = pressure_tenant_find(pressure, action->advice.tenant);
    struct core_advice_view view;

    if (tenant == NULL || !core_advice_get(pressure->broker->core, tenant->index, &view))
        return;
    tenant->advice = (struct advice){.id = view.id};
    pages_write(pressure, tenant);
    list_for_each(listener, &tenant->listeners, struct listener, link)
    {
        listener->advice = true;
        listener_wait(pressure, listener);
    }
}

void pressure_health_changed(struct pressure *pressure, uint32_t device)
{
    for (uint32_t i = 0; i < LIMIT_TENANTS; i++) {
        struct core_pressure_view view;

        if (pressure->tenants[i] != NULL &&
            core_pressure_get(pressure->broker->core, i, device, &view))
            page_write(pressure, pressure->tenants[i], device, &view);
    }
}

/* A timer, not event_active(): see hosting_kick(). */
static void on_turn(evutil_socket_t fd, short what, void *data)
{
    struct pressure *pressure = data;
    uint64_t now = clock_now(pressure->broker->clock);

    (void) fd;
    (void) what;
    pressure->due_ns = CLOCK_NEVER;
    list_for_each_safe(device, &pressure->late, struct pressure_device, late_link)
    {
        if (device->event_ns + PRESSURE_EVENT_NS <= now)
            state_mark(pressure, device, now);
        else
            pressure_at(pressure, device->event_ns + PRESSURE_EVENT_NS);
    }
    watch_turn(pressure, now);
    broker_settle(pressure->broker);
}

/* ------------------------------------------------------------------ life */

struct pressure_tenant *pressure_tenant_find(const struct pressure *pressure, uint32_t tenant)
{
    return tenant < LIMIT_TENANTS ? pressure->tenants[tenant] : NULL;
}

int pressure_tenant_get(struct pressure *pressure, uint32_t index, struct pressure_tenant **ret)
{
    uint32_t count = (uint32_t) pressure->broker->device_count;
    struct pressure_tenant *tenant = pressure_tenant_find(pressure, index);
    struct core_advice_view advice;
    int r;

    if (tenant != NULL) {
        *ret = tenant;
        return 0;
    }
    tenant = calloc(1, sizeof(*tenant) + count * sizeof(struct pressure_device));
    if (tenant == NULL)
        return -ENOMEM;
    r = status_new(count, &tenant->status);
    if (r < 0) {
        free(tenant);
        return r;
    }
    tenant->index = index;
    list_init(&tenant->listeners);
    list_init(&tenant->watches);
    for (uint32_t i = 0; i < count; i++) {
        tenant->devices[i].tenant = tenant;
        list_init(&tenant->devices[i].late_link);
    }
    if (core_advice_get(pressure->broker->core, index, &advice))
        tenant->advice.id = advice.id;
    pressure->tenants[index] = tenant;
    pages_write(pressure, tenant);
    *ret = tenant;
    return 0;
}

static void tenant_drop(struct pressure *pressure, uint32_t index)
{
    struct pressure_tenant *tenant = pressure_tenant_find(pressure, index);

    if (tenant == NULL)
        return;
    for (uint32_t i = 0; i < pressure->broker->device_count; i++)
        list_remove(&tenant->devices[i].late_link);
    (void) status_free(tenant->status);
    free(tenant);
    pressure->tenants[index] = NULL;
}

void pressure_tenant_settle(struct pressure *pressure, uint32_t index)
{
    struct core_tenant_view view;

    if (!core_tenant_get(pressure->broker->core, index, &view) || view.clients == 0)
        tenant_drop(pressure, index);
}

int pressure_new(struct broker *broker, struct pressure **ret)
{
    struct pressure *pressure = calloc(1, sizeof(*pressure));

    if (pressure == NULL)
        return -ENOMEM;
    pressure->broker = broker;
    pressure->due_ns = CLOCK_NEVER;
    list_init(&pressure->pending);
    list_init(&pressure->late);
    pressure->turn = event_new(broker->base, -1, 0, on_turn, pressure);
    if (pressure->turn == NULL) {
        free(pressure);
        return -ENOMEM;
    }
    *ret = pressure;
    return 0;
}

struct pressure *pressure_free(struct pressure *pressure)
{
    if (pressure == NULL)
        return NULL;
    for (uint32_t i = 0; i < LIMIT_TENANTS; i++)
        tenant_drop(pressure, i);
    event_free(pressure->turn);
    free(pressure);
    return NULL;
}
