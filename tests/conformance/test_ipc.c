/*
 * Legacy IPC: specification 5.3. What becomes of memory whose exporter frees it or dies while
 * others have it open is "undefined" in the header: on the simulator it stays theirs until they
 * close it, and a handle of it opens nothing any more.
 */
#include "tests/conformance/conformance.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/conformance/peer.h"

#define BYTES (UINT64_C(8) << 20)
#define LAZY CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

static CUdeviceptr alloc_new(size_t bytes)
{
    CUdeviceptr address;

    cu_ok(cu->mem_alloc(&address, bytes));
    return address;
}

static CUipcMemHandle token_of(CUdeviceptr address)
{
    CUipcMemHandle token;

    cu_ok(cu->ipc_get_mem_handle(&token, address));
    return token;
}

/* A peer with a context. */
static struct peer peer_ready(void)
{
    struct peer peer = peer_start(NULL);

    (void) peer_do(&peer, PEER_INIT, 0);
    return peer;
}

/* It has an allocation whose bytes are all `value`. */
static CUipcMemHandle peer_export(struct peer *peer, unsigned char value)
{
    struct peer_message reply = peer_do(peer, PEER_IPC_EXPORT, BYTES);

    ck_assert_int_eq(
        peer_call(peer, (struct peer_message){.op = PEER_FILL, .value = value}, -1, NULL).result,
        CUDA_SUCCESS);
    return reply.token;
}

static CUresult peer_open(struct peer *peer, const CUipcMemHandle *token)
{
    struct peer_message request = {.op = PEER_IPC_OPEN, .bytes = BYTES, .token = *token};

    return peer_call(peer, request, -1, NULL).result;
}

static CUdeviceptr token_open(CUipcMemHandle token)
{
    CUdeviceptr address;

    cu_ok(cu->ipc_open_mem_handle(&address, token, LAZY));
    return address;
}

START_TEST(ipc_token_of_vmm_memory_is_refused)
{
    CUmemGenericAllocationHandle handle;
    CUipcMemHandle token;
    CUdeviceptr address;

    setup_context();
    handle = chunk_new(granule);
    address = chunk_map_new(handle, granule);
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->ipc_get_mem_handle(&token, address));
    chunk_unmap(address, granule);
    cu_ok(cu->mem_release(handle));
}
END_TEST

START_TEST(ipc_open_in_the_exporting_process_is_invalid_context)
{
    CUdeviceptr address, opened;

    setup_context();
    address = alloc_new(BYTES);
    cu_expect(
        CUDA_ERROR_INVALID_CONTEXT, cu->ipc_open_mem_handle(&opened, token_of(address), LAZY));
    cu_ok(cu->mem_free(address));
}
END_TEST

START_TEST(ipc_shares_bytes_and_counts_opens)
{
    struct peer peer = peer_ready();
    CUdeviceptr first, second;
    CUipcMemHandle token;

    setup_context();
    token = peer_export(&peer, 0x21);
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->ipc_open_mem_handle(&first, token, 0));
    first = token_open(token);
    second = token_open(token);
    ck_assert_uint_eq(first, second);
    ck_assert_uint_eq(byte_read(first + BYTES - 1), 0x21);
    cu_ok(cu->ipc_close_mem_handle(first));
    byte_write(first, 0x22);
    ck_assert_uint_eq(peer_do(&peer, PEER_READ, 0).value, 0x22);
    cu_ok(cu->ipc_close_mem_handle(first));
    ck_assert_int_ne(cu->ipc_close_mem_handle(first), CUDA_SUCCESS);
    peer_end(&peer);
}
END_TEST

START_TEST(ipc_memory_of_a_closed_importer_is_free_again)
{
    struct peer peer = peer_ready();
    CUipcMemHandle token;
    CUdeviceptr address;
    uint64_t before;

    setup_context();
    before = device_free_bytes();
    address = alloc_new(BYTES);
    token = token_of(address);
    byte_write(address, 0x23);
    ck_assert_int_eq(peer_open(&peer, &token), CUDA_SUCCESS);
    ck_assert_uint_eq(peer_do(&peer, PEER_READ, 0).value, 0x23);
    (void) peer_do(&peer, PEER_IPC_CLOSE, 0);
    cu_ok(cu->mem_free(address));
    expect_free(before);
    peer_end(&peer);
}
END_TEST

