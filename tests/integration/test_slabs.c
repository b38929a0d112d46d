/*
 * Devices that share their memory over CUDA IPC: chosen where nothing else goes or where the
 * configuration says so, what they refuse, and what the death of the process that has their memory
 * means.
 */
#include <signal.h>
#include <string.h>

#include "client/gmb.h"
#include "tests/integration/slabs.h"
#include "tests/unit/unit.h"

/* ------------------------------------------------------------------ looks */

static void expect_backend(const struct harness *harness, size_t device, Gmb__Backend backend)
{
    Gmb__ControlReply *reply = raw_status(harness);

    ck_assert_uint_gt(reply->status->n_devices, device);
    ck_assert_int_eq(reply->status->devices[device]->backend, backend);
    frame_message_free(&reply->base);
}

static void expect_lost(struct raw *raw)
{
    Gmb__BrokerMessage *message = raw_receive(raw);

    ck_assert_ptr_nonnull(message);
    ck_assert_uint_eq(message->id, 0);
    ck_assert_int_eq(message->body_case, GMB__BROKER_MESSAGE__BODY_MEMORY_LOST);
    ck_assert_str_eq(
        message->memory_lost->text, "the process that held its memory was killed by signal 9");
    frame_message_free(&message->base);
}

/* It has ended, whoever is to reap it. */
static bool process_gone(pid_t pid)
{
    return strchr("Z?", harness_process_state(pid)) != NULL;
}

/* ------------------------------------------------------------------ which device, and what not */

static void expect_slabs(const char *const *environment)
{
    struct harness harness;
    CUipcMemHandle handle;
    struct raw raw;

    harness_start_with(&harness, NULL, environment);
    expect_backend(&harness, 0, GMB__BACKEND__BACKEND_IPC);
    raw_connect(&raw, &harness);
    raw_expect_done(&raw, raw_release(&raw, slab_take(&raw, MIB(64), &handle)));
    raw_close(&raw);
    harness_stop(&harness);
}

START_TEST(a_device_without_virtual_memory_is_served_over_ipc_by_itself)
{
    expect_slabs(slabs_only);
}
END_TEST

START_TEST(a_device_that_exports_no_fds_is_served_over_ipc_by_itself)
{
    static const char *const without_fds[] = {"GMB_SIM_POSIX_FD=0", NULL};

    expect_slabs(without_fds);
}
END_TEST

START_TEST(the_configuration_can_ask_for_ipc)
{
    struct harness harness;
    CUipcMemHandle handle;
    struct raw raw;

    harness_start(&harness, HARNESS_BROKER HARNESS_TENANT "[Device *]\nBackend=ipc\n");
    expect_backend(&harness, 0, GMB__BACKEND__BACKEND_IPC);
    ck_assert(harness_logged(&harness, "(Backend=ipc)"));
    raw_connect(&raw, &harness);
    raw_expect_done(&raw, raw_release(&raw, slab_take(&raw, MIB(2), &handle)));
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

START_TEST(each_device_of_a_node_has_the_backend_that_it_can_have)
{
    static const char *const mixed[] = {"GMB_SIM_DEVICES=2", "GMB_SIM_VMM=0,1", NULL};
    struct gmb_options options = {.size = sizeof(options)};
    struct gmb_lease_params params[2] = {{.size = sizeof(params[0])}, {.size = sizeof(params[0])}};
    struct gmb_device_info info[2] = {{.size = sizeof(info[0])}, {.size = sizeof(info[0])}};
    struct harness harness;
    gmb_session *session;
    gmb_lease *leases[2];

    harness_start_with(&harness, NULL, mixed);
    expect_backend(&harness, 0, GMB__BACKEND__BACKEND_IPC);
    expect_backend(&harness, 1, GMB__BACKEND__BACKEND_VMM);
    options.socket = harness.client_socket;
    ck_assert_int_eq(gmb_connect(&options, &session), 0);
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_int_eq(gmb_device_get(session, i, &info[i]), 0);
        params[i].device = info[i].uuid;
        params[i].bytes = MIB(10);
    }
    ck_assert_uint_eq(info[0].whole_leases, 1);
    ck_assert_uint_eq(info[1].whole_leases, 0);
    ck_assert_int_eq(gmb_lease_gang(session, params, 2, leases), 0);
    ck_assert_uint_eq(gmb_lease_chunk_bytes(leases[0]), MIB(10));
    ck_assert_uint_eq(gmb_lease_chunk_bytes(leases[1]), MIB(2));
    gmb_disconnect(session);
    harness_stop(&harness);
}
END_TEST

