/* See report.h. Strings are borrowed from the broker: it changes nothing before they are sent. */
#include "daemon/report.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/arena.h"
#include "daemon/segment.h"
#include "daemon/slab_device.h"
#include "daemon/text.h"

void report_begin(struct report *report, Gmb__ControlReply__BodyCase body)
{
    gmb__control_reply__init(&report->message);
    report->message.body_case = body;
}

/* Generated structs want `char *`; what they are encoded from isn't written to. */
static char *borrow(const char *text)
{
    return (char *) (uintptr_t) text;
}

ProtobufCBinaryData report_uuid(const struct broker *broker, uint32_t device)
{
    return (ProtobufCBinaryData){
        .data = (uint8_t *) (uintptr_t) broker->devices[device].uuid.bytes,
        .len = UUID_BYTES,
    };
}

/* What an operator should know of the last start, and of the next. */
static char *degraded(const struct broker *broker, char text[LIMIT_TEXT_BYTES])
{
    static const char full[] = "the service manager's fd store is full, or keeps nothing: what it "
                               "doesn't keep would be stuck after a restart";
    const char *start = broker->recovery.degraded;

    if (!executor_store_full(broker->executor))
        return borrow(start);
    /* It can still be helped, and so comes before what has happened. */
    text_copy(text, LIMIT_TEXT_BYTES, full);
    if (start[0] != '\0') {
        text_copy(text + sizeof(full) - 1, LIMIT_TEXT_BYTES - sizeof(full) + 1, "; ");
        text_copy(text + sizeof(full) + 1, LIMIT_TEXT_BYTES - sizeof(full) - 1, start);
    }
    return text;
}

void report_status(const struct broker *broker, struct report *report)
{
    Gmb__Status *status = &report->body.status;
    struct core_totals totals;

    core_totals_get(broker->core, &totals);
    report_begin(report, GMB__CONTROL_REPLY__BODY_STATUS);
    gmb__status__init(status);
    report->message.status = status;
    status->version = borrow(GMBD_VERSION);
    status->uptime_ns = clock_now(broker->clock) - broker->start_ns;
    status->driver = borrow(gpu_driver_name(broker->gpu->driver));
    status->revision = totals.revision;
    status->tenants = totals.tenants;
    status->clients = totals.clients;
    status->leases = totals.leases;
    status->waiting = totals.waiting;
    status->granted_total = totals.granted;
    status->refused_total = totals.refused;
    status->timed_out_total = totals.timed_out;
    status->degraded = degraded(broker, report->text);
    for (uint32_t i = 0; i < broker->device_count; i++) {
        Gmb__DeviceStatus *device = &report->list.devices.items[i];
        struct core_device_view view = {0};
        enum pressure_level level = PRESSURE_NONE;
        uint64_t pressed;

        (void) core_device_get(broker->core, i, &view);
        (void) core_device_pressure(broker->core, i, &level, &pressed);
        gmb__device_status__init(device);
        device->level = level;
        device->uuid = report_uuid(broker, i);
        device->name = borrow(broker->gpu->devices[i]->name);
        device->total_bytes = view.total;
        device->reserve_bytes = view.reserve;
        device->leased_bytes = view.leased + view.creating - view.creating_clean;
        device->cached_bytes = view.cached;
        device->clean_bytes = view.clean + view.creating_clean;
        device->releasing_bytes = view.releasing;
        device->orphaned_bytes = view.orphaned;
        device->unaccounted_bytes = view.unaccounted;
        device->free_bytes = view.free;
        device->healthy = broker->devices[i].healthy;
        device->draining = broker->hosting[i]->draining;
        device->failure = borrow(broker->devices[i].failure);
        device->mig = broker->devices[i].mig;
        device->backend = broker->devices[i].sharing == GPU_HANDLE_IPC ? GMB__BACKEND__BACKEND_IPC
                                                                       : GMB__BACKEND__BACKEND_VMM;
        device->memory_losses = slab_device_losses(broker, i);
        if (broker->hosting[i]->tier != NULL) {
            struct tier_stats tier = tier_stats(broker->hosting[i]->tier);

            device->tier_bytes = tier.total_bytes;
            device->tier_used_bytes = tier.slab_bytes;
            device->tier_disk_bytes = tier.disk_bytes;
            device->tier_disk_used_bytes = tier.disk_slab_bytes;
        }
        if (broker->hosting[i]->disk.path != NULL)
            device->tier_path = borrow(broker->hosting[i]->disk.path);
        device->tier_disk_failure = borrow(broker->hosting[i]->disk.text);
        report->list.devices.pointers[i] = device;
    }
    status->n_devices = broker->device_count;
    status->devices = report->list.devices.pointers;
}

