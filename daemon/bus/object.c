/*
 * Objects are found when they are asked for: the path names the device or the tenant, its values
 * are put into the report as for gmbctl, and sd-bus reads properties from there. So there is no
 * second copy of anything, and no object to be kept in step.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "daemon/bus/private.h"
#include "daemon/text.h"

/* ------------------------------------------------------------------ properties */

static int reload_error_get(sd_bus *sd, const char *path, const char *interface,
    const char *property, sd_bus_message *reply, void *userdata, sd_bus_error *error)
{
    const struct bus *bus = container_of(userdata, struct bus, report.body.status);
    char text[CONFIG_ERROR_BYTES];

    (void) sd, (void) path, (void) interface, (void) property, (void) error;
    text_copy(text, sizeof(text), bus->broker->reload_error);
    return sd_bus_message_append(reply, "s", text);
}

static int uuid_append(sd_bus_message *reply, const ProtobufCBinaryData *bytes)
{
    struct uuid uuid = {0};
    char text[UUID_TEXT_MAX];

    if (uuid_from_bytes(bytes->data, bytes->len, &uuid) < 0)
        return -EINVAL;
    return sd_bus_message_append(reply, "s", uuid_format(text, &uuid));
}

static int uuid_get(sd_bus *sd, const char *path, const char *interface, const char *property,
    sd_bus_message *reply, void *userdata, sd_bus_error *error)
{
    const Gmb__DeviceStatus *device = userdata;

    (void) sd, (void) path, (void) interface, (void) property, (void) error;
    return uuid_append(reply, &device->uuid);
}

#define USE(name, member)                                                                          \
    {                                                                                              \
        name, offsetof(Gmb__TenantDevice, member)                                                  \
    }

static const struct {
    const char *name;
    size_t offset;
} tenant_device_values[] = {
    USE("MemoryMin", memory_min),
    USE("MemoryLow", memory_low),
    USE("MemoryHigh", memory_high),
    USE("MemoryMax", memory_max),
    USE("HostMax", host_max),
    USE("UsedBytes", used_bytes),
    USE("LeasedBytes", leased_bytes),
    USE("CachedBytes", cached_bytes),
    USE("ReleasingBytes", releasing_bytes),
    USE("OrphanedBytes", orphaned_bytes),
    USE("PeakBytes", peak_bytes),
    USE("OverageBytes", overage_bytes),
    USE("HostBytes", host_bytes),
    USE("EvictedBytes", evicted_bytes),
};

static uint64_t value_read(const Gmb__TenantDevice *device, size_t which)
{
    uint64_t value;

    memcpy(&value, (const char *) device + tenant_device_values[which].offset, sizeof(value));
    return value;
}

static uint64_t tenant_devices_number(const Gmb__TenantStatus *tenant)
{
    uint64_t values[ARRAY_SIZE(tenant_device_values)], number = 0;

    for (size_t i = 0; i < tenant->n_devices; i++) {
        for (size_t k = 0; k < ARRAY_SIZE(values); k++)
            values[k] = value_read(tenant->devices[i], k);
        number = XXH3_64bits_withSeed(values, sizeof(values), number);
    }
    return number;
}

static int tenant_device_append(sd_bus_message *reply, const Gmb__TenantDevice *device)
{
    int r = sd_bus_message_open_container(reply, 'e', "sa{st}");

    if (r >= 0)
        r = uuid_append(reply, &device->uuid);
    if (r >= 0)
        r = sd_bus_message_open_container(reply, 'a', "{st}");
    for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(tenant_device_values); i++)
        r = sd_bus_message_append(
            reply, "{st}", tenant_device_values[i].name, value_read(device, i));
    if (r >= 0)
        r = sd_bus_message_close_container(reply);
    return r < 0 ? r : sd_bus_message_close_container(reply);
}

static int devices_get(sd_bus *sd, const char *path, const char *interface, const char *property,
    sd_bus_message *reply, void *userdata, sd_bus_error *error)
{
    const Gmb__TenantStatus *tenant = userdata;
    int r = sd_bus_message_open_container(reply, 'a', "{sa{st}}");

    (void) sd, (void) path, (void) interface, (void) property, (void) error;
    for (size_t i = 0; r >= 0 && i < tenant->n_devices; i++)
        r = tenant_device_append(reply, tenant->devices[i]);
    return r < 0 ? r : sd_bus_message_close_container(reply);
}

