/*
 * Everything that is counted, in the text format of OpenMetrics 1.0: for node_exporter's textfile
 * collector, or whoever reads such files. The broker itself has no network.
 *
 * A family's samples must stand together, so that each figure is a walk over all devices or
 * tenants; the tables say which.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/uuid.h"
#include "client/ctl/view.h"

#define LABEL_BYTES 192

/* A value of a label: what would end it is escaped; what doesn't fit is cut. */
static const char *label(char text[LABEL_BYTES], const char *value)
{
    size_t length = 0;

    for (; *value != '\0' && length + 3 < LABEL_BYTES; value++) {
        if (*value == '"' || *value == '\\' || *value == '\n')
            text[length++] = '\\';
        text[length++] = *value == '\n' ? 'n' : *value;
    }
    text[length] = '\0';
    return text;
}

static const char *device_label(char text[UUID_TEXT_MAX], const ProtobufCBinaryData *data, bool mig)
{
    struct uuid uuid;

    if (uuid_from_bytes(data->data, data->len, &uuid) < 0)
        return "";
    return uuid_format_device(text, &uuid, mig);
}

static void family(const struct view *view, const char *name, const char *type, const char *help)
{
    (void) fprintf(view->to, "# TYPE %s %s\n# HELP %s %s\n", name, type, name, help);
}

/* ------------------------------------------------------------------ the broker and its devices */

static void broker_print(const struct view *view, const Gmb__Status *status)
{
    family(view, "gmbd_uptime_seconds", "gauge", "Since the broker began.");
    (void) fprintf(view->to, "gmbd_uptime_seconds %.3f\n", (double) status->uptime_ns / 1e9);
    family(view, "gmbd_clients", "gauge", "Connected processes.");
    (void) fprintf(view->to, "gmbd_clients %u\n", status->clients);
    family(view, "gmbd_leases", "gauge", "Leases and arenas.");
    (void) fprintf(view->to, "gmbd_leases %u\n", status->leases);
    family(view, "gmbd_waiting_requests", "gauge", "Requests that wait for memory.");
    (void) fprintf(view->to, "gmbd_waiting_requests %u\n", status->waiting);
    family(view, "gmbd_requests", "counter", "Requests for memory by how they ended.");
    (void) fprintf(
        view->to, "gmbd_requests_total{result=\"granted\"} %" PRIu64 "\n", status->granted_total);
    (void) fprintf(
        view->to, "gmbd_requests_total{result=\"refused\"} %" PRIu64 "\n", status->refused_total);
    (void) fprintf(view->to, "gmbd_requests_total{result=\"timed_out\"} %" PRIu64 "\n",
        status->timed_out_total);
}

static void device_state_print(
    const struct view *view, const Gmb__DeviceStatus *device, const char *state, uint64_t bytes)
{
    char uuid[UUID_TEXT_MAX];

    (void) fprintf(view->to, "gmbd_device_memory_bytes{device=\"%s\",state=\"%s\"} %" PRIu64 "\n",
        device_label(uuid, &device->uuid, device->mig), state, bytes);
}

static void devices_print(const struct view *view, const Gmb__Status *status)
{
    char uuid[UUID_TEXT_MAX];

    family(view, "gmbd_device_memory_bytes", "gauge", "Memory of a device by state.");
    for (size_t i = 0; i < status->n_devices; i++) {
        const Gmb__DeviceStatus *device = status->devices[i];

        device_state_print(view, device, "reserve", device->reserve_bytes);
        device_state_print(view, device, "leased", device->leased_bytes);
        device_state_print(view, device, "cached", device->cached_bytes);
        device_state_print(view, device, "clean", device->clean_bytes);
        device_state_print(view, device, "releasing", device->releasing_bytes);
        device_state_print(view, device, "orphaned", device->orphaned_bytes);
        device_state_print(view, device, "unaccounted", device->unaccounted_bytes);
        device_state_print(view, device, "free", device->free_bytes);
    }
    family(view, "gmbd_device_healthy", "gauge", "1 while the driver does what it is asked.");
    for (size_t i = 0; i < status->n_devices; i++)
        (void) fprintf(view->to, "gmbd_device_healthy{device=\"%s\"} %d\n",
            device_label(uuid, &status->devices[i]->uuid, status->devices[i]->mig),
            status->devices[i]->healthy);
    family(view, "gmbd_device_memory_losses_total", "counter",
        "How often all that was leased there was lost with the process that held it.");
    for (size_t i = 0; i < status->n_devices; i++)
        (void) fprintf(view->to, "gmbd_device_memory_losses_total{device=\"%s\"} %" PRIu64 "\n",
            device_label(uuid, &status->devices[i]->uuid, status->devices[i]->mig),
            status->devices[i]->memory_losses);
}

/* ------------------------------------------------------------------ tenants */

/* The fields of a TenantDevice, by the name of their family. */
static const struct {
    const char *name, *help;
    size_t offset;
} tenant_figures[] = {
    {"gmbd_tenant_used_bytes", "Charged to the tenant.", offsetof(Gmb__TenantDevice, used_bytes)},
    {"gmbd_tenant_leased_bytes", "In its leases.", offsetof(Gmb__TenantDevice, leased_bytes)},
    {"gmbd_tenant_orphaned_bytes", "Released and held by somebody all the same.",
        offsetof(Gmb__TenantDevice, orphaned_bytes)},
    {"gmbd_tenant_evicted_bytes", "Of its pages, in the host tier.",
        offsetof(Gmb__TenantDevice, evicted_bytes)},
    {"gmbd_tenant_memory_max_bytes", "MemoryMax; +Inf: none.",
        offsetof(Gmb__TenantDevice, memory_max)},
};

