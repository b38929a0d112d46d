/* See signals.h. */
#include "daemon/signals.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>

#include "base/log.h"
#include "daemon/broker.h"
#include "daemon/ending.h"
#include "daemon/notify.h"

struct signals {
    struct broker *broker;
    struct notify *notify;
    struct ending *ending;
    struct event *term, *interrupt, *hangup;
};

static void on_end(evutil_socket_t signal, short what, void *data)
{
    struct signals *signals = data;

    (void) what;
    log_notice("ending on %s", signal == SIGTERM ? "SIGTERM" : "SIGINT");
    notify_stopping(signals->notify);
    ending_request(signals->ending);
}

static void on_hangup(evutil_socket_t signal, short what, void *data)
{
    struct signals *signals = data;
    char error[CONFIG_ERROR_BYTES];

    (void) signal;
    (void) what;
    notify_reloading(signals->notify);
    if (broker_reload(signals->broker, error) < 0)
        log_error("reload refused, the configuration stays as it was: %s", error);
    else
        log_notice("configuration reloaded");
    notify_reloaded(signals->notify);
    broker_settle(signals->broker);
}

int signals_new(
    struct broker *broker, struct notify *notify, struct ending *ending, struct signals **ret)
{
    struct signals *signals = calloc(1, sizeof(*signals));

    if (signals == NULL)
        return -ENOMEM;
    signals->broker = broker;
    signals->notify = notify;
    signals->ending = ending;
    /* What libevent restores when the events go: a second SIGTERM must not cut the end short. */
    if (signal(SIGTERM, SIG_IGN) == SIG_ERR || signal(SIGINT, SIG_IGN) == SIG_ERR ||
        signal(SIGHUP, SIG_IGN) == SIG_ERR) {
        free(signals);
        return -errno;
    }
    signals->term = evsignal_new(broker->base, SIGTERM, on_end, signals);
    signals->interrupt = evsignal_new(broker->base, SIGINT, on_end, signals);
    signals->hangup = evsignal_new(broker->base, SIGHUP, on_hangup, signals);
    if (signals->term == NULL || signals->interrupt == NULL || signals->hangup == NULL ||
        event_add(signals->term, NULL) < 0 || event_add(signals->interrupt, NULL) < 0 ||
        event_add(signals->hangup, NULL) < 0 || signal(SIGPIPE, SIG_IGN) == SIG_ERR) {
        (void) signals_free(signals);
        return -ENOMEM;
    }
    *ret = signals;
    return 0;
}

struct signals *signals_free(struct signals *signals)
{
    if (signals == NULL)
        return NULL;
    if (signals->term != NULL)
        event_free(signals->term);
    if (signals->interrupt != NULL)
        event_free(signals->interrupt);
    if (signals->hangup != NULL)
        event_free(signals->hangup);
    free(signals);
    return NULL;
}
