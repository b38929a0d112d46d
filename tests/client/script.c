/* The broker's end is a non-blocking connection polled with a deadline: a test never hangs. */
#include "tests/client/script.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/clock.h"

#define PATIENCE_MS 60000

void script_begin(struct script *script)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    *script = (struct script){.listen_fd = -1, .open_fds = fds_open()};
    ck_assert_int_eq(scratch_make(script->directory), 0);
    (void) snprintf(script->path, sizeof(script->path), "%s/client.sock", script->directory);
    (void) snprintf(address.sun_path, sizeof(address.sun_path), "%s", script->path);
    script->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(script->listen_fd, 0);
    ck_assert_int_eq(
        bind(script->listen_fd, (const struct sockaddr *) &address, sizeof(address)), 0);
    ck_assert_int_eq(listen(script->listen_fd, 16), 0);
}

static void fd_wait(int fd, const char *what)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    ck_assert_msg(poll(&poll_fd, 1, PATIENCE_MS) == 1, "waited in vain for %s", what);
}

void script_end(struct script *script)
{
    struct call call;

    if (script->session != NULL && script->conn != NULL) {
        Gmb__ClientMessage *message;
        const uint8_t *bytes;
        struct fdset fds = FDSET_EMPTY;
        size_t size;
        int r;

        script->parting = true;
        call_start(script, &call, call_disconnect);
        for (;;) {
            fd_wait(conn_fd(script->conn), "the end");
            r = conn_receive(script->conn, &bytes, &size, &fds);
            if (r == -ECONNRESET)
                break;
            ck_assert_int_eq(r, 0);
            ck_assert_int_eq(frame_decode_client(bytes, size, &message), 0);
            if (message->body_case == GMB__CLIENT_MESSAGE__BODY_CANCEL)
                broker_error(script, message->cancel->request, GMB_STATUS_CANCELLED, GMB_LIMIT_NONE,
                    "cancelled");
            if (message->id != 0)
                broker_done(script, message->id);
            message_free(message);
        }
        call_join(&call);
    } else if (script->session != NULL) {
        gmb_disconnect(script->session);
    }
    script->conn = conn_free(script->conn);
    close_fd(&script->listen_fd);
    ck_assert_int_eq(scratch_remove(script->directory), 0);
    ck_assert_uint_eq(fds_open(), script->open_fds);
    ck_assert(fake_gpu_idle());
}

uint64_t script_impatience_ns(void)
{
    const char *multiplier = getenv("CK_TIMEOUT_MULTIPLIER");

    return 100 * NSEC_PER_MSEC * (multiplier != NULL ? strtoull(multiplier, NULL, 10) : 1);
}

static void *call_main(void *data)
{
    struct call *call = data;

    call->result = call->run(call->script, call);
    (void) snprintf(call->text, sizeof(call->text), "%s", gmb_error_text());
    (void) snprintf(call->limit, sizeof(call->limit), "%s", gmb_error_limit());
    return NULL;
}

void call_start(
    struct script *script, struct call *call, int (*run)(struct script *, struct call *))
{
    call->run = run;
    call->script = script;
    ck_assert_int_eq(pthread_create(&call->thread, NULL, call_main, call), 0);
}

int call_join(struct call *call)
{
    ck_assert_int_eq(pthread_join(call->thread, NULL), 0);
    return call->result;
}

int call_connect(struct script *script, struct call *call)
{
    struct gmb_options options = {
        .size = sizeof(options),
        .socket = script->path,
        .program = "scripted",
        .timeout_ns = script->timeout_ns,
        .offline = script->offline,
    };

    return gmb_connect(&options, &script->session);
}

int call_lease(struct script *script, struct call *call)
{
    struct gmb_lease_params params = {
        .size = sizeof(params),
        .bytes = call->bytes,
        .max_bytes = 16 * CHUNK,
        .wait_ns = call->wait_ns,
        .label = "scripted",
    };

    return gmb_lease_new(script->session, &params, &call->lease);
}

int call_grow(struct script *script, struct call *call)
{
    return gmb_lease_grow(call->lease, call->bytes, call->wait_ns);
}

