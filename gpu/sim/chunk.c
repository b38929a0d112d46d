/*
 * The process's chunk table. See chunk.h.
 *
 * A handle is the chunk's generation and slot, so that one that was released doesn't reach the
 * slot's next chunk. Objects stand in leaves that are never given back: a thousand each, found by
 * slot. One mutex; it is held while the ledger is changed, so that no import can slip between the
 * last release and the drop.
 */
#include "gpu/sim/chunk.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>

#define LEAF_BITS 10
#define LEAF_SIZE (1u << LEAF_BITS)
#define LEAVES (LEDGER_CHUNKS_MAX / LEAF_SIZE)
#define SLOT_BITS 20

_Static_assert(LEDGER_CHUNKS_MAX == 1u << SLOT_BITS, "a handle holds any slot");

struct chunk {
    uint64_t bytes;
    uint32_t generation;
    uint32_t handles, maps;
    int fd;
    uint8_t device, handle_types, flags;
    bool owned;  /* on the ledger, by this process */
    bool shared; /* others may have got at it */
};

static struct chunk *leaves[LEAVES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t handle_make(struct ledger_id id)
{
    return (uint64_t) id.generation << SLOT_BITS | id.slot;
}

struct ledger_id chunk_id(uint64_t handle)
{
    return (struct ledger_id){.slot = (uint32_t) (handle & (LEDGER_CHUNKS_MAX - 1)),
        .generation = (uint32_t) (handle >> SLOT_BITS)};
}

static bool in_use(const struct chunk *chunk)
{
    return chunk->handles > 0 || chunk->maps > 0;
}

/* The chunk of a handle, also one that is only mapped; NULL. The lock is held. */
static struct chunk *find(uint64_t handle)
{
    struct ledger_id id = chunk_id(handle);
    struct chunk *leaf = leaves[id.slot >> LEAF_BITS];
    struct chunk *chunk = leaf != NULL ? &leaf[id.slot & (LEAF_SIZE - 1)] : NULL;

    if (chunk == NULL || !in_use(chunk) || handle_make(id) != handle ||
        chunk->generation != id.generation)
        return NULL;
    return chunk;
}

static struct chunk *find_handle(uint64_t handle)
{
    struct chunk *chunk = find(handle);

    return chunk != NULL && chunk->handles > 0 ? chunk : NULL;
}

/* The place of a slot. */
static struct chunk *place(uint32_t slot)
{
    struct chunk **leaf = &leaves[slot >> LEAF_BITS];

    if (*leaf == NULL)
        *leaf = calloc(LEAF_SIZE, sizeof(**leaf));
    return *leaf != NULL ? &(*leaf)[slot & (LEAF_SIZE - 1)] : NULL;
}

static void fill(struct chunk *chunk, const struct ledger_chunk_info *info)
{
    *chunk = (struct chunk){
        .bytes = info->bytes,
        .generation = info->id.generation,
        .handles = 1,
        .fd = -1,
        .device = (uint8_t) info->device,
        .handle_types = info->handle_types,
        .flags = info->flags,
    };
}

static void fill_info(struct ledger_chunk_info *info, const struct chunk *chunk, uint64_t handle)
{
    *info = (struct ledger_chunk_info){
        .id = chunk_id(handle),
        .device = chunk->device,
        .bytes = chunk->bytes,
        .handle_types = chunk->handle_types,
        .flags = chunk->flags,
    };
}

/* After a reference went: lets go of what nothing in this process refers to any more. */
static void settle(struct chunk *chunk, uint64_t handle)
{
    if (chunk->handles == 0)
        close_fd(&chunk->fd);
    if (in_use(chunk))
        return;
    if (chunk->owned)
        ledger_chunk_drop(sim_ledger(), chunk_id(handle), chunk->shared);
    chunk->owned = false;
}

CUresult chunk_create(struct ledger_chunk_info *info, uint64_t *ret_handle)
{
    CUresult result = CUDA_SUCCESS;
    struct chunk *chunk;
    int r;

    r = ledger_chunk_create(sim_ledger(), info);
    if (r < 0)
        return sim_error(r);
    pthread_mutex_lock(&lock);
    chunk = place(info->id.slot);
    if (chunk != NULL) {
        fill(chunk, info);
        chunk->owned = true;
        *ret_handle = handle_make(info->id);
    } else {
        ledger_chunk_drop(sim_ledger(), info->id, false);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* A chunk that this process has no object of yet. */
static CUresult import_new(int fd, const struct ledger_chunk_info *info)
{
    _cleanup_close_ int copy = -1;
    struct chunk *chunk = place(info->id.slot);

    if (chunk == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (ledger_chunk_adopt(sim_ledger(), info->id)) {
        fill(chunk, info);
        chunk->owned = true;
    } else {
        copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (copy < 0)
            return sim_error(-errno);
        fill(chunk, info);
        chunk->fd = TAKE_FD(copy);
    }
    chunk->shared = true;
    return CUDA_SUCCESS;
}

CUresult chunk_import(int fd, uint64_t *ret_handle)
{
    struct ledger_chunk_info info;
    CUresult result = CUDA_SUCCESS;
    struct chunk *chunk;

    if (ledger_chunk_identify(sim_ledger(), fd, &info) < 0 ||
        (info.handle_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_device_ordinal(info.device) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&lock);
    chunk = find(handle_make(info.id));
    if (chunk == NULL)
        result = import_new(fd, &info);
    else if (chunk->handles == UINT32_MAX)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else if (chunk->handles > 0 || chunk->owned)
        chunk->handles++;
    else if ((chunk->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0)
        result = sim_error(-errno);
    else
        chunk->handles = 1;
    if (result == CUDA_SUCCESS)
        *ret_handle = handle_make(info.id);
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult chunk_info(uint64_t handle, struct ledger_chunk_info *ret)
{
    struct chunk *chunk;

    pthread_mutex_lock(&lock);
    chunk = find_handle(handle);
    if (chunk != NULL)
        fill_info(ret, chunk, handle);
    pthread_mutex_unlock(&lock);
    return chunk != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult chunk_release(uint64_t handle)
{
    struct chunk *chunk;

    pthread_mutex_lock(&lock);
    chunk = find_handle(handle);
    if (chunk != NULL) {
        chunk->handles--;
        settle(chunk, handle);
    }
    pthread_mutex_unlock(&lock);
    return chunk != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult chunk_export(uint64_t handle, int *ret_fd)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    struct chunk *chunk;

    pthread_mutex_lock(&lock);
    chunk = find_handle(handle);
    if (chunk != NULL) {
        int fd = ledger_chunk_open(sim_ledger(), chunk_id(handle), true);

        /* An importer without access to the node's files passes on what it has. */
        if (fd == -EACCES && chunk->fd >= 0)
            fd = fcntl(chunk->fd, F_DUPFD_CLOEXEC, 0);
        result = fd >= 0 ? CUDA_SUCCESS : sim_error(fd);
        if (fd >= 0) {
            chunk->shared = true;
            *ret_fd = fd;
        }
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult chunk_mapped(uint64_t handle, struct ledger_chunk_info *ret, int *ret_fd)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    struct chunk *chunk;

    pthread_mutex_lock(&lock);
    chunk = find_handle(handle);
    if (chunk != NULL && chunk->maps < UINT32_MAX) {
        int fd = chunk->owned ? ledger_chunk_open(sim_ledger(), chunk_id(handle), false)
                              : fcntl(chunk->fd, F_DUPFD_CLOEXEC, 0);

        if (fd >= 0) {
            fill_info(ret, chunk, handle);
            chunk->maps++;
            *ret_fd = fd;
        }
        result = fd >= 0 ? CUDA_SUCCESS : sim_error(chunk->owned ? fd : -errno);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

void chunk_unmapped(uint64_t handle)
{
    struct chunk *chunk;

    pthread_mutex_lock(&lock);
    chunk = find(handle);
    if (chunk != NULL && chunk->maps > 0) {
        chunk->maps--;
        settle(chunk, handle);
    }
    pthread_mutex_unlock(&lock);
}

CUresult chunk_retain(uint64_t handle)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    struct chunk *chunk;

    pthread_mutex_lock(&lock);
    chunk = find(handle);
    if (chunk != NULL && chunk->handles < UINT32_MAX) {
        result = CUDA_SUCCESS;
        if (!chunk->owned && chunk->fd < 0) {
            int fd = ledger_chunk_open(sim_ledger(), chunk_id(handle), true);

            if (fd < 0)
                result = sim_error(fd);
            else
                chunk->fd = fd;
        }
        if (result == CUDA_SUCCESS)
            chunk->handles++;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

void chunk_share(uint64_t handle)
{
    struct chunk *chunk;

    pthread_mutex_lock(&lock);
    chunk = find(handle);
    if (chunk != NULL)
        chunk->shared = true;
    pthread_mutex_unlock(&lock);
}

void chunks_fork_prepare(void)
{
    pthread_mutex_lock(&lock);
}

void chunks_fork_parent(void)
{
    pthread_mutex_unlock(&lock);
}

void chunks_fork_child(void)
{
    for (unsigned i = 0; i < LEAVES; i++) {
        for (unsigned j = 0; leaves[i] != NULL && j < LEAF_SIZE; j++) {
            if (leaves[i][j].handles > 0)
                close_fd(&leaves[i][j].fd);
        }
    }
    pthread_mutex_unlock(&lock);
}
