/*
 * Leases on three simulated devices in one request. Two processes, of two tenants where root runs
 * them, ask for most of every device again and again, in opposite orders: whoever waits for the
 * other while it holds something would wait for ever.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/uuid.h"
#include "client/gmb.h"
#include "tests/integration/raw.h"
#include "tests/unit/unit.h"

enum { DEVICES = 3, CHUNKS = 5, NOBODY = 65534 };
#define CHUNK_BYTES (UINT64_C(128) << 20)
static_assert(CHUNKS * CHUNK_BYTES > HARNESS_MEMORY / 2, "no two of them fit on one device");

/* What memory holds plays no part here, and writing it would take most of the time. */
static const char *const three_devices[] = {"GMB_SIM_DEVICES=3", "GMB_SIM_FILL=none", NULL};

static const char *config(void)
{
    return geteuid() == 0 ? HARNESS_BROKER "[Tenant there]\nUser=root\n[Tenant back]\nUser=*\n"
                          : HARNESS_BROKER HARNESS_TENANT;
}

static void device_uuid(const struct harness *harness, unsigned device, struct uuid *ret)
{
    ck_assert_int_eq(uuid_parse(harness->gpu->devices[device]->uuid, ret), 0);
}

static uint64_t gang_send(struct raw *raw, struct uuid devices[DEVICES], uint64_t wait_ns)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__GangRequest body;
    Gmb__GangPart parts[DEVICES], *pointers[DEVICES];
    char label[] = "a gang";

    gmb__gang_request__init(&body);
    for (unsigned i = 0; i < DEVICES; i++) {
        gmb__gang_part__init(&parts[i]);
        parts[i].device.data = devices[i].bytes;
        parts[i].device.len = UUID_BYTES;
        parts[i].bytes = CHUNKS * CHUNK_BYTES;
        parts[i].chunk_bytes = raw_slabs() ? 0 : CHUNK_BYTES;
        pointers[i] = &parts[i];
    }
    body.parts = pointers;
    body.n_parts = DEVICES;
    body.wait_ns = wait_ns;
    body.label = label;
    message.body_case = GMB__CLIENT_MESSAGE__BODY_GANG_REQUEST;
    message.gang_request = &body;
    return raw_send(raw, &message);
}

/* Takes every part, each whole and on its device; false where the grants are none. */
static bool gang_take(
    struct raw *raw, uint64_t id, struct uuid devices[DEVICES], uint64_t ret_leases[DEVICES])
{
    const uint32_t total = raw_slabs() ? 1 : CHUNKS;

    for (unsigned i = 0; i < DEVICES; i++) {
        for (uint32_t chunks = 0; chunks < total;) {
            Gmb__BrokerMessage *message = raw_receive(raw);
            bool fits = message != NULL && message->id == id &&
                        message->body_case == GMB__BROKER_MESSAGE__BODY_GRANT &&
                        message->grant->total_chunks == total &&
                        message->grant->first_chunk == chunks &&
                        memcmp(message->grant->device.data, devices[i].bytes, UUID_BYTES) == 0;

            if (!fits)
                return false;
            chunks += (uint32_t) message->grant->n_chunks;
            ret_leases[i] = message->grant->lease;
            frame_message_free(&message->base);
        }
    }
    fdset_close(&raw->fds);
    return true;
}

/* As many gangs as said, in the order of the devices or the other way round. */
static void crosser(const struct harness *harness, bool back, unsigned rounds)
{
    struct uuid devices[DEVICES];
    uint64_t leases[DEVICES];
    struct raw raw;

    for (unsigned i = 0; i < DEVICES; i++)
        device_uuid(harness, back ? DEVICES - 1 - i : i, &devices[i]);
    if (back && geteuid() == 0 && (setgid(NOBODY) < 0 || setuid(NOBODY) < 0))
        _exit(2);
    raw_connect(&raw, harness);
    for (unsigned round = 0; round < rounds; round++) {
        if (!gang_take(&raw, gang_send(&raw, devices, UINT64_MAX), devices, leases))
            _exit(3);
        for (unsigned i = 0; i < DEVICES; i++)
            raw_expect_done(&raw, raw_release(&raw, leases[i]));
    }
    raw_close(&raw);
    _exit(0);
}

