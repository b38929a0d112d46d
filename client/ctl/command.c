/* Each command is one question or one list, shown as a table or as JSON. */
#include "client/ctl/command.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "client/ctl/json.h"
#include "client/ctl/segments.h"

static int shown(int r, struct outcome *outcome)
{
    return r < 0 ? outcome_set_errno(outcome, r, "the answer can't be shown") : 0;
}

static int status_ask(struct conn *conn, Gmb__ControlReply **ret, struct outcome *outcome)
{
    Gmb__ControlRequest request = GMB__CONTROL_REQUEST__INIT;
    Gmb__StatusGet get = GMB__STATUS_GET__INIT;

    request.body_case = GMB__CONTROL_REQUEST__BODY_STATUS_GET;
    request.status_get = &get;
    return control_ask(conn, &request, GMB__CONTROL_REPLY__BODY_STATUS, ret, outcome);
}

static int status_run(const struct options *options, struct conn *conn, const struct view *view,
    struct outcome *outcome)
{
    Gmb__ControlReply *reply;
    int r = status_ask(conn, &reply, outcome);

    if (r < 0)
        return r;
    r = options->json ? json_print_consume(json_from_message(&reply->status->base), view->to)
                      : view_status(view, reply->status);
    frame_message_free(&reply->base);
    return shown(r, outcome);
}

/* Three questions: a figure may be a moment older than another. */
static int metrics_run(struct conn *conn, const struct view *view, struct outcome *outcome)
{
    _cleanup_(listing_free) struct listing tenants = {0};
    _cleanup_(listing_free) struct listing pressures = {0};
    Gmb__ControlReply *reply;
    int r = control_list(conn, GMB__CONTROL_REQUEST__BODY_TENANTS_GET, &tenants, outcome);

    if (r == 0)
        r = control_list(conn, GMB__CONTROL_REQUEST__BODY_PRESSURE_GET, &pressures, outcome);
    if (r == 0)
        r = status_ask(conn, &reply, outcome);
    if (r < 0)
        return r;
    r = view_metrics(view, reply->status, &tenants, &pressures);
    frame_message_free(&reply->base);
    return shown(r, outcome);
}

static int list_run(const struct options *options, struct conn *conn,
    Gmb__ControlRequest__BodyCase kind, int (*show)(const struct view *, const struct listing *),
    const struct view *view, struct outcome *outcome)
{
    _cleanup_(listing_free) struct listing listing;
    int r = control_list(conn, kind, &listing, outcome);

    if (r < 0)
        return r;
    r = options->json
            ? json_print_consume(json_from_messages(listing.items, listing.count), view->to)
            : show(view, &listing);
    return shown(r, outcome);
}

static json_t *pressure_json(const struct listing *listing)
{
    const Gmb__PressurePage *first = listing->replies[0]->pressure_page;

    return json_pack("{s:o, s:o}", "devices",
        json_from_messages((ProtobufCMessage *const *) first->devices, first->n_devices), "tenants",
        json_from_messages(listing->items, listing->count));
}

static int pressure_show(const struct options *options, struct conn *conn, const struct view *view,
    struct outcome *outcome)
{
    _cleanup_(listing_free) struct listing listing;
    int r = control_list(conn, GMB__CONTROL_REQUEST__BODY_PRESSURE_GET, &listing, outcome);

    if (r < 0)
        return r;
    r = options->json ? json_print_consume(pressure_json(&listing), view->to)
                      : view_pressure(view, &listing);
    return shown(r, outcome);
}

static int pressure_run(const struct options *options, struct conn *conn, const struct view *view,
    struct outcome *outcome)
{
    const struct timespec pause = {.tv_sec = 1};
    int r = pressure_show(options, conn, view, outcome);

    while (r == 0 && options->watch) {
        if (fflush(view->to) != 0)
            return shown(-EIO, outcome);
        (void) nanosleep(&pause, NULL);
        if (!options->json)
            (void) fputc('\n', view->to);
        r = pressure_show(options, conn, view, outcome);
    }
    return r;
}

