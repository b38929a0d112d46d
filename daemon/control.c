/* See control.h. Requests are answered from the core's views; changes go through its events. */
#include "daemon/control.h"

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "daemon/broker.h"
#include "daemon/operate.h"
#include "daemon/report.h"
#include "proto/conn.h"

struct operators {
    struct broker *broker;
    struct list list; /* struct operator.link */
    size_t count;
    struct report report; /* scratch of the one request at hand */
};

struct operator
{
    struct list link;
    struct operators *operators;
    struct conn *conn;
    struct event *readable, *writable;
    struct order *order; /* that is being carried out; nothing is read meanwhile */
    uint64_t order_id;   /* of its request */
    pid_t pid;
    uid_t uid;
};

static void operator_free(struct operator* operator)
{
    list_remove(&operator->link);
    order_forget(operator->order);
    operator->operators->count--;
    if (operator->readable != NULL)
        event_free(operator->readable);
    if (operator->writable != NULL)
        event_free(operator->writable);
    closer_give(operator->operators->broker->closer, conn_free_take_fd(operator->conn));
    free(operator);
}

/* ------------------------------------------------------------------ requests */

static void on_status(struct operator* operator, const Gmb__ControlRequest * request)
{
    (void) request;
    report_status(operator->operators->broker, &operator->operators->report);
}

static void on_tenants(struct operator* operator, const Gmb__ControlRequest * request)
{
    report_tenants(operator->operators->broker, request->tenants_get->after,
        &operator->operators->report);
}

static void on_clients(struct operator* operator, const Gmb__ControlRequest * request)
{
    report_clients(operator->operators->broker, request->clients_get->after,
        &operator->operators->report);
}

static void on_leases(struct operator* operator, const Gmb__ControlRequest * request)
{
    report_leases(operator->operators->broker, request->leases_get->after,
        &operator->operators->report);
}

static void on_pressure(struct operator* operator, const Gmb__ControlRequest * request)
{
    report_pressures(operator->operators->broker, request->pressure_get->after,
        &operator->operators->report);
}

static void on_segments(struct operator* operator, const Gmb__ControlRequest * request)
{
    report_segments(operator->operators->broker, request->segments_get->after,
        &operator->operators->report);
}

static struct operate_caller caller_of(const struct operator* operator)
{
    return (struct operate_caller){.uid = operator->uid, .pid = operator->pid };
}

static void on_set(struct operator* operator, const Gmb__ControlRequest * request)
{
    const struct operate_caller caller = caller_of(operator);

    operate_set(operator->operators->broker, &caller, request->tenant_set,
        &operator->operators->report);
}

static void on_reload(struct operator* operator, const Gmb__ControlRequest * request)
{
    const struct operate_caller caller = caller_of(operator);

    (void) request;
    operate_reload(operator->operators->broker, &caller, &operator->operators->report);
}

static void on_segment_change(struct operator* operator, const Gmb__ControlRequest * request)
{
    const struct operate_caller caller = caller_of(operator);

    operate_segments(operator->operators->broker, &caller, request->segment_change,
        &operator->operators->report);
}

static void on_order_done(void *data, const struct report *report);

static void on_reclaim(struct operator* operator, const Gmb__ControlRequest * request)
{
    const struct operate_caller caller = caller_of(operator);

    operator->order = operate_reclaim(operator->operators->broker, &caller, request->reclaim,
        on_order_done, operator, & operator->operators->report);
}

static void on_drain(struct operator* operator, const Gmb__ControlRequest * request)
{
    const struct operate_caller caller = caller_of(operator);

    operator->order = operate_drain(operator->operators->broker, &caller, request->drain,
        on_order_done, operator, & operator->operators->report);
}

#define BODY_MAX (GMB__CONTROL_REQUEST__BODY_SEGMENT_CHANGE + 1)
static_assert(
    GMB__CONTROL_REQUEST__BODY_STATUS_GET == 2 && BODY_MAX == 22, "every body is handled");

static void (*const handlers[BODY_MAX])(
    struct operator* operator, const Gmb__ControlRequest * request) = {
    [GMB__CONTROL_REQUEST__BODY_STATUS_GET] = on_status,
    [GMB__CONTROL_REQUEST__BODY_TENANTS_GET] = on_tenants,
    [GMB__CONTROL_REQUEST__BODY_CLIENTS_GET] = on_clients,
    [GMB__CONTROL_REQUEST__BODY_LEASES_GET] = on_leases,
    [GMB__CONTROL_REQUEST__BODY_TENANT_SET] = on_set,
    [GMB__CONTROL_REQUEST__BODY_RELOAD] = on_reload,
    [GMB__CONTROL_REQUEST__BODY_RECLAIM] = on_reclaim,
    [GMB__CONTROL_REQUEST__BODY_DRAIN] = on_drain,
    [GMB__CONTROL_REQUEST__BODY_PRESSURE_GET] = on_pressure,
    [GMB__CONTROL_REQUEST__BODY_SEGMENTS_GET] = on_segments,
    [GMB__CONTROL_REQUEST__BODY_SEGMENT_CHANGE] = on_segment_change,
};

