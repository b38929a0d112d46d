/*
 * The life of a call that changes something:
 *
 *   ASKING     the bus is asked which user and process the caller is
 *   CHECKING   polkit is asked whether he may; not for root, who may
 *   ORDERED    the broker answers from a later turn of the loop
 *
 * Each step ends with an answer, an error, or a time-out of sd-bus's, so that no call stays. What
 * waits holds up nobody: another caller's call runs meanwhile.
 */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "daemon/bus/method.h"

#define POLKIT_NAME "org.freedesktop.PolicyKit1"
#define POLKIT_PATH "/org/freedesktop/PolicyKit1/Authority"
#define POLKIT_INTERFACE POLKIT_NAME ".Authority"
/* polkit may ask a person. */
#define INTERACTIVE_USEC (UINT64_C(120) * 1000000)
#define BUS_USEC (UINT64_C(10) * 1000000)

struct call {
    struct list link;
    struct bus *bus;
    const struct bus_method *method;
    sd_bus_message *message;
    sd_bus_slot *asked; /* what is waited for */
    struct order *order;
    struct operate_caller caller;
    bool checking; /* polkit is asked on behalf of caller.uid */
};

static void call_free(struct call *call)
{
    list_remove(&call->link);
    call->bus->call_count--;
    order_forget(call->order);
    (void) sd_bus_slot_unref(call->asked);
    (void) sd_bus_message_unref(call->message);
    free(call);
}

void bus_calls_drop(struct bus *bus)
{
    list_for_each_safe(call, &bus->calls, struct call, link) call_free(call);
}

/* ------------------------------------------------------------------ answers */

/* Ends the call with an error. */
static void call_fail(struct call *call, const char *name, const char *text)
{
    (void) sd_bus_reply_method_errorf(call->message, name, "%s", text);
    call_free(call);
}

/* Ends the call with what the report says. */
static void call_answer(struct call *call, const struct report *report)
{
    sd_bus_message *reply = NULL;
    int r;

    if (report->message.body_case == GMB__CONTROL_REPLY__BODY_ERROR) {
        call_fail(call, bus_error_name(report->body.error.status), report->body.error.text);
        return;
    }
    r = sd_bus_message_new_method_return(call->message, &reply);
    if (r >= 0)
        r = call->method->reply(reply, report);
    if (r >= 0)
        r = sd_bus_send(call->bus->sd, reply, NULL);
    (void) sd_bus_message_unref(reply);
    if (r < 0)
        call_fail(call, SD_BUS_ERROR_FAILED, "the answer could not be made");
    else
        call_free(call);
}

static void on_order_done(void *data, const struct report *report)
{
    struct call *call = data;
    struct bus *bus = call->bus;

    call->order = NULL;
    call_answer(call, report);
    bus_settle(bus);
}

static void call_run(struct call *call)
{
    sd_bus_error error = SD_BUS_ERROR_NULL;
    int r = sd_bus_message_rewind(call->message, true);

    if (r >= 0)
        r = call->method->run(
            call->bus, call->message, &call->caller, on_order_done, call, &call->order, &error);
    if (r < 0)
        call_fail(call, error.name != NULL ? error.name : SD_BUS_ERROR_INVALID_ARGS,
            error.message != NULL ? error.message : "the arguments make no sense");
    else if (call->order == NULL)
        call_answer(call, &call->bus->report);
    sd_bus_error_free(&error);
}

/* ------------------------------------------------------------------ polkit */

static int on_checked(sd_bus_message *reply, void *userdata, sd_bus_error *error)
{
    struct call *call = userdata;
    int authorized = 0, challenge = 0;

    (void) error;
    call->checking = false;
    if (sd_bus_message_is_method_error(reply, NULL)) {
        log_info("polkit can't be asked about uid %u: %s", (unsigned) call->caller.uid,
            sd_bus_message_get_error(reply)->name);
        call_fail(call, SD_BUS_ERROR_ACCESS_DENIED, "only root may: polkit can't be asked");
        return 1;
    }
    if (sd_bus_message_enter_container(reply, 'r', "bba{ss}") < 0 ||
        sd_bus_message_read(reply, "bb", &authorized, &challenge) < 0)
        authorized = challenge = 0;
    if (authorized)
        call_run(call);
    else if (challenge)
        call_fail(call, SD_BUS_ERROR_INTERACTIVE_AUTHORIZATION_REQUIRED,
            "interactive authentication required");
    else
        call_fail(call, SD_BUS_ERROR_ACCESS_DENIED, "polkit doesn't allow it");
    return 1;
}

