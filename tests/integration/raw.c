/* See raw.h. */
#include "tests/integration/raw.h"

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/uuid.h"

void raw_dial(struct raw *raw, const struct harness *harness)
{
    *raw = (struct raw){.next_id = 1};
    ck_assert_int_eq(conn_new_consume(harness_dial(harness->client_socket), &raw->conn), 0);
}

bool raw_welcomed(struct raw *raw)
{
    Gmb__BrokerMessage *answer = raw_receive(raw);
    bool resumed;

    ck_assert_ptr_nonnull(answer);
    ck_assert_int_eq(answer->body_case, GMB__BROKER_MESSAGE__BODY_WELCOME);
    ck_assert_uint_eq(answer->welcome->token.len, sizeof(raw->token));
    memcpy(raw->token, answer->welcome->token.data, sizeof(raw->token));
    resumed = answer->welcome->resumed;
    frame_message_free(&answer->base);
    return resumed;
}

void raw_connect(struct raw *raw, const struct harness *harness)
{
    raw_dial(raw, harness);
    (void) raw_hello(raw, 1);
    ck_assert(!raw_welcomed(raw));
}

void raw_close(struct raw *raw)
{
    fdset_close(&raw->fds);
    raw->conn = conn_free(raw->conn);
}

uint64_t raw_send(struct raw *raw, Gmb__ClientMessage *message)
{
    int r;

    message->id = raw->next_id++;
    r = conn_send_consume(raw->conn, &message->base, NULL);
    ck_assert_msg(r == 0 || r == -EPIPE || r == -ECONNRESET, "send: %s", strerror(-r));
    return message->id;
}

#define MESSAGE(field, body_name, value)                                                           \
    Gmb__ClientMessage message;                                                                    \
    gmb__client_message__init(&message);                                                           \
    message.body_case = GMB__CLIENT_MESSAGE__BODY_##body_name;                                     \
    message.field = value

void raw_tell(struct raw *raw, const Gmb__ClientMessage *message)
{
    (void) !conn_send_consume(raw->conn, &message->base, NULL);
}

void raw_send_bytes(struct raw *raw, const void *bytes, size_t size)
{
    ck_assert_int_eq(send(conn_fd(raw->conn), bytes, size, MSG_NOSIGNAL), (ssize_t) size);
}

uint64_t raw_hello(struct raw *raw, uint32_t version)
{
    Gmb__Hello body;
    char program[] = "raw";

    gmb__hello__init(&body);
    body.version = version;
    body.program = program;
    MESSAGE(hello, HELLO, &body);
    return raw_send(raw, &message);
}

void raw_knock(struct raw *raw, const struct harness *harness)
{
    uint64_t next_id = raw->next_id;
    uint8_t token[sizeof(raw->token)];
    Gmb__Hello body;
    char program[] = "raw";

    memcpy(token, raw->token, sizeof(token));
    raw_close(raw);
    raw_dial(raw, harness);
    raw->next_id = next_id;
    memcpy(raw->token, token, sizeof(token));
    gmb__hello__init(&body);
    body.version = 1;
    body.program = program;
    body.token.data = token;
    body.token.len = sizeof(token);
    MESSAGE(hello, HELLO, &body);
    (void) raw_send(raw, &message);
}

bool raw_come_back(struct raw *raw, const struct harness *harness)
{
    raw_knock(raw, harness);
    return raw_welcomed(raw);
}

uint64_t raw_say_held(struct raw *raw, Gmb__HeldLease **held, size_t count, bool last)
{
    Gmb__Resume body;

    gmb__resume__init(&body);
    body.held = held;
    body.n_held = count;
    body.last = last;
    MESSAGE(resume, RESUME, &body);
    return raw_send(raw, &message);
}

size_t raw_resume(struct raw *raw, Gmb__HeldLease **held, size_t count, bool last)
{
    uint64_t id = raw_say_held(raw, held, count, last);
    Gmb__BrokerMessage *answer = raw_receive(raw);
    size_t lost;

    ck_assert_ptr_nonnull(answer);
    ck_assert_uint_eq(answer->id, id);
    ck_assert_int_eq(answer->body_case, GMB__BROKER_MESSAGE__BODY_RESUMED);
    lost = answer->resumed->n_lost;
    frame_message_free(&answer->base);
    return lost;
}

