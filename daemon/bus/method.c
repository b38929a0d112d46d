/*
 * Strings come from anybody who may call: they are bounded and without control characters before
 * anything, the log included, sees them. What they mean is operate.h's to judge.
 */
#include "daemon/bus/method.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static const char *const error_names[] = {
    [GMB_STATUS_OK] = BUS_NAME ".Error.Internal",
    [GMB_STATUS_EXHAUSTED] = BUS_NAME ".Error.Exhausted",
    [GMB_STATUS_OVER_LIMIT] = BUS_NAME ".Error.OverLimit",
    [GMB_STATUS_TIMED_OUT] = BUS_NAME ".Error.TimedOut",
    [GMB_STATUS_CANCELLED] = BUS_NAME ".Error.Cancelled",
    [GMB_STATUS_INVALID] = BUS_NAME ".Error.Invalid",
    [GMB_STATUS_NOT_FOUND] = BUS_NAME ".Error.NotFound",
    [GMB_STATUS_DENIED] = BUS_NAME ".Error.Denied",
    [GMB_STATUS_CONFLICT] = BUS_NAME ".Error.Conflict",
    [GMB_STATUS_UNSUPPORTED] = BUS_NAME ".Error.Unsupported",
    [GMB_STATUS_DISCONNECTED] = BUS_NAME ".Error.Internal",
    [GMB_STATUS_FORKED] = BUS_NAME ".Error.Internal",
    [GMB_STATUS_GPU] = BUS_NAME ".Error.Gpu",
    [GMB_STATUS_PROTOCOL] = BUS_NAME ".Error.Internal",
    [GMB_STATUS_INTERNAL] = BUS_NAME ".Error.Internal",
};
static_assert(ARRAY_SIZE(error_names) == GMB_STATUS_MAX, "every status has an error");

const char *bus_error_name(uint32_t status)
{
    return error_names[status < GMB_STATUS_MAX ? status : GMB_STATUS_INTERNAL];
}

/* ------------------------------------------------------------------ arguments */

static int refuse(sd_bus_error *error, const char *text)
{
    return sd_bus_error_set(error, SD_BUS_ERROR_INVALID_ARGS, text);
}

static bool text_plain(const char *text)
{
    size_t length = strnlen(text, LIMIT_TEXT_BYTES + 1);

    for (size_t i = 0; i < length; i++) {
        if ((unsigned char) text[i] < 0x20 || text[i] == 0x7f)
            return false;
    }
    return length <= LIMIT_TEXT_BYTES;
}

/* "" is no UUID: the first device, or all, as the method says. */
static int device_read(
    const char *text, struct uuid *ret_uuid, ProtobufCBinaryData *ret, sd_bus_error *error)
{
    *ret = (ProtobufCBinaryData){0};
    if (text[0] == '\0')
        return 0;
    if (uuid_parse(text, ret_uuid) < 0)
        return refuse(error, "a device is named by its UUID");
    *ret = (ProtobufCBinaryData){.data = ret_uuid->bytes, .len = UUID_BYTES};
    return 0;
}

struct assignments {
    size_t count;
    Gmb__Assignment items[LIMIT_BUS_ASSIGNMENTS];
    Gmb__Assignment *pointers[LIMIT_BUS_ASSIGNMENTS];
};

static int assignments_read(
    sd_bus_message *message, struct assignments *assignments, sd_bus_error *error)
{
    const char *key, *value;
    int r = sd_bus_message_enter_container(message, 'a', "(ss)");

    if (r < 0)
        return r;
    while ((r = sd_bus_message_read(message, "(ss)", &key, &value)) > 0) {
        Gmb__Assignment *item = &assignments->items[assignments->count];

        if (assignments->count == LIMIT_BUS_ASSIGNMENTS)
            return refuse(error, "too many assignments");
        if (!text_plain(key) || !text_plain(value))
            return refuse(error, "a key or value is too long, or holds control characters");
        gmb__assignment__init(item);
        item->key = (char *) (uintptr_t) key;
        item->value = (char *) (uintptr_t) value;
        assignments->pointers[assignments->count++] = item;
    }
    return r < 0 ? r : sd_bus_message_exit_container(message);
}

/* ------------------------------------------------------------------ methods */

static int set_run(struct bus *bus, sd_bus_message *message, const struct operate_caller *caller,
    order_answer answer, void *data, struct order **ret_order, sd_bus_error *error)
{
    struct assignments assignments = {0};
    Gmb__TenantSet set;
    const char *tenant, *device;
    struct uuid uuid;
    int r = sd_bus_message_read(message, "ss", &tenant, &device);

    (void) answer, (void) data, (void) ret_order;
    gmb__tenant_set__init(&set);
    if (r >= 0)
        r = assignments_read(message, &assignments, error);
    if (r >= 0)
        r = sd_bus_message_read(message, "t", &set.expected_revision);
    if (r >= 0)
        r = device_read(device, &uuid, &set.device, error);
    if (r < 0)
        return r;
    if (!text_plain(tenant))
        return refuse(error, "there is no such tenant");
    set.tenant = (char *) (uintptr_t) tenant;
    set.n_assignments = assignments.count;
    set.assignments = assignments.pointers;
    operate_set(bus->broker, caller, &set, &bus->report);
    return 0;
}