static const char *level_name(uint32_t level)
{
    return pressure_level_name((enum pressure_level) MIN(level, (uint32_t) PRESSURE_CRITICAL));
}

static int backend_get(sd_bus *sd, const char *path, const char *interface, const char *property,
    sd_bus_message *reply, void *userdata, sd_bus_error *error)
{
    const Gmb__DeviceStatus *device = userdata;

    (void) sd, (void) path, (void) interface, (void) property, (void) error;
    return sd_bus_message_append(
        reply, "s", device->backend == GMB__BACKEND__BACKEND_IPC ? "ipc" : "vmm");
}

static int device_pressure_get(sd_bus *sd, const char *path, const char *interface,
    const char *property, sd_bus_message *reply, void *userdata, sd_bus_error *error)
{
    const Gmb__DeviceStatus *device = userdata;

    (void) sd, (void) path, (void) interface, (void) property, (void) error;
    return sd_bus_message_append(reply, "s", level_name(device->level));
}

static int tenant_pressure_get(sd_bus *sd, const char *path, const char *interface,
    const char *property, sd_bus_message *reply, void *userdata, sd_bus_error *error)
{
    const Gmb__TenantStatus *tenant = userdata;
    int r = sd_bus_message_open_container(reply, 'a', "{ss}");

    (void) sd, (void) path, (void) interface, (void) property, (void) error;
    for (size_t i = 0; r >= 0 && i < tenant->n_devices; i++) {
        r = sd_bus_message_open_container(reply, 'e', "ss");
        if (r >= 0)
            r = uuid_append(reply, &tenant->devices[i]->uuid);
        if (r >= 0)
            r = sd_bus_message_append(reply, "s", level_name(tenant->devices[i]->level));
        if (r >= 0)
            r = sd_bus_message_close_container(reply);
    }
    return r < 0 ? r : sd_bus_message_close_container(reply);
}

/* What Pressure says, where Devices has a number too. */
static uint64_t tenant_pressure_number(const Gmb__TenantStatus *tenant)
{
    uint64_t number = 0;

    for (size_t i = 0; i < tenant->n_devices; i++)
        number = XXH3_64bits_withSeed(
            &tenant->devices[i]->level, sizeof(tenant->devices[i]->level), number);
    return number;
}

uint64_t bus_special_number(
    const struct bus *bus, const sd_bus_vtable *property, const void *object)
{
    sd_bus_property_get_t get = property->x.property.get;

    if (get == devices_get)
        return tenant_devices_number(object);
    if (get == tenant_pressure_get)
        return tenant_pressure_number(object);
    if (get == device_pressure_get)
        return ((const Gmb__DeviceStatus *) object)->level;
    return XXH3_64bits(bus->broker->reload_error, strlen(bus->broker->reload_error));
}

#define CHANGES SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE
#define CONSTANT SD_BUS_VTABLE_PROPERTY_CONST
/* Who may call is found out by us, asynchronously; sd-bus would wait for the bus. */
#define METHOD(name, in, in_names, out, out_names)                                                 \
    SD_BUS_METHOD_WITH_NAMES(                                                                      \
        name, in, in_names, out, out_names, bus_call, SD_BUS_VTABLE_UNPRIVILEGED)
#define STATUS(name, type, member, flags)                                                          \
    SD_BUS_PROPERTY(name, type, NULL, offsetof(Gmb__Status, member), flags)
#define DEVICE(name, type, member, flags)                                                          \
    SD_BUS_PROPERTY(name, type, NULL, offsetof(Gmb__DeviceStatus, member), flags)
#define TENANT(name, type, member, flags)                                                          \
    SD_BUS_PROPERTY(name, type, NULL, offsetof(Gmb__TenantStatus, member), flags)

#define TAKE_NAMES                                                                                 \
    SD_BUS_PARAM(tenant) SD_BUS_PARAM(device) SD_BUS_PARAM(bytes) SD_BUS_PARAM(dry_run)
