/*
 * Signals of tenants' levels. What is to be told is a bit for each tenant and device, and what is
 * sent is what holds then: so a level that changes while the last signal is fresh, or while the bus
 * is slow, is told once, later, and one that is as it was told isn't.
 */
#include <errno.h>
#include <string.h>

#include "daemon/bus/private.h"

/* Signals for one tenant on one device are at least so far apart. */
#define INTERVAL_NS (100 * NSEC_PER_MSEC)
/* Signals before the loop looks at anything else. */
#define TURN_SIGNALS 128
/* With more than that unread, levels wait: they are not what the connection is given up for. */
#define QUEUE_MAX (LIMIT_BUS_QUEUE / 2)

static void press_at(struct bus *bus, uint64_t due_ns)
{
    uint64_t wait_us;
    struct timeval wait;

    if (due_ns >= bus->pressed_due_ns)
        return;
    wait_us =
        (sub_saturate(due_ns, clock_now(bus->broker->clock)) + NSEC_PER_USEC - 1) / NSEC_PER_USEC;
    wait = (struct timeval){
        .tv_sec = (time_t) (wait_us / 1000000),
        .tv_usec = (suseconds_t) (wait_us % 1000000),
    };
    if (event_add(bus->press, &wait) == 0)
        bus->pressed_due_ns = due_ns;
}

static struct bus_level *level_of(const struct bus *bus, uint32_t tenant, uint32_t device)
{
    return &bus->levels[tenant * bus->broker->device_count + device];
}

static uint64_t due_of(const struct bus *bus, uint32_t tenant, uint32_t device)
{
    uint64_t told_ns = level_of(bus, tenant, device)->told_ns;

    return told_ns == 0 ? 0 : told_ns + INTERVAL_NS;
}

void bus_pressed(struct broker_observer *observer, uint32_t tenant, uint32_t device)
{
    struct bus *bus = container_of(observer, struct bus, observer);
    struct bus_pressed *pressed = &bus->pressures[tenant];

    if (!bus->named)
        return;
    pressed->devices |= UINT64_C(1) << device;
    if (!list_linked(&pressed->link))
        list_append(&bus->pressed, &pressed->link);
    press_at(bus, due_of(bus, tenant, device));
}

/* False when there was nothing to tell. */
static bool level_tell(struct bus *bus, uint32_t tenant, uint32_t device, uint64_t now_ns)
{
    struct bus_level *told = level_of(bus, tenant, device);
    struct core_pressure_view view = {0};
    struct core_tenant_view named;
    _cleanup_free_ char *path = NULL;
    char uuid[UUID_TEXT_MAX];
    bool known = core_pressure_get(bus->broker->core, tenant, device, &view);

    if (told->level == view.level)
        return false;
    told->level = view.level;
    /* Of a tenant that is gone, its object's end says all. */
    if (!known || !core_tenant_get(bus->broker->core, tenant, &named))
        return false;
    told->told_ns = now_ns;
    path = bus_tenant_path(named.name);
    if (path != NULL)
        (void) sd_bus_emit_signal(bus->sd, path, BUS_TENANT, "PressureChanged", "sssttt",
            bus_device_text(bus->broker, device, uuid), pressure_level_name(view.level),
            pressure_level_name(view.device_level), view.headroom,
            view.stall_ns[STALL_SOME] / NSEC_PER_USEC, view.stall_ns[STALL_FULL] / NSEC_PER_USEC);
    return true;
}

/* Tells what is due of one tenant, `left` signals at most, and sets the time for the rest. */
static void tenant_tell(
    struct bus *bus, struct bus_pressed *pressed, uint64_t now_ns, unsigned *left)
{
    uint32_t tenant = (uint32_t) (pressed - bus->pressures);

    for (uint64_t rest = pressed->devices; rest != 0; rest &= rest - 1) {
        uint32_t device = (uint32_t) __builtin_ctzll(rest);
        uint64_t due_ns = due_of(bus, tenant, device);

        if (due_ns > now_ns || *left == 0) {
            press_at(bus, due_ns);
            continue;
        }
        pressed->devices &= ~(UINT64_C(1) << device);
        if (level_tell(bus, tenant, device, now_ns))
            --*left;
    }
    if (pressed->devices == 0)
        list_remove(&pressed->link);
}

static void on_press(evutil_socket_t fd, short what, void *data)
{
    struct bus *bus = data;
    uint64_t now_ns = clock_now(bus->broker->clock), queued = 0;
    unsigned left = TURN_SIGNALS;

    (void) fd;
    (void) what;
    bus->pressed_due_ns = CLOCK_NEVER;
    if (bus->sd == NULL || !bus->named)
        return;
    if (sd_bus_get_n_queued_write(bus->sd, &queued) >= 0 && queued > QUEUE_MAX) {
        press_at(bus, now_ns + INTERVAL_NS);
        return;
    }
    list_for_each_safe(pressed, &bus->pressed, struct bus_pressed, link)
        tenant_tell(bus, pressed, now_ns, &left);
    bus_settle(bus);
}

int bus_pressure_new(struct bus *bus)
{
    list_init(&bus->pressed);
    bus->pressed_due_ns = CLOCK_NEVER;
    for (uint32_t tenant = 0; tenant < LIMIT_TENANTS; tenant++)
        list_init(&bus->pressures[tenant].link);
    /* One more: a broker without a device. */
    bus->levels = calloc(LIMIT_TENANTS * bus->broker->device_count + 1, sizeof(*bus->levels));
    bus->press = event_new(bus->broker->base, -1, 0, on_press, bus);
    return bus->levels != NULL && bus->press != NULL ? 0 : -ENOMEM;
}

void bus_pressure_init(struct bus *bus)
{
    for (uint32_t tenant = 0; tenant < LIMIT_TENANTS; tenant++) {
        for (uint32_t device = 0; device < bus->broker->device_count; device++) {
            struct core_pressure_view view;

            if (core_pressure_get(bus->broker->core, tenant, device, &view))
                level_of(bus, tenant, device)->level = view.level;
        }
    }
}

void bus_pressure_drop(struct bus *bus)
{
    struct bus_pressed *pressed;

    (void) event_del(bus->press);
    bus->pressed_due_ns = CLOCK_NEVER;
    while ((pressed = list_first(&bus->pressed, struct bus_pressed, link)) != NULL)
        list_remove(&pressed->link);
    for (uint32_t tenant = 0; tenant < LIMIT_TENANTS; tenant++)
        bus->pressures[tenant].devices = 0;
    memset(bus->levels, 0, LIMIT_TENANTS * bus->broker->device_count * sizeof(*bus->levels));
}

void bus_pressure_free(struct bus *bus)
{
    if (bus->press != NULL)
        event_free(bus->press);
    free(bus->levels);
}
