/* The vtable for slabs over legacy IPC, with a second process at the other end. */
#include <errno.h>
#include <string.h>

#include "gpu/gpu.h"
#include "tests/conformance/conformance.h"
#include "tests/conformance/peer.h"

#define BYTES (2 * GPU_SLAB_BYTES)

static struct gpu_error error;
static struct gpu *gpu;
static const struct gpu_device *at;

/* The driver, with the context that slabs need; none is current. */
static void slabs_setup(void)
{
    struct CUctx_st *retained;
    int r =
        gpu_open(on_simulator ? GPU_DRIVER_SIM : GPU_DRIVER_CUDA, GPU_ROLE_BROKER, &gpu, &error);

    ck_assert_msg(r == 0, "%s", error.text);
    at = gpu->devices[0];
    ck_assert_int_eq(gpu->ipc->context_retain(gpu, at, &retained, &error), 0);
    context = retained;
}

static void slabs_end(void)
{
    CUcontext current;

    cu_ok(cu->ctx_get_current(&current));
    ck_assert_ptr_null(current);
    ck_assert_int_eq(gpu->ipc->context_release(gpu, at, &error), 0);
    gpu_close(gpu);
}

static struct gpu_chunk slab_new(uint64_t bytes)
{
    struct gpu_chunk slab;

    ck_assert_msg(
        gpu->ipc->chunk_create(gpu, at, bytes, &slab, &error) == GPU_OK, "%s", error.text);
    ck_assert_uint_eq(slab.bytes, bytes);
    return slab;
}

static struct gpu_shareable slab_export(const struct gpu_chunk *slab)
{
    struct gpu_shareable shareable;

    ck_assert_int_eq(gpu->ipc->chunk_export(gpu, slab, &shareable, &error), 0);
    ck_assert_int_eq(shareable.type, GPU_HANDLE_IPC);
    ck_assert_int_eq(shareable.fd, -1);
    return shareable;
}

static void slab_release(struct gpu_chunk *slab)
{
    ck_assert_int_eq(gpu->ipc->chunk_release(gpu, slab, &error), 0);
    ck_assert_ptr_null(slab->device);
    /* Once more: a zero chunk is nobody's. */
    ck_assert_int_eq(gpu->ipc->chunk_release(gpu, slab, &error), 0);
}

static struct gpu_chunk slab_import(const CUipcMemHandle *token)
{
    struct gpu_shareable shareable = {.type = GPU_HANDLE_IPC, .fd = -1};
    struct gpu_chunk slab;

    memcpy(shareable.ipc_token, token->reserved, sizeof(shareable.ipc_token));
    ck_assert_int_eq(gpu->ipc->chunk_import_borrow(gpu, at, &shareable, BYTES, &slab, &error), 0);
    return slab;
}

static unsigned char slab_byte(uint64_t address)
{
    unsigned char value;

    cu_ok(cu->ctx_set_current(context));
    value = byte_read(address);
    cu_ok(cu->ctx_set_current(NULL));
    return value;
}

static struct peer peer_ready(void)
{
    struct peer peer = peer_start(NULL);

    (void) peer_do(&peer, PEER_INIT, 0);
    return peer;
}

/* The peer opens the slab and finds nothing but zeros; leaves other bytes behind. */
static void peer_uses_slab(struct peer *peer, const struct gpu_chunk *slab)
{
    struct peer_message request = {.op = PEER_IPC_OPEN, .bytes = slab->bytes};
    struct gpu_shareable shareable = slab_export(slab);

    memcpy(request.token.reserved, shareable.ipc_token, sizeof(shareable.ipc_token));
    ck_assert_int_eq(peer_call(peer, request, -1, NULL).result, CUDA_SUCCESS);
    for (uint64_t offset = 0; offset < slab->bytes; offset += 4096)
        ck_assert_uint_eq(peer_do(peer, PEER_READ, offset).value, 0);
    ck_assert_uint_eq(peer_do(peer, PEER_READ, slab->bytes - 1).value, 0);
    request = (struct peer_message){.op = PEER_FILL, .value = 0x77};
    ck_assert_int_eq(peer_call(peer, request, -1, NULL).result, CUDA_SUCCESS);
    (void) peer_do(peer, PEER_IPC_CLOSE, 0);
}

START_TEST(slab_is_zero_when_it_is_made_and_when_its_memory_is_made_again)
{
    struct peer peer = peer_ready();

    slabs_setup();
    for (unsigned i = 0; i < 3; i++) {
        struct gpu_chunk slab = slab_new(BYTES);

        peer_uses_slab(&peer, &slab);
        slab_release(&slab);
    }
    slabs_end();
    peer_end(&peer);
}
END_TEST