START_TEST(what_slabs_cannot_do_is_refused_by_name)
{
    struct gmb_options options = {.size = sizeof(options)};
    struct gmb_lease_params params = {.size = sizeof(params), .bytes = MIB(4)};
    struct gmb_arena_params arena_params = {
        .size = sizeof(arena_params), .page_bytes = 65536, .max_bytes = MIB(64)};
    struct harness harness;
    gmb_session *session;
    gmb_arena *arena;
    gmb_lease *lease;

    harness_start_with(&harness, NULL, slabs_only);
    options.socket = harness.client_socket;
    ck_assert_int_eq(gmb_connect(&options, &session), 0);
    ck_assert_int_eq(gmb_arena_new(session, &arena_params, &arena), GMB_E_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(gmb_error_text(), "it has no arenas"));
    params.chunk_bytes = MIB(2);
    ck_assert_int_eq(gmb_lease_new(session, &params, &lease), GMB_E_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(gmb_error_text(), "one slab"));
    params.chunk_bytes = 0;
    params.max_bytes = MIB(8);
    ck_assert_int_eq(gmb_lease_new(session, &params, &lease), GMB_E_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(gmb_error_text(), "can't grow to max_bytes"));
    params.max_bytes = MIB(4);
    ck_assert_int_eq(gmb_lease_new(session, &params, &lease), 0);
    ck_assert_int_eq(gmb_lease_grow(lease, MIB(1), 0), GMB_E_UNSUPPORTED);
    ck_assert_int_eq(gmb_lease_shrink(lease, 0), GMB_E_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(gmb_error_text(), "release it"));
    ck_assert_int_eq(gmb_lease_shrink(lease, 1), 0);
    ck_assert_uint_eq(gmb_lease_bytes(lease), MIB(4));
    ck_assert_uint_eq(gmb_lease_max_bytes(lease), MIB(4));
    ck_assert_int_eq(gmb_lease_release(lease), 0);
    gmb_disconnect(session);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_lease_through_the_library_is_memory_of_zeros)
{
    struct gmb_options options = {.size = sizeof(options)};
    struct gmb_lease_params params = {.size = sizeof(params), .bytes = MIB(32)};
    static unsigned char host[MIB(32)];
    struct harness harness;
    gmb_session *session;
    gmb_lease *lease;

    harness_start_with(&harness, NULL, slabs_only);
    options.socket = harness.client_socket;
    slab_driver_begin();
    ck_assert_int_eq(gmb_connect(&options, &session), 0);
    ck_assert_int_eq(gmb_lease_new(session, &params, &lease), 0);
    memset(host, 1, sizeof(host));
    ck_assert_int_eq(
        slab_driver.memcpy_dtoh(host, gmb_lease_address(lease), sizeof(host)), CUDA_SUCCESS);
    ck_assert_uint_eq(host[0], 0);
    ck_assert_int_eq(memcmp(host, host + 1, sizeof(host) - 1), 0);
    ck_assert_int_eq(
        slab_driver.memset_d8(gmb_lease_address(lease), 7, sizeof(host)), CUDA_SUCCESS);
    ck_assert_int_eq(gmb_lease_lost(lease), 0);
    ck_assert_int_eq(gmb_lease_release(lease), 0);
    gmb_disconnect(session);
    harness_stop(&harness);
}
END_TEST

/* ------------------------------------------------------------------ who has the memory ends */