START_TEST(ipc_arguments_that_make_no_sense_are_refused)
{
    CUdeviceptr address, opened;
    CUipcMemHandle token;

    setup_context();
    address = alloc_new(BYTES);
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->ipc_get_mem_handle(NULL, address));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->ipc_get_mem_handle(&token, 0x1234500));
    memset(&token, 0x5a, sizeof(token));
    cu_observe("5.3 opening bytes that are no handle", CUDA_ERROR_INVALID_VALUE,
        cu->ipc_open_mem_handle(&opened, token, LAZY));
    cu_observe("5.3 closing what is no opened handle", CUDA_ERROR_INVALID_VALUE,
        cu->ipc_close_mem_handle(address));
    cu_ok(cu->mem_free(address));
}
END_TEST

START_TEST(ipc_calls_need_a_context)
{
    struct peer peer = peer_ready();
    CUdeviceptr address, opened = 0;
    CUipcMemHandle token;

    setup_context();
    address = alloc_new(BYTES);
    token = peer_export(&peer, 0x31);
    opened = token_open(token);
    cu_ok(cu->ctx_set_current(NULL));
    cu_expect(CUDA_ERROR_INVALID_CONTEXT, cu->ipc_get_mem_handle(&token, address));
    cu_expect(CUDA_ERROR_INVALID_CONTEXT, cu->ipc_open_mem_handle(&address, token, LAZY));
    cu_expect(CUDA_ERROR_INVALID_CONTEXT, cu->ipc_close_mem_handle(opened));
    cu_ok(cu->ctx_set_current(context));
    cu_ok(cu->ipc_close_mem_handle(opened));
    cu_ok(cu->mem_free(address));
    peer_end(&peer);
}
END_TEST

START_TEST(ipc_handle_of_an_interior_pointer_is_the_allocations)
{
    struct peer peer = peer_ready();
    CUipcMemHandle token;
    CUdeviceptr address;

    setup_context();
    address = alloc_new(BYTES);
    byte_write(address, 0x32);
    token = token_of(address + BYTES / 2);
    ck_assert_int_eq(peer_open(&peer, &token), CUDA_SUCCESS);
    ck_assert_uint_eq(peer_do(&peer, PEER_READ, 0).value, 0x32);
    (void) peer_do(&peer, PEER_IPC_CLOSE, 0);
    cu_ok(cu->mem_free(address));
    peer_end(&peer);
}
END_TEST

START_TEST(ipc_range_of_an_opened_handle_is_the_allocation)
{
    struct peer peer = peer_ready();
    CUdeviceptr opened, base;
    size_t bytes;

    setup_context();
    opened = token_open(peer_export(&peer, 0x33));
    cu_ok(cu->mem_get_address_range(&base, &bytes, opened + BYTES - 1));
    ck_assert_uint_eq(base, opened);
    ck_assert_uint_eq(bytes, BYTES);
    cu_observe("5.3 cuMemFree of an opened handle", CUDA_ERROR_INVALID_VALUE, cu->mem_free(opened));
    cu_ok(cu->ipc_close_mem_handle(opened));
    peer_end(&peer);
}
END_TEST

START_TEST(ipc_importer_cannot_hand_it_on_as_its_own)
{
    struct peer peer = peer_ready();
    CUipcMemHandle token;
    CUdeviceptr opened;

    setup_context();
    opened = token_open(peer_export(&peer, 0x34));
    cu_observe("5.3 cuIpcGetMemHandle of an opened handle", CUDA_ERROR_INVALID_VALUE,
        cu->ipc_get_mem_handle(&token, opened));
    cu_ok(cu->ipc_close_mem_handle(opened));
    peer_end(&peer);
}
END_TEST

START_TEST(ipc_opens_in_two_processes_are_one_charge)
{
    struct peer first = peer_ready(), second = peer_ready();
    CUipcMemHandle token;
    CUdeviceptr address;
    uint64_t before;

    setup_context();
    before = device_free_bytes();
    address = alloc_new(BYTES);
    token = token_of(address);
    ck_assert_int_eq(peer_open(&first, &token), CUDA_SUCCESS);
    ck_assert_int_eq(peer_open(&second, &token), CUDA_SUCCESS);
    expect_free(before - BYTES);
    byte_write(address, 0x35);
    ck_assert_uint_eq(peer_do(&first, PEER_READ, 0).value, 0x35);
    ck_assert_uint_eq(peer_do(&second, PEER_READ, 0).value, 0x35);
    (void) peer_do(&first, PEER_IPC_CLOSE, 0);
    expect_free(before - BYTES);
    (void) peer_do(&second, PEER_IPC_CLOSE, 0);
    expect_free(before - BYTES);
    cu_ok(cu->mem_free(address));
    expect_free(before);
    peer_end(&first);
    peer_end(&second);
}
END_TEST

