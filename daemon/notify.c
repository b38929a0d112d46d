/*
 * One line of state, sent again when it changed: so whatever the manager missed is said by what
 * comes next. libsystemd's sender blocks while the manager's queue is full; this one doesn't.
 */
#include "daemon/notify.h"

#include <errno.h>
#include <event2/event.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>

#include "base/log.h"
#include "base/size.h"
#include "daemon/broker.h"
#include "daemon/text.h"

#define LINE_BYTES 512
/* Of why a reload was refused. */
#define REFUSED_BYTES 256

struct notify {
    struct broker_observer observer;
    struct broker *broker;
    int fd; /* connected to the manager; -1: none */
    bool ready, stopping, armed;
    struct event *status, *watchdog;
    uint64_t watchdog_ns; /* the manager's patience */
    char sent[LINE_BYTES];
};

/* ------------------------------------------------------------------ sending */

static int manager_connect(int *ret_fd)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    _cleanup_close_ int fd = -1;
    size_t length = path != NULL ? strlen(path) : 0;

    if (length == 0)
        return 0;
    if ((path[0] != '/' && path[0] != '@') || length >= sizeof(address.sun_path))
        return -EAFNOSUPPORT;
    memcpy(address.sun_path, path, length);
    if (path[0] == '@')
        address.sun_path[0] = '\0';
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (const struct sockaddr *) &address,
            (socklen_t) (offsetof(struct sockaddr_un, sun_path) + length)) < 0)
        return -errno;
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* False when the manager's queue is full; what else goes wrong has no remedy. */
static bool line_send(const struct notify *notify, const char *line)
{
    return notify->fd < 0 || send(notify->fd, line, strlen(line), MSG_NOSIGNAL) >= 0 ||
           (errno != EAGAIN && errno != ENOBUFS);
}

static void line_format(char line[LINE_BYTES], const char *format, ...) _printf_(2, 3);

static void line_format(char line[LINE_BYTES], const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void) vsnprintf(line, LINE_BYTES, format, args);
    va_end(args);
}

/* ------------------------------------------------------------------ the status line */

static void status_describe(const struct notify *notify, char line[LINE_BYTES])
{
    const struct broker *broker = notify->broker;
    uint64_t leased = 0, capacity = 0;
    unsigned failing = 0, draining = 0;
    struct core_totals totals;
    char leased_text[SIZE_TEXT_MAX], capacity_text[SIZE_TEXT_MAX], faults[96] = "";
    char refused[REFUSED_BYTES];
    int n = 0;

    core_totals_get(broker->core, &totals);
    for (uint32_t i = 0; i < broker->device_count; i++) {
        struct core_device_view view = {0};

        (void) core_device_get(broker->core, i, &view);
        leased += view.leased;
        capacity += sub_saturate(view.total, view.reserve);
        failing += !broker->devices[i].healthy;
        draining += broker->hosting[i]->draining;
    }
    if (failing > 0)
        n = snprintf(faults, sizeof(faults), "; %u device%s failing", failing, PLURAL_S(failing));
    if (draining > 0)
        (void) snprintf(faults + n, sizeof(faults) - (size_t) n, "; %u device%s draining", draining,
            PLURAL_S(draining));
    text_copy(refused, sizeof(refused), broker->reload_error);
    line_format(line,
        "READY=1\nSTATUS=%u client%s with %u lease%s, %s of %s leased, %u request%s waiting%s%s%s",
        totals.clients, PLURAL_S(totals.clients), totals.leases, PLURAL_S(totals.leases),
        size_format(leased_text, leased), size_format(capacity_text, capacity), totals.waiting,
        PLURAL_S(totals.waiting), faults, refused[0] != '\0' ? "; reload refused: " : "", refused);
}

/* Comes after the pause even when nothing changed meanwhile: a line in each pause at most. */
static void status_arm(struct notify *notify)
{
    const struct timeval pause = {.tv_usec = NOTIFY_STATUS_MS * 1000};

    if (notify->armed || notify->fd < 0)
        return;
    notify->armed = event_add(notify->status, &pause) == 0;
}

