/* Several devices: which of them a process sees, MIG instances, and devices that fail. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/uuid.h"
#include "client/gmb.h"
#include "tests/integration/raw.h"
#include "tests/unit/unit.h"

/* ------------------------------------------------------------------ what a process sees */

/* What a worker with this CUDA_VISIBLE_DEVICES says of the broker's devices. */
static void visible_run(const struct harness *harness, const char *list, char *ret, size_t size)
{
    int output[2], status;
    size_t length = 0;
    ssize_t n;
    pid_t pid;

    ck_assert_int_eq(pipe(output), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        const char *path = getenv("VISIBLE");

        if (list != NULL)
            (void) setenv("CUDA_VISIBLE_DEVICES", list, 1);
        if (path == NULL || dup2(output[1], STDOUT_FILENO) < 0)
            _exit(126);
        (void) execl(path, path, harness->client_socket, NULL);
        _exit(127);
    }
    (void) close(output[1]);
    while ((n = read(output[0], ret + length, size - 1 - length)) > 0)
        length += (size_t) n;
    ret[length] = '\0';
    (void) close(output[0]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0,
        "CUDA_VISIBLE_DEVICES=%s: status %x after:%s", list != NULL ? list : "(unset)", status,
        ret);
}

static void expect_visible(const struct harness *harness, const char *list, const char *expected)
{
    char said[256];

    visible_run(harness, list, said, sizeof(said));
    ck_assert_msg(strcmp(said, expected) == 0, "CUDA_VISIBLE_DEVICES=%s:%s, expected%s",
        list != NULL ? list : "(unset)", said, expected);
}

START_TEST(leases_and_arenas_are_on_the_device_whatever_its_ordinal_is)
{
    static const char *const environment[] = {"GMB_SIM_DEVICES=3", NULL};
    static const struct {
        const char *list, *said;
    } cases[] = {
        {NULL, " 0 1 2"},
        {"0,1,2", " 0 1 2"},
        {"2,0", " 1 hidden 0"},
        {"1", " hidden 0 hidden"},
        /* It ends where it makes no sense any more. */
        {"2,7,0", " hidden hidden 0"},
        {"0,-1,1", " 0 hidden hidden"},
        {"1,1,2", " hidden 0 hidden"},
        {"", " none"},
        {"9", " none"},
        {"GPU-676d6275-696d-4000-8000-000000000002,GPU-676d6273-696d-4000-8000-000000000000",
            " 1 hidden 0"},
        {"GPU-676d6274", " hidden 0 hidden"},
        {"GPU-676d6275,1", " hidden 1 0"},
        {"GPU-676d627", " none"}, /* fits all */
        {"MIG-676d6274-696d-4000-8000-000000000001", " none"},
    };
    struct harness harness;

    harness_start_with(&harness, NULL, environment);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        expect_visible(&harness, cases[i].list, cases[i].said);
    harness_stop(&harness);
}
END_TEST

START_TEST(mig_instances_are_devices_of_their_own_under_their_own_names)
{
    static const char *const environment[] = {
        "GMB_SIM_DEVICES=3", "GMB_SIM_MEMORY=1G,512M,256M", "GMB_SIM_MIG=1,2", NULL};
    struct gmb_device_info info = {.size = sizeof(info)};
    struct gmb_options options = {.size = sizeof(options)};
    struct harness harness;
    gmb_session *session;

    harness_start_with(&harness, NULL, environment);
    options.socket = harness.client_socket;
    ck_assert_int_eq(gmb_connect(&options, &session), 0);
    ck_assert_int_eq(gmb_device_get(session, 0, &info), 0);
    ck_assert_str_eq(info.uuid, "GPU-676d6273-696d-4000-8000-000000000000");
    ck_assert_int_eq(gmb_device_get(session, 2, &info), 0);
    ck_assert_str_eq(info.uuid, "MIG-676d6275-696d-4000-8000-000000000002");
    ck_assert_uint_eq(info.capacity_bytes, 256 << 20);
    gmb_disconnect(session);

    expect_visible(&harness, NULL, " 0 1 2");
    expect_visible(&harness, "MIG-676d6274-696d-4000-8000-000000000001", " hidden 0 hidden");
    expect_visible(&harness, "MIG-676d6275,0", " 1 hidden 0");
    /* An instance has no index, and isn't a GPU. */
    expect_visible(&harness, "0,1", " 0 hidden hidden");
    expect_visible(&harness, "GPU-676d6274", " none");
    harness_stop(&harness);
}
END_TEST