int call_shrink(struct script *script, struct call *call)
{
    return gmb_lease_shrink(call->lease, call->bytes);
}

int call_release(struct script *script, struct call *call)
{
    return gmb_lease_release(call->lease);
}

int call_disconnect(struct script *script, struct call *call)
{
    gmb_disconnect(script->session);
    return 0;
}

void broker_accept(struct script *script)
{
    fd_wait(script->listen_fd, "a connection");
    ck_assert_int_eq(
        conn_new_consume(accept4(script->listen_fd, NULL, NULL, SOCK_CLOEXEC), &script->conn), 0);
}

static Gmb__ClientMessage *broker_receive(struct script *script)
{
    struct fdset fds = FDSET_EMPTY;
    Gmb__ClientMessage *message;
    const uint8_t *bytes;
    size_t size;

    fd_wait(conn_fd(script->conn), "a message");
    ck_assert_int_eq(conn_receive(script->conn, &bytes, &size, &fds), 0);
    ck_assert_uint_eq(fds.count, 0);
    ck_assert_int_eq(frame_decode_client(bytes, size, &message), 0);
    return message;
}

/* It asks ahead of need when it comes to it: there is none. */
static bool prefetch_refuse(struct script *script, Gmb__ClientMessage *message)
{
    if (message->body_case != GMB__CLIENT_MESSAGE__BODY_ARENA_FILL ||
        message->arena_fill->wait_ns > 0)
        return false;
    broker_error(script, message->id, GMB_STATUS_EXHAUSTED, GMB_LIMIT_MEMORY_MAX, "full");
    message_free(message);
    return true;
}

Gmb__ClientMessage *broker_expect(struct script *script, Gmb__ClientMessage__BodyCase kind)
{
    Gmb__ClientMessage *message;

    do
        message = broker_receive(script);
    while (kind != GMB__CLIENT_MESSAGE__BODY_ARENA_FILL && prefetch_refuse(script, message));
    ck_assert_int_eq(message->body_case, kind);
    return message;
}

Gmb__ClientMessage *broker_expect_growth(struct script *script)
{
    Gmb__ClientMessage *message;

    do
        message = broker_expect(script, GMB__CLIENT_MESSAGE__BODY_ARENA_FILL);
    while (prefetch_refuse(script, message));
    return message;
}

void message_free(Gmb__ClientMessage *message)
{
    frame_message_free(&message->base);
}

uint64_t broker_expect_id(struct script *script, Gmb__ClientMessage__BodyCase kind)
{
    Gmb__ClientMessage *message = broker_expect(script, kind);
    uint64_t id = message->id;

    message_free(message);
    return id;
}

bool broker_hears(struct script *script)
{
    struct pollfd poll_fd = {.fd = conn_fd(script->conn), .events = POLLIN};

    return poll(&poll_fd, 1, 0) != 0;
}

void broker_expect_silence(struct script *script)
{
    ck_assert(!broker_hears(script));
}

void broker_send(struct script *script, const ProtobufCMessage *message, size_t n_fds)
{
    struct fdset fds = FDSET_EMPTY;
    int r;

    for (size_t i = 0; i < n_fds; i++)
        ck_assert_int_eq(fdset_consume(&fds, eventfd(0, EFD_CLOEXEC)), 0);
    r = conn_send_consume(script->conn, message, &fds);
    if (!script->parting || (r != -EPIPE && r != -ECONNRESET))
        ck_assert_int_eq(r, 0);
}

void broker_send_bytes(struct script *script, const void *bytes, size_t size)
{
    ck_assert_int_eq(send(conn_fd(script->conn), bytes, size, MSG_NOSIGNAL), (ssize_t) size);
}

void broker_welcome(struct script *script, uint64_t id)
{
    broker_welcome_consume(script, id, -1);
}

