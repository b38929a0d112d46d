/* See raw_pressure.h. */
#include "tests/integration/raw_pressure.h"

#include <check.h>
#include <poll.h>

static void tell(struct raw *raw, Gmb__ClientMessage *message,
    Gmb__ClientMessage__BodyCase body_case, uint64_t *ret_id)
{
    message->body_case = body_case;
    *ret_id = raw_send(raw, message);
}

uint64_t pressure_subscribe(struct raw *raw, bool off)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__PressureSubscribe body = GMB__PRESSURE_SUBSCRIBE__INIT;
    uint64_t id;

    body.off = off;
    message.pressure_subscribe = &body;
    tell(raw, &message, GMB__CLIENT_MESSAGE__BODY_PRESSURE_SUBSCRIBE, &id);
    return id;
}

uint64_t pressure_watch(struct raw *raw, uint32_t level, uint64_t stall_us, uint64_t window_us)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__PressureWatch body;
    uint64_t id;

    gmb__pressure_watch__init(&body);
    body.level = level;
    body.stall_us = stall_us;
    body.window_us = window_us;
    message.pressure_watch = &body;
    tell(raw, &message, GMB__CLIENT_MESSAGE__BODY_PRESSURE_WATCH, &id);
    return id;
}

uint64_t pressure_unwatch(struct raw *raw, uint64_t number)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__PressureUnwatch body = GMB__PRESSURE_UNWATCH__INIT;
    uint64_t id;

    body.watch = number;
    message.pressure_unwatch = &body;
    tell(raw, &message, GMB__CLIENT_MESSAGE__BODY_PRESSURE_UNWATCH, &id);
    return id;
}

uint64_t pressure_ack(
    struct raw *raw, uint64_t advice, int action, int outcome, uint64_t freed_bytes)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__AdviceAck body = GMB__ADVICE_ACK__INIT;
    uint64_t id;

    body.advice = advice;
    body.action = (Gmb__DegradeAction) action;
    body.outcome = (Gmb__AdviceAck__Outcome) outcome;
    body.freed_bytes = freed_bytes;
    message.advice_ack = &body;
    tell(raw, &message, GMB__CLIENT_MESSAGE__BODY_ADVICE_ACK, &id);
    return id;
}

Gmb__BrokerMessage *pressure_next(struct raw *raw, Gmb__BrokerMessage__BodyCase body_case)
{
    for (;;) {
        Gmb__BrokerMessage *message = raw_receive(raw);

        ck_assert_ptr_nonnull(message);
        if (message->body_case == body_case)
            return message;
        frame_message_free(&message->base);
    }
}

void pressure_await(struct raw *raw, uint32_t level)
{
    for (bool there = false; !there;) {
        Gmb__BrokerMessage *message = pressure_next(raw, GMB__BROKER_MESSAGE__BODY_PRESSURE);

        there = message->pressure->level == level;
        frame_message_free(&message->base);
    }
}

bool pressure_rings(int fd, int ms)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    return poll(&poll_fd, 1, ms) == 1;
}

uint64_t pressure_rung(int fd)
{
    uint64_t count = 0;

    ck_assert_int_eq(read(fd, &count, sizeof(count)), sizeof(count));
    return count;
}

int pressure_watching(struct raw *raw, uint64_t id, uint64_t *ret_watch)
{
    Gmb__BrokerMessage *message = raw_receive(raw);

    ck_assert_ptr_nonnull(message);
    ck_assert_uint_eq(message->id, id);
    ck_assert_int_eq(message->body_case, GMB__BROKER_MESSAGE__BODY_PRESSURE_WATCHING);
    *ret_watch = message->pressure_watching->watch;
    frame_message_free(&message->base);
    return fdset_take(&raw->fds, 0);
}

Gmb__ControlReply *pressure_page(const struct harness *harness)
{
    Gmb__ControlRequest request = GMB__CONTROL_REQUEST__INIT;
    Gmb__ControlReply *reply;
    Gmb__PressureGet get;

    gmb__pressure_get__init(&get);
    request.body_case = GMB__CONTROL_REQUEST__BODY_PRESSURE_GET;
    request.pressure_get = &get;
    reply = raw_control(harness, &request);
    ck_assert_int_eq(reply->body_case, GMB__CONTROL_REPLY__BODY_PRESSURE_PAGE);
    return reply;
}

bool pressure_ignored(const struct harness *harness)
{
    Gmb__ControlReply *reply = pressure_page(harness);
    bool ignored = reply->pressure_page->tenants[0]->ignored;

    frame_message_free(&reply->base);
    return ignored;
}
