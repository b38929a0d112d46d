/* Subscriptions and answers to advice: each is one exchange with the broker. */
#include "client/pressure.h"

#include "base/clock.h"
#include "client/ask.h"
#include "client/fork.h"
#include "client/news.h"
#include "client/request.h"

static int watch_transmit(struct conn *conn, const struct request *request)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__PressureWatch body = GMB__PRESSURE_WATCH__INIT;

    body.device.data = (uint8_t *) (uintptr_t) request->device->uuid.bytes;
    body.device.len = UUID_BYTES;
    body.level = request->watch.level;
    body.of_device = request->watch.of_device != 0;
    body.full = request->watch.full != 0;
    body.stall_us = request->watch.stall_ns / NSEC_PER_USEC;
    body.window_us = request->watch.window_ns / NSEC_PER_USEC;
    message.id = request->id;
    message.body_case = GMB__CLIENT_MESSAGE__BODY_PRESSURE_WATCH;
    message.pressure_watch = &body;
    return conn_send_consume(conn, &message.base, NULL);
}

int pressure_transmit(struct conn *conn, struct request *request)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__PressureSubscribe subscribe = GMB__PRESSURE_SUBSCRIBE__INIT;
    Gmb__PressureUnwatch unwatch = GMB__PRESSURE_UNWATCH__INIT;
    Gmb__AdviceAck ack = GMB__ADVICE_ACK__INIT;

    message.id = request->id;
    if (request->kind == REQUEST_WATCH)
        return watch_transmit(conn, request);
    if (request->kind == REQUEST_SUBSCRIBE) {
        subscribe.off = request->off;
        message.body_case = GMB__CLIENT_MESSAGE__BODY_PRESSURE_SUBSCRIBE;
        message.pressure_subscribe = &subscribe;
    } else if (request->kind == REQUEST_UNWATCH) {
        unwatch.watch = request->target;
        message.body_case = GMB__CLIENT_MESSAGE__BODY_PRESSURE_UNWATCH;
        message.pressure_unwatch = &unwatch;
    } else {
        ack.advice = request->target;
        ack.action = (Gmb__DegradeAction) request->action;
        ack.outcome = (Gmb__AdviceAck__Outcome) request->result;
        ack.freed_bytes = request->bytes;
        message.body_case = GMB__CLIENT_MESSAGE__BODY_ADVICE_ACK;
        message.advice_ack = &ack;
    }
    return conn_send_consume(conn, &message.base, NULL);
}

struct request *pressure_request_new(
    struct gmb_session *session, enum request_kind kind, struct outcome *outcome)
{
    struct request *request = NULL;

    if (fork_guard_check(session, outcome) < 0)
        return NULL;
    if (session->status.page == NULL) {
        (void) outcome_set(outcome, GMB_E_UNSUPPORTED, "the broker knows no pressure");
        return NULL;
    }
    request = request_new(kind, REQUEST_OWNER_WAITER);
    if (request == NULL)
        (void) outcome_set(outcome, GMB_E_INTERNAL, "no host memory for a request");
    return request;
}

int pressure_exchange_consume(
    struct gmb_session *session, struct request *request, struct outcome *outcome)
{
    if (request_ask(session, request, outcome) == 0)
        request_free(request);
    return outcome->code;
}

/* The callbacks are there before the first event can come, and gone before the last one is over. */
static void callbacks_set(
    struct gmb_session *session, gmb_pressure_fn pressure, gmb_advice_fn advice, void *user)
{
    (void) pthread_mutex_lock(&session->lock);
    session->subscription.pressure = pressure;
    session->subscription.advice = advice;
    session->subscription.user = user;
    news_forget(session);
    news_quiet(session);
    (void) pthread_mutex_unlock(&session->lock);
}

_public_ int gmb_pressure_subscribe(
    gmb_session *session, gmb_pressure_fn pressure, gmb_advice_fn advice, void *user)
{
    struct outcome outcome = OUTCOME_OK;
    struct request *request;

    if (pressure != NULL && advice == NULL) {
        (void) outcome_set(&outcome, GMB_E_INVALID,
            "who subscribes acts on advice; gmb_pressure_watch() is for the others");
    } else if ((request = pressure_request_new(session, REQUEST_SUBSCRIBE, &outcome)) != NULL) {
        request->off = advice == NULL;
        callbacks_set(session, pressure, advice, user);
        if (pressure_exchange_consume(session, request, &outcome) < 0)
            callbacks_set(session, NULL, NULL, NULL);
    }
    return outcome_publish(&outcome);
}

void pressure_subscribe_again(struct gmb_session *session)
{
    struct outcome ignored = OUTCOME_OK;
    struct request *request;

    if (session->subscription.advice == NULL || session->status.page == NULL)
        return;
    request = request_new(REQUEST_SUBSCRIBE, REQUEST_OWNER_NOBODY);
    if (request != NULL && request_submit(session, request, &ignored) < 0)
        request_free(request);
}

_public_ int gmb_advice_ack(gmb_session *session, uint64_t advice, enum gmb_degrade action,
    enum gmb_advice_outcome result, uint64_t freed_bytes)
{
    struct outcome outcome = OUTCOME_OK;
    struct request *request;

    if ((unsigned) action < GMB_DEGRADE_REDUCE_BATCH || (unsigned) action > GMB_DEGRADE_PAUSE_NEW ||
        (unsigned) result > GMB_ADVICE_REFUSED) {
        (void) outcome_set(&outcome, GMB_E_INVALID, "no such step, or no such outcome");
    } else if ((request = pressure_request_new(session, REQUEST_ACK, &outcome)) != NULL) {
        request->target = advice;
        request->action = (uint32_t) action;
        request->result = (uint32_t) result;
        request->bytes = freed_bytes;
        (void) pressure_exchange_consume(session, request, &outcome);
    }
    return outcome_publish(&outcome);
}