void broker_welcome_consume(struct script *script, uint64_t id, int fd)
{
    struct fdset fds = FDSET_EMPTY;
    static const char name[] = "Book keeper", driver[] = "sim", tenant[] = "chat";
    static const uint8_t token[16] = "a token of 16 by";
    Gmb__BrokerMessage message;
    Gmb__Welcome welcome;
    Gmb__Device device, *devices[] = {&device};

    gmb__broker_message__init(&message);
    gmb__welcome__init(&welcome);
    gmb__device__init(&device);
    message.id = id;
    message.body_case = GMB__BROKER_MESSAGE__BODY_WELCOME;
    message.welcome = &welcome;
    welcome.version = 1;
    welcome.tenant = (char *) (uintptr_t) tenant;
    welcome.driver = (char *) (uintptr_t) driver;
    welcome.n_devices = 1;
    welcome.devices = devices;
    device.uuid.data = (uint8_t *) (uintptr_t) fake_gpu_uuid;
    device.uuid.len = sizeof(fake_gpu_uuid);
    device.name = (char *) (uintptr_t) name;
    device.capacity_bytes = 1024 * CHUNK;
    device.granularity_bytes = CHUNK;
    device.memory_max_bytes = 512 * CHUNK;
    if (script->tokens) {
        welcome.token.data = (uint8_t *) (uintptr_t) token;
        welcome.token.len = sizeof(token);
        welcome.resumed = script->resumed;
    }
    if (fd >= 0)
        ck_assert_int_eq(fdset_consume(&fds, fd), 0);
    ck_assert_int_eq(conn_send_consume(script->conn, &message.base, &fds), 0);
}

void broker_done(struct script *script, uint64_t id)
{
    Gmb__BrokerMessage message = GMB__BROKER_MESSAGE__INIT;
    Gmb__Done done = GMB__DONE__INIT;

    message.id = id;
    message.body_case = GMB__BROKER_MESSAGE__BODY_DONE;
    message.done = &done;
    broker_send(script, &message.base, 0);
}

void broker_error(struct script *script, uint64_t id, enum gmb_status status, enum gmb_limit limit,
    const char *text)
{
    Gmb__BrokerMessage message;
    Gmb__Error error;

    gmb__broker_message__init(&message);
    gmb__error__init(&error);
    message.id = id;
    message.body_case = GMB__BROKER_MESSAGE__BODY_ERROR;
    message.error = &error;
    error.status = status;
    error.limit = limit;
    error.text = (char *) (uintptr_t) text;
    broker_send(script, &message.base, 0);
}

void grant_fill(struct grant *grant, uint64_t id, uint32_t first, uint32_t count, uint32_t total)
{
    gmb__broker_message__init(&grant->message);
    gmb__grant__init(&grant->grant);
    grant->message.id = id;
    grant->message.body_case = GMB__BROKER_MESSAGE__BODY_GRANT;
    grant->message.grant = &grant->grant;
    grant->grant.lease = LEASE_ID;
    grant->grant.first_chunk = first;
    grant->grant.total_chunks = total;
    grant->grant.chunk_bytes = CHUNK;
    grant->grant.device.data = (uint8_t *) (uintptr_t) fake_gpu_uuid;
    grant->grant.device.len = sizeof(fake_gpu_uuid);
    grant->grant.n_chunks = count;
    grant->grant.chunks = grant->pointers;
    for (uint32_t i = 0; i < count; i++) {
        gmb__chunk__init(&grant->chunks[i]);
        grant->chunks[i].number = first + i;
        grant->pointers[i] = &grant->chunks[i];
    }
}

void broker_grant(
    struct script *script, uint64_t id, uint32_t first, uint32_t count, uint32_t total)
{
    struct grant grant;

    grant_fill(&grant, id, first, count, total);
    broker_send(script, &grant.message.base, count);
}

void broker_close(struct script *script)
{
    script->conn = conn_free(script->conn);
}

void script_connect(struct script *script)
{
    struct call call;

    call_start(script, &call, call_connect);
    broker_accept(script);
    broker_welcome(script, broker_expect_id(script, GMB__CLIENT_MESSAGE__BODY_HELLO));
    ck_assert_int_eq(call_join(&call), 0);
}

gmb_lease *script_lease(struct script *script, uint32_t chunks)
{
    struct call call = {.bytes = chunks * CHUNK};

    call_start(script, &call, call_lease);
    broker_grant(script, broker_expect_id(script, GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST), 0,
        chunks, chunks);
    ck_assert_int_eq(call_join(&call), 0);
    return call.lease;
}