/* Fills one TenantDevice for each device from `first` on in the report's store. */
static void tenant_devices_fill(
    const struct broker *broker, uint32_t tenant, struct report *report, size_t first)
{
    for (uint32_t i = 0; i < broker->device_count; i++) {
        Gmb__TenantDevice *device = &report->tenant_devices[first + i];
        struct core_tenant_device_view view = {0};
        struct core_pressure_view pressure = {0};

        (void) core_tenant_device_get(broker->core, tenant, i, &view);
        (void) core_pressure_get(broker->core, tenant, i, &pressure);
        gmb__tenant_device__init(device);
        device->level = pressure.level;
        device->uuid = report_uuid(broker, i);
        device->mig = broker->devices[i].mig;
        device->memory_min = view.limits.min;
        device->memory_low = view.limits.low;
        device->memory_high = view.limits.high;
        device->memory_max = view.limits.max;
        device->used_bytes = view.used;
        device->leased_bytes = view.leased + view.creating;
        device->cached_bytes = view.cached;
        device->releasing_bytes = view.releasing;
        device->orphaned_bytes = view.orphaned;
        device->peak_bytes = view.peak;
        device->overage_bytes = view.overage;
        device->host_max = broker->hosting[i]->accounts[tenant].max_bytes;
        device->host_bytes = broker->hosting[i]->accounts[tenant].charged_bytes;
        device->evicted_bytes = broker->hosting[i]->evicted[tenant];
        report->tenant_device_pointers[first + i] = device;
    }
}

static void tenant_fill(const struct broker *broker, uint32_t tenant,
    const struct core_tenant_view *view, struct report *report, size_t entry)
{
    Gmb__TenantStatus *status = &report->list.tenants.items[entry];
    size_t first = entry * broker->device_count;

    gmb__tenant_status__init(status);
    status->name = borrow(view->name);
    status->revision = view->revision;
    status->priority = view->priority;
    status->weight = view->weight;
    status->clients = view->clients;
    status->clients_max = view->clients_max;
    status->leases = view->leases;
    status->leases_max = view->leases_max;
    status->waiting = view->waiting;
    status->configured = view->configured;
    tenant_devices_fill(broker, tenant, report, first);
    status->n_devices = broker->device_count;
    status->devices = &report->tenant_device_pointers[first];
    report->list.tenants.pointers[entry] = status;
}

void report_tenants(const struct broker *broker, const char *after, struct report *report)
{
    Gmb__TenantPage *page = &report->body.tenant_page;
    uint32_t tenant = 0;
    size_t count = 0;

    report_begin(report, GMB__CONTROL_REPLY__BODY_TENANT_PAGE);
    gmb__tenant_page__init(page);
    report->message.tenant_page = page;
    page->last = true;
    if (after[0] != '\0' && core_tenant_find(broker->core, after, &tenant))
        tenant++;
    for (; tenant < LIMIT_TENANTS; tenant++) {
        struct core_tenant_view view;

        if (!core_tenant_get(broker->core, tenant, &view))
            continue;
        if (count == REPORT_ENTRIES || (count + 1) * broker->device_count > REPORT_DEVICES) {
            page->last = false;
            break;
        }
        report->list.tenants.views[count] = view;
        tenant_fill(broker, tenant, &report->list.tenants.views[count], report, count);
        count++;
    }
    page->n_tenants = count;
    page->tenants = report->list.tenants.pointers;
}

