/* See pressure_message.h. */
#include "daemon/pressure_message.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/broker.h"
#include "daemon/watch.h"

/* A shorter window would have the broker look all the time, a longer one is no warning. */
#define WINDOW_MIN_US UINT64_C(500000)
#define WINDOW_MAX_US UINT64_C(10000000)

/* The policies' numbers are the protocol's. */
#define SAME(action, wire) static_assert((unsigned) (action) == (unsigned) (wire), "one number")
SAME(LADDER_REDUCE_BATCH, GMB__DEGRADE_ACTION__DEGRADE_REDUCE_BATCH);
SAME(LADDER_QUANTIZE_KV, GMB__DEGRADE_ACTION__DEGRADE_QUANTIZE_KV);
SAME(LADDER_SHRINK_CONTEXT, GMB__DEGRADE_ACTION__DEGRADE_SHRINK_CONTEXT);
SAME(LADDER_DROP_PREFIX_CACHE, GMB__DEGRADE_ACTION__DEGRADE_DROP_PREFIX_CACHE);
SAME(LADDER_REJECT_BELOW_PRIORITY, GMB__DEGRADE_ACTION__DEGRADE_REJECT_BELOW_PRIORITY);
SAME(LADDER_PAUSE_NEW, GMB__DEGRADE_ACTION__DEGRADE_PAUSE_NEW);
SAME(ADVICE_DONE, GMB__ADVICE_ACK__OUTCOME__DONE);
SAME(ADVICE_PARTLY, GMB__ADVICE_ACK__OUTCOME__PARTLY);
SAME(ADVICE_REFUSED, GMB__ADVICE_ACK__OUTCOME__REFUSED);

static void done_send(struct session *session, uint64_t id)
{
    Gmb__BrokerMessage message = GMB__BROKER_MESSAGE__INIT;
    Gmb__Done done = GMB__DONE__INIT;

    message.id = id;
    message.body_case = GMB__BROKER_MESSAGE__BODY_DONE;
    message.done = &done;
    message_send(session, &message);
}

void on_pressure_subscribe(struct session *session, const Gmb__ClientMessage *message)
{
    done_send(session, message->id);
    if (message->pressure_subscribe->off)
        pressure_unsubscribe(session);
    else
        pressure_subscribe(session);
}

/* ------------------------------------------------------------------ watches */

/* NULL, or what is wrong with the wish. */
static const char *watch_read(
    struct session *session, const Gmb__PressureWatch *body, struct watch_params *ret)
{
    if (!broker_device_find(session->broker, body->device.data, body->device.len, &ret->device))
        return "no such device";
    if (body->level >= PRESSURE_LEVEL_MAX)
        return "a level is 1 (low), 2 (medium) or 3 (critical), or 0 for a trigger by stall";
    if (body->window_us < WINDOW_MIN_US || body->window_us > WINDOW_MAX_US)
        return "a window is 500,000 to 10,000,000 us";
    if (body->level == PRESSURE_NONE && (body->stall_us == 0 || body->stall_us > body->window_us))
        return "a trigger by stall takes 1 us to a whole window of it";
    if (body->level == PRESSURE_NONE && body->of_device)
        return "stall is a tenant's, not a device's";
    ret->level = (enum pressure_level) body->level;
    ret->of_device = body->of_device;
    ret->line = body->full ? STALL_FULL : STALL_SOME;
    ret->stall_ns = body->stall_us * NSEC_PER_USEC;
    ret->window_ns = body->window_us * NSEC_PER_USEC;
    return NULL;
}

static void watching_send(struct session *session, uint64_t id, uint64_t watch, int fd)
{
    _cleanup_fdset_ struct fdset fds = FDSET_EMPTY;
    Gmb__BrokerMessage message = GMB__BROKER_MESSAGE__INIT;
    Gmb__PressureWatching body = GMB__PRESSURE_WATCHING__INIT;

    if (fdset_consume(&fds, fd) < 0) {
        message_refuse_plainly(session, id, GMB_STATUS_INTERNAL, "the broker has no host memory");
        return;
    }
    body.watch = watch;
    message.id = id;
    message.body_case = GMB__BROKER_MESSAGE__BODY_PRESSURE_WATCHING;
    message.pressure_watching = &body;
    message_send_fds(session, &message, &fds);
}

void on_pressure_watch(struct session *session, const Gmb__ClientMessage *message)
{
    struct watch_params params = {0};
    const char *wrong = watch_read(session, message->pressure_watch, &params);
    uint64_t watch;
    int r, fd;

    if (wrong != NULL) {
        message_refuse_plainly(session, message->id, GMB_STATUS_INVALID, wrong);
        return;
    }
    r = watch_new(session, &params, &watch, &fd);
    if (r == -EDQUOT)
        message_refuse(session, message->id, GMB_STATUS_EXHAUSTED, GMB_LIMIT_REQUESTS, 1, 0,
            "this client, or its tenant, has as many watches as one may");
    else if (r == -EMFILE || r == -ENFILE)
        message_refuse_plainly(session, message->id, GMB_STATUS_EXHAUSTED,
            "the broker has no file descriptor left for a watch");
    else if (r < 0)
        message_refuse_plainly(session, message->id, GMB_STATUS_INTERNAL, strerror(-r));
    else
        watching_send(session, message->id, watch, fd);
}