/* -EBADMSG for what is no request; else what sending the reply gave. */
static int request_serve(struct operator* operator, const uint8_t * bytes, size_t size)
{
    Gmb__ControlRequest *request;
    Gmb__ControlReply *reply = &operator->operators->report.message;
    int r;

    r = frame_decode_request(bytes, size, &request);
    if (r < 0) {
        report_error(&operator->operators->report, GMB_STATUS_PROTOCOL, GMB_LIMIT_NONE,
            "the frame is no valid request");
        r = conn_send_consume(operator->conn, &reply->base, NULL);
        return r < 0 ? r : -EBADMSG;
    }
    handlers[request->body_case](operator, request);
    reply->id = operator->order_id = request->id;
    if (operator->order != NULL) {
        frame_message_free(&request->base);
        return 0;
    }
    r = conn_send_consume(operator->conn, &reply->base, NULL);
    frame_message_free(&request->base);
    return r;
}

/* ------------------------------------------------------------------ events */

static int operator_read(struct operator* operator)
{
    const uint8_t *bytes;
    size_t size;
    int r = 0;

    for (unsigned i = 0; i < LIMIT_READ_BURST && r == 0 &&
                         conn_queued(operator->conn) == 0 && operator->order == NULL;
         i++) {
        r = conn_receive_plain(operator->conn, &bytes, &size);
        if (r == 0)
            r = request_serve(operator, bytes, size);
    }
    return r == -EAGAIN ? 0 : r;
}

/* Reads on when nothing waits to be sent; ends the connection on any error. */
static void operator_go_on(struct operator* operator, int r)
{
    if (r < 0) {
        if (r != -ECONNRESET && r != -EPIPE)
            log_info("dropped operator pid %d (uid %u): %s", (int) operator->pid,
                (unsigned) operator->uid, strerror(-r));
        operator_free(operator);
    } else if (operator->order != NULL) {
        (void) event_del(operator->readable);
    } else if (conn_wants_write(operator->conn)) {
        (void) event_del(operator->readable);
        (void) event_add(operator->writable, NULL);
    } else {
        (void) event_add(operator->readable, NULL);
    }
}

static void on_readable(evutil_socket_t fd, short what, void *data)
{
    struct operator* operator= data;
    struct broker *broker = operator->operators->broker;

    (void) fd;
    (void) what;
    operator_go_on(operator, operator_read(operator));
    broker_settle(broker);
}

static void on_writable(evutil_socket_t fd, short what, void *data)
{
    struct operator* operator= data;

    (void) fd;
    (void) what;
    operator_go_on(operator, conn_flush(operator->conn));
}

static void on_order_done(void *data, const struct report *report)
{
    struct operator* operator= data;
    Gmb__ControlReply *reply = &operator->operators->report.message;

    (void) report; /* the operators' own */
    operator->order = NULL;
    reply->id = operator->order_id;
    operator_go_on(operator, conn_send_consume(operator->conn, &reply->base, NULL));
}

/* ------------------------------------------------------------------ life */

int operators_new(struct broker *broker, struct operators **ret)
{
    struct operators *operators = calloc(1, sizeof(*operators));

    if (operators == NULL)
        return -ENOMEM;
    operators->broker = broker;
    list_init(&operators->list);
    *ret = operators;
    return 0;
}

struct operators *operators_free(struct operators *operators)
{
    if (operators == NULL)
        return NULL;
    list_for_each_safe(operator, & operators->list, struct operator, link) operator_free(operator);
    free(operators);
    return NULL;
}

int operators_add_consume(struct operators *operators, int fd)
{
    struct ucred cred = {.pid = -1, .uid = (uid_t) -1};
    socklen_t length = sizeof(cred);
    struct operator* operator;
    int r;

    operator= operators->count<LIMIT_OPERATORS ? calloc(1, sizeof(*operator)) : NULL;
    if (operator== NULL) {
        closer_give(operators->broker->closer, fd);
        return operators->count < LIMIT_OPERATORS ? -ENOMEM : -EUSERS;
    }
    (void) getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &length);
    operator->operators = operators;
    operator->pid = cred.pid;
    operator->uid = cred.uid;
    list_init(&operator->link);
    list_append(&operators->list, &operator->link);
    operators->count++;
    r = conn_new_consume(fd, &operator->conn);
    if (r == 0) {
        struct event_base *base = operators->broker->base;

        fd = conn_fd(operator->conn);
        operator->readable = event_new(base, fd, EV_READ | EV_PERSIST, on_readable, operator);
        operator->writable = event_new(base, fd, EV_WRITE, on_writable, operator);
        if (operator->readable == NULL || operator->writable == NULL ||
            event_add(operator->readable, NULL) < 0)
            r = -ENOMEM;
    }
    if (r < 0)
        operator_free(operator);
    return r;
}