START_TEST(ipc_memory_that_its_exporter_frees_stays_with_who_has_it_open)
{
    struct peer peer = peer_ready();
    CUipcMemHandle token;
    CUdeviceptr opened;
    uint64_t before;

    setup_context();
    if (!on_simulator)
        return; /* undefined */
    before = device_free_bytes();
    token = peer_export(&peer, 0x36);
    opened = token_open(token);
    (void) peer_do(&peer, PEER_IPC_FREE, 0);
    expect_free(before - BYTES);
    ck_assert_uint_eq(byte_read(opened + BYTES - 1), 0x36);
    byte_write(opened, 0x37);
    ck_assert_uint_eq(byte_read(opened), 0x37);
    cu_ok(cu->ipc_close_mem_handle(opened));
    expect_free(before);
    peer_end(&peer);
}
END_TEST

START_TEST(ipc_memory_of_a_killed_exporter_stays_with_who_has_it_open)
{
    struct peer peer = peer_ready();
    CUdeviceptr opened;
    uint64_t before;

    setup_context();
    if (!on_simulator)
        return; /* undefined */
    before = device_free_bytes();
    opened = token_open(peer_export(&peer, 0x38));
    peer_kill(&peer);
    expect_free(before - BYTES);
    ck_assert_uint_eq(byte_read(opened), 0x38);
    cu_ok(cu->ipc_close_mem_handle(opened));
    expect_free(before);
}
END_TEST

START_TEST(ipc_handle_of_freed_memory_opens_nothing)
{
    struct peer peer = peer_ready(), other = peer_ready();
    CUdeviceptr opened, again;
    CUipcMemHandle token;

    setup_context();
    if (!on_simulator)
        return; /* undefined */
    token = peer_export(&peer, 0x39);
    opened = token_open(token);
    (void) peer_do(&peer, PEER_IPC_FREE, 0);
    /* Who has it open may open it again, nobody else may. */
    ck_assert_int_eq(peer_open(&other, &token), CUDA_ERROR_INVALID_VALUE);
    cu_ok(cu->ipc_open_mem_handle(&again, token, LAZY));
    ck_assert_uint_eq(again, opened);
    cu_ok(cu->ipc_close_mem_handle(opened));
    cu_ok(cu->ipc_close_mem_handle(opened));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->ipc_open_mem_handle(&opened, token, LAZY));
    /* The same place in the exporter is other memory, whose handle is another one. */
    (void) peer_export(&peer, 0x3a);
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->ipc_open_mem_handle(&opened, token, LAZY));
    peer_end(&peer);
    peer_end(&other);
}
END_TEST

START_TEST(ipc_handle_of_a_killed_exporter_opens_nothing)
{
    struct peer peer = peer_ready(), other = peer_ready();
    CUipcMemHandle token;
    CUdeviceptr opened;

    setup_context();
    if (!on_simulator)
        return; /* undefined */
    token = peer_export(&peer, 0x3b);
    opened = token_open(token);
    peer_kill(&peer);
    ck_assert_int_eq(peer_open(&other, &token), CUDA_ERROR_INVALID_VALUE);
    cu_ok(cu->ipc_close_mem_handle(opened));
    peer_end(&other);
}
END_TEST

START_TEST(ipc_importer_that_is_killed_gives_it_back)
{
    struct peer peer = peer_ready();
    CUipcMemHandle token;
    CUdeviceptr address;
    uint64_t before;

    setup_context();
    before = device_free_bytes();
    address = alloc_new(BYTES);
    token = token_of(address);
    ck_assert_int_eq(peer_open(&peer, &token), CUDA_SUCCESS);
    peer_kill(&peer);
    byte_write(address, 0x3c);
    ck_assert_uint_eq(byte_read(address), 0x3c);
    cu_ok(cu->mem_free(address));
    expect_free(before);
}
END_TEST