size_t raw_resume_one(struct raw *raw, uint64_t lease, uint32_t chunks)
{
    Gmb__HeldLease held, *pointer = &held;

    gmb__held_lease__init(&held);
    held.lease = lease;
    held.chunks = chunks;
    return raw_resume(raw, &pointer, 1, true);
}

bool raw_slabs(void)
{
    const char *vmm = getenv("GMB_SIM_VMM");

    return vmm != NULL && strcmp(vmm, "0") == 0;
}

uint64_t raw_lease(struct raw *raw, uint64_t bytes, uint64_t chunk_bytes, uint64_t wait_ns)
{
    Gmb__LeaseRequest body;
    char label[] = "a lease";

    gmb__lease_request__init(&body);
    body.bytes = bytes;
    body.chunk_bytes = raw_slabs() ? 0 : chunk_bytes;
    body.wait_ns = wait_ns;
    body.label = label;
    MESSAGE(lease_request, LEASE_REQUEST, &body);
    return raw_send(raw, &message);
}

uint64_t raw_grow(struct raw *raw, uint64_t lease, uint64_t bytes)
{
    Gmb__LeaseGrow body;

    gmb__lease_grow__init(&body);
    body.lease = lease;
    body.bytes = bytes;
    MESSAGE(lease_grow, LEASE_GROW, &body);
    return raw_send(raw, &message);
}

uint64_t raw_shrink(struct raw *raw, uint64_t lease, uint32_t keep_chunks)
{
    Gmb__LeaseShrink body;

    gmb__lease_shrink__init(&body);
    body.lease = lease;
    body.keep_chunks = keep_chunks;
    MESSAGE(lease_shrink, LEASE_SHRINK, &body);
    return raw_send(raw, &message);
}

uint64_t raw_release(struct raw *raw, uint64_t lease)
{
    Gmb__LeaseRelease body;

    gmb__lease_release__init(&body);
    body.lease = lease;
    MESSAGE(lease_release, LEASE_RELEASE, &body);
    return raw_send(raw, &message);
}

uint64_t raw_cancel(struct raw *raw, uint64_t request)
{
    Gmb__Cancel body;

    gmb__cancel__init(&body);
    body.request = request;
    MESSAGE(cancel, CANCEL, &body);
    return raw_send(raw, &message);
}

/* ------------------------------------------------------------------ answers */

/* False at the end of the connection. */
static bool readable_wait(struct conn *conn, const uint8_t **bytes, size_t *size, struct fdset *fds)
{
    struct pollfd poll_fd = {.fd = conn_fd(conn), .events = POLLIN};
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;
    int r;

    while ((r = conn_receive(conn, bytes, size, fds)) == -EAGAIN) {
        ck_assert_msg(harness_now_ms() < deadline, "no answer in time");
        (void) poll(&poll_fd, 1, 100);
    }
    ck_assert_msg(r == 0 || r == -ECONNRESET, "receive: %s", strerror(-r));
    return r == 0;
}

Gmb__BrokerMessage *raw_receive(struct raw *raw)
{
    Gmb__BrokerMessage *message;
    const uint8_t *bytes;
    size_t size;

    fdset_close(&raw->fds);
    if (!readable_wait(raw->conn, &bytes, &size, &raw->fds))
        return NULL;
    ck_assert_int_eq(frame_decode_broker(bytes, size, &message), 0);
    ck_assert_uint_eq(frame_broker_fds(message), raw->fds.count);
    return message;
}

uint64_t raw_expect_lease(struct raw *raw, uint64_t id, uint32_t chunks)
{
    uint64_t lease = 0;

    if (raw_slabs())
        chunks = 1;
    for (bool last = false; !last;) {
        Gmb__BrokerMessage *message = raw_receive(raw);

        ck_assert_ptr_nonnull(message);
        ck_assert_uint_eq(message->id, id);
        ck_assert_msg(message->body_case == GMB__BROKER_MESSAGE__BODY_GRANT, "no grant but: %s",
            message->body_case == GMB__BROKER_MESSAGE__BODY_ERROR ? message->error->text : "?");
        ck_assert_uint_eq(message->grant->total_chunks, chunks);
        lease = message->grant->lease;
        last = message->grant->first_chunk + message->grant->n_chunks == chunks;
        frame_message_free(&message->base);
    }
    fdset_close(&raw->fds);
    return lease;
}