START_TEST(limits_of_one_instance_are_set_by_its_uuid)
{
    static const char *const environment[] = {"GMB_SIM_DEVICES=2", "GMB_SIM_MIG=1", NULL};
    struct gmb_device_info info = {.size = sizeof(info)};
    struct gmb_options options = {.size = sizeof(options)};
    struct harness harness;
    gmb_session *session;

    harness_start_with(&harness,
        HARNESS_BROKER HARNESS_TENANT
        "[Tenant test Device MIG-676d6274-696d-4000-8000-000000000001]\nMemoryMax=8M\n",
        environment);
    options.socket = harness.client_socket;
    ck_assert_int_eq(gmb_connect(&options, &session), 0);
    ck_assert_int_eq(gmb_device_get(session, 1, &info), 0);
    ck_assert_uint_eq(info.memory_max_bytes, 8 << 20);
    ck_assert_int_eq(gmb_device_get(session, 0, &info), 0);
    ck_assert_uint_eq(info.memory_max_bytes, UINT64_MAX);
    gmb_disconnect(session);
    harness_stop(&harness);
}
END_TEST

/* ------------------------------------------------------------------ failing devices */

static uint64_t lease_on(struct raw *raw, const struct harness *harness, unsigned device)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__LeaseRequest body;
    struct uuid uuid;

    ck_assert_int_eq(uuid_parse(harness->gpu->devices[device]->uuid, &uuid), 0);
    gmb__lease_request__init(&body);
    body.device.data = uuid.bytes;
    body.device.len = UUID_BYTES;
    body.bytes = body.chunk_bytes = HARNESS_CHUNK;
    message.body_case = GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST;
    message.lease_request = &body;
    return raw_send(raw, &message);
}

/* The event that says that device 1 is out of service. */
static void expect_failed(struct raw *raw, const struct harness *harness)
{
    Gmb__BrokerMessage *message = raw_receive(raw);
    struct uuid uuid, told;

    ck_assert_int_eq(uuid_parse(harness->gpu->devices[1]->uuid, &uuid), 0);
    ck_assert_ptr_nonnull(message);
    ck_assert_uint_eq(message->id, 0);
    ck_assert_int_eq(message->body_case, GMB__BROKER_MESSAGE__BODY_DEVICE_FAILED);
    ck_assert_int_eq(uuid_from_bytes(message->device_failed->device.data,
                         message->device_failed->device.len, &told),
        0);
    ck_assert(uuid_equal(&uuid, &told));
    ck_assert_uint_gt(strlen(message->device_failed->text), 0);
    frame_message_free(&message->base);
}

static void expect_refused(struct raw *raw, uint64_t id)
{
    Gmb__BrokerMessage *message = raw_receive(raw);

    ck_assert_ptr_nonnull(message);
    ck_assert_uint_eq(message->id, id);
    ck_assert_int_eq(message->body_case, GMB__BROKER_MESSAGE__BODY_ERROR);
    ck_assert_uint_eq(message->error->status, GMB_STATUS_GPU);
    ck_assert_uint_eq(message->error->limit, GMB_LIMIT_DEVICE);
    ck_assert_ptr_nonnull(strstr(message->error->text, "device 1 is out of service"));
    frame_message_free(&message->base);
}

