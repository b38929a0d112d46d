/* The broker, its devices, and what came of changes. */
#include <errno.h>
#include <inttypes.h>

#include "base/size.h"
#include "base/uuid.h"
#include "client/ctl/duration.h"
#include "client/ctl/table.h"
#include "client/ctl/terminal.h"
#include "client/ctl/view.h"

static const char *const device_headings[] = {"<DEVICE", "<NAME", "<BACKEND", "TOTAL", "?RESERVE",
    "LEASED", "CACHED", "?CLEAN", "?RELEASING", "?ORPHANED", "?OTHERS", "FREE", "?TIER", "?DISK",
    "<STATE"};

static void uuid_cell(struct table *table, const ProtobufCBinaryData *data, bool mig)
{
    char text[UUID_TEXT_MAX] = "";
    struct uuid uuid;

    if (uuid_from_bytes(data->data, data->len, &uuid) == 0)
        (void) uuid_format_device(text, &uuid, mig);
    table_cell(table, STYLE_PLAIN, "%s", text);
}

/* Used of all; `-` where there is none. */
static void share_cell(struct table *table, enum style style, uint64_t used_bytes, uint64_t bytes)
{
    char used[SIZE_TEXT_MAX], all[SIZE_TEXT_MAX];

    if (bytes == 0)
        table_cell(table, style, "%s", "");
    else
        table_cell(table, style, "%s/%s", size_format(used, used_bytes), size_format(all, bytes));
}

/* The tier, and what of it is on a disk. */
static void tier_cells(struct table *table, const Gmb__DeviceStatus *device)
{
    share_cell(table, STYLE_PLAIN, device->tier_used_bytes, device->tier_bytes);
    share_cell(table, device->tier_disk_failure[0] != '\0' ? STYLE_ALARM : STYLE_PLAIN,
        device->tier_disk_used_bytes, device->tier_disk_bytes);
}

/* What a column is too narrow for. */
static int disk_line(const struct view *view, const Gmb__DeviceStatus *device)
{
    _cleanup_free_ char *path = terminal_text(device->tier_path);
    _cleanup_free_ char *failure = terminal_text(device->tier_disk_failure);
    char name[UUID_TEXT_MAX] = "", memory[SIZE_TEXT_MAX], disk[SIZE_TEXT_MAX];
    struct uuid uuid;

    if (path == NULL || failure == NULL)
        return -ENOMEM;
    if (uuid_from_bytes(device->uuid.data, device->uuid.len, &uuid) == 0)
        (void) uuid_format_device(name, &uuid, device->mig);
    (void) fprintf(view->to, "host tier of %s: %s of memory, %s of a disk in %s%s%s\n", name,
        size_format(memory, device->tier_bytes - device->tier_disk_bytes),
        size_format(disk, device->tier_disk_bytes), path,
        failure[0] != '\0' ? ", which is out of use: " : "", failure);
    return 0;
}

static void device_add(struct table *table, const Gmb__DeviceStatus *device)
{
    uuid_cell(table, &device->uuid, device->mig);
    table_cell(table, STYLE_PLAIN, "%s", device->name);
    table_cell(table, STYLE_PLAIN, "%s",
        device->backend == GMB__BACKEND__BACKEND_VMM   ? "vmm"
        : device->backend == GMB__BACKEND__BACKEND_IPC ? "ipc"
                                                       : "?");
    table_size(table, STYLE_PLAIN, device->total_bytes);
    table_size(table, STYLE_PLAIN, device->reserve_bytes);
    table_size(table, STYLE_PLAIN, device->leased_bytes);
    table_size(table, STYLE_PLAIN, device->cached_bytes);
    table_size(table, STYLE_PLAIN, device->clean_bytes);
    table_size(table, STYLE_PLAIN, device->releasing_bytes);
    table_size(table, STYLE_ALARM, device->orphaned_bytes);
    table_size(table, STYLE_WARNING, device->unaccounted_bytes);
    table_size(table, STYLE_PLAIN, device->free_bytes);
    tier_cells(table, device);
    table_cell(table, device->healthy ? STYLE_GOOD : STYLE_ALARM,
        device->failure[0] != '\0' ? "failed"
        : device->draining         ? "draining"
        : device->healthy          ? "healthy"
                                   : "failing");
}

int view_status(const struct view *view, const Gmb__Status *status)
{
    _cleanup_(table_free_ptr) struct table *table =
        table_new(device_headings, ARRAY_SIZE(device_headings));
    _cleanup_free_ char *version = terminal_text(status->version);
    _cleanup_free_ char *degraded = terminal_text(status->degraded);
    char uptime[DURATION_TEXT_MAX];
    int r;

    if (version == NULL || degraded == NULL)
        return -ENOMEM;
    (void) fprintf(view->to, "gmbd %s, driver %s, up %s, configuration revision %" PRIu64 "\n",
        version, status->driver, duration_format(uptime, status->uptime_ns), status->revision);
    (void) fprintf(view->to, "%u tenant%s, %u client%s, %u lease%s, %u request%s waiting\n",
        status->tenants, PLURAL_S(status->tenants), status->clients, PLURAL_S(status->clients),
        status->leases, PLURAL_S(status->leases), status->waiting, PLURAL_S(status->waiting));
    (void) fprintf(view->to,
        "%" PRIu64 " requests granted, %" PRIu64 " refused, %" PRIu64 " timed out\n",
        status->granted_total, status->refused_total, status->timed_out_total);
    if (degraded[0] != '\0')
        (void) fprintf(view->to, "degraded: %s\n", degraded);
    (void) fprintf(view->to, "\n");
    for (size_t i = 0; table != NULL && i < status->n_devices; i++)
        device_add(table, status->devices[i]);
    r = table_print(table, view->to, view->colour);
    for (size_t i = 0; r == 0 && i < status->n_devices; i++) {
        if (status->devices[i]->tier_path[0] != '\0')
            r = disk_line(view, status->devices[i]);
    }
    return r;
}

int view_changed(const struct view *view, const char *tenant, const Gmb__TenantChanged *changed)
{
    char over[SIZE_TEXT_MAX], text[UUID_TEXT_MAX];
    struct uuid uuid;

    (void) fprintf(
        view->to, "tenant %s is at revision %" PRIu64 " now\n", tenant, changed->revision);
    for (size_t i = 0; i < changed->n_devices; i++) {
        const Gmb__TenantDevice *device = changed->devices[i];

        if (device->overage_bytes == 0 ||
            uuid_from_bytes(device->uuid.data, device->uuid.len, &uuid) < 0)
            continue;
        (void) fprintf(view->to,
            "it has %s more than its MemoryMax on %s until it gives them back\n",
            size_format(over, device->overage_bytes), uuid_format_device(text, &uuid, device->mig));
    }
    return ferror(view->to) ? -EIO : 0;
}

int view_reloaded(const struct view *view, const Gmb__Reloaded *reloaded)
{
    (void) fprintf(view->to, "configuration read: revision %" PRIu64 ", %u tenant%s\n",
        reloaded->revision, reloaded->tenants, PLURAL_S(reloaded->tenants));
    return ferror(view->to) ? -EIO : 0;
}
