/* The second process: one handler for each request, until the socket ends. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/loader.h"
#include "tests/conformance/peer.h"

struct state {
    struct cuda_api cu;
    CUdevice device;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    size_t mapped_bytes;
    int fd; /* of the request in hand; a handler that keeps it takes it */
    int parked;
};

typedef CUresult (*peer_handler)(
    struct state *state, const struct peer_message *request, struct peer_message *reply);

static CUmemAllocationProp properties_make(const struct state *state)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = state->device},
    };
}

static CUresult init_bare(
    struct state *state, const struct peer_message *request, struct peer_message *reply)
{
    CUresult result = state->cu.init(0);

    return result != CUDA_SUCCESS ? result : state->cu.device_get(&state->device, 0);
}

static CUresult init(
    struct state *state, const struct peer_message *request, struct peer_message *reply)
{
    CUcontext context;
    CUresult result = init_bare(state, request, reply);

    if (result == CUDA_SUCCESS)
        result = state->cu.primary_ctx_retain(&context, state->device);
    return result != CUDA_SUCCESS ? result : state->cu.ctx_set_current(context);
}

static CUresult create_export(
    struct state *state, const struct peer_message *request, struct peer_message *reply)
{
    CUmemAllocationProp properties = properties_make(state);
    CUresult result = state->cu.mem_create(&state->handle, request->bytes, &properties, 0);

    if (result != CUDA_SUCCESS)
        return result;
    return state->cu.mem_export_to_shareable_handle(
        &state->fd, state->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

static CUresult import(
    struct state *state, const struct peer_message *request, struct peer_message *reply)
{
    CUresult result = state->cu.mem_import_from_shareable_handle(
        &state->handle, (void *) (uintptr_t) state->fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

    close_fd(&state->fd);
    return result;
}

static CUresult map(
    struct state *state, const struct peer_message *request, struct peer_message *reply)
{
    CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = state->device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    CUresult result = state->cu.mem_address_reserve(&state->address, request->bytes, 0, 0, 0);

    state->mapped_bytes = request->bytes;
    if (result == CUDA_SUCCESS)
        result = state->cu.mem_map(state->address, request->bytes, 0, state->handle, 0);
    if (result == CUDA_SUCCESS)
        result = state->cu.mem_set_access(state->address, request->bytes, &access, 1);
    reply->value = state->address;
    return result;
}

static CUresult unmap(
    struct state *state, const struct peer_message *request, struct peer_message *reply)
{
    CUresult result = state->cu.mem_unmap(state->address, state->mapped_bytes);

    return result != CUDA_SUCCESS ? result
                                  : state->cu.mem_address_free(state->address, state->mapped_bytes);
}

static CUresult release(
    struct state *state, const struct peer_message *request, struct peer_message *reply)
{
    return state->cu.mem_release(state->handle);
}

static CUresult fill(
    struct state *state, const struct peer_message *request, struct peer_message *reply)
{
    CUresult result =
        state->cu.memset_d8(state->address, (unsigned char) request->value, state->mapped_bytes);

    return result != CUDA_SUCCESS ? result : state->cu.ctx_synchronize();
}

static CUresult read_byte(
    struct state *state, const struct peer_message *request, struct peer_message *reply)
{
    unsigned char value = 0;
    CUresult result = state->cu.memcpy_dtoh(&value, state->address + request->bytes, 1);

    reply->value = value;
    return result;
}

static CUresult park(
    struct state *state, const struct peer_message *request, struct peer_message *reply)
{
    state->parked = TAKE_FD(state->fd);
    return CUDA_SUCCESS;
}

static CUresult unpark(
    struct state *state, const struct peer_message *request, struct peer_message *reply)
{
    close_fd(&state->parked);
    return CUDA_SUCCESS;
}

static CUresult ipc_export(
    struct state *state, const struct peer_message *request, struct peer_message *reply)
{
    CUresult result = state->cu.mem_alloc(&state->address, request->bytes);

    state->mapped_bytes = request->bytes;
    if (result == CUDA_SUCCESS)
        result = state->cu.ipc_get_mem_handle(&reply->token, state->address);
    return result;
}

static CUresult ipc_open(
    struct state *state, const struct peer_message *request, struct peer_message *reply)
{
    state->mapped_bytes = request->bytes;
    return state->cu.ipc_open_mem_handle(
        &state->address, request->token, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

static CUresult ipc_close(
    struct state *state, const struct peer_message *request, struct peer_message *reply)
{
    return state->cu.ipc_close_mem_handle(state->address);
}

static CUresult ipc_free(
    struct state *state, const struct peer_message *request, struct peer_message *reply)
{
    return state->cu.mem_free(state->address);
}

static const peer_handler handlers[] = {
    [PEER_INIT] = init,
    [PEER_INIT_BARE] = init_bare,
    [PEER_CREATE_EXPORT] = create_export,
    [PEER_IMPORT] = import,
    [PEER_MAP] = map,
    [PEER_UNMAP] = unmap,
    [PEER_RELEASE] = release,
    [PEER_FILL] = fill,
    [PEER_READ] = read_byte,
    [PEER_PARK] = park,
    [PEER_UNPARK] = unpark,
    [PEER_IPC_EXPORT] = ipc_export,
    [PEER_IPC_OPEN] = ipc_open,
    [PEER_IPC_CLOSE] = ipc_close,
    [PEER_IPC_FREE] = ipc_free,
};
_Static_assert(ARRAY_SIZE(handlers) == PEER_MAX, "a handler for each request");

int main(int argc, char **argv)
{
    const char *name = getenv("GMB_GPU");
    enum gpu_driver driver = GPU_DRIVER_SIM;
    struct state state = {.fd = -1, .parked = -1};
    struct gpu_error error;
    int socket = argc == 2 ? atoi(argv[1]) : -1;
    struct peer_message request;
    int r;

    if ((name != NULL && gpu_driver_parse(name, &driver) < 0) ||
        cuda_load(driver, &state.cu, &error) < 0)
        return EXIT_FAILURE;
    while ((r = peer_receive(socket, &request, &state.fd)) == 0) {
        struct peer_message reply = {.op = request.op};

        reply.result = (unsigned) request.op < PEER_MAX
                           ? handlers[request.op](&state, &request, &reply)
                           : CUDA_ERROR_INVALID_VALUE;
        if (peer_send(socket, &reply, state.fd) < 0)
            return EXIT_FAILURE;
        close_fd(&state.fd);
    }
    return r == -EPIPE ? EXIT_SUCCESS : EXIT_FAILURE;
}