static pid_t crosser_start(const struct harness *harness, bool back, unsigned rounds)
{
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        crosser(harness, back, rounds);
    }
    return pid;
}

START_TEST(gangs_that_cross_are_all_granted_and_each_whole)
{
    const char *given = getenv("GANG_ROUNDS");
    unsigned rounds = given != NULL ? (unsigned) atoi(given) : 250;
    struct harness harness;
    pid_t crossers[2];

    harness_start_with(&harness, config(), three_devices);
    for (unsigned i = 0; i < 2; i++)
        crossers[i] = crosser_start(&harness, i == 1, rounds);
    for (unsigned i = 0; i < 2; i++) {
        int status;

        ck_assert_int_eq(waitpid(crossers[i], &status, 0), crossers[i]);
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0,
            "gang %u ended with status %x: it was left waiting, or granted in part", i, status);
    }
    harness_stop(&harness);
}
END_TEST

/* Requests that wait: each part of a gang is one. */
static uint32_t waiting(const struct harness *harness)
{
    Gmb__ControlRequest request;
    Gmb__StatusGet body;
    Gmb__ControlReply *reply;
    uint32_t count;

    gmb__control_request__init(&request);
    gmb__status_get__init(&body);
    request.body_case = GMB__CONTROL_REQUEST__BODY_STATUS_GET;
    request.status_get = &body;
    reply = raw_control(harness, &request);
    ck_assert_int_eq(reply->body_case, GMB__CONTROL_REPLY__BODY_STATUS);
    count = reply->status->waiting;
    frame_message_free(&reply->base);
    return count;
}