/* Cuts each `Key=Value` in two; `keys` are its copies, to be freed. */
static int assignments_cut(
    const struct options *options, Gmb__Assignment *assignments, Gmb__Assignment **pointers)
{
    for (size_t i = 0; i < options->assignment_count; i++) {
        char *text = options->assignments[i], *equals = strchr(text, '=');

        gmb__assignment__init(&assignments[i]);
        assignments[i].value = equals + 1;
        assignments[i].key = strndup(text, (size_t) (equals - text));
        if (assignments[i].key == NULL)
            return -ENOMEM;
        pointers[i] = &assignments[i];
    }
    return 0;
}

static int set_ask(const struct options *options, struct conn *conn, Gmb__Assignment **assignments,
    Gmb__ControlReply **ret, struct outcome *outcome)
{
    Gmb__ControlRequest request = GMB__CONTROL_REQUEST__INIT;
    struct uuid device = options->device;
    Gmb__TenantSet set;

    gmb__tenant_set__init(&set);
    set.tenant = (char *) (uintptr_t) options->tenant;
    set.expected_revision = options->revision;
    set.assignments = assignments;
    set.n_assignments = options->assignment_count;
    if (options->has_device)
        set.device = (ProtobufCBinaryData){.data = device.bytes, .len = UUID_BYTES};
    request.body_case = GMB__CONTROL_REQUEST__BODY_TENANT_SET;
    request.tenant_set = &set;
    return control_ask(conn, &request, GMB__CONTROL_REPLY__BODY_TENANT_CHANGED, ret, outcome);
}

static int set_run(const struct options *options, struct conn *conn, const struct view *view,
    struct outcome *outcome)
{
    size_t count = options->assignment_count;
    _cleanup_free_ Gmb__Assignment *assignments = calloc(count, sizeof(*assignments));
    _cleanup_free_ Gmb__Assignment **pointers = calloc(count, sizeof(*pointers));
    Gmb__ControlReply *reply;
    int r = -ENOMEM;

    if (assignments != NULL && pointers != NULL)
        r = assignments_cut(options, assignments, pointers);
    if (r < 0)
        (void) outcome_set_errno(outcome, r, "no host memory");
    else
        r = set_ask(options, conn, pointers, &reply, outcome);
    for (size_t i = 0; assignments != NULL && i < count; i++) {
        if (assignments[i].key != protobuf_c_empty_string)
            free(assignments[i].key);
    }
    if (r < 0)
        return outcome->code;
    r = options->json
            ? json_print_consume(json_from_message(&reply->tenant_changed->base), view->to)
            : view_changed(view, options->tenant, reply->tenant_changed);
    frame_message_free(&reply->base);
    return shown(r, outcome);
}

static int reload_run(const struct options *options, struct conn *conn, const struct view *view,
    struct outcome *outcome)
{
    Gmb__ControlRequest request = GMB__CONTROL_REQUEST__INIT;
    Gmb__Reload reload = GMB__RELOAD__INIT;
    Gmb__ControlReply *reply;
    int r;

    request.body_case = GMB__CONTROL_REQUEST__BODY_RELOAD;
    request.reload = &reload;
    r = control_ask(conn, &request, GMB__CONTROL_REPLY__BODY_RELOADED, &reply, outcome);
    if (r < 0)
        return r;
    r = options->json ? json_print_consume(json_from_message(&reply->reloaded->base), view->to)
                      : view_reloaded(view, reply->reloaded);
    frame_message_free(&reply->base);
    return shown(r, outcome);
}

static int move_run(const struct options *options, struct conn *conn, const struct view *view,
    struct outcome *outcome)
{
    Gmb__ControlRequest request = GMB__CONTROL_REQUEST__INIT;
    struct uuid device = options->device;
    Gmb__ControlReply *reply;
    Gmb__Reclaim reclaim;
    int r;

