/*
 * A watch is the broker's and ends with the connection. Nobody could tell that from its fd, so the
 * library keeps a second one of the same timer and rings it then, as the broker does. Numbers are
 * the library's own: those of another broker could be the same.
 */
#include "client/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/timerfd.h>

#include "base/clock.h"
#include "client/ask.h"
#include "client/device.h"
#include "client/pressure.h"
#include "client/request.h"

/* As the kernel has it for PSI. */
#define WINDOW_MIN_NS (500 * NSEC_PER_MSEC)
#define WINDOW_MAX_NS (10 * NSEC_PER_SEC)

struct watch {
    struct list link;
    uint64_t id, broker_id;
    int fd;
};

static void watch_free(struct watch *watch)
{
    list_remove(&watch->link);
    close_fd(&watch->fd);
    free(watch);
}

void watches_end(struct gmb_session *session)
{
    const struct itimerspec at_once = {.it_value.tv_nsec = 1};

    list_for_each_safe(watch, &session->watches, struct watch, link)
    {
        (void) timerfd_settime(watch->fd, 0, &at_once, NULL);
        watch_free(watch);
    }
}

static int watch_params_read(
    const struct gmb_watch_params *params, struct gmb_watch_params *ret, struct outcome *outcome)
{
    if (params == NULL || params->size < sizeof(*ret))
        return outcome_set(outcome, GMB_E_INVALID, "params.size must be sizeof the structure");
    *ret = *params;
    ret->device = NULL;
    if ((ret->level != 0) == (ret->stall_ns != 0) || ret->level > GMB_PRESSURE_CRITICAL)
        return outcome_set(
            outcome, GMB_E_INVALID, "a watch goes by a level from 1 to 3, or by a stall");
    if (ret->window_ns == 0 && ret->level != 0)
        ret->window_ns = WINDOW_MIN_NS;
    if (ret->window_ns < WINDOW_MIN_NS || ret->window_ns > WINDOW_MAX_NS ||
        ret->stall_ns > ret->window_ns || (ret->level == 0 && ret->stall_ns < NSEC_PER_USEC))
        return outcome_set(outcome, GMB_E_INVALID,
            "a window has 0.5 s to 10 s, and a stall in it 1 us to all of it");
    return 0;
}

/* NULL without what it takes. */
static struct watch *watch_new(const struct request *answered)
{
    struct watch *watch = calloc(1, sizeof(*watch));

    if (watch == NULL)
        return NULL;
    list_init(&watch->link);
    watch->broker_id = answered->target;
    watch->fd = fcntl(answered->event_fd, F_DUPFD_CLOEXEC, 3);
    if (watch->fd < 0) {
        free(watch);
        return NULL;
    }
    return watch;
}

/* The watch is there; what can't be kept of it is given up with the session. */
static int watch_keep(struct gmb_session *session, const struct request *answered,
    uint64_t *ret_watch, struct outcome *outcome)
{
    struct watch *watch = watch_new(answered);
    int r = 0;

    if (watch == NULL)
        return outcome_set(outcome, GMB_E_INTERNAL, "no host memory or fd for a watch");
    (void) pthread_mutex_lock(&session->lock);
    if (answered->drops != session->drops) {
        r = outcome_set(outcome, GMB_E_DISCONNECTED, "the broker went away meanwhile");
        watch_free(watch);
    } else {
        *ret_watch = watch->id = ++session->watch_ids;
        list_append(&session->watches, &watch->link);
    }
    (void) pthread_mutex_unlock(&session->lock);
    return r;
}

static int watch_ask(struct gmb_session *session, const struct gmb_watch_params *params,
    int *ret_fd, uint64_t *ret_watch, struct outcome *outcome)
{
    struct request *request = pressure_request_new(session, REQUEST_WATCH, outcome);
    struct device *device;
    int r;

    if (request == NULL)
        return outcome->code;
    r = watch_params_read(params, &request->watch, outcome);
    if (r == 0)
        r = device_find(session, params->device, &device, outcome);
    if (r < 0) {
        request_free(request);
        return r;
    }
    request->device = device;
    r = request_ask(session, request, outcome);
    if (r < 0)
        return r;
    r = watch_keep(session, request, ret_watch, outcome);
    if (r == 0)
        *ret_fd = TAKE_FD(request->event_fd);
    request_free(request);
    return r;
}

_public_ int gmb_pressure_watch(
    gmb_session *session, const struct gmb_watch_params *params, int *ret_fd, uint64_t *ret_watch)
{
    struct outcome outcome = OUTCOME_OK;

    (void) watch_ask(session, params, ret_fd, ret_watch, &outcome);
    return outcome_publish(&outcome);
}

static struct watch *watch_find(const struct gmb_session *session, uint64_t id)
{
    list_for_each(watch, &session->watches, struct watch, link)
    {
        if (watch->id == id)
            return watch;
    }
    return NULL;
}

static int watch_forget(
    struct gmb_session *session, uint64_t id, uint64_t *ret_broker_id, struct outcome *outcome)
{
    struct watch *watch;
    int r = 0;

    (void) pthread_mutex_lock(&session->lock);
    watch = watch_find(session, id);
    if (watch == NULL) {
        r = outcome_set(outcome, GMB_E_NOT_FOUND,
            "watch %llu has ended, with its connection perhaps, or never was",
            (unsigned long long) id);
    } else {
        *ret_broker_id = watch->broker_id;
        watch_free(watch);
    }
    (void) pthread_mutex_unlock(&session->lock);
    return r;
}

_public_ int gmb_pressure_unwatch(gmb_session *session, uint64_t watch)
{
    struct outcome outcome = OUTCOME_OK;
    struct request *request = pressure_request_new(session, REQUEST_UNWATCH, &outcome);

    if (request == NULL)
        return outcome_publish(&outcome);
    if (watch_forget(session, watch, &request->target, &outcome) == 0)
        (void) pressure_exchange_consume(session, request, &outcome);
    else
        request_free(request);
    return outcome_publish(&outcome);
}