#define PLAN_NAMES SD_BUS_PARAM(planned_bytes) SD_BUS_PARAM(shortfall) SD_BUS_PARAM(steps)

const sd_bus_vtable bus_manager_vtable[] = {
    SD_BUS_VTABLE_START(0),
    STATUS("Version", "s", version, CONSTANT),
    STATUS("Driver", "s", driver, CONSTANT),
    STATUS("Revision", "t", revision, CHANGES),
    STATUS("Tenants", "u", tenants, CHANGES),
    STATUS("Clients", "u", clients, CHANGES),
    STATUS("Leases", "u", leases, CHANGES),
    STATUS("Waiting", "u", waiting, CHANGES),
    STATUS("GrantedTotal", "t", granted_total, CHANGES),
    STATUS("RefusedTotal", "t", refused_total, CHANGES),
    STATUS("TimedOutTotal", "t", timed_out_total, CHANGES),
    STATUS("Degraded", "s", degraded, CHANGES),
    SD_BUS_PROPERTY("ReloadError", "s", reload_error_get, 0, CHANGES),
    METHOD("SetTenant", "ssa(ss)t",
        SD_BUS_PARAM(tenant) SD_BUS_PARAM(device) SD_BUS_PARAM(assignments)
            SD_BUS_PARAM(expected_revision),
        "t", SD_BUS_PARAM(revision)),
    METHOD("Reclaim", "sstb", TAKE_NAMES, "tsa(stutuds)", PLAN_NAMES),
    METHOD("Evict", "sstb", TAKE_NAMES, "tsa(stutuds)", PLAN_NAMES),
    METHOD("Drain", "s", SD_BUS_PARAM(device), "tt",
        SD_BUS_PARAM(moved_bytes) SD_BUS_PARAM(left_bytes)),
    METHOD("Undrain", "s", SD_BUS_PARAM(device), "", ),
    METHOD("Reload", "", , "tu", SD_BUS_PARAM(revision) SD_BUS_PARAM(tenants)),
    SD_BUS_SIGNAL_WITH_NAMES("Refusal", "susstts",
        SD_BUS_PARAM(tenant) SD_BUS_PARAM(pid) SD_BUS_PARAM(status) SD_BUS_PARAM(limit)
            SD_BUS_PARAM(requested_bytes) SD_BUS_PARAM(available_bytes) SD_BUS_PARAM(text),
        0),
    SD_BUS_SIGNAL_WITH_NAMES("Eviction", "ssts",
        SD_BUS_PARAM(tenant) SD_BUS_PARAM(device) SD_BUS_PARAM(bytes) SD_BUS_PARAM(beneficiary), 0),
    SD_BUS_SIGNAL_WITH_NAMES("Kill", "suss",
        SD_BUS_PARAM(tenant) SD_BUS_PARAM(pid) SD_BUS_PARAM(device) SD_BUS_PARAM(beneficiary), 0),
    SD_BUS_SIGNAL_WITH_NAMES("Quarantine", "ssss",
        SD_BUS_PARAM(tenant) SD_BUS_PARAM(segment) SD_BUS_PARAM(device) SD_BUS_PARAM(text), 0),
    SD_BUS_VTABLE_END,
};