START_TEST(leases_of_a_killed_slab_process_are_lost_and_the_device_serves_on)
{
    CUipcMemHandle handle, again;
    Gmb__TenantDevice tenant;
    struct harness harness;
    uint64_t lease, other;
    CUdeviceptr address;
    struct raw raw;

    harness_start_with(&harness, NULL, slabs_only);
    slab_driver_begin();
    raw_connect(&raw, &harness);
    lease = slab_take(&raw, MIB(512), &handle);
    ck_assert_int_eq(slab_open(&handle, &address), CUDA_SUCCESS);
    slab_kill(&harness);
    expect_lost(&raw);
    ck_assert_uint_eq(slab_losses(&harness), 1);
    /* The driver keeps it for who has it mapped: so it stays charged, and is nobody else's. */
    raw_tenant(&harness, "test", &tenant);
    ck_assert_uint_eq(tenant.leased_bytes, MIB(512));
    raw_expect_error(&raw, raw_lease(&raw, MIB(1024), 0, 0), GMB_STATUS_EXHAUSTED);
    other = raw_expect_lease(&raw, raw_lease(&raw, MIB(256), 0, UINT64_C(20000000000)), 1);
    ck_assert_int_eq(slab_driver.ipc_close_mem_handle(address), CUDA_SUCCESS);
    raw_expect_done(&raw, raw_release(&raw, lease));
    /* Of that size one was given back a moment ago: it can't be passed on. */
    lease = slab_take(&raw, MIB(512), &again);
    ck_assert_int_ne(memcmp(&handle, &again, sizeof(handle)), 0);
    ck_assert_int_eq(slab_open(&again, &address), CUDA_SUCCESS);
    ck_assert_int_eq(slab_driver.ipc_close_mem_handle(address), CUDA_SUCCESS);
    raw_expect_done(&raw, raw_release(&raw, lease));
    raw_expect_done(&raw, raw_release(&raw, other));
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

START_TEST(the_library_says_which_leases_are_lost)
{
    struct gmb_options options = {.size = sizeof(options)};
    struct gmb_lease_params params = {
        .size = sizeof(params), .bytes = MIB(64), .wait_ns = UINT64_C(20000000000)};
    struct harness harness;
    gmb_lease *lost, *kept;
    gmb_session *session;

    harness_start_with(&harness, NULL, slabs_only);
    options.socket = harness.client_socket;
    ck_assert_int_eq(gmb_connect(&options, &session), 0);
    ck_assert_int_eq(gmb_thread_start(session), 0);
    ck_assert_int_eq(gmb_lease_new(session, &params, &lost), 0);
    ck_assert_int_eq(gmb_lease_lost(lost), 0);
    slab_kill(&harness);
    wait_until(gmb_lease_lost(lost) != 0);
    ck_assert_int_eq(gmb_lease_new(session, &params, &kept), 0);
    ck_assert_int_eq(gmb_lease_lost(kept), 0);
    ck_assert_int_eq(gmb_lease_release(lost), 0);
    ck_assert_int_eq(gmb_lease_lost(kept), 0);
    ck_assert_int_eq(gmb_lease_release(kept), 0);
    gmb_disconnect(session);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_request_outlives_the_slab_process_that_was_to_serve_it)
{
    /* Its first slab takes a while, in which it is killed. */
    static const char *const slow[] = {"GMB_SIM_VMM=0", "GMB_SIM_LATENCY=cuMemAlloc_v2=1s", NULL};
    struct harness harness;
    struct raw raw;
    uint64_t id;

    harness_start_with(&harness, NULL, slow);
    raw_connect(&raw, &harness);
    id = raw_lease(&raw, MIB(64), 0, UINT64_C(20000000000));
    wait_until(harness_logged(&harness, "is ready"));
    slab_kill(&harness);
    expect_lost(&raw);
    raw_expect_done(&raw, raw_release(&raw, raw_expect_lease(&raw, id, 1)));
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_stopped_slab_process_holds_up_its_device_alone_and_loses_nothing)
{
    static const char *const mixed[] = {"GMB_SIM_DEVICES=2", "GMB_SIM_VMM=0,1", NULL};
    struct gmb_options options = {.size = sizeof(options)};
    struct gmb_lease_params slab = {
        .size = sizeof(slab), .bytes = MIB(8), .wait_ns = UINT64_C(200000000)};
    struct gmb_lease_params chunks = {.size = sizeof(chunks), .bytes = MIB(8)};
    struct gmb_device_info info = {.size = sizeof(info)};
    gmb_lease *lease, *held, *later;
    struct harness harness;
    gmb_session *session;
    pid_t pid;

    harness_start_with(&harness, NULL, mixed);
    options.socket = harness.client_socket;
    ck_assert_int_eq(gmb_connect(&options, &session), 0);
    ck_assert_int_eq(gmb_device_get(session, 1, &info), 0);
    chunks.device = info.uuid;
    slab.wait_ns = UINT64_C(20000000000);
    ck_assert_int_eq(gmb_lease_new(session, &slab, &held), 0);
    pid = harness_slab(&harness);
    ck_assert_int_eq(kill(pid, SIGSTOP), 0);
    slab.bytes = MIB(16);
    slab.wait_ns = UINT64_C(200000000);
    ck_assert_int_eq(gmb_lease_new(session, &slab, &lease), GMB_E_TIMED_OUT);
    ck_assert_int_eq(gmb_lease_new(session, &chunks, &lease), 0);
    ck_assert_int_eq(kill(pid, SIGCONT), 0);
    slab.wait_ns = UINT64_C(20000000000);
    ck_assert_int_eq(gmb_lease_new(session, &slab, &later), 0);
    ck_assert_int_eq(gmb_lease_lost(held), 0);
    ck_assert_int_eq(harness_slab(&harness), pid);
    gmb_disconnect(session);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_slab_process_that_cannot_start_takes_its_device_out_of_service_by_name)
{
    static const char *const nowhere[] = {"GMB_SIM_VMM=0", "GMB_SLAB=/bin/false", NULL};
    Gmb__BrokerMessage *message;
    struct harness harness;
    Gmb__ControlReply *reply;
    struct raw raw;
    bool failed = false;

    harness_start_with(&harness, NULL, nowhere);
    raw_connect(&raw, &harness);
    for (uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS; !failed;) {
        ck_assert_uint_lt(harness_now_ms(), deadline);
        (void) raw_lease(&raw, MIB(2), 0, UINT64_C(100000000));
        message = raw_receive(&raw);
        ck_assert_ptr_nonnull(message);
        failed = message->body_case == GMB__BROKER_MESSAGE__BODY_DEVICE_FAILED;
        ck_assert(failed || message->body_case == GMB__BROKER_MESSAGE__BODY_ERROR);
        frame_message_free(&message->base);
    }
    reply = raw_status(&harness);
    ck_assert_str_eq(reply->status->devices[0]->failure,
        "gmbd-slab can't be used: exited with status 1 (it could not be confined)");
    frame_message_free(&reply->base);
    raw_close(&raw);
    harness_discard(&harness);
}
END_TEST

START_TEST(the_slab_process_ends_with_its_broker)
{
    struct harness harness;
    CUipcMemHandle handle;
    CUdeviceptr address;
    struct raw raw;
    pid_t pid;

    harness_start_with(&harness, NULL, slabs_only);
    slab_driver_begin();
    raw_connect(&raw, &harness);
    (void) slab_take(&raw, MIB(64), &handle);
    ck_assert_int_eq(slab_open(&handle, &address), CUDA_SUCCESS);
    wait_until((pid = harness_slab(&harness)) != 0);
    harness_kill(&harness);
    wait_until(process_gone(pid));
    /* What is mapped is there, and counts as used by others. */
    ck_assert_uint_eq(harness_free_bytes(&harness), harness.base_free_bytes - MIB(64));
    raw_close(&raw);
    harness_restart(&harness);
    raw_connect(&raw, &harness);
    ck_assert_int_eq(slab_open(&handle, &address), CUDA_SUCCESS);
    ck_assert_int_eq(slab_driver.ipc_close_mem_handle(address), CUDA_SUCCESS);
    ck_assert_int_eq(slab_driver.ipc_close_mem_handle(address), CUDA_SUCCESS);
    ck_assert_int_eq(slab_open(&handle, &address), CUDA_ERROR_INVALID_VALUE);
    raw_expect_done(&raw, raw_release(&raw, slab_take(&raw, MIB(64), &handle)));
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

/* Where the broker's records outlive it, too. */
START_TEST(a_slab_of_an_earlier_broker_stays_charged_until_it_is_given_back)
{
    Gmb__HeldLease held = GMB__HELD_LEASE__INIT, *pointer = &held;
    Gmb__TenantDevice tenant;
    struct harness harness;
    CUipcMemHandle handle;
    CUdeviceptr address;
    struct raw raw;

    harness_start_kept(&harness, NULL, slabs_only);
    slab_driver_begin();
    raw_connect(&raw, &harness);
    held.lease = slab_take(&raw, MIB(64), &handle);
    held.chunks = 1;
    ck_assert_int_eq(slab_open(&handle, &address), CUDA_SUCCESS);
    harness_succeed(&harness, SIGKILL);
    ck_assert(raw_come_back(&raw, &harness));
    ck_assert_uint_eq(raw_resume(&raw, &pointer, 1, true), 0);
    raw_tenant(&harness, "test", &tenant);
    ck_assert_uint_eq(tenant.leased_bytes, MIB(64));
    /* What is new is had from the new process. */
    raw_expect_done(
        &raw, raw_release(&raw, raw_expect_lease(&raw, raw_lease(&raw, MIB(64), 0, 0), 1)));
    ck_assert_int_eq(slab_driver.ipc_close_mem_handle(address), CUDA_SUCCESS);
    raw_expect_done(&raw, raw_release(&raw, held.lease));
    wait_until((raw_tenant(&harness, "test", &tenant), tenant.used_bytes == 0));
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

UNIT_MAIN("slabs", a_device_without_virtual_memory_is_served_over_ipc_by_itself,
    a_device_that_exports_no_fds_is_served_over_ipc_by_itself, the_configuration_can_ask_for_ipc,
    each_device_of_a_node_has_the_backend_that_it_can_have, what_slabs_cannot_do_is_refused_by_name,
    a_lease_through_the_library_is_memory_of_zeros,
    leases_of_a_killed_slab_process_are_lost_and_the_device_serves_on,
    the_library_says_which_leases_are_lost,
    a_request_outlives_the_slab_process_that_was_to_serve_it,
    a_stopped_slab_process_holds_up_its_device_alone_and_loses_nothing,
    a_slab_process_that_cannot_start_takes_its_device_out_of_service_by_name,
    the_slab_process_ends_with_its_broker,
    a_slab_of_an_earlier_broker_stays_charged_until_it_is_given_back)