/* Why device `index` is out of service; "" while it isn't. */
static void failure_of(const struct harness *harness, size_t index, char ret[LIMIT_TEXT_BYTES])
{
    Gmb__ControlRequest request;
    Gmb__ControlReply *reply;
    Gmb__StatusGet body;

    gmb__control_request__init(&request);
    gmb__status_get__init(&body);
    request.body_case = GMB__CONTROL_REQUEST__BODY_STATUS_GET;
    request.status_get = &body;
    reply = raw_control(harness, &request);
    ck_assert_int_eq(reply->body_case, GMB__CONTROL_REPLY__BODY_STATUS);
    ck_assert_uint_gt(reply->status->n_devices, index);
    (void) snprintf(ret, LIMIT_TEXT_BYTES, "%s", reply->status->devices[index]->failure);
    ck_assert(reply->status->devices[index]->healthy || index == 1);
    frame_message_free(&reply->base);
}

START_TEST(a_device_that_disappears_is_out_of_service_and_the_others_are_not)
{
    static const char *const environment[] = {
        "GMB_SIM_DEVICES=2", "GMB_SIM_FAULTS=cuMemCreate@1:2+=101", NULL};
    char failure[LIMIT_TEXT_BYTES];
    struct gmb_device_info info = {.size = sizeof(info)};
    struct gmb_options options = {.size = sizeof(options)};
    struct harness harness;
    struct raw holder, other;
    gmb_session *session;
    uint64_t lease, id, deadline = harness_now_ms() + HARNESS_DEADLINE_MS;

    harness_start_with(&harness, NULL, environment);
    options.socket = harness.client_socket;
    ck_assert_int_eq(gmb_connect(&options, &session), 0);
    raw_connect(&holder, &harness);
    raw_connect(&other, &harness);
    lease = raw_expect_lease(&holder, lease_on(&holder, &harness, 1), 1);
    failure_of(&harness, 1, failure);
    ck_assert_str_eq(failure, "");

    id = lease_on(&other, &harness, 1);
    expect_failed(&other, &harness);
    expect_refused(&other, id);
    expect_failed(&holder, &harness);
    expect_refused(&holder, lease_on(&holder, &harness, 1));
    failure_of(&harness, 1, failure);
    ck_assert_str_eq(failure, "cuMemCreate: CUDA_ERROR_INVALID_DEVICE (101)");

    /* The library knows it once it has read; who comes later is told at once. */
    do {
        ck_assert_uint_lt(harness_now_ms(), deadline);
        ck_assert_int_ge(gmb_dispatch(session, 10), 0);
        ck_assert_int_eq(gmb_device_get(session, 1, &info), 0);
    } while (info.failed == 0);
    ck_assert_int_eq(gmb_device_get(session, 0, &info), 0);
    ck_assert_uint_eq(info.failed, 0);
    gmb_disconnect(session);
    ck_assert_int_eq(gmb_connect(&options, &session), 0);
    ck_assert_int_eq(gmb_device_get(session, 1, &info), 0);
    ck_assert_uint_ne(info.failed, 0);
    gmb_disconnect(session);

    raw_expect_done(&holder, raw_release(&holder, lease));
    raw_expect_done(
        &other, raw_release(&other, raw_expect_lease(&other, lease_on(&other, &harness, 0), 1)));
    failure_of(&harness, 0, failure);
    ck_assert_str_eq(failure, "");
    ck_assert(harness_logged(&harness, "is out of service until the next start"));
    raw_close(&holder);
    raw_close(&other);
    harness_stop(&harness);
}
END_TEST