void raw_expect_done(struct raw *raw, uint64_t id)
{
    Gmb__BrokerMessage *message = raw_receive(raw);

    ck_assert_ptr_nonnull(message);
    ck_assert_uint_eq(message->id, id);
    ck_assert_msg(message->body_case == GMB__BROKER_MESSAGE__BODY_DONE, "not done but: %s",
        message->body_case == GMB__BROKER_MESSAGE__BODY_ERROR ? message->error->text : "?");
    frame_message_free(&message->base);
}

void raw_expect_error(struct raw *raw, uint64_t id, enum gmb_status status)
{
    Gmb__BrokerMessage *message = raw_receive(raw);

    ck_assert_ptr_nonnull(message);
    ck_assert_uint_eq(message->id, id);
    ck_assert_int_eq(message->body_case, GMB__BROKER_MESSAGE__BODY_ERROR);
    ck_assert_msg(message->error->status == (uint32_t) status, "status %s, expected %s: %s",
        status_name(message->error->status), status_name(status), message->error->text);
    ck_assert_uint_gt(strlen(message->error->text), 0);
    frame_message_free(&message->base);
}

void raw_expect_end(struct raw *raw)
{
    Gmb__BrokerMessage *message;

    while ((message = raw_receive(raw)) != NULL)
        frame_message_free(&message->base);
}

/* ------------------------------------------------------------------ operators */

Gmb__ControlReply *raw_control(const struct harness *harness, Gmb__ControlRequest *request)
{
    struct fdset fds = FDSET_EMPTY;
    Gmb__ControlReply *reply;
    const uint8_t *bytes;
    struct conn *conn;
    size_t size;

    ck_assert_int_eq(conn_new_consume(harness_dial(harness->control_socket), &conn), 0);
    request->id = 7;
    ck_assert_int_eq(conn_send_consume(conn, &request->base, NULL), 0);
    ck_assert(readable_wait(conn, &bytes, &size, &fds));
    ck_assert_uint_eq(fds.count, 0);
    ck_assert_int_eq(frame_decode_reply(bytes, size, &reply), 0);
    ck_assert_uint_eq(reply->id, 7);
    (void) conn_free(conn);
    return reply;
}

Gmb__ControlReply *raw_status(const struct harness *harness)
{
    Gmb__ControlRequest request = GMB__CONTROL_REQUEST__INIT;
    Gmb__StatusGet body = GMB__STATUS_GET__INIT;
    Gmb__ControlReply *reply;

    request.body_case = GMB__CONTROL_REQUEST__BODY_STATUS_GET;
    request.status_get = &body;
    reply = raw_control(harness, &request);
    ck_assert_int_eq(reply->body_case, GMB__CONTROL_REPLY__BODY_STATUS);
    return reply;
}

enum gmb_status raw_reload(const struct harness *harness)
{
    Gmb__ControlRequest request = GMB__CONTROL_REQUEST__INIT;
    Gmb__Reload body = GMB__RELOAD__INIT;
    enum gmb_status status = GMB_STATUS_OK;
    Gmb__ControlReply *reply;

    request.body_case = GMB__CONTROL_REQUEST__BODY_RELOAD;
    request.reload = &body;
    reply = raw_control(harness, &request);
    if (reply->body_case == GMB__CONTROL_REPLY__BODY_ERROR)
        status = (enum gmb_status) reply->error->status;
    else
        ck_assert_int_eq(reply->body_case, GMB__CONTROL_REPLY__BODY_RELOADED);
    frame_message_free(&reply->base);
    return status;
}

/* Whether the device's figures are the driver's; says in `reason` what isn't so. A mover has memory
 * of its own, which isn't the broker's. Of a device out of service nobody asks the driver. */
