/* Tenants, clients and leases, one a line; tenants one for each device. */
#include <inttypes.h>

#include "base/size.h"
#include "base/uuid.h"
#include "client/ctl/duration.h"
#include "client/ctl/table.h"
#include "client/ctl/view.h"

static const char *const tenant_headings[] = {"<TENANT", "<DEVICE", "USED", "LEASED", "CACHED",
    "?RELEASING", "?ORPHANED", "PEAK", "MIN", "?LOW", "?HIGH", "MAX", "?OVER", "?EVICTED",
    "PRIORITY", "WEIGHT", "CLIENTS", "LEASES", "WAITING", "REVISION"};
static const char *const client_headings[] = {
    "ID", "<TENANT", "PID", "UID", "<PROGRAM", "<UNIT", "LEASES", "LEASED", "WAITING", "<STATE"};
static const char *const lease_headings[] = {
    "ID", "CLIENT", "HOLDERS", "<TENANT", "<DEVICE", "SIZE", "CHUNKS", "CHUNK", "AGE", "<LABEL"};

void view_device_cell(struct table *table, const ProtobufCBinaryData *data, bool mig)
{
    char text[UUID_TEXT_MAX] = "";
    struct uuid uuid;

    if (uuid_from_bytes(data->data, data->len, &uuid) == 0)
        (void) uuid_format_device(text, &uuid, mig);
    table_cell(table, STYLE_PLAIN, "%.12s", text);
}

static void limit_cell(struct table *table, uint64_t bytes)
{
    char text[SIZE_TEXT_MAX];

    table_cell(table, STYLE_PLAIN, "%s", bytes == SIZE_INFINITY ? "" : size_format(text, bytes));
}

static enum style use_style(const Gmb__TenantDevice *device)
{
    if (device->overage_bytes > 0)
        return STYLE_ALARM;
    return device->used_bytes > device->memory_high ? STYLE_WARNING : STYLE_PLAIN;
}

static void tenant_add(
    struct table *table, const Gmb__TenantStatus *tenant, const Gmb__TenantDevice *device)
{
    table_cell(table, tenant->configured ? STYLE_PLAIN : STYLE_WARNING, "%s%s", tenant->name,
        tenant->configured ? "" : " (removed)");
    view_device_cell(table, &device->uuid, device->mig);
    table_size(table, use_style(device), device->used_bytes);
    table_size(table, STYLE_PLAIN, device->leased_bytes);
    table_size(table, STYLE_PLAIN, device->cached_bytes);
    table_size(table, STYLE_PLAIN, device->releasing_bytes);
    table_size(table, STYLE_ALARM, device->orphaned_bytes);
    table_size(table, STYLE_PLAIN, device->peak_bytes);
    table_size(table, STYLE_PLAIN, device->memory_min);
    table_size(table, STYLE_PLAIN, device->memory_low);
    limit_cell(table, device->memory_high);
    limit_cell(table, device->memory_max);
    table_size(table, STYLE_ALARM, device->overage_bytes);
    table_size(table, STYLE_PLAIN, device->evicted_bytes);
    table_cell(table, STYLE_PLAIN, "%u", tenant->priority);
    table_cell(table, STYLE_PLAIN, "%u", tenant->weight);
    table_count(table, tenant->clients, tenant->clients_max);
    table_count(table, tenant->leases, tenant->leases_max);
    table_cell(table, tenant->waiting > 0 ? STYLE_WARNING : STYLE_PLAIN, "%u", tenant->waiting);
    table_cell(table, STYLE_PLAIN, "%" PRIu64, tenant->revision);
}

int view_tenants(const struct view *view, const struct listing *tenants)
{
    _cleanup_(table_free_ptr) struct table *table =
        table_new(tenant_headings, ARRAY_SIZE(tenant_headings));

    for (size_t i = 0; table != NULL && i < tenants->count; i++) {
        const Gmb__TenantStatus *tenant = (const Gmb__TenantStatus *) tenants->items[i];

        for (size_t j = 0; j < tenant->n_devices; j++)
            tenant_add(table, tenant, tenant->devices[j]);
    }
    return table_print(table, view->to, view->colour);
}

static void client_add(struct table *table, const Gmb__ClientStatus *client)
{
    table_cell(table, STYLE_PLAIN, "%" PRIu64, client->id);
    table_cell(table, STYLE_PLAIN, "%s", client->tenant);
    table_cell(table, STYLE_PLAIN, "%" PRId32, client->pid);
    table_cell(table, STYLE_PLAIN, "%" PRIu32, client->uid);
    table_cell(table, STYLE_PLAIN, "%s", client->program);
    table_cell(table, STYLE_PLAIN, "%s", client->unit);
    table_cell(table, STYLE_PLAIN, "%u", client->leases);
    table_size(table, STYLE_PLAIN, client->leased_bytes);
    table_cell(table, client->waiting > 0 ? STYLE_WARNING : STYLE_PLAIN, "%u", client->waiting);
    table_cell(table, client->connected ? STYLE_GOOD : STYLE_WARNING,
        client->connected ? "connected" : "detached");
}

int view_clients(const struct view *view, const struct listing *clients)
{
    _cleanup_(table_free_ptr) struct table *table =
        table_new(client_headings, ARRAY_SIZE(client_headings));

    for (size_t i = 0; table != NULL && i < clients->count; i++)
        client_add(table, (const Gmb__ClientStatus *) clients->items[i]);
    return table_print(table, view->to, view->colour);
}

static void lease_add(struct table *table, const Gmb__LeaseStatus *lease)
{
    char age[DURATION_TEXT_MAX];

    table_cell(table, STYLE_PLAIN, "%" PRIu64, lease->id);
    table_cell(table, STYLE_PLAIN, "%" PRIu64, lease->client);
    table_cell(table, STYLE_PLAIN, "%u", lease->holders);
    table_cell(table, STYLE_PLAIN, "%s", lease->tenant);
    view_device_cell(table, &lease->device, lease->mig);
    table_size(table, STYLE_PLAIN, lease->bytes);
    table_cell(table, STYLE_PLAIN, "%u", lease->chunks);
    table_size(table, STYLE_PLAIN, lease->chunk_bytes);
    table_cell(table, STYLE_PLAIN, "%s", duration_format(age, lease->age_ns));
    table_cell(table, STYLE_PLAIN, "%s", lease->label);
}

int view_leases(const struct view *view, const struct listing *leases)
{
    _cleanup_(table_free_ptr) struct table *table =
        table_new(lease_headings, ARRAY_SIZE(lease_headings));

    for (size_t i = 0; table != NULL && i < leases->count; i++)
        lease_add(table, (const Gmb__LeaseStatus *) leases->items[i]);
    return table_print(table, view->to, view->colour);
}