const sd_bus_vtable bus_device_vtable[] = {
    SD_BUS_VTABLE_START(0),
    SD_BUS_PROPERTY("UUID", "s", uuid_get, 0, CONSTANT),
    DEVICE("Name", "s", name, CONSTANT),
    SD_BUS_PROPERTY("Backend", "s", backend_get, 0, CONSTANT),
    DEVICE("TotalBytes", "t", total_bytes, CONSTANT),
    DEVICE("ReserveBytes", "t", reserve_bytes, CHANGES),
    DEVICE("LeasedBytes", "t", leased_bytes, CHANGES),
    DEVICE("CachedBytes", "t", cached_bytes, CHANGES),
    DEVICE("CleanBytes", "t", clean_bytes, CHANGES),
    DEVICE("ReleasingBytes", "t", releasing_bytes, CHANGES),
    DEVICE("OrphanedBytes", "t", orphaned_bytes, CHANGES),
    DEVICE("UnaccountedBytes", "t", unaccounted_bytes, CHANGES),
    DEVICE("FreeBytes", "t", free_bytes, CHANGES),
    DEVICE("TierBytes", "t", tier_bytes, CHANGES),
    DEVICE("TierUsedBytes", "t", tier_used_bytes, CHANGES),
    DEVICE("TierPath", "s", tier_path, CONSTANT),
    DEVICE("TierDiskBytes", "t", tier_disk_bytes, CONSTANT),
    DEVICE("TierDiskUsedBytes", "t", tier_disk_used_bytes, CHANGES),
    DEVICE("TierDiskFailure", "s", tier_disk_failure, CHANGES),
    DEVICE("Healthy", "b", healthy, CHANGES),
    DEVICE("Draining", "b", draining, CHANGES),
    DEVICE("MemoryLosses", "t", memory_losses, CHANGES),
    SD_BUS_PROPERTY("Pressure", "s", device_pressure_get, 0, CHANGES),
    SD_BUS_VTABLE_END,
};

const sd_bus_vtable bus_tenant_vtable[] = {
    SD_BUS_VTABLE_START(0),
    TENANT("Name", "s", name, CONSTANT),
    TENANT("Revision", "t", revision, CHANGES),
    TENANT("Priority", "u", priority, CHANGES),
    TENANT("Weight", "u", weight, CHANGES),
    TENANT("Clients", "u", clients, CHANGES),
    TENANT("ClientsMax", "u", clients_max, CHANGES),
    TENANT("Leases", "u", leases, CHANGES),
    TENANT("LeasesMax", "u", leases_max, CHANGES),
    TENANT("Waiting", "u", waiting, CHANGES),
    TENANT("Configured", "b", configured, CHANGES),
    SD_BUS_PROPERTY("Devices", "a{sa{st}}", devices_get, 0, CHANGES),
    SD_BUS_PROPERTY("Pressure", "a{ss}", tenant_pressure_get, 0, CHANGES),
    SD_BUS_SIGNAL_WITH_NAMES("PressureChanged", "sssttt",
        SD_BUS_PARAM(device) SD_BUS_PARAM(level) SD_BUS_PARAM(device_level)
            SD_BUS_PARAM(headroom_bytes) SD_BUS_PARAM(some_total_us) SD_BUS_PARAM(full_total_us),
        0),
    SD_BUS_VTABLE_END,
};

/* ------------------------------------------------------------------ paths */

const char *bus_device_text(const struct broker *broker, uint32_t device, char text[UUID_TEXT_MAX])
{
    return uuid_format(text, &broker->devices[device].uuid);
}

const char *bus_tenant_name(
    const struct broker *broker, uint32_t tenant, struct core_tenant_view *view)
{
    return core_tenant_get(broker->core, tenant, view) ? view->name : "";
}

char *bus_device_path(const struct broker *broker, uint32_t device)
{
    char text[UUID_TEXT_MAX], *path = NULL;

    return sd_bus_path_encode(BUS_PATH_DEVICES, bus_device_text(broker, device, text), &path) >= 0
               ? path
               : NULL;
}

char *bus_tenant_path(const char *name)
{
    char *path = NULL;

    return sd_bus_path_encode(BUS_PATH_TENANTS, name, &path) >= 0 ? path : NULL;
}

/* ------------------------------------------------------------------ finding */

static int manager_find(sd_bus *sd, const char *path, const char *interface, void *userdata,
    void **ret_found, sd_bus_error *error)
{
    struct bus *bus = userdata;

    (void) sd, (void) interface, (void) error;
    if (strcmp(path, BUS_PATH) != 0)
        return 0;
    report_status(bus->broker, &bus->report);
    *ret_found = &bus->report.body.status;
    return 1;
}

