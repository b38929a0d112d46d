/* The program behind member.h: `integration-member SOCKET`, orders on fd 3, answers on fd 4. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/integration/member.h"

#define ORDERS_FD 3
#define ANSWERS_FD 4
#define PIECE (UINT64_C(1) << 20)

struct access_place {
    int type, id;
};
struct access_description {
    struct access_place location;
    int flags;
};
#define PLACE_DEVICE 1
#define ACCESS_READ_WRITE 3

static gmb_session *session;
static gmb_lease *lease;
static int (*set_current)(void *context);
static int (*to_device)(uint64_t to, const void *from, size_t bytes);
static int (*to_host)(void *to, uint64_t from, size_t bytes);
static int (*set_access)(
    uint64_t at, size_t bytes, const struct access_description *what, size_t n);

static int driver_find(const char *name, void *ret_function)
{
    void *symbol = gmb_driver_symbol(session, name);

    memcpy(ret_function, &symbol, sizeof(symbol));
    return symbol != NULL ? 0 : GMB_E_INTERNAL;
}

static void words_make(uint64_t *words, uint64_t at, uint64_t seed)
{
    for (size_t i = 0; i < PIECE / sizeof(*words); i++)
        words[i] = (at + i * sizeof(*words)) * UINT64_C(0x9e3779b97f4a7c15) + seed;
}

static int fill(uint64_t seed, bool compare)
{
    static uint64_t words[PIECE / sizeof(uint64_t)], found[PIECE / sizeof(uint64_t)];
    int r = lease != NULL ? set_current(gmb_lease_context(lease)) : GMB_E_INVALID;

    for (uint64_t at = 0; r == 0 && at < gmb_lease_bytes(lease); at += PIECE) {
        words_make(words, at, seed);
        if (!compare)
            r = to_device(gmb_lease_address(lease) + at, words, PIECE);
        else
            r = to_host(found, gmb_lease_address(lease) + at, PIECE);
        if (r == 0 && compare && memcmp(words, found, PIECE) != 0)
            return GMB_E_INVALID;
    }
    return r;
}

static int poke(uint64_t at)
{
    const struct access_description all = {{PLACE_DEVICE, 0}, ACCESS_READ_WRITE};
    uint8_t byte = 0;
    int r = set_current(gmb_lease_context(lease));

    if (r == 0)
        r = set_access(gmb_lease_address(lease), gmb_lease_bytes(lease), &all, 1);
    if (r == 0)
        r = to_host(&byte, gmb_lease_address(lease) + at, 1);
    byte ^= 1;
    return r == 0 ? to_device(gmb_lease_address(lease) + at, &byte, 1) : r;
}

/* The broker sees the connection end; what is mapped stays mapped. */
static int leave(void)
{
    int left = 0;

    for (int fd = ANSWERS_FD + 1; fd < 64; fd++) {
        int type = 0;
        socklen_t length = sizeof(type);

        if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_SEQPACKET)
            left += shutdown(fd, SHUT_RDWR) == 0;
    }
    return left == 1 ? 0 : GMB_E_INTERNAL;
}

struct end {
    bool come;
    int error;
};

static void on_done(void *user, gmb_lease *taken, int error)
{
    struct end *end = user;

    end->come = true;
    end->error = error;
    lease = taken;
}

static int take_async(const struct gmb_segment_params *params, bool create)
{
    struct end end = {.come = false};
    int r = create ? gmb_segment_create_async(session, params, on_done, &end, NULL)
                   : gmb_segment_open_async(session, params, on_done, &end, NULL);

    while (r >= 0 && !end.come)
        r = gmb_dispatch(session, 1000);
    return r < 0 ? r : end.error;
}

static const gmb_lease *quarantined;

static void on_quarantined(void *user, gmb_lease *told)
{
    (void) user;
    if (quarantined == told)
        exit(EXIT_FAILURE); /* once is enough */
    quarantined = told;
}

/* Of this lease; the callback and the state say the same. */
static int hear(uint64_t wait_ns)
{
    int r = gmb_dispatch(session, 0);

    if (r >= 0 && quarantined != lease)
        r = gmb_dispatch(session, (int) (wait_ns / 1000000));
    if (r < 0)
        return r;
    if ((quarantined == lease) != (gmb_segment_quarantined(lease) != 0))
        return GMB_E_INTERNAL;
    return quarantined == lease ? 0 : GMB_E_NOT_FOUND;
}

static int order_run(const struct member_order *order)
{
    const struct gmb_segment_params params = {
        .size = sizeof(params),
        .name = order->name,
        .bytes = order->bytes,
        .chunk_bytes = order->chunk_bytes,
        .wait_ns = order->wait_ns,
        .group = order->group,
    };
    gmb_lease *taken;

    switch ((enum member_what) order->what) {
    case MEMBER_CREATE:
        return gmb_segment_create(session, &params, &lease);
    case MEMBER_OPEN:
        return gmb_segment_open(session, &params, &lease);
    case MEMBER_CREATE_ASYNC:
        return take_async(&params, true);
    case MEMBER_OPEN_ASYNC:
        return take_async(&params, false);
    case MEMBER_FILL:
        return fill(order->seed, false);
    case MEMBER_CHECK:
        return fill(order->seed, true);
    case MEMBER_SEAL:
        return gmb_segment_seal(lease, order->wait_ns);
    case MEMBER_POKE:
        return poke(order->bytes);
    case MEMBER_RELEASE:
        taken = lease;
        lease = NULL;
        quarantined = NULL;
        return gmb_lease_release(taken);
    case MEMBER_REMOVE:
        return gmb_segment_remove(session, &params);
    case MEMBER_GROW:
        return gmb_lease_grow(lease, order->bytes, 0);
    case MEMBER_HEAR:
        return hear(order->bytes);
    case MEMBER_LEAVE:
        return leave();
    }
    return GMB_E_INVALID;
}

static void answer_write(int result)
{
    struct member_answer answer = {.result = result};

    if (result != 0) {
        (void) snprintf(answer.limit, sizeof(answer.limit), "%s", gmb_error_limit());
        (void) snprintf(answer.text, sizeof(answer.text), "%s", gmb_error_text());
    }
    if (lease != NULL) {
        answer.writable = (uint32_t) gmb_segment_writable(lease);
        answer.bytes = gmb_lease_bytes(lease);
    }
    if (write(ANSWERS_FD, &answer, sizeof(answer)) != sizeof(answer))
        exit(EXIT_FAILURE);
}

int main(int argc, char **argv)
{
    const struct gmb_options options = {
        .size = sizeof(options),
        .socket = argc > 1 ? argv[1] : NULL,
        .offline = getenv("MEMBER_PATIENT") != NULL ? GMB_OFFLINE_WAIT : GMB_OFFLINE_FAIL,
    };
    struct member_order order;
    int r = gmb_connect(&options, &session);

    if (r == 0)
        r = gmb_segment_subscribe(session, on_quarantined, NULL);
    if (r == 0)
        r = driver_find("cuCtxSetCurrent", &set_current);
    if (r == 0)
        r = driver_find("cuMemcpyHtoD_v2", &to_device);
    if (r == 0)
        r = driver_find("cuMemcpyDtoH_v2", &to_host);
    if (r == 0)
        r = driver_find("cuMemSetAccess", &set_access);
    answer_write(r);
    while (r == 0 && read(ORDERS_FD, &order, sizeof(order)) == sizeof(order))
        answer_write(order_run(&order));
    gmb_disconnect(session);
    return r == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
