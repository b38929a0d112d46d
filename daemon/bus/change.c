/*
 * What was told of each object is kept as one number for each property: the value, or a hash of it.
 * A pass compares and names what differs. So a value that changes a thousand times between two
 * passes is told once, and one that is as before isn't.
 */
#include <errno.h>
#include <string.h>
#include <xxhash.h>

#include "daemon/bus/private.h"

/* Tenants looked at before the loop looks at anything else. */
#define TURN_TENANTS 64

static uint64_t number_of(const sd_bus_vtable *property, const void *object)
{
    const char *at = (const char *) object + property->x.property.offset;
    const char *text;
    uint64_t wide;
    uint32_t narrow;

    if (property->x.property.signature[0] == 't') {
        memcpy(&wide, at, sizeof(wide));
        return wide;
    }
    if (property->x.property.signature[0] == 's') {
        memcpy(&text, at, sizeof(text));
        return XXH3_64bits(text, strlen(text));
    }
    memcpy(&narrow, at, sizeof(narrow)); /* u, b */
    return narrow;
}

/* Puts the numbers of `object` into `row`, and the names of properties that had others into
 * `ret_names`; how many. */
static size_t row_compare(const struct bus *bus, const sd_bus_vtable *vtable, const void *object,
    struct bus_row *row, char *ret_names[BUS_PROPERTIES + 1])
{
    size_t count = 0, changed = 0;

    for (const sd_bus_vtable *each = vtable; each->type != _SD_BUS_VTABLE_END; each++) {
        uint64_t number;

        if (each->type != _SD_BUS_VTABLE_PROPERTY ||
            (each->flags & SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE) == 0 || count == BUS_PROPERTIES)
            continue;
        number = each->x.property.get != NULL ? bus_special_number(bus, each, object)
                                              : number_of(each, object);
        if (row->values[count] != number)
            ret_names[changed++] = (char *) (uintptr_t) each->x.property.member;
        row->values[count++] = number;
    }
    ret_names[changed] = NULL;
    return changed;
}

/* `path` NULL: there was no memory for it; the change stays untold, as is allowed. */
static void changes_emit(
    struct bus *bus, const char *path, const char *interface, char **names, size_t count)
{
    if (count > 0 && path != NULL)
        (void) sd_bus_emit_properties_changed_strv(bus->sd, path, interface, names);
}

static void manager_tell(struct bus *bus, bool emit)
{
    char *names[BUS_PROPERTIES + 1];
    size_t count;

    report_status(bus->broker, &bus->report);
    count =
        row_compare(bus, bus_manager_vtable, &bus->report.body.status, &bus->told.manager, names);
    if (emit)
        changes_emit(bus, BUS_PATH, BUS_MANAGER, names, count);
}

static void device_tell(struct bus *bus, uint32_t device, bool emit)
{
    char *names[BUS_PROPERTIES + 1];
    size_t count;

    report_status(bus->broker, &bus->report);
    count = row_compare(bus, bus_device_vtable, &bus->report.list.devices.items[device],
        &bus->told.devices[device], names);
    if (emit && count > 0) {
        _cleanup_free_ char *path = bus_device_path(bus->broker, device);

        changes_emit(bus, path, BUS_DEVICE, names, count);
    }
}

static void tenant_removed(struct bus *bus, struct bus_tenant_row *row)
{
    _cleanup_free_ char *path = bus_tenant_path(row->name);
    char *interfaces[] = {(char *) (uintptr_t) BUS_TENANT, NULL};

    row->name[0] = '\0';
    if (path != NULL)
        (void) sd_bus_emit_interfaces_removed_strv(bus->sd, path, interfaces);
}

static void tenant_tell(struct bus *bus, uint32_t tenant, bool emit)
{
    struct bus_tenant_row *row = &bus->told.tenants[tenant];
    char *names[BUS_PROPERTIES + 1];
    struct core_tenant_view view = {.name = ""};
    _cleanup_free_ char *path = NULL;
    size_t count;
    bool known;

    (void) core_tenant_get(bus->broker->core, tenant, &view);
    known = strcmp(row->name, view.name) == 0;
    /* Its place may be another's by now. */
    if (!known && row->name[0] != '\0' && emit)
        tenant_removed(bus, row);
    memcpy(row->name, view.name, sizeof(row->name));
    if (view.name[0] == '\0' || !report_tenant(bus->broker, tenant, &bus->report))
        return;
    count =
        row_compare(bus, bus_tenant_vtable, &bus->report.list.tenants.items[0], &row->row, names);
    if (!emit || (known && count == 0))
        return;
    path = bus_tenant_path(view.name);
    if (known)
        changes_emit(bus, path, BUS_TENANT, names, count);
    else if (path != NULL)
        (void) sd_bus_emit_object_added(bus->sd, path);
}

void bus_told_init(struct bus *bus)
{
    manager_tell(bus, false);
    for (uint32_t i = 0; i < bus->broker->device_count; i++)
        device_tell(bus, i, false);
    for (uint32_t i = 0; i < LIMIT_TENANTS; i++)
        tenant_tell(bus, i, false);
    bus_pressure_init(bus);
    bus->told.next_tenant = 0;
}

bool bus_changes_tell(struct bus *bus)
{
    uint32_t end = MIN(bus->told.next_tenant + TURN_TENANTS, (uint32_t) LIMIT_TENANTS);

    if (bus->told.next_tenant == 0) {
        manager_tell(bus, true);
        for (uint32_t i = 0; i < bus->broker->device_count; i++)
            device_tell(bus, i, true);
    }
    for (uint32_t i = bus->told.next_tenant; i < end; i++)
        tenant_tell(bus, i, true);
    bus->told.next_tenant = end == LIMIT_TENANTS ? 0 : end;
    return bus->told.next_tenant == 0;
}