START_TEST(a_gang_killed_while_it_waits_leaves_nothing_behind)
{
    struct uuid devices[DEVICES];
    uint64_t leases[DEVICES];
    struct harness harness;
    struct raw holder;
    pid_t waiter;

    harness_start_with(&harness, config(), three_devices);
    for (unsigned i = 0; i < DEVICES; i++)
        device_uuid(&harness, i, &devices[i]);
    raw_connect(&holder, &harness);
    ck_assert(gang_take(&holder, gang_send(&holder, devices, 0), devices, leases));
    raw_expect_done(&holder, raw_release(&holder, leases[0]));
    /* Fits on the first device alone, and holds nothing there while it waits for the others. */
    waiter = crosser_start(&harness, true, 1);
    for (uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;
         waiting(&harness) != DEVICES ||
         /* What its own tenant returned would be kept for it. */
         (geteuid() == 0 && harness_free_bytes(&harness) != harness.base_free_bytes);) {
        ck_assert_uint_lt(harness_now_ms(), deadline);
        harness_breathe();
    }
    ck_assert_int_eq(kill(waiter, SIGKILL), 0);
    ck_assert_int_eq(waitpid(waiter, NULL, 0), waiter);
    raw_expect_done(&holder, raw_release(&holder, leases[1]));
    raw_expect_done(&holder, raw_release(&holder, leases[2]));
    ck_assert(gang_take(&holder, gang_send(&holder, devices, UINT64_MAX), devices, leases));
    for (unsigned i = 0; i < DEVICES; i++)
        raw_expect_done(&holder, raw_release(&holder, leases[i]));
    raw_close(&holder);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_gang_that_can_not_be_is_refused_by_one_error_that_names_the_device)
{
    struct uuid devices[DEVICES];
    Gmb__BrokerMessage *message;
    struct harness harness;
    char text[4096];
    struct raw raw;

    harness_start_with(&harness, NULL, three_devices);
    for (unsigned i = 0; i < DEVICES; i++)
        device_uuid(&harness, i, &devices[i]);
    (void) snprintf(text, sizeof(text),
        HARNESS_BROKER HARNESS_TENANT "[Tenant test Device %s]\nMemoryMax=512M\n",
        harness.gpu->devices[1]->uuid);
    harness_configure(&harness, text);
    harness_kill(&harness);
    harness_restart(&harness);
    raw_connect(&raw, &harness);
    (void) gang_send(&raw, devices, UINT64_MAX);
    message = raw_receive(&raw);
    ck_assert_ptr_nonnull(message);
    ck_assert_int_eq(message->body_case, GMB__BROKER_MESSAGE__BODY_ERROR);
    ck_assert_uint_eq(message->error->status, GMB_STATUS_OVER_LIMIT);
    ck_assert_uint_eq(message->error->limit, GMB_LIMIT_MEMORY_MAX);
    ck_assert_str_eq(message->error->text,
        "tenant test: MemoryMax=512M on device 1 can never give more than 512M, 640M requested");
    frame_message_free(&message->base);
    devices[2] = devices[0];
    raw_expect_error(&raw, gang_send(&raw, devices, 0), GMB_STATUS_INVALID);
    memset(devices[2].bytes, 0x55, UUID_BYTES);
    raw_expect_error(&raw, gang_send(&raw, devices, 0), GMB_STATUS_NOT_FOUND);
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

typedef int (*fill_function)(uint64_t, unsigned char, size_t);
typedef int (*read_function)(void *, uint64_t, size_t);
typedef int (*current_function)(void *);

/* A driver call under its name; through void *, which ISO C doesn't convert to a function. */
#define SYMBOL(session, type, name) (*(type *) &(void *){gmb_driver_symbol(session, name)})

START_TEST(a_gang_through_the_library_is_memory_on_each_device)
{
    struct gmb_lease_params params[DEVICES] = {0};
    gmb_lease *leases[DEVICES];
    struct gmb_options options = {.size = sizeof(options)};
    struct harness harness;
    gmb_session *session;

    harness_start_with(&harness, NULL, three_devices);
    options.socket = harness.client_socket;
    ck_assert_int_eq(gmb_connect(&options, &session), 0);
    for (unsigned i = 0; i < DEVICES; i++) {
        params[i].size = sizeof(params[i]);
        params[i].device = harness.gpu->devices[DEVICES - 1 - i]->uuid;
        params[i].bytes = (i + 1) * HARNESS_CHUNK;
        params[i].max_bytes = raw_slabs() ? 0 : 8 * HARNESS_CHUNK;
    }
    ck_assert_int_eq(gmb_lease_gang(session, params, DEVICES, leases), 0);
    for (unsigned i = 0; i < DEVICES; i++) {
        unsigned char byte = 0;

        ck_assert_uint_eq(gmb_lease_bytes(leases[i]), (i + 1) * HARNESS_CHUNK);
        ck_assert_int_eq(
            SYMBOL(session, current_function, "cuCtxSetCurrent")(gmb_lease_context(leases[i])), 0);
        ck_assert_int_eq(
            SYMBOL(session, fill_function, "cuMemsetD8_v2")(
                gmb_lease_address(leases[i]), (unsigned char) (i + 1), gmb_lease_bytes(leases[i])),
            0);
        ck_assert_int_eq(SYMBOL(session, read_function, "cuMemcpyDtoH_v2")(&byte,
                             gmb_lease_address(leases[i]) + gmb_lease_bytes(leases[i]) - 1, 1),
            0);
        ck_assert_uint_eq(byte, i + 1);
        ck_assert_int_eq(
            gmb_lease_grow(leases[i], HARNESS_CHUNK, 0), raw_slabs() ? GMB_E_UNSUPPORTED : 0);
    }
    params[0].bytes = HARNESS_MEMORY;
    params[0].max_bytes = 0;
    ck_assert_int_eq(gmb_lease_gang(session, params, DEVICES, leases), GMB_E_EXHAUSTED);
    ck_assert_str_eq(gmb_error_limit(), "device");
    ck_assert_ptr_nonnull(strstr(gmb_error_text(), "device 2: "));
    ck_assert_int_eq(gmb_lease_release(leases[1]), 0);
    gmb_disconnect(session);
    harness_stop(&harness);
}
END_TEST

UNIT_MAIN("gangs", gangs_that_cross_are_all_granted_and_each_whole,
    a_gang_killed_while_it_waits_leaves_nothing_behind,
    a_gang_that_can_not_be_is_refused_by_one_error_that_names_the_device,
    a_gang_through_the_library_is_memory_on_each_device)