START_TEST(slab_is_a_multiple_of_a_block_and_no_larger_than_the_device)
{
    struct gpu_chunk slab = {.bytes = 77};
    uint64_t too_much;

    slabs_setup();
    ck_assert(round_up(at->total_bytes + 1, GPU_SLAB_BYTES, &too_much));
    ck_assert_int_eq(gpu->ipc->chunk_create(gpu, at, too_much, &slab, &error), GPU_NO_MEMORY);
    ck_assert_str_eq(error.text, "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (2)");
    ck_assert_int_eq(gpu->ipc->chunk_create(gpu, at, 0, &slab, &error), -EINVAL);
    ck_assert_int_eq(gpu->ipc->chunk_create(gpu, at, GPU_SLAB_BYTES / 2, &slab, &error), -EINVAL);
    ck_assert_str_eq(error.text, "a slab is a multiple of 2097152 bytes, not 1048576");
    ck_assert_uint_eq(slab.bytes, 77);
    slabs_end();
}
END_TEST

START_TEST(slab_of_another_process_is_mapped_whole_where_the_driver_likes)
{
    struct peer peer = peer_ready();
    struct peer_message reply = peer_do(&peer, PEER_IPC_EXPORT, BYTES), request = {.op = PEER_FILL};
    struct gpu_chunk slab;
    uint64_t address, again;

    slabs_setup();
    request.value = 0x51;
    ck_assert_int_eq(peer_call(&peer, request, -1, NULL).result, CUDA_SUCCESS);
    slab = slab_import(&reply.token);
    ck_assert_int_eq(gpu->ipc->chunk_map(gpu, &slab, 1 << 21, &address, &error), -EINVAL);
    ck_assert_int_eq(gpu->ipc->chunk_map(gpu, &slab, 0, &address, &error), 0);
    ck_assert_int_eq(gpu->ipc->chunk_map(gpu, &slab, 0, &again, &error), 0);
    ck_assert_uint_eq(again, address);
    slab_release(&slab);
    ck_assert_int_eq(
        gpu->ipc->span_set_access(gpu, at, address, BYTES, GPU_ACCESS_READ_WRITE, &error), 0);
    ck_assert_int_eq(
        gpu->ipc->span_set_access(gpu, at, address, BYTES, GPU_ACCESS_READ, &error), -EOPNOTSUPP);
    ck_assert_uint_eq(slab_byte(address + BYTES - 1), 0x51);
    ck_assert_int_eq(gpu->ipc->span_unmap(gpu, address, BYTES, &error), 0);
    ck_assert_uint_eq(slab_byte(address), 0x51);
    ck_assert_int_eq(gpu->ipc->span_unmap(gpu, address, BYTES, &error), 0);
    ck_assert_int_lt(gpu->ipc->span_unmap(gpu, address, BYTES, &error), 0);
    slabs_end();
    peer_end(&peer);
}
END_TEST

START_TEST(slab_is_not_mapped_by_who_made_it)
{
    struct gpu_shareable shareable;
    struct gpu_chunk slab, imported;
    CUipcMemHandle token;

    slabs_setup();
    slab = slab_new(BYTES);
    ck_assert_int_eq(gpu->ipc->chunk_map(gpu, &slab, 0, NULL, &error), -EINVAL);
    shareable = slab_export(&slab);
    memcpy(token.reserved, shareable.ipc_token, sizeof(token.reserved));
    imported = slab_import(&token);
    ck_assert_int_eq(gpu->ipc->chunk_map(gpu, &imported, 0, NULL, &error), -ENXIO);
    slab_release(&imported);
    slab_release(&slab);
    slabs_end();
}
END_TEST

START_TEST(slabs_have_no_addresses_to_reserve_and_no_fds)
{
    struct gpu_shareable shareable = {.type = GPU_HANDLE_POSIX_FD, .fd = 0};
    struct gpu_chunk slab = {.bytes = 77};
    uint64_t address;

    slabs_setup();
    ck_assert_int_eq(gpu->ipc->range_reserve(gpu, BYTES, 0, &address, &error), -EOPNOTSUPP);
    ck_assert_int_eq(gpu->ipc->range_free(gpu, BYTES, BYTES, &error), -EOPNOTSUPP);
    ck_assert_int_eq(
        gpu->ipc->chunk_import_borrow(gpu, at, &shareable, BYTES, &slab, &error), -EINVAL);
    ck_assert_uint_eq(slab.bytes, 77);
    slabs_end();
}
END_TEST

START_TEST(slabs_need_a_context_that_was_retained)
{
    struct gpu_chunk slab;

    ck_assert_int_eq(
        gpu_open(on_simulator ? GPU_DRIVER_SIM : GPU_DRIVER_CUDA, GPU_ROLE_CLIENT, &gpu, &error),
        0);
    ck_assert_int_eq(gpu->ipc->chunk_create(gpu, gpu->devices[0], BYTES, &slab, &error), -EINVAL);
    ck_assert(strstr(error.text, "slabs need a context on GPU-") != NULL);
    gpu_close(gpu);
}
END_TEST

CONFORMANCE_MAIN("slabs", slab_is_zero_when_it_is_made_and_when_its_memory_is_made_again,
    slab_is_a_multiple_of_a_block_and_no_larger_than_the_device,
    slab_of_another_process_is_mapped_whole_where_the_driver_likes,
    slab_is_not_mapped_by_who_made_it, slabs_have_no_addresses_to_reserve_and_no_fds,
    slabs_need_a_context_that_was_retained)