static int set_reply(sd_bus_message *reply, const struct report *report)
{
    return sd_bus_message_append(reply, "t", report->body.tenant_changed.revision);
}

static int take_run(struct bus *bus, sd_bus_message *message, const struct operate_caller *caller,
    bool from_tenant, order_answer answer, void *data, struct order **ret_order,
    sd_bus_error *error)
{
    Gmb__Reclaim body;
    const char *tenant, *device;
    struct uuid uuid;
    int dry_run, r;

    gmb__reclaim__init(&body);
    r = sd_bus_message_read(message, "sstb", &tenant, &device, &body.bytes, &dry_run);

    if (r >= 0)
        r = device_read(device, &uuid, &body.device, error);
    if (r < 0)
        return r;
    if (!text_plain(tenant))
        return refuse(error, "there is no such tenant");
    body.tenant = (char *) (uintptr_t) tenant;
    body.dry_run = dry_run;
    body.from_tenant = from_tenant;
    *ret_order = operate_reclaim(bus->broker, caller, &body, answer, data, &bus->report);
    return 0;
}

static int reclaim_run(struct bus *bus, sd_bus_message *message,
    const struct operate_caller *caller, order_answer answer, void *data, struct order **ret_order,
    sd_bus_error *error)
{
    return take_run(bus, message, caller, false, answer, data, ret_order, error);
}

static int evict_run(struct bus *bus, sd_bus_message *message, const struct operate_caller *caller,
    order_answer answer, void *data, struct order **ret_order, sd_bus_error *error)
{
    return take_run(bus, message, caller, true, answer, data, ret_order, error);
}

static int plan_reply(sd_bus_message *reply, const struct report *report)
{
    const Gmb__ReclaimPlan *plan = &report->body.plan;
    int r = sd_bus_message_append(reply, "ts", plan->planned_bytes, plan->shortfall);

    if (r >= 0)
        r = sd_bus_message_open_container(reply, 'a', "(stutuds)");
    for (size_t i = 0; r >= 0 && i < plan->n_steps; i++) {
        const Gmb__ReclaimStep *step = plan->steps[i];

        r = sd_bus_message_append(reply, "(stutuds)", step->tenant, step->lease, step->chunk,
            step->bytes, step->resident_pages, step->score, step->reason);
    }
    return r < 0 ? r : sd_bus_message_close_container(reply);
}

static int device_order(struct bus *bus, sd_bus_message *message,
    const struct operate_caller *caller, bool undo, order_answer answer, void *data,
    struct order **ret_order, sd_bus_error *error)
{
    Gmb__Drain body = GMB__DRAIN__INIT;
    const char *device;
    struct uuid uuid;
    int r = sd_bus_message_read(message, "s", &device);

    if (r >= 0)
        r = device_read(device, &uuid, &body.device, error);
    if (r < 0)
        return r;
    /* Not the first one by omission: too much would come of it. */
    if (body.device.len == 0)
        return refuse(error, "a device is named by its UUID");
    body.undo = undo;
    *ret_order = operate_drain(bus->broker, caller, &body, answer, data, &bus->report);
    return 0;
}

static int drain_run(struct bus *bus, sd_bus_message *message, const struct operate_caller *caller,
    order_answer answer, void *data, struct order **ret_order, sd_bus_error *error)
{
    return device_order(bus, message, caller, false, answer, data, ret_order, error);
}

static int undrain_run(struct bus *bus, sd_bus_message *message,
    const struct operate_caller *caller, order_answer answer, void *data, struct order **ret_order,
    sd_bus_error *error)
{
    return device_order(bus, message, caller, true, answer, data, ret_order, error);
}

static int drain_reply(sd_bus_message *reply, const struct report *report)
{
    return sd_bus_message_append(
        reply, "tt", report->body.drained.moved_bytes, report->body.drained.left_bytes);
}

static int nothing_reply(sd_bus_message *reply, const struct report *report)
{
    (void) reply, (void) report;
    return 0;
}

static int reload_run(struct bus *bus, sd_bus_message *message, const struct operate_caller *caller,
    order_answer answer, void *data, struct order **ret_order, sd_bus_error *error)
{
    (void) message, (void) answer, (void) data, (void) ret_order, (void) error;
    operate_reload(bus->broker, caller, &bus->report);
    return 0;
}

static int reload_reply(sd_bus_message *reply, const struct report *report)
{
    return sd_bus_message_append(
        reply, "tu", report->body.reloaded.revision, report->body.reloaded.tenants);
}

static const struct bus_method methods[] = {
    {"SetTenant", "org.gmbd.broker1.set-tenant", set_run, set_reply},
    {"Reclaim", "org.gmbd.broker1.reclaim", reclaim_run, plan_reply},
    {"Evict", "org.gmbd.broker1.reclaim", evict_run, plan_reply},
    {"Drain", "org.gmbd.broker1.drain", drain_run, drain_reply},
    {"Undrain", "org.gmbd.broker1.drain", undrain_run, nothing_reply},
    {"Reload", "org.gmbd.broker1.reload", reload_run, reload_reply},
};

const struct bus_method *bus_method_find(const char *member)
{
    for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
        if (strcmp(methods[i].member, member) == 0)
            return &methods[i];
    }
    return NULL;
}