static int device_find(sd_bus *sd, const char *path, const char *interface, void *userdata,
    void **ret_found, sd_bus_error *error)
{
    _cleanup_free_ char *name = NULL;
    struct bus *bus = userdata;
    struct broker *broker = bus->broker;
    int r = sd_bus_path_decode(path, BUS_PATH_DEVICES, &name);

    (void) sd, (void) interface, (void) error;
    if (r <= 0)
        return r;
    for (uint32_t i = 0; i < broker->device_count; i++) {
        char text[UUID_TEXT_MAX];

        if (strcmp(bus_device_text(broker, i, text), name) == 0) {
            report_status(broker, &bus->report);
            *ret_found = &bus->report.list.devices.items[i];
            return 1;
        }
    }
    return 0;
}

static int tenant_find(sd_bus *sd, const char *path, const char *interface, void *userdata,
    void **ret_found, sd_bus_error *error)
{
    _cleanup_free_ char *name = NULL;
    struct bus *bus = userdata;
    uint32_t tenant;
    int r = sd_bus_path_decode(path, BUS_PATH_TENANTS, &name);

    (void) sd, (void) interface, (void) error;
    if (r <= 0)
        return r;
    if (!core_tenant_find(bus->broker->core, name, &tenant) ||
        !report_tenant(bus->broker, tenant, &bus->report))
        return 0;
    *ret_found = &bus->report.list.tenants.items[0];
    return 1;
}

/* Consumes `path`, which may be NULL: no memory. */
static int path_add(char **paths, size_t *count, char *path)
{
    if (path == NULL)
        return -ENOMEM;
    paths[(*count)++] = path;
    return 0;
}

static int paths_give(char **paths, size_t count, int r, char ***ret)
{
    if (r >= 0) {
        *ret = paths;
        return 0;
    }
    for (size_t i = 0; i < count; i++)
        free(paths[i]);
    free(paths);
    return r;
}

static int devices_enumerate(
    sd_bus *sd, const char *prefix, void *userdata, char ***ret, sd_bus_error *error)
{
    const struct bus *bus = userdata;
    char **paths = calloc(LIMIT_DEVICES + 1, sizeof(*paths));
    size_t count = 0;
    int r = paths != NULL ? 0 : -ENOMEM;

    (void) sd, (void) prefix, (void) error;
    for (uint32_t i = 0; r >= 0 && i < bus->broker->device_count; i++)
        r = path_add(paths, &count, bus_device_path(bus->broker, i));
    return paths_give(paths, count, r, ret);
}

static int tenants_enumerate(
    sd_bus *sd, const char *prefix, void *userdata, char ***ret, sd_bus_error *error)
{
    const struct bus *bus = userdata;
    char **paths = calloc(LIMIT_TENANTS + 1, sizeof(*paths));
    struct core_tenant_view view;
    size_t count = 0;
    int r = paths != NULL ? 0 : -ENOMEM;

    (void) sd, (void) prefix, (void) error;
    for (uint32_t i = 0; r >= 0 && i < LIMIT_TENANTS; i++) {
        if (core_tenant_get(bus->broker->core, i, &view))
            r = path_add(paths, &count, bus_tenant_path(view.name));
    }
    return paths_give(paths, count, r, ret);
}

int bus_objects_add(struct bus *bus)
{
    int r = sd_bus_add_fallback_vtable(
        bus->sd, NULL, BUS_PATH, BUS_MANAGER, bus_manager_vtable, manager_find, bus);

    if (r >= 0)
        r = sd_bus_add_fallback_vtable(
            bus->sd, NULL, BUS_PATH_DEVICES, BUS_DEVICE, bus_device_vtable, device_find, bus);
    if (r >= 0)
        r = sd_bus_add_fallback_vtable(
            bus->sd, NULL, BUS_PATH_TENANTS, BUS_TENANT, bus_tenant_vtable, tenant_find, bus);
    if (r >= 0)
        r = sd_bus_add_node_enumerator(bus->sd, NULL, BUS_PATH_DEVICES, devices_enumerate, bus);
    if (r >= 0)
        r = sd_bus_add_node_enumerator(bus->sd, NULL, BUS_PATH_TENANTS, tenants_enumerate, bus);
    if (r >= 0)
        r = sd_bus_add_object_manager(bus->sd, NULL, BUS_PATH);
    return r;
}
