/* See operate.h. */
#include "daemon/operate.h"

#include <errno.h>

#include "base/log.h"

/* Puts one assignment into the record: for one device, or for all. */
static int assignment_apply(const struct broker *broker, const Gmb__TenantSet *set,
    const Gmb__Assignment *assignment, struct core_tenant_config *tenant, struct report *report)
{
    char reason[CONFIG_REASON_BYTES];
    uint32_t first = 0, end = (uint32_t) broker->device_count;
    struct config_value value;
    enum config_key key;

    if (config_key_parse(assignment->key, &key) < 0) {
        report_error(report, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
            "there is no key %s to set; gmbctl --help lists them", assignment->key);
        return -EINVAL;
    }
    if (config_value_parse(key, assignment->value, &value, reason) < 0) {
        report_error(report, GMB_STATUS_INVALID, GMB_LIMIT_NONE, "%s", reason);
        return -EINVAL;
    }
    if (set->device.len > 0 && !config_key_is_memory(key)) {
        report_error(report, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
            "%s doesn't differ between devices", assignment->key);
        return -EINVAL;
    }
    if (!config_key_is_memory(key)) {
        config_value_apply(tenant, key, &value, 0, 0);
        return 0;
    }
    if (set->device.len > 0) {
        if (!broker_device_find(broker, set->device.data, set->device.len, &first)) {
            report_error(report, GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE, "there is no such device");
            return -ENOENT;
        }
        end = first + 1;
    }
    for (uint32_t i = first; i < end; i++) {
        struct core_device_view view = {0};

        (void) core_device_get(broker->core, i, &view);
        config_value_apply(tenant, key, &value, i, sub_saturate(view.total, view.reserve));
    }
    return 0;
}

/* What the core is asked to take; false after an error. */
static bool change_make(struct broker *broker, const Gmb__TenantSet *set, uint32_t *ret_index,
    struct core_tenant_config *ret_tenant, struct report *report)
{
    if (!core_tenant_find(broker->core, set->tenant, ret_index) ||
        !core_tenant_config_get(broker->core, *ret_index, ret_tenant)) {
        report_error(
            report, GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE, "there is no tenant %s", set->tenant);
        return false;
    }
    if (set->n_assignments == 0) {
        report_error(report, GMB_STATUS_INVALID, GMB_LIMIT_NONE, "nothing is to be set");
        return false;
    }
    for (size_t i = 0; i < set->n_assignments; i++) {
        if (assignment_apply(broker, set, set->assignments[i], ret_tenant, report) < 0)
            return false;
    }
    return true;
}

void operate_set(struct broker *broker, const struct operate_caller *caller,
    const Gmb__TenantSet *set, struct report *report)
{
    struct core_tenant_config tenant;
    struct core_event event = {
        .type = CORE_EVENT_TENANT_SET,
        .tenant_set.tenant = &tenant,
        .tenant_set.expected_revision = set->expected_revision,
    };
    const struct core_action *answer;
    uint32_t index;

    if (!change_make(broker, set, &index, &tenant, report))
        return;
    answer = broker_ask(broker, &event);
    if (answer == NULL || answer->type != CORE_ACTION_CONFIGURED) {
        report_error(report, answer != NULL ? answer->refuse.status : GMB_STATUS_INTERNAL,
            answer != NULL ? answer->refuse.limit : GMB_LIMIT_NONE, "%s",
            answer != NULL ? answer->refuse.text : "the core gave no answer");
        return;
    }
    broker_configured(broker);
    for (size_t i = 0; i < set->n_assignments; i++)
        log_notice("uid %u (pid %d) set %s=%s of tenant %s", (unsigned) caller->uid,
            (int) caller->pid, set->assignments[i]->key, set->assignments[i]->value, set->tenant);
    report_tenant_changed(broker, index, report);
}

void operate_reload(
    struct broker *broker, const struct operate_caller *caller, struct report *report)
{
    char error[CONFIG_ERROR_BYTES];

    if (broker_reload(broker, error) < 0) {
        log_error("reload by uid %u refused, the configuration stays as it was: %s",
            (unsigned) caller->uid, error);
        report_error(report, GMB_STATUS_INVALID, GMB_LIMIT_NONE, "%s", error);
        return;
    }
    log_notice(
        "configuration reloaded by uid %u (pid %d)", (unsigned) caller->uid, (int) caller->pid);
    report_reloaded(broker, report);
}

struct order *operate_reclaim(struct broker *broker, const struct operate_caller *caller,
    const Gmb__Reclaim *body, order_answer answer, void *data, struct report *report)
{
    struct order *order = order_reclaim(broker, body, answer, data, report);

    if (order != NULL && !body->dry_run)
        log_notice("uid %u (pid %d) takes %llu bytes %s tenant %s", (unsigned) caller->uid,
            (int) caller->pid, (unsigned long long) body->bytes, body->from_tenant ? "from" : "for",
            body->tenant);
    return order;
}

struct order *operate_drain(struct broker *broker, const struct operate_caller *caller,
    const Gmb__Drain *body, order_answer answer, void *data, struct report *report)
{
    struct order *order = order_drain(broker, body, answer, data, report);

    if (order != NULL)
        log_notice("uid %u (pid %d) %s a device", (unsigned) caller->uid, (int) caller->pid,
            body->undo ? "takes back to use" : "drains");
    return order;
}
