/*
 * sd-bus on the loop: one fd, one timeout, asked for anew whenever sd-bus was called. A connection
 * is given up for one reason only, `lost`, and never from within sd-bus; then another is tried,
 * after a pause that doubles.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/log.h"
#include "daemon/bus/bus.h"
#include "daemon/bus/private.h"

#define ADDRESS_DEFAULT "unix:path=/run/dbus/system_bus_socket"
/* Messages taken before the loop looks at anything else: some cost a look at every tenant. */
#define BURST 4
#define RETRY_MS 500
#define RETRY_MAX_MS 15000
/* Changes are told at most once in this time. */
#define TELL_MS 500

static struct timeval milliseconds(unsigned ms)
{
    return (struct timeval){.tv_sec = ms / 1000, .tv_usec = (suseconds_t) (ms % 1000) * 1000};
}

static void retry_arm(struct bus *bus)
{
    const struct timeval pause = milliseconds(bus->retry_ms);

    bus->retry_ms = MIN(2 * bus->retry_ms, (unsigned) RETRY_MAX_MS);
    (void) event_add(bus->retry, &pause);
}

static void connection_drop(struct bus *bus)
{
    bus_calls_drop(bus);
    (void) event_del(bus->timer);
    bus->woken = false;
    if (bus->io != NULL)
        event_free(bus->io);
    bus->io = NULL;
    bus->watched = 0;
    bus->sd = sd_bus_close_unref(bus->sd);
    bus->named = bus->lost = false;
    bus->eviction_count = 0;
    bus_pressure_drop(bus);
}

/* ------------------------------------------------------------------ the loop */

static void on_io(evutil_socket_t fd, short what, void *data);

static int io_watch(struct bus *bus)
{
    int events = sd_bus_get_events(bus->sd);
    short wanted;

    if (events < 0)
        return events;
    wanted = (short) (EV_PERSIST | ((events & POLLIN) != 0 ? EV_READ : 0) |
                      ((events & POLLOUT) != 0 ? EV_WRITE : 0));
    if (bus->io != NULL && bus->watched == wanted)
        return 0;
    if (bus->io != NULL)
        event_free(bus->io);
    bus->watched = wanted;
    bus->io = event_new(bus->broker->base, sd_bus_get_fd(bus->sd), wanted, on_io, bus);
    return bus->io != NULL && event_add(bus->io, NULL) == 0 ? 0 : -ENOMEM;
}

static int timer_watch(struct bus *bus)
{
    uint64_t due_usec, now_usec = clock_now(&clock_monotonic) / NSEC_PER_USEC, wait;
    struct timeval delay;
    int r = sd_bus_get_timeout(bus->sd, &due_usec);

    bus->woken = false;
    if (r < 0)
        return r;
    if (r == 0 || due_usec == UINT64_MAX) {
        (void) event_del(bus->timer);
        return 0;
    }
    wait = sub_saturate(due_usec, now_usec);
    delay = (struct timeval){
        .tv_sec = (time_t) (wait / 1000000),
        .tv_usec = (suseconds_t) (wait % 1000000),
    };
    return event_add(bus->timer, &delay) == 0 ? 0 : -ENOMEM;
}

/* Whether the bus has stopped to read. */
static bool queue_full(const struct bus *bus)
{
    uint64_t queued = 0;

    return sd_bus_get_n_queued_write(bus->sd, &queued) >= 0 && queued > LIMIT_BUS_QUEUE;
}

void bus_settle(struct bus *bus)
{
    int r = 0;

    if (bus->sd == NULL)
        return;
    if (!bus->lost && queue_full(bus)) {
        log_warning("the system bus doesn't read: giving the connection up");
        bus->lost = true;
    }
    if (!bus->lost)
        r = io_watch(bus);
    if (!bus->lost && r == 0)
        r = timer_watch(bus);
    if (!bus->lost && r == 0)
        return;
    connection_drop(bus);
    retry_arm(bus);
}

static void bus_process(struct bus *bus)
{
    int r = 1;

    for (unsigned i = 0; i < BURST && r > 0 && !bus->lost; i++)
        r = sd_bus_process(bus->sd, NULL);
    if (r < 0 || sd_bus_is_open(bus->sd) <= 0) {
        if (bus->named)
            log_notice("the system bus is gone; looking for it again");
        bus->lost = true;
    }
    bus_settle(bus);
    broker_settle(bus->broker);
}

static void on_io(evutil_socket_t fd, short what, void *data)
{
    (void) fd;
    (void) what;
    bus_process(data);
}

static void on_timer(evutil_socket_t fd, short what, void *data)
{
    (void) fd;
    (void) what;
    bus_process(data);
}

