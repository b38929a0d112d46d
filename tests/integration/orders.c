/* See orders.h. */
#include "tests/integration/orders.h"

#include <check.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/uuid.h"

#define NOBODY 65534

/* `uuid` NULL: the first device. */
static Gmb__ControlReply *reclaim_ask(const struct harness *harness, const char *uuid,
    const char *tenant, uint64_t bytes, bool from_tenant, bool dry_run)
{
    Gmb__ControlRequest request = GMB__CONTROL_REQUEST__INIT;
    Gmb__ControlReply *reply;
    Gmb__Reclaim body;
    struct uuid device;

    gmb__reclaim__init(&body);
    if (uuid != NULL) {
        ck_assert_int_eq(uuid_parse(uuid, &device), 0);
        body.device = (ProtobufCBinaryData){.data = device.bytes, .len = sizeof(device.bytes)};
    }
    body.tenant = (char *) (uintptr_t) tenant;
    body.bytes = bytes;
    body.from_tenant = from_tenant;
    body.dry_run = dry_run;
    request.body_case = GMB__CONTROL_REQUEST__BODY_RECLAIM;
    request.reclaim = &body;
    reply = raw_control(harness, &request);
    ck_assert_msg(reply->body_case == GMB__CONTROL_REPLY__BODY_RECLAIM_PLAN, "no plan but: %s",
        reply->body_case == GMB__CONTROL_REPLY__BODY_ERROR ? reply->error->text : "?");
    return reply;
}

static uint64_t planned_take(Gmb__ControlReply *reply)
{
    uint64_t planned = reply->reclaim_plan->planned_bytes;

    frame_message_free(&reply->base);
    return planned;
}

uint64_t order_evict(const struct harness *harness, const char *tenant, uint64_t bytes)
{
    return planned_take(reclaim_ask(harness, NULL, tenant, bytes, true, false));
}

uint64_t order_evict_on(
    const struct harness *harness, const char *uuid, const char *tenant, uint64_t bytes)
{
    return planned_take(reclaim_ask(harness, uuid, tenant, bytes, true, false));
}

uint64_t order_dry_run(
    const struct harness *harness, const char *tenant, uint64_t bytes, bool from_tenant)
{
    return planned_take(reclaim_ask(harness, NULL, tenant, bytes, from_tenant, true));
}

uint64_t order_drain(const struct harness *harness, bool undo)
{
    Gmb__ControlRequest request = GMB__CONTROL_REQUEST__INIT;
    Gmb__ControlReply *reply;
    Gmb__Drain body;
    uint64_t left;

    gmb__drain__init(&body);
    body.undo = undo;
    request.body_case = GMB__CONTROL_REQUEST__BODY_DRAIN;
    request.drain = &body;
    reply = raw_control(harness, &request);
    ck_assert_int_eq(reply->body_case, GMB__CONTROL_REPLY__BODY_DRAINED);
    left = reply->drained->left_bytes;
    frame_message_free(&reply->base);
    return left;
}

/* ------------------------------------------------------------------ claimants */

static enum gmb_status claim(
    const struct harness *harness, uint64_t bytes, uint64_t wait_ms, struct raw *raw)
{
    enum gmb_status status = GMB_STATUS_INTERNAL;
    uint64_t id;

    raw_connect(raw, harness);
    id = raw_lease(raw, bytes, HARNESS_CHUNK, wait_ms * 1000000);
    for (;;) {
        Gmb__BrokerMessage *message = raw_receive(raw);
        bool last;

        if (message == NULL || message->id != id)
            return status;
        if (message->body_case == GMB__BROKER_MESSAGE__BODY_ERROR) {
            status = (enum gmb_status) message->error->status;
            frame_message_free(&message->base);
            return status;
        }
        last =
            message->grant->first_chunk + message->grant->n_chunks == message->grant->total_chunks;
        frame_message_free(&message->base);
        if (last)
            return GMB_STATUS_OK;
    }
}

void claimant_start(
    struct claimant *claimant, const struct harness *harness, uint64_t bytes, uint64_t wait_ms)
{
    int answer[2], go[2];

    ck_assert_int_eq(pipe(answer), 0);
    ck_assert_int_eq(pipe(go), 0);
    claimant->pid = fork();
    ck_assert_int_ge(claimant->pid, 0);
    if (claimant->pid == 0) {
        enum gmb_status status;
        struct raw raw;
        char byte;

        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void) close(go[1]);
        if (setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
            _exit(1);
        status = claim(harness, bytes, wait_ms, &raw);
        (void) !write(answer[1], &status, sizeof(status));
        (void) !read(go[0], &byte, 1);
        _exit(0);
    }
    (void) close(answer[1]);
    (void) close(go[0]);
    claimant->answer = answer[0];
    claimant->go = go[1];
}

enum gmb_status claimant_answer(struct claimant *claimant)
{
    struct pollfd poll_fd = {.fd = claimant->answer, .events = POLLIN};
    enum gmb_status status = GMB_STATUS_INTERNAL;

    ck_assert_int_eq(poll(&poll_fd, 1, HARNESS_DEADLINE_MS), 1);
    ck_assert_int_eq(read(claimant->answer, &status, sizeof(status)), sizeof(status));
    return status;
}

void claimant_end(struct claimant *claimant)
{
    (void) close(claimant->go);
    (void) close(claimant->answer);
    ck_assert_int_eq(waitpid(claimant->pid, NULL, 0), claimant->pid);
}