static void status_send(struct notify *notify)
{
    char line[LINE_BYTES];

    if (notify->stopping)
        line_format(line, "STOPPING=1\nSTATUS=Ending");
    else if (notify->ready)
        status_describe(notify, line);
    else
        return;
    if (strcmp(line, notify->sent) == 0)
        return;
    if (line_send(notify, line))
        memcpy(notify->sent, line, sizeof(line));
    else
        status_arm(notify);
}

static void on_status(evutil_socket_t fd, short what, void *data)
{
    struct notify *notify = data;

    (void) fd;
    (void) what;
    notify->armed = false;
    status_send(notify);
}

static void on_settled(struct broker_observer *observer)
{
    status_arm(container_of(observer, struct notify, observer));
}

/* ------------------------------------------------------------------ the watchdog */

/* The loop got here, and left nothing behind that was due as long ago as the manager is patient. */
static void on_watchdog(evutil_socket_t fd, short what, void *data)
{
    struct notify *notify = data;

    (void) fd;
    (void) what;
    if (broker_progresses(notify->broker, notify->watchdog_ns))
        (void) line_send(notify, "WATCHDOG=1");
    else
        log_error("work that is due isn't done: the watchdog is not fed");
}

static int watchdog_start(struct notify *notify)
{
    uint64_t usec = 0;
    struct timeval half;
    int r = sd_watchdog_enabled(0, &usec);

    if (r <= 0)
        return r;
    notify->watchdog_ns = usec * NSEC_PER_USEC;
    half = (struct timeval){
        .tv_sec = (time_t) (usec / 2 / 1000000),
        .tv_usec = (suseconds_t) (usec / 2 % 1000000),
    };
    notify->watchdog = event_new(notify->broker->base, -1, EV_PERSIST, on_watchdog, notify);
    if (notify->watchdog == NULL || event_add(notify->watchdog, &half) < 0)
        return -ENOMEM;
    return 0;
}

/* ------------------------------------------------------------------ calls */

int notify_new(struct broker *broker, struct notify **ret)
{
    struct notify *notify = calloc(1, sizeof(*notify));
    int r;

    if (notify == NULL)
        return -ENOMEM;
    notify->broker = broker;
    notify->fd = -1;
    notify->observer.settled = on_settled;
    list_init(&notify->observer.link);
    list_append(&broker->observers, &notify->observer.link);
    notify->status = event_new(broker->base, -1, 0, on_status, notify);
    r = notify->status != NULL ? manager_connect(&notify->fd) : -ENOMEM;
    if (r < 0 && notify->status != NULL)
        log_error("the service manager can't be reached (NOTIFY_SOCKET=%.108s): %s",
            getenv("NOTIFY_SOCKET"), strerror(-r));
    if (r == 0)
        r = watchdog_start(notify);
    if (r < 0) {
        (void) notify_free(notify);
        return r;
    }
    *ret = notify;
    return 0;
}

struct notify *notify_free(struct notify *notify)
{
    if (notify == NULL)
        return NULL;
    list_remove(&notify->observer.link);
    if (notify->status != NULL)
        event_free(notify->status);
    if (notify->watchdog != NULL)
        event_free(notify->watchdog);
    close_fd(&notify->fd);
    free(notify);
    return NULL;
}

void notify_ready(struct notify *notify)
{
    notify->ready = true;
    status_send(notify);
}

void notify_reloading(struct notify *notify)
{
    char line[LINE_BYTES];

    line_format(line, "RELOADING=1\nMONOTONIC_USEC=%llu\nSTATUS=Reading the configuration",
        (unsigned long long) (clock_now(&clock_monotonic) / NSEC_PER_USEC));
    (void) line_send(notify, line);
    notify->sent[0] = '\0';
}

void notify_reloaded(struct notify *notify)
{
    status_send(notify);
}

void notify_stopping(struct notify *notify)
{
    notify->stopping = true;
    status_send(notify);
}
