/* One thread, one message each way; the connection isn't shared yet. */
#include "client/connect.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "client/session.h"
#include "client/text.h"

#define HELLO_ID 1

int connect_hello(
    struct conn *conn, const char *program, const uint8_t *token, struct outcome *outcome)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__Hello hello;
    char name[LIMIT_NAME_BYTES + 1];
    int r;

    text_clean(name, sizeof(name), program != NULL ? program : program_invocation_short_name);
    gmb__hello__init(&hello);
    hello.version = CLIENT_PROTOCOL_VERSION;
    hello.program = name;
    if (token != NULL) {
        hello.token.data = (uint8_t *) (uintptr_t) token;
        hello.token.len = SESSION_TOKEN_BYTES;
    }
    message.id = HELLO_ID;
    message.body_case = GMB__CLIENT_MESSAGE__BODY_HELLO;
    message.hello = &hello;
    r = conn_send_consume(conn, &message.base, NULL);
    /* A broker that has no room says so and closes: what it said is still to be read. */
    if (r == -EPIPE || r == -ECONNRESET)
        return 0;
    return r < 0 ? outcome_set_errno(outcome, r, "greeting gmbd failed") : 0;
}

/* One frame, or the reason why there is none. */
static int frame_wait(struct conn *conn, uint64_t deadline_ns, const uint8_t **ret_bytes,
    size_t *ret_size, struct fdset *fds, struct outcome *outcome)
{
    int r;

    while ((r = conn_receive(conn, ret_bytes, ret_size, fds)) == -EAGAIN) {
        struct pollfd poll = {.fd = conn_fd(conn), .events = POLLIN};
        uint64_t left_ns = sub_saturate(deadline_ns, clock_now(&clock_monotonic));
        struct timespec left = {
            .tv_sec = (time_t) (left_ns / NSEC_PER_SEC),
            .tv_nsec = (long) (left_ns % NSEC_PER_SEC),
        };

        if (left_ns == 0)
            return outcome_set(outcome, GMB_E_TIMED_OUT, "gmbd doesn't answer the greeting");
        if (ppoll(&poll, 1, &left, NULL) < 0 && errno != EINTR)
            return outcome_set_errno(outcome, errno, "waiting for gmbd failed");
        if (conn_flush(conn) < 0)
            continue; /* the reason is in the next frame, or in its absence */
    }
    if (r == -ECONNRESET || r == -EPIPE)
        return outcome_set(
            outcome, GMB_E_DISCONNECTED, "gmbd closed the connection while greeting");
    if (r < 0 || fds->count > 1)
        return outcome_set(outcome, GMB_E_PROTOCOL, "gmbd answered the greeting with garbage");
    return 0;
}

int connect_greet(struct conn *conn, const char *program, uint64_t deadline_ns,
    Gmb__BrokerMessage **ret, struct fdset *ret_fds, struct outcome *outcome)
{
    Gmb__BrokerMessage *message;
    const uint8_t *bytes;
    size_t size;
    int r = connect_hello(conn, program, NULL, outcome);

    if (r == 0)
        r = frame_wait(conn, deadline_ns, &bytes, &size, ret_fds, outcome);
    if (r < 0)
        return r;
    if (frame_decode_broker(bytes, size, &message) < 0)
        return outcome_set(outcome, GMB_E_PROTOCOL, "gmbd answered the greeting with garbage");
    if (ret_fds->count > frame_broker_fds(message)) {
        frame_message_free(&message->base);
        return outcome_set(outcome, GMB_E_PROTOCOL, "gmbd answered the greeting with stray fds");
    }
    if (message->body_case == GMB__BROKER_MESSAGE__BODY_ERROR)
        r = outcome_from_error(outcome, message->error);
    else if (message->body_case != GMB__BROKER_MESSAGE__BODY_WELCOME || message->id != HELLO_ID)
        r = outcome_set(outcome, GMB_E_PROTOCOL, "gmbd answered the greeting with another message");
    else if (message->welcome->version == 0 || message->welcome->version > CLIENT_PROTOCOL_VERSION)
        r = outcome_set(outcome, GMB_E_UNSUPPORTED, "gmbd speaks version %u, this library up to %u",
            message->welcome->version, CLIENT_PROTOCOL_VERSION);
    if (r < 0) {
        frame_message_free(&message->base);
        return r;
    }
    *ret = message;
    return 0;
}