static bool accounts_hold(
    const struct harness *harness, const Gmb__DeviceStatus *device, char reason[256])
{
    uint64_t held = device->leased_bytes + device->cached_bytes + device->clean_bytes +
                    device->releasing_bytes + device->orphaned_bytes;
    uint64_t used, others,
        parts = device->reserve_bytes + held + device->unaccounted_bytes + device->free_bytes;
    char text[UUID_TEXT_MAX];
    struct uuid uuid;
    pid_t movers[8];

    ck_assert_int_eq(uuid_from_bytes(device->uuid.data, device->uuid.len, &uuid), 0);
    used = harness_used_bytes(harness, uuid_format(text, &uuid));
    others = harness_movers(harness, movers, ARRAY_SIZE(movers)) > 0 && used > held
                 ? HARNESS_MOVER_BYTES
                 : 0;
    (void) snprintf(reason, 256,
        "%s: %" PRIu64 " bytes are held, %" PRIu64 " are a mover's and the driver says %" PRIu64
        "; %" PRIu64 " orphaned, %" PRIu64 " unaccounted; parts of %" PRIu64 ", in all %" PRIu64,
        text, held, others, used, device->orphaned_bytes, device->unaccounted_bytes, parts,
        device->total_bytes);
    if (device->orphaned_bytes != 0 || parts != device->total_bytes)
        return false;
    return !device->healthy ||
           (held + others == used &&
               device->unaccounted_bytes == sub_saturate(others, device->reserve_bytes));
}

static bool all_accounts_hold(const struct harness *harness, char reason[256])
{
    Gmb__ControlReply *reply = raw_status(harness);
    bool hold = true;

    for (size_t i = 0; hold && i < reply->status->n_devices; i++)
        hold = accounts_hold(harness, reply->status->devices[i], reason);
    frame_message_free(&reply->base);
    return hold;
}

void raw_expect_accounts(const struct harness *harness)
{
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;
    char reason[256] = "";

    while (!all_accounts_hold(harness, reason)) {
        ck_assert_msg(harness_now_ms() < deadline, "%s", reason);
        harness_breathe();
    }
}

void raw_device(
    const struct harness *harness, Gmb__DeviceStatus *ret, char failure[LIMIT_TEXT_BYTES])
{
    Gmb__ControlReply *reply = raw_status(harness);
    const Gmb__DeviceStatus *device = reply->status->devices[0];

    *ret = *device;
    ret->name = ret->failure = ret->tier_path = ret->tier_disk_failure = NULL;
    ret->uuid = (ProtobufCBinaryData){0};
    (void) snprintf(failure, LIMIT_TEXT_BYTES, "%s", device->tier_disk_failure);
    frame_message_free(&reply->base);
}

void raw_tenant(const struct harness *harness, const char *tenant, Gmb__TenantDevice *ret)
{
    Gmb__ControlRequest request;
    Gmb__TenantsGet body;
    Gmb__ControlReply *reply;
    bool found = false;

    gmb__control_request__init(&request);
    gmb__tenants_get__init(&body);
    request.body_case = GMB__CONTROL_REQUEST__BODY_TENANTS_GET;
    request.tenants_get = &body;
    reply = raw_control(harness, &request);
    ck_assert_int_eq(reply->body_case, GMB__CONTROL_REPLY__BODY_TENANT_PAGE);
    for (size_t i = 0; i < reply->tenant_page->n_tenants; i++) {
        const Gmb__TenantStatus *status = reply->tenant_page->tenants[i];

        if (strcmp(status->name, tenant) != 0)
            continue;
        ck_assert_uint_eq(status->n_devices, 1);
        *ret = *status->devices[0];
        ret->uuid = (ProtobufCBinaryData){0};
        found = true;
    }
    ck_assert_msg(found, "there is no tenant %s", tenant);
    frame_message_free(&reply->base);
}

enum gmb_status raw_set(
    const struct harness *harness, const char *tenant, const char *key, const char *value)
{
    Gmb__Assignment assignment, *assignments[] = {&assignment};
    Gmb__ControlRequest request;
    Gmb__ControlReply *reply;
    enum gmb_status status;
    Gmb__TenantSet body;

    gmb__control_request__init(&request);
    gmb__tenant_set__init(&body);
    gmb__assignment__init(&assignment);
    assignment.key = (char *) (uintptr_t) key;
    assignment.value = (char *) (uintptr_t) value;
    body.tenant = (char *) (uintptr_t) tenant;
    body.n_assignments = 1;
    body.assignments = assignments;
    request.body_case = GMB__CONTROL_REQUEST__BODY_TENANT_SET;
    request.tenant_set = &body;
    reply = raw_control(harness, &request);
    status = reply->body_case == GMB__CONTROL_REPLY__BODY_TENANT_CHANGED
                 ? GMB_STATUS_OK
                 : (enum gmb_status) reply->error->status;
    frame_message_free(&reply->base);
    return status;
}