void on_pressure_unwatch(struct session *session, const Gmb__ClientMessage *message)
{
    if (watch_end(session, message->pressure_unwatch->watch))
        done_send(session, message->id);
    else
        message_refuse_plainly(
            session, message->id, GMB_STATUS_NOT_FOUND, "the client has no such watch");
}

/* ------------------------------------------------------------------ advice */

void on_advice_ack(struct session *session, const Gmb__ClientMessage *message)
{
    const Gmb__AdviceAck *body = message->advice_ack;
    struct pressure_tenant *tenant = session->listener.tenant;
    struct core_advice_view view = {0};

    (void) core_advice_get(session->broker->core, tenant->index, &view);
    if (body->advice == 0 || body->advice != view.id) {
        message_refuse_plainly(
            session, message->id, GMB_STATUS_NOT_FOUND, "that advice is not in force");
        return;
    }
    /* As numbers: a peer may send what no enum has. */
    if ((uint32_t) body->action >= LADDER_ACTION_MAX ||
        (uint32_t) body->outcome >= ADVICE_OUTCOME_MAX ||
        !ladder_rung_has(&view.steps, (enum ladder_action) body->action)) {
        message_refuse_plainly(session, message->id, GMB_STATUS_INVALID,
            "that advice asks for no such step, or there is no such outcome");
        return;
    }
    advice_ack(&tenant->advice, &session->listener, (enum ladder_action) body->action,
        (enum advice_outcome) body->outcome, body->freed_bytes);
    done_send(session, message->id);
}

size_t pressure_steps_fill(
    const struct ladder_rung *rung, Gmb__AdviceStep *steps, Gmb__AdviceStep **pointers)
{
    size_t count = 0;

    for (unsigned action = LADDER_NONE + 1; action < LADDER_ACTION_MAX; action++) {
        Gmb__AdviceStep *step = &steps[count];

        if (!ladder_rung_has(rung, (enum ladder_action) action))
            continue;
        gmb__advice_step__init(step);
        step->action = (Gmb__DegradeAction) action;
        if (action == LADDER_REDUCE_BATCH)
            step->factor = (double) rung->batch_factor / PRESSURE_WHOLE;
        else if (action == LADDER_DROP_PREFIX_CACHE)
            step->factor = (double) rung->prefix_share / PRESSURE_WHOLE;
        else if (action == LADDER_QUANTIZE_KV)
            step->value = rung->format;
        else if (action == LADDER_SHRINK_CONTEXT)
            step->value = rung->context_tokens;
        else if (action == LADDER_REJECT_BELOW_PRIORITY)
            step->value = rung->reject_below;
        pointers[count++] = step;
    }
    return count;
}

/* ------------------------------------------------------------------ events */

static int event_send(struct session *session, Gmb__BrokerMessage *message)
{
    _cleanup_fdset_ struct fdset none = FDSET_EMPTY;

    return conn_try_send_consume(session->conn, &message->base, &none);
}

static int state_send(struct session *session, uint32_t device)
{
    const struct broker *broker = session->broker;
    Gmb__BrokerMessage message = GMB__BROKER_MESSAGE__INIT;
    Gmb__Pressure body = GMB__PRESSURE__INIT;
    struct core_pressure_view view;

    if (!core_pressure_get(broker->core, session->listener.tenant->index, device, &view))
        return 0;
    body.device.data = (uint8_t *) (uintptr_t) broker->devices[device].uuid.bytes;
    body.device.len = UUID_BYTES;
    body.level = view.level;
    body.device_level = view.device_level;
    body.headroom_bytes = view.headroom;
    body.some_total_us = view.stall_ns[STALL_SOME] / NSEC_PER_USEC;
    body.full_total_us = view.stall_ns[STALL_FULL] / NSEC_PER_USEC;
    message.body_case = GMB__BROKER_MESSAGE__BODY_PRESSURE;
    message.pressure = &body;
    return event_send(session, &message);
}

static int advice_send(struct session *session)
{
    Gmb__BrokerMessage message = GMB__BROKER_MESSAGE__INIT;
    Gmb__Advice body = GMB__ADVICE__INIT;
    Gmb__AdviceStep steps[LADDER_ACTION_MAX], *pointers[LADDER_ACTION_MAX];
    struct core_advice_view view;

    if (!core_advice_get(session->broker->core, session->listener.tenant->index, &view) ||
        view.id == 0)
        return 0; /* nothing was ever asked */
    body.advice = view.id;
    body.rung = view.rung;
    body.n_steps = pressure_steps_fill(&view.steps, steps, pointers);
    body.steps = pointers;
    message.body_case = GMB__BROKER_MESSAGE__BODY_ADVICE;
    message.advice = &body;
    return event_send(session, &message);
}

int pressure_event_send(struct session *session)
{
    struct listener *listener = &session->listener;
    int r;

    if (listener->devices != 0) {
        uint32_t device = (uint32_t) __builtin_ctzll(listener->devices);

        r = state_send(session, device);
        if (r == 0)
            listener->devices &= ~(UINT64_C(1) << device);
        return r;
    }
    if (!listener->advice)
        return -ENODATA;
    r = advice_send(session);
    if (r == 0)
        listener->advice = false;
    return r;
}