static void tenant_sample(const struct view *view, const char *name,
    const Gmb__TenantStatus *tenant, const Gmb__TenantDevice *device, uint64_t value)
{
    char uuid[UUID_TEXT_MAX], text[LABEL_BYTES];

    (void) fprintf(view->to, "%s{tenant=\"%s\",device=\"%s\"} ", name, label(text, tenant->name),
        device_label(uuid, &device->uuid, device->mig));
    if (value == UINT64_MAX)
        (void) fprintf(view->to, "+Inf\n");
    else
        (void) fprintf(view->to, "%" PRIu64 "\n", value);
}

static void tenants_print(const struct view *view, const struct listing *tenants)
{
    for (size_t f = 0; f < ARRAY_SIZE(tenant_figures); f++) {
        family(view, tenant_figures[f].name, "gauge", tenant_figures[f].help);
        for (size_t i = 0; i < tenants->count; i++) {
            const Gmb__TenantStatus *tenant = (const Gmb__TenantStatus *) tenants->items[i];

            for (size_t j = 0; j < tenant->n_devices; j++) {
                uint64_t value;

                memcpy(&value, (const char *) tenant->devices[j] + tenant_figures[f].offset,
                    sizeof(value));
                tenant_sample(view, tenant_figures[f].name, tenant, tenant->devices[j], value);
            }
        }
    }
}

/* ------------------------------------------------------------------ pressure */

enum pressure_figure { FIGURE_LEVEL, FIGURE_HEADROOM, FIGURE_STALL, FIGURE_MAX };

static void stall_sample(
    const struct view *view, const char *labels, const char *line, const Gmb__Stall *stall)
{
    (void) fprintf(view->to, "gmbd_tenant_stall_seconds_total{%s,line=\"%s\"} %.6f\n", labels, line,
        stall != NULL ? (double) stall->total_us / 1e6 : 0.0);
}

static void pressure_sample(const struct view *view, enum pressure_figure figure,
    const Gmb__TenantPressure *tenant, const Gmb__TenantDevicePressure *device)
{
    char uuid[UUID_TEXT_MAX], name[LABEL_BYTES], labels[LABEL_BYTES + UUID_TEXT_MAX + 32];

    (void) snprintf(labels, sizeof(labels), "tenant=\"%s\",device=\"%s\"",
        label(name, tenant->name), device_label(uuid, &device->uuid, false));
    switch (figure) {
    case FIGURE_LEVEL:
        (void) fprintf(view->to, "gmbd_tenant_pressure_level{%s} %u\n", labels, device->level);
        break;
    case FIGURE_HEADROOM:
        (void) fprintf(view->to, "gmbd_tenant_headroom_bytes{%s} %" PRIu64 "\n", labels,
            device->headroom_bytes);
        break;
    case FIGURE_STALL:
        stall_sample(view, labels, "some", device->some);
        stall_sample(view, labels, "full", device->full);
        break;
    case FIGURE_MAX:
        break;
    }
}

static void pressures_print(const struct view *view, const struct listing *pressures)
{
    static const char *const names[FIGURE_MAX][3] = {
        [FIGURE_LEVEL] = {"gmbd_tenant_pressure_level", "gauge",
            "0 none, 1 low, 2 medium, 3 critical."},
        [FIGURE_HEADROOM] = {"gmbd_tenant_headroom_bytes", "gauge",
            "What the tenant could have now without anybody giving anything."},
        [FIGURE_STALL] = {"gmbd_tenant_stall_seconds", "counter",
            "Time that requests of the tenant waited, as the kernel's PSI counts it."},
    };

    for (unsigned figure = 0; figure < FIGURE_MAX; figure++) {
        family(view, names[figure][0], names[figure][1], names[figure][2]);
        for (size_t i = 0; i < pressures->count; i++) {
            const Gmb__TenantPressure *tenant = (const Gmb__TenantPressure *) pressures->items[i];

            for (size_t j = 0; j < tenant->n_devices; j++)
                pressure_sample(view, (enum pressure_figure) figure, tenant, tenant->devices[j]);
        }
    }
    family(view, "gmbd_tenant_advice_ignored", "gauge",
        "1 while the tenant was asked to degrade and nobody answered in time.");
    for (size_t i = 0; i < pressures->count; i++) {
        const Gmb__TenantPressure *tenant = (const Gmb__TenantPressure *) pressures->items[i];
        char name[LABEL_BYTES];

        (void) fprintf(view->to, "gmbd_tenant_advice_ignored{tenant=\"%s\"} %d\n",
            label(name, tenant->name), tenant->ignored);
    }
}

int view_metrics(const struct view *view, const Gmb__Status *status, const struct listing *tenants,
    const struct listing *pressures)
{
    broker_print(view, status);
    devices_print(view, status);
    tenants_print(view, tenants);
    pressures_print(view, pressures);
    (void) fprintf(view->to, "# EOF\n");
    return ferror(view->to) ? -EIO : 0;
}
