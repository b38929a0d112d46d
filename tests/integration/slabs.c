/* See slabs.h. */
#include "tests/integration/slabs.h"

#include <check.h>
#include <signal.h>
#include <string.h>

const char *const slabs_only[] = {"GMB_SIM_VMM=0", NULL};
struct cuda_api slab_driver;

uint64_t slab_take(struct raw *raw, uint64_t bytes, CUipcMemHandle *ret_handle)
{
    uint64_t id = raw_lease(raw, bytes, 0, 0), lease;
    Gmb__BrokerMessage *message = raw_receive(raw);
    const Gmb__Grant *grant;

    ck_assert_ptr_nonnull(message);
    ck_assert_uint_eq(message->id, id);
    ck_assert_msg(message->body_case == GMB__BROKER_MESSAGE__BODY_GRANT, "no grant but: %s",
        message->body_case == GMB__BROKER_MESSAGE__BODY_ERROR ? message->error->text : "?");
    grant = message->grant;
    ck_assert_int_eq(grant->handle_type, GMB__HANDLE_TYPE__HANDLE_TYPE_IPC);
    ck_assert_uint_eq(grant->n_chunks, 1);
    ck_assert_uint_eq(grant->total_chunks, 1);
    ck_assert_uint_eq(grant->chunk_bytes, bytes);
    ck_assert_uint_eq(raw->fds.count, 0);
    ck_assert_uint_eq(grant->chunks[0]->ipc_handle.len, sizeof(ret_handle->reserved));
    memcpy(ret_handle->reserved, grant->chunks[0]->ipc_handle.data, sizeof(ret_handle->reserved));
    lease = grant->lease;
    frame_message_free(&message->base);
    return lease;
}

void slab_kill(const struct harness *harness)
{
    pid_t pid;

    wait_until((pid = harness_slab(harness)) != 0);
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
}

uint64_t slab_losses(const struct harness *harness)
{
    Gmb__ControlReply *reply = raw_status(harness);
    uint64_t count = reply->status->devices[0]->memory_losses;

    frame_message_free(&reply->base);
    return count;
}

void slab_driver_begin(void)
{
    struct gpu_error error;
    CUcontext context;

    ck_assert_int_eq(cuda_load(GPU_DRIVER_SIM, &slab_driver, &error), 0);
    ck_assert_int_eq(slab_driver.init(0), CUDA_SUCCESS);
    ck_assert_int_eq(slab_driver.primary_ctx_retain(&context, 0), CUDA_SUCCESS);
    ck_assert_int_eq(slab_driver.ctx_set_current(context), CUDA_SUCCESS);
}

CUresult slab_open(const CUipcMemHandle *handle, CUdeviceptr *ret)
{
    return slab_driver.ipc_open_mem_handle(ret, *handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}