START_TEST(who_is_coming_back_when_a_device_fails_is_told_behind_that)
{
    static const char *const environment[] = {
        "GMB_SIM_DEVICES=2", "GMB_SIM_FAULTS=cuMemCreate@1:1+=101", NULL};
    struct harness harness;
    struct raw away, other;
    uint64_t lease, id;

    harness_start_with(&harness, NULL, environment);
    raw_connect(&away, &harness);
    raw_connect(&other, &harness);
    lease = raw_expect_lease(&away, lease_on(&away, &harness, 0), 1);
    raw_close(&away);
    ck_assert(raw_come_back(&away, &harness));
    id = lease_on(&other, &harness, 1);
    expect_failed(&other, &harness);
    expect_refused(&other, id);
    ck_assert_uint_eq(raw_resume_one(&away, lease, 1), 0);
    expect_failed(&away, &harness);
    raw_expect_done(&away, raw_release(&away, lease)); /* and is told once */
    /* Whoever comes back later has it in Welcome. */
    lease = raw_expect_lease(&away, lease_on(&away, &harness, 0), 1);
    raw_close(&away);
    ck_assert(raw_come_back(&away, &harness));
    ck_assert_uint_eq(raw_resume_one(&away, lease, 1), 0);
    raw_expect_done(&away, raw_release(&away, lease));
    raw_close(&away);
    raw_close(&other);
    harness_stop(&harness);
}
END_TEST

START_TEST(errors_that_pass_do_not_take_a_device_out_of_service)
{
    static const char *const environment[] = {
        "GMB_SIM_DEVICES=2", "GMB_SIM_FAULTS=cuMemCreate@1:1-2=999,cuMemCreate@1:4+=999", NULL};
    struct harness harness;
    struct raw raw;
    uint64_t lease, id;

    harness_start_with(&harness, NULL, environment);
    raw_connect(&raw, &harness);
    raw_expect_error(&raw, lease_on(&raw, &harness, 1), GMB_STATUS_GPU);
    raw_expect_error(&raw, lease_on(&raw, &harness, 1), GMB_STATUS_GPU);
    lease = raw_expect_lease(&raw, lease_on(&raw, &harness, 1), 1);
    ck_assert(!harness_logged(&harness, "is out of service"));
    /* Looks at free memory succeed in between, until the third in a row has failed. */
    for (;;) {
        Gmb__BrokerMessage *message;
        bool failed;

        id = lease_on(&raw, &harness, 1);
        message = raw_receive(&raw);
        ck_assert_ptr_nonnull(message);
        failed = message->body_case == GMB__BROKER_MESSAGE__BODY_DEVICE_FAILED;
        ck_assert(
            failed || (message->id == id && message->body_case == GMB__BROKER_MESSAGE__BODY_ERROR));
        frame_message_free(&message->base);
        if (failed)
            break;
    }
    expect_refused(&raw, id);
    raw_expect_done(&raw, raw_release(&raw, lease));
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_device_that_nvml_has_lost_is_found_by_nobody_asking)
{
    static const char *const environment[] = {
        "GMB_SIM_DEVICES=2", "GMB_SIM_FAULTS=nvmlDeviceGetMemoryInfo@1:4+=15", NULL};
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;
    char failure[LIMIT_TEXT_BYTES] = "";
    struct harness harness;
    struct raw raw;

    harness_start_with(&harness, NULL, environment);
    while (failure[0] == '\0') {
        ck_assert_uint_lt(harness_now_ms(), deadline);
        harness_breathe();
        failure_of(&harness, 1, failure);
    }
    ck_assert_str_eq(failure, "nvmlDeviceGetMemoryInfo: NVML error 15");
    raw_connect(&raw, &harness);
    expect_refused(&raw, lease_on(&raw, &harness, 1));
    raw_expect_done(
        &raw, raw_release(&raw, raw_expect_lease(&raw, lease_on(&raw, &harness, 0), 1)));
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

UNIT_MAIN("device service", leases_and_arenas_are_on_the_device_whatever_its_ordinal_is,
    mig_instances_are_devices_of_their_own_under_their_own_names,
    limits_of_one_instance_are_set_by_its_uuid,
    a_device_that_disappears_is_out_of_service_and_the_others_are_not,
    who_is_coming_back_when_a_device_fails_is_told_behind_that,
    errors_that_pass_do_not_take_a_device_out_of_service,
    a_device_that_nvml_has_lost_is_found_by_nobody_asking)