static size_t checks_count(const struct bus *bus, uid_t uid)
{
    size_t count = 0;

    list_for_each(call, &bus->calls, struct call, link) count +=
        call->checking && call->caller.uid == uid;
    return count;
}

static void call_check(struct call *call)
{
    int interactive = sd_bus_message_get_allow_interactive_authorization(call->message) > 0;
    sd_bus_message *question = NULL;
    int r;

    if (checks_count(call->bus, call->caller.uid) >= LIMIT_BUS_CALLS_PER_USER) {
        call_fail(
            call, SD_BUS_ERROR_LIMITS_EXCEEDED, "too many calls of this user wait for polkit");
        return;
    }
    r = sd_bus_message_new_method_call(
        call->bus->sd, &question, POLKIT_NAME, POLKIT_PATH, POLKIT_INTERFACE, "CheckAuthorization");
    if (r >= 0)
        r = sd_bus_message_append(question, "(sa{sv})sa{ss}us", "system-bus-name", 1, "name", "s",
            sd_bus_message_get_sender(call->message), call->method->action, 0, interactive ? 1 : 0,
            "");
    call->asked = sd_bus_slot_unref(call->asked);
    if (r >= 0)
        r = sd_bus_call_async(call->bus->sd, &call->asked, question, on_checked, call,
            interactive ? INTERACTIVE_USEC : BUS_USEC);
    (void) sd_bus_message_unref(question);
    if (r < 0)
        call_fail(call, SD_BUS_ERROR_FAILED, "polkit could not be asked");
    else
        call->checking = true;
}

/* ------------------------------------------------------------------ who it is */

/* The numbers of GetConnectionCredentials; false when it doesn't say which user. */
static bool credentials_read(sd_bus_message *reply, struct operate_caller *ret)
{
    bool found = false;
    const char *name;

    if (sd_bus_message_is_method_error(reply, NULL) ||
        sd_bus_message_enter_container(reply, 'a', "{sv}") < 0)
        return false;
    while (sd_bus_message_enter_container(reply, 'e', "sv") > 0) {
        uint32_t value = 0;

        if (sd_bus_message_read(reply, "s", &name) < 0)
            return false;
        if (strcmp(name, "UnixUserID") == 0) {
            if (sd_bus_message_read(reply, "v", "u", &value) < 0)
                return false;
            ret->uid = value;
            found = true;
        } else if (strcmp(name, "ProcessID") == 0) {
            if (sd_bus_message_read(reply, "v", "u", &value) < 0)
                return false;
            ret->pid = (pid_t) value;
        } else if (sd_bus_message_skip(reply, "v") < 0) {
            return false;
        }
        if (sd_bus_message_exit_container(reply) < 0)
            return false;
    }
    return found;
}

static int on_credentials(sd_bus_message *reply, void *userdata, sd_bus_error *error)
{
    struct call *call = userdata;

    (void) error;
    if (!credentials_read(reply, &call->caller))
        call_fail(call, SD_BUS_ERROR_ACCESS_DENIED, "the bus doesn't say who you are");
    else if (call->caller.uid == 0)
        call_run(call);
    else
        call_check(call);
    return 1;
}

static int call_new(
    struct bus *bus, const struct bus_method *method, sd_bus_message *message, struct call **ret)
{
    struct call *call = calloc(1, sizeof(*call));

    if (call == NULL)
        return -ENOMEM;
    call->bus = bus;
    call->method = method;
    call->message = sd_bus_message_ref(message);
    call->caller = (struct operate_caller){.uid = (uid_t) -1};
    list_init(&call->link);
    list_append(&bus->calls, &call->link);
    bus->call_count++;
    *ret = call;
    return 0;
}

int bus_call(sd_bus_message *message, void *userdata, sd_bus_error *error)
{
    struct bus *bus = container_of(userdata, struct bus, report.body.status);
    const struct bus_method *method = bus_method_find(sd_bus_message_get_member(message));
    struct call *call;
    int r;

    if (method == NULL)
        return sd_bus_error_set(error, SD_BUS_ERROR_UNKNOWN_METHOD, "no such method");
    if (bus->call_count >= LIMIT_BUS_CALLS)
        return sd_bus_error_set(error, SD_BUS_ERROR_LIMITS_EXCEEDED, "too many calls wait");
    r = call_new(bus, method, message, &call);
    if (r < 0)
        return r;
    r = sd_bus_call_method_async(bus->sd, &call->asked, "org.freedesktop.DBus",
        "/org/freedesktop/DBus", "org.freedesktop.DBus", "GetConnectionCredentials", on_credentials,
        call, "s", sd_bus_message_get_sender(message));
    if (r < 0) {
        call_free(call);
        return r;
    }
    return 1;
}
