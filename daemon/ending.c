/*
 * What is left to do is looked at again and again instead of being counted: it is a short time, and
 * no path on which work ends can be forgotten.
 */
#include "daemon/ending.h"

#include <errno.h>
#include <event2/event.h>

#include "base/log.h"
#include "daemon/broker.h"
#include "daemon/message.h"
#include "daemon/server.h"

/* Between two looks at what is left. */
#define LOOK_MS 10

struct ending {
    struct broker *broker;
    struct server *server;
    struct event *look;
    uint64_t deadline_ns;
};

/* Why the end has to wait; NULL when nothing holds it up. */
static const char *obstacle_find(const struct broker *broker)
{
    if (executor_busy(broker->executor) > 0)
        return "driver calls";
    for (size_t i = 0; i < broker->device_count; i++) {
        if (hosting_busy(broker->hosting[i]))
            return "pages that move";
    }
    list_for_each(session, &broker->sessions, struct session, link)
    {
        if (session->state == SESSION_ACTIVE &&
            (conn_queued(session->conn) > 0 || !list_empty(&session->grants)))
            return "answers on their way";
    }
    return NULL;
}

static void look_again(struct ending *ending)
{
    const struct timeval pause = {.tv_usec = LOOK_MS * 1000};

    /* A loop that can't wait ends now. */
    if (event_add(ending->look, &pause) < 0)
        (void) event_base_loopbreak(ending->broker->base);
}

static void on_look(evutil_socket_t fd, short what, void *data)
{
    struct ending *ending = data;
    const char *obstacle = obstacle_find(ending->broker);

    (void) fd;
    (void) what;
    if (obstacle != NULL && clock_now(ending->broker->clock) < ending->deadline_ns) {
        look_again(ending);
        return;
    }
    if (obstacle != NULL)
        log_warning("ending without having finished: %s", obstacle);
    (void) event_base_loopbreak(ending->broker->base);
}

static void clients_tell(struct broker *broker)
{
    Gmb__BrokerMessage message = GMB__BROKER_MESSAGE__INIT;
    Gmb__Ending body = GMB__ENDING__INIT;

    body.deadline_ns = ENDING_MS * NSEC_PER_MSEC;
    message.body_case = GMB__BROKER_MESSAGE__BODY_ENDING;
    message.ending = &body;
    list_for_each(session, &broker->sessions, struct session, link)
    {
        if (session->state == SESSION_ACTIVE)
            message_send(session, &message);
    }
}

int ending_new(struct broker *broker, struct server *server, struct ending **ret)
{
    struct ending *ending = calloc(1, sizeof(*ending));

    if (ending == NULL)
        return -ENOMEM;
    ending->broker = broker;
    ending->server = server;
    ending->look = event_new(broker->base, -1, 0, on_look, ending);
    if (ending->look == NULL) {
        free(ending);
        return -ENOMEM;
    }
    *ret = ending;
    return 0;
}

struct ending *ending_free(struct ending *ending)
{
    if (ending == NULL)
        return NULL;
    event_free(ending->look);
    free(ending);
    return NULL;
}

void ending_request(struct ending *ending)
{
    struct broker *broker = ending->broker;

    if (broker->ending) {
        (void) event_base_loopbreak(broker->base);
        return;
    }
    broker->ending = true;
    ending->deadline_ns = clock_now(broker->clock) + ENDING_MS * NSEC_PER_MSEC;
    server_stop(ending->server);
    clients_tell(broker);
    broker_settle(broker);
    look_again(ending);
}
