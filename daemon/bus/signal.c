/*
 * Things that happen, as opposed to values that change. Refusals are a peer's to cause: they are
 * rationed. Evictions come by the chunk: those of the same tenants on the same device are added up
 * until the next pass.
 */
#include <string.h>

#include "daemon/bus/private.h"

#define REFUSALS 50
#define REFUSALS_INTERVAL_NS NSEC_PER_SEC

static struct bus *bus_of(struct broker_observer *observer)
{
    return container_of(observer, struct bus, observer);
}

/* What is queued goes out with the next turn of the loop, and no step of the broker is run here. */
static void wake(struct bus *bus)
{
    const struct timeval now = {0};

    /* Once: added again before it has run, it would start over. */
    if (!bus->woken)
        bus->woken = event_add(bus->timer, &now) == 0;
}

void bus_refused(struct broker_observer *observer, const struct broker_refusal *refusal)
{
    struct bus *bus = bus_of(observer);
    uint32_t held;

    if (!bus->named || !ratelimit_pass(&bus->refusals, clock_now(bus->broker->clock),
                           REFUSALS_INTERVAL_NS, REFUSALS, &held))
        return;
    (void) sd_bus_emit_signal(bus->sd, BUS_PATH, BUS_MANAGER, "Refusal", "susstts", refusal->tenant,
        (uint32_t) refusal->pid, status_name(refusal->status), limit_name(refusal->limit),
        refusal->requested_bytes, refusal->available_bytes, refusal->text);
    wake(bus);
}

void bus_evicted(struct broker_observer *observer, const struct broker_taking *taking)
{
    struct bus *bus = bus_of(observer);
    struct broker_taking *known;
    size_t i = 0;

    if (!bus->named)
        return;
    for (; i < bus->eviction_count; i++) {
        known = &bus->evictions[i];
        if (known->device == taking->device && known->tenant == taking->tenant &&
            known->beneficiary == taking->beneficiary)
            break;
    }
    if (i == BUS_EVICTIONS) {
        bus_evictions_tell(bus);
        wake(bus);
        i = 0;
    }
    if (i == bus->eviction_count) {
        bus->evictions[i] = *taking;
        bus->eviction_count++;
        return;
    }
    bus->evictions[i].bytes += taking->bytes;
}

void bus_evictions_tell(struct bus *bus)
{
    for (size_t i = 0; i < bus->eviction_count; i++) {
        const struct broker_taking *taking = &bus->evictions[i];
        struct core_tenant_view tenant, beneficiary;
        char device[UUID_TEXT_MAX];

        (void) sd_bus_emit_signal(bus->sd, BUS_PATH, BUS_MANAGER, "Eviction", "ssts",
            bus_tenant_name(bus->broker, taking->tenant, &tenant),
            bus_device_text(bus->broker, taking->device, device), taking->bytes,
            bus_tenant_name(bus->broker, taking->beneficiary, &beneficiary));
    }
    bus->eviction_count = 0;
}

void bus_killed(struct broker_observer *observer, const struct broker_taking *taking)
{
    struct bus *bus = bus_of(observer);
    struct core_tenant_view tenant, beneficiary;
    char device[UUID_TEXT_MAX];

    if (!bus->named)
        return;
    (void) sd_bus_emit_signal(bus->sd, BUS_PATH, BUS_MANAGER, "Kill", "suss",
        bus_tenant_name(bus->broker, taking->tenant, &tenant), (uint32_t) taking->pid,
        bus_device_text(bus->broker, taking->device, device),
        bus_tenant_name(bus->broker, taking->beneficiary, &beneficiary));
    wake(bus);
}

void bus_quarantined(struct broker_observer *observer, const struct broker_quarantine *quarantine)
{
    struct bus *bus = bus_of(observer);
    struct core_tenant_view tenant;
    char device[UUID_TEXT_MAX];

    if (!bus->named)
        return;
    (void) sd_bus_emit_signal(bus->sd, BUS_PATH, BUS_MANAGER, "Quarantine", "ssss",
        bus_tenant_name(bus->broker, quarantine->tenant, &tenant), quarantine->segment,
        bus_device_text(bus->broker, quarantine->device, device), quarantine->text);
    wake(bus);
}