bool report_tenant(const struct broker *broker, uint32_t tenant, struct report *report)
{
    struct core_tenant_view *view = &report->list.tenants.views[0];

    if (!core_tenant_get(broker->core, tenant, view))
        return false;
    tenant_fill(broker, tenant, view, report, 0);
    return true;
}

static void client_fill(
    const struct core_client_view *view, const struct client *client, Gmb__ClientStatus *status)
{
    gmb__client_status__init(status);
    status->id = view->id;
    status->leases = view->leases;
    status->leased_bytes = view->leased;
    status->waiting = view->waiting;
    status->connected = !view->detached;
    if (client == NULL)
        return; /* the core's client without a process: being added or taken down */
    status->tenant = borrow(client->tenant);
    status->pid = client->identity.pid;
    status->uid = client->identity.uid;
    status->program = borrow(client->program);
    status->unit = client->identity.unit;
}

void report_clients(const struct broker *broker, uint64_t after, struct report *report)
{
    Gmb__ClientPage *page = &report->body.client_page;
    struct core_client_view view;
    size_t count = 0;

    report_begin(report, GMB__CONTROL_REPLY__BODY_CLIENT_PAGE);
    gmb__client_page__init(page);
    report->message.client_page = page;
    while (count < REPORT_ENTRIES && core_client_next(broker->core, after, &view)) {
        Gmb__ClientStatus *status = &report->list.clients.items[count];

        client_fill(&view, client_find(broker, view.id), status);
        report->list.clients.pointers[count++] = status;
        after = view.id;
    }
    page->last = count < REPORT_ENTRIES || !core_client_next(broker->core, after, &view);
    page->n_clients = count;
    page->clients = report->list.clients.pointers;
}

static const Gmb__Purpose purposes[] = {
    [CORE_LEASE_WORKSPACE] = GMB__PURPOSE__PURPOSE_WORKSPACE,
    [CORE_LEASE_ARENA] = GMB__PURPOSE__PURPOSE_ARENA,
    [CORE_LEASE_SEGMENT] = GMB__PURPOSE__PURPOSE_SEGMENT,
};

void report_leases(const struct broker *broker, uint64_t after, struct report *report)
{
    Gmb__LeasePage *page = &report->body.lease_page;
    uint64_t now = clock_now(broker->clock);
    struct core_lease_view view;
    size_t count = 0;

    report_begin(report, GMB__CONTROL_REPLY__BODY_LEASE_PAGE);
    gmb__lease_page__init(page);
    report->message.lease_page = page;
    while (count < REPORT_ENTRIES && core_lease_next(broker->core, after, &view)) {
        Gmb__LeaseStatus *status = &report->list.leases.items[count];
        const struct client *client = client_find(broker, view.client);
        const struct arena *arena = arena_find(broker, view.id);
        const struct segment *segment = segment_of_lease(broker, view.tenant, view.id);
        struct core_tenant_view tenant = {.name = ""};

        (void) core_tenant_get(broker->core, view.tenant, &tenant);
        memcpy(report->list.leases.tenants[count], tenant.name, sizeof(tenant.name));
        gmb__lease_status__init(status);
        status->id = view.id;
        status->client = view.client;
        status->tenant = report->list.leases.tenants[count];
        status->device = report_uuid(broker, view.device);
        status->mig = broker->devices[view.device].mig;
        status->chunks = view.chunks;
        status->chunk_bytes = view.chunk_bytes;
        status->bytes = view.chunk_bytes * view.chunks;
        status->holders = view.holders;
        status->label = borrow(segment != NULL                           ? segment->name
                               : arena != NULL && arena->name[0] != '\0' ? arena->name
                               : client != NULL ? client_label_get(client, view.id)
                                                : "");
        status->age_ns = sub_saturate(now, view.since_ns);
        status->purpose = purposes[view.kind];
        report->list.leases.pointers[count++] = status;
        after = view.id;
    }
    page->last = count < REPORT_ENTRIES || !core_lease_next(broker->core, after, &view);
    page->n_leases = count;
    page->leases = report->list.leases.pointers;
}