    gmb__reclaim__init(&reclaim);
    reclaim.tenant = (char *) (uintptr_t) options->tenant;
    reclaim.bytes = options->bytes;
    reclaim.dry_run = options->dry_run;
    reclaim.from_tenant = options->command == COMMAND_EVICT;
    if (options->has_device)
        reclaim.device = (ProtobufCBinaryData){.data = device.bytes, .len = UUID_BYTES};
    request.body_case = GMB__CONTROL_REQUEST__BODY_RECLAIM;
    request.reclaim = &reclaim;
    r = control_ask(conn, &request, GMB__CONTROL_REPLY__BODY_RECLAIM_PLAN, &reply, outcome);
    if (r < 0)
        return r;
    r = options->json ? json_print_consume(json_from_message(&reply->reclaim_plan->base), view->to)
                      : view_plan(view, reply->reclaim_plan, options->bytes, options->dry_run);
    frame_message_free(&reply->base);
    return shown(r, outcome);
}

static int drain_run(const struct options *options, struct conn *conn, const struct view *view,
    struct outcome *outcome)
{
    Gmb__ControlRequest request = GMB__CONTROL_REQUEST__INIT;
    struct uuid device = options->device;
    Gmb__ControlReply *reply;
    Gmb__Drain drain;
    int r;

    gmb__drain__init(&drain);
    drain.device = (ProtobufCBinaryData){.data = device.bytes, .len = UUID_BYTES};
    drain.undo = options->undo;
    request.body_case = GMB__CONTROL_REQUEST__BODY_DRAIN;
    request.drain = &drain;
    r = control_ask(conn, &request, GMB__CONTROL_REPLY__BODY_DRAINED, &reply, outcome);
    if (r < 0)
        return r;
    r = options->json ? json_print_consume(json_from_message(&reply->drained->base), view->to)
                      : view_drained(view, reply->drained, options->undo);
    frame_message_free(&reply->base);
    return shown(r, outcome);
}

int command_run(const struct options *options, struct conn *conn, const struct view *view,
    struct outcome *outcome)
{
    switch (options->command) {
    case COMMAND_STATUS:
        return status_run(options, conn, view, outcome);
    case COMMAND_TENANTS:
        return list_run(
            options, conn, GMB__CONTROL_REQUEST__BODY_TENANTS_GET, view_tenants, view, outcome);
    case COMMAND_CLIENTS:
        return list_run(
            options, conn, GMB__CONTROL_REQUEST__BODY_CLIENTS_GET, view_clients, view, outcome);
    case COMMAND_LEASES:
        return list_run(
            options, conn, GMB__CONTROL_REQUEST__BODY_LEASES_GET, view_leases, view, outcome);
    case COMMAND_SET:
        return set_run(options, conn, view, outcome);
    case COMMAND_RELOAD:
        return reload_run(options, conn, view, outcome);
    case COMMAND_RECLAIM:
    case COMMAND_EVICT:
        return move_run(options, conn, view, outcome);
    case COMMAND_DRAIN:
        return drain_run(options, conn, view, outcome);
    case COMMAND_PRESSURE:
        return pressure_run(options, conn, view, outcome);
    case COMMAND_METRICS:
        return metrics_run(conn, view, outcome);
    case COMMAND_SEGMENTS:
        return segments_run(options, conn, view, outcome);
    case COMMAND_MAX:
        break;
    }
    return outcome_set(outcome, GMB_E_INTERNAL, "no such command");
}

enum exit_status command_exit_status(int code)
{
    switch (code) {
    case 0:
        return EXIT_OK;
    case GMB_E_CONFLICT:
        return EXIT_CONFLICT;
    case GMB_E_DISCONNECTED:
    case GMB_E_TIMED_OUT:
    case GMB_E_PROTOCOL:
        return EXIT_UNREACHABLE;
    default: /* a number: every other code */
        return EXIT_REFUSED;
    }
}
