/* See slab_talk.h. */
#include "tests/integration/slab_talk.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/uuid.h"

#define OTHER_USER 65534
#define LONG UINT64_C(20000000000)

/* ------------------------------------------------------------------ talk */

Gmb__BrokerMessage *slab_answer(struct raw *raw, uint64_t id, struct slab_told *told)
{
    for (;;) {
        Gmb__BrokerMessage *message = raw_receive(raw);

        ck_assert_ptr_nonnull(message);
        if (message->id != 0) {
            ck_assert_uint_eq(message->id, id);
            return message;
        }
        told->lost += message->body_case == GMB__BROKER_MESSAGE__BODY_MEMORY_LOST;
        told->failed += message->body_case == GMB__BROKER_MESSAGE__BODY_DEVICE_FAILED;
        frame_message_free(&message->base);
    }
}

uint64_t slab_granted(struct raw *raw, uint64_t id, struct slab_told *told)
{
    Gmb__BrokerMessage *message = slab_answer(raw, id, told);
    uint64_t lease;

    ck_assert_msg(message->body_case == GMB__BROKER_MESSAGE__BODY_GRANT, "no grant but: %s",
        message->body_case == GMB__BROKER_MESSAGE__BODY_ERROR ? message->error->text : "?");
    ck_assert_int_eq(message->grant->handle_type, GMB__HANDLE_TYPE__HANDLE_TYPE_IPC);
    lease = message->grant->lease;
    frame_message_free(&message->base);
    return lease;
}

void slab_returned(struct raw *raw, uint64_t id, struct slab_told *told)
{
    Gmb__BrokerMessage *message = slab_answer(raw, id, told);

    ck_assert_int_eq(message->body_case, GMB__BROKER_MESSAGE__BODY_DONE);
    frame_message_free(&message->base);
}

void slab_refused(
    struct raw *raw, uint64_t id, enum gmb_status status, const char *part, struct slab_told *told)
{
    Gmb__BrokerMessage *message = slab_answer(raw, id, told);

    ck_assert_int_eq(message->body_case, GMB__BROKER_MESSAGE__BODY_ERROR);
    ck_assert_msg(
        message->error->status == (uint32_t) status && strstr(message->error->text, part) != NULL,
        "%s (%s), expected %s: ...%s...", status_name(message->error->status), message->error->text,
        status_name(status), part);
    frame_message_free(&message->base);
}

/* ------------------------------------------------------------------ looks */

void slab_failure(const struct harness *harness, char ret[LIMIT_TEXT_BYTES])
{
    Gmb__ControlReply *reply = raw_status(harness);

    (void) snprintf(ret, LIMIT_TEXT_BYTES, "%s", reply->status->devices[0]->failure);
    frame_message_free(&reply->base);
}

void slab_account(const struct harness *harness, Gmb__TenantDevice *ret)
{
    Gmb__ControlRequest request = GMB__CONTROL_REQUEST__INIT;
    Gmb__TenantsGet body;
    Gmb__ControlReply *reply;
    bool found = false;

    gmb__tenants_get__init(&body);
    request.body_case = GMB__CONTROL_REQUEST__BODY_TENANTS_GET;
    request.tenants_get = &body;
    reply = raw_control(harness, &request);
    ck_assert_int_eq(reply->body_case, GMB__CONTROL_REPLY__BODY_TENANT_PAGE);
    for (size_t i = 0; i < reply->tenant_page->n_tenants; i++) {
        if (strcmp(reply->tenant_page->tenants[i]->name, "test") != 0)
            continue;
        *ret = *reply->tenant_page->tenants[i]->devices[0];
        found = true;
    }
    ck_assert(found);
    ret->uuid = (ProtobufCBinaryData){0};
    frame_message_free(&reply->base);
}

uint64_t slab_lease(
    struct raw *raw, const struct harness *harness, unsigned device, uint64_t bytes, uint64_t wait)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__LeaseRequest body;
    struct uuid uuid;

    ck_assert_int_eq(uuid_parse(harness->gpu->devices[device]->uuid, &uuid), 0);
    gmb__lease_request__init(&body);
    body.device.data = uuid.bytes;
    body.device.len = UUID_BYTES;
    body.bytes = bytes;
    body.wait_ns = wait;
    message.body_case = GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST;
    message.lease_request = &body;
    return raw_send(raw, &message);
}

pid_t slab_other_start(const struct harness *harness, unsigned device, uint64_t bytes)
{
    struct raw raw;
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid != 0)
        return pid;
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (geteuid() == 0 && (setgid(OTHER_USER) < 0 || setuid(OTHER_USER) < 0))
        _exit(2);
    raw_connect(&raw, harness);
    for (uint64_t id = slab_lease(&raw, harness, device, bytes, LONG), lease = 0; lease == 0;) {
        Gmb__BrokerMessage *message = raw_receive(&raw);

        if (message == NULL ||
            (message->id == id && message->body_case != GMB__BROKER_MESSAGE__BODY_GRANT))
            _exit(3);
        lease = message->id == id ? message->grant->lease : 0;
        frame_message_free(&message->base);
        if (lease != 0)
            raw_expect_done(&raw, raw_release(&raw, lease));
    }
    raw_close(&raw);
    _exit(0);
}

void slab_other_join(pid_t pid)
{
    int status;

    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "others: status %x", status);
}

void slab_other_served(const struct harness *harness, unsigned device)
{
    slab_other_join(slab_other_start(harness, device, MIB(4)));
}

void slab_expect_nothing_left(struct harness *harness)
{
    Gmb__TenantDevice tenant;

    wait_until((slab_account(harness, &tenant), tenant.used_bytes == 0));
    ck_assert_uint_eq(tenant.orphaned_bytes, 0);
    wait_until(harness_free_bytes(harness) == harness->base_free_bytes);
    raw_expect_accounts(harness);
}