void report_tenant_changed(const struct broker *broker, uint32_t tenant, struct report *report)
{
    Gmb__TenantChanged *changed = &report->body.tenant_changed;
    struct core_tenant_view view = {0};

    (void) core_tenant_get(broker->core, tenant, &view);
    report_begin(report, GMB__CONTROL_REPLY__BODY_TENANT_CHANGED);
    gmb__tenant_changed__init(changed);
    report->message.tenant_changed = changed;
    changed->revision = view.revision;
    tenant_devices_fill(broker, tenant, report, 0);
    changed->n_devices = broker->device_count;
    changed->devices = report->tenant_device_pointers;
}

void report_reloaded(const struct broker *broker, struct report *report)
{
    Gmb__Reloaded *reloaded = &report->body.reloaded;
    struct core_totals totals;

    core_totals_get(broker->core, &totals);
    report_begin(report, GMB__CONTROL_REPLY__BODY_RELOADED);
    gmb__reloaded__init(reloaded);
    report->message.reloaded = reloaded;
    reloaded->revision = totals.revision;
    reloaded->tenants = (uint32_t) broker->config->tenant_count;
}

void report_plan_begin(struct report *report, uint64_t planned, const char *shortfall)
{
    Gmb__ReclaimPlan *plan = &report->body.plan;

    report_begin(report, GMB__CONTROL_REPLY__BODY_RECLAIM_PLAN);
    gmb__reclaim_plan__init(plan);
    report->message.reclaim_plan = plan;
    plan->planned_bytes = planned;
    plan->shortfall = borrow(shortfall);
    plan->steps = report->list.steps.pointers;
}

bool report_plan_add(struct report *report, const char *tenant, const struct survey_row *row,
    const struct reclaim_chunk *chunk, const struct reclaim_step *step)
{
    Gmb__ReclaimPlan *plan = &report->body.plan;
    size_t entry = plan->n_steps;
    Gmb__ReclaimStep *item;

    if (entry == REPORT_ENTRIES)
        return false;
    item = report->list.steps.pointers[entry] = &report->list.steps.items[entry];
    gmb__reclaim_step__init(item);
    (void) snprintf(report->list.steps.tenants[entry], LIMIT_NAME_BYTES + 1, "%s", tenant);
    item->tenant = report->list.steps.tenants[entry];
    item->lease = row->lease;
    item->chunk = row->index;
    item->bytes = chunk->bytes;
    item->resident_pages = chunk->resident;
    item->score = step->score;
    item->reason = borrow(reclaim_reason_name(step->reason));
    plan->n_steps++;
    return true;
}

void report_drained(struct report *report, uint64_t moved_bytes, uint64_t left_bytes)
{
    Gmb__Drained *drained = &report->body.drained;

    report_begin(report, GMB__CONTROL_REPLY__BODY_DRAINED);
    gmb__drained__init(drained);
    report->message.drained = drained;
    drained->moved_bytes = moved_bytes;
    drained->left_bytes = left_bytes;
}

void report_error(
    struct report *report, enum gmb_status status, enum gmb_limit limit, const char *format, ...)
{
    Gmb__Error *error = &report->body.error;
    char text[CONFIG_ERROR_BYTES];
    va_list args;

    va_start(args, format);
    (void) vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    text_copy(report->text, sizeof(report->text), text);
    report_begin(report, GMB__CONTROL_REPLY__BODY_ERROR);
    gmb__error__init(error);
    report->message.error = error;
    error->status = status;
    error->limit = limit;
    error->text = report->text;
}