START_TEST(ipc_importer_that_is_killed_after_its_exporter_gives_it_back)
{
    struct peer exporter = peer_ready(), importer = peer_ready();
    CUipcMemHandle token;
    uint64_t before;

    setup_context();
    before = device_free_bytes();
    token = peer_export(&exporter, 0x3d);
    ck_assert_int_eq(peer_open(&importer, &token), CUDA_SUCCESS);
    peer_kill(&exporter);
    peer_kill(&importer);
    /* Above all what both of them had for their contexts comes back. */
    ck_assert(poll_until(5, device_free_bytes() >= before));
}
END_TEST

START_TEST(ipc_forked_child_of_an_importer_keeps_nothing)
{
    struct peer peer = peer_ready();
    CUdeviceptr opened;
    uint64_t before;
    pid_t child;

    setup_context();
    if (!on_simulator)
        return; /* what a fork inherits of a real driver isn't said */
    before = device_free_bytes();
    opened = token_open(peer_export(&peer, 0x3e));
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        (void) pause();
        _exit(0);
    }
    cu_ok(cu->ipc_close_mem_handle(opened));
    (void) peer_do(&peer, PEER_IPC_FREE, 0);
    expect_free(before);
    ck_assert_int_eq(kill(child, SIGKILL), 0);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    peer_end(&peer);
}
END_TEST

START_TEST(ipc_context_that_is_destroyed_closes_what_it_opened)
{
    struct peer peer = peer_ready();
    CUipcMemHandle token;
    uint64_t before;

    setup_context();
    before = device_free_bytes();
    token = peer_export(&peer, 0x3f);
    (void) token_open(token);
    cu_ok(cu->primary_ctx_release(device));
    (void) peer_do(&peer, PEER_IPC_FREE, 0);
    ck_assert(poll_until(5, device_free_bytes() >= before));
    peer_end(&peer);
}
END_TEST

START_TEST(ipc_open_on_a_process_that_does_not_see_the_device)
{
    struct peer peer;
    CUipcMemHandle token;
    CUdeviceptr address;
    int count;

    setup_context();
    cu_ok(cu->device_get_count(&count));
    if (count < 2)
        return;
    peer = peer_start("CUDA_VISIBLE_DEVICES=1");
    (void) peer_do(&peer, PEER_INIT, 0);
    address = alloc_new(BYTES);
    token = token_of(address);
    cu_observe("5.3 opening a handle of a hidden device", CUDA_ERROR_INVALID_DEVICE,
        peer_open(&peer, &token));
    cu_ok(cu->mem_free(address));
    peer_end(&peer);
}
END_TEST

/* The broker never relies on the contrary: what is in the bytes is nobody's secret. */
START_TEST(ipc_handle_opens_for_whoever_has_its_bytes)
{
    struct peer exporter = peer_ready(), stranger = peer_ready();
    CUipcMemHandle token = peer_export(&exporter, 0x40);

    ck_assert_int_eq(peer_open(&stranger, &token), CUDA_SUCCESS);
    ck_assert_uint_eq(peer_do(&stranger, PEER_READ, BYTES - 1).value, 0x40);
    peer_end(&stranger);
    peer_end(&exporter);
}
END_TEST

CONFORMANCE_MAIN("ipc", ipc_token_of_vmm_memory_is_refused,
    ipc_open_in_the_exporting_process_is_invalid_context, ipc_shares_bytes_and_counts_opens,
    ipc_memory_of_a_closed_importer_is_free_again, ipc_arguments_that_make_no_sense_are_refused,
    ipc_calls_need_a_context, ipc_handle_of_an_interior_pointer_is_the_allocations,
    ipc_range_of_an_opened_handle_is_the_allocation, ipc_importer_cannot_hand_it_on_as_its_own,
    ipc_opens_in_two_processes_are_one_charge,
    ipc_memory_that_its_exporter_frees_stays_with_who_has_it_open,
    ipc_memory_of_a_killed_exporter_stays_with_who_has_it_open,
    ipc_handle_of_freed_memory_opens_nothing, ipc_handle_of_a_killed_exporter_opens_nothing,
    ipc_importer_that_is_killed_gives_it_back,
    ipc_importer_that_is_killed_after_its_exporter_gives_it_back,
    ipc_forked_child_of_an_importer_keeps_nothing,
    ipc_context_that_is_destroyed_closes_what_it_opened,
    ipc_open_on_a_process_that_does_not_see_the_device, ipc_handle_opens_for_whoever_has_its_bytes)