/* ------------------------------------------------------------------ what is told */

static void tell_arm(struct bus *bus, unsigned ms)
{
    const struct timeval pause = milliseconds(ms);

    if (!bus->telling && bus->named)
        bus->telling = event_add(bus->tell, &pause) == 0;
}

static void on_tell(evutil_socket_t fd, short what, void *data)
{
    struct bus *bus = data;

    (void) fd;
    (void) what;
    bus->telling = false;
    if (bus->sd == NULL || !bus->named)
        return;
    bus_evictions_tell(bus);
    if (!bus_changes_tell(bus))
        tell_arm(bus, 0);
    bus_settle(bus);
}

static void on_settled(struct broker_observer *observer)
{
    tell_arm(container_of(observer, struct bus, observer), TELL_MS);
}

/* ------------------------------------------------------------------ the connection */

static int on_named(sd_bus_message *reply, void *userdata, sd_bus_error *error)
{
    struct bus *bus = userdata;
    uint32_t code = 0;

    (void) error;
    /* 1: we have it; 4: we had it. */
    if (!sd_bus_message_is_method_error(reply, NULL) &&
        sd_bus_message_read(reply, "u", &code) >= 0 && (code == 1 || code == 4)) {
        bus->named = true;
        bus->excused = false;
        bus->retry_ms = RETRY_MS;
        bus_told_init(bus);
        log_info("on the system bus as " BUS_NAME);
        return 1;
    }
    if (!bus->excused) {
        const sd_bus_error *why = sd_bus_message_get_error(reply);

        log_warning("not on the system bus: %s",
            why != NULL && why->message != NULL ? why->message : BUS_NAME " is somebody else's");
        bus->excused = true;
    }
    bus->lost = true;
    return 1;
}

static int connection_start(struct bus *bus)
{
    const char *address = secure_getenv("DBUS_SYSTEM_BUS_ADDRESS");
    int r = sd_bus_new(&bus->sd);

    if (r >= 0)
        r = sd_bus_set_address(bus->sd, address != NULL ? address : ADDRESS_DEFAULT);
    if (r >= 0)
        r = sd_bus_set_bus_client(bus->sd, true);
    if (r >= 0)
        r = sd_bus_negotiate_fds(bus->sd, false);
    if (r >= 0)
        r = sd_bus_start(bus->sd);
    if (r >= 0)
        r = bus_objects_add(bus);
    if (r >= 0)
        r = sd_bus_request_name_async(bus->sd, NULL, BUS_NAME, 0, on_named, bus);
    return r;
}

static void on_retry(evutil_socket_t fd, short what, void *data)
{
    struct bus *bus = data;
    int r = connection_start(bus);

    (void) fd;
    (void) what;
    if (r >= 0) {
        bus_settle(bus);
        return;
    }
    if (!bus->excused)
        log_info("no system bus: %s; looking for it again", strerror(-r));
    bus->excused = true;
    connection_drop(bus);
    retry_arm(bus);
}

int bus_new(struct broker *broker, struct bus **ret)
{
    const struct timeval now = {0};
    struct bus *bus = calloc(1, sizeof(*bus));

    if (bus == NULL)
        return -ENOMEM;
    bus->broker = broker;
    bus->retry_ms = RETRY_MS;
    bus->observer = (struct broker_observer){
        .settled = on_settled,
        .refused = bus_refused,
        .evicted = bus_evicted,
        .quarantined = bus_quarantined,
        .killed = bus_killed,
        .pressed = bus_pressed,
    };
    list_init(&bus->calls);
    list_init(&bus->observer.link);
    list_append(&broker->observers, &bus->observer.link);
    bus->timer = event_new(broker->base, -1, 0, on_timer, bus);
    bus->retry = event_new(broker->base, -1, 0, on_retry, bus);
    bus->tell = event_new(broker->base, -1, 0, on_tell, bus);
    if (bus_pressure_new(bus) < 0 || bus->timer == NULL || bus->retry == NULL ||
        bus->tell == NULL || event_add(bus->retry, &now) < 0) {
        (void) bus_free(bus);
        return -ENOMEM;
    }
    *ret = bus;
    return 0;
}

struct bus *bus_free(struct bus *bus)
{
    if (bus == NULL)
        return NULL;
    list_remove(&bus->observer.link);
    bus_calls_drop(bus);
    if (bus->io != NULL)
        event_free(bus->io);
    if (bus->timer != NULL)
        event_free(bus->timer);
    if (bus->retry != NULL)
        event_free(bus->retry);
    if (bus->tell != NULL)
        event_free(bus->tell);
    bus_pressure_free(bus);
    (void) sd_bus_close_unref(bus->sd);
    free(bus);
    return NULL;
}
