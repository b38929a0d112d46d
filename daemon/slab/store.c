/*
 * An array, and a chain through what is free of it. What the driver did not free although it was
 * told to is nobody's any more: it is tried again before whatever is asked next.
 */
#include "daemon/slab/store.h"

#include <errno.h>
#include <string.h>

#include "base/uuid.h"
#include "gpu/driver_text.h"

#define NONE UINT32_MAX

struct entry {
    struct gpu_chunk slab; /* zero: none */
    bool dropped;          /* it is to be freed */
    uint32_t next_free;
};

struct store {
    struct gpu *gpu;
    const struct gpu_device *device;
    struct CUctx_st *context; /* NULL: not made */
    uint64_t context_bytes;
    struct entry *entries;
    uint32_t count, room, first_free;
    uint32_t dropped; /* entries that are */
};

static uint64_t free_bytes(const struct store *store)
{
    struct gpu_memory memory;

    if (store->gpu->ipc->memory_info(store->gpu, store->device, &memory, NULL) < 0)
        return 0;
    return memory.free_bytes;
}

static int context_make(struct store *store, struct gpu_error *error)
{
    uint64_t before = free_bytes(store);
    int r = store->gpu->ipc->context_retain(store->gpu, store->device, &store->context, error);

    if (r == 0)
        store->context_bytes = sub_saturate(before, free_bytes(store));
    return r;
}

int store_new(
    enum gpu_driver driver, const uint8_t uuid[16], struct store **ret, struct gpu_error *error)
{
    struct store *store = calloc(1, sizeof(*store));
    struct uuid named;
    char text[UUID_TEXT_MAX];
    int r;

    if (store == NULL)
        return -ENOMEM;
    store->first_free = NONE;
    memcpy(named.bytes, uuid, UUID_BYTES);
    r = gpu_open(driver, GPU_ROLE_BROKER, &store->gpu, error);
    if (r == 0)
        store->device = gpu_device_find(store->gpu, uuid_format(text, &named));
    if (r == 0 && store->device == NULL) {
        gpu_error_set(error, 0, "device %s is not visible here", text);
        r = -ENODEV;
    }
    if (r == 0)
        r = context_make(store, error);
    if (r < 0) {
        (void) store_free(store);
        return r;
    }
    *ret = store;
    return 0;
}

struct store *store_free(struct store *store)
{
    if (store == NULL)
        return NULL;
    for (uint32_t i = 0; i < store->count; i++)
        (void) store->gpu->ipc->chunk_release(store->gpu, &store->entries[i].slab, NULL);
    free(store->entries);
    if (store->context != NULL)
        (void) store->gpu->ipc->context_release(store->gpu, store->device, NULL);
    gpu_close(store->gpu);
    free(store);
    return NULL;
}

uint64_t store_context_bytes(const struct store *store)
{
    return store->context_bytes;
}

/* A number that is free, not taken yet. */
static int entry_find(struct store *store, uint32_t *ret)
{
    struct entry *grown;

    if (store->first_free != NONE) {
        *ret = store->first_free;
        return 0;
    }
    if (store->count == store->room) {
        grown = reallocarray(store->entries, 2 * store->room + 64, sizeof(*grown));
        if (grown == NULL)
            return -ENOMEM;
        store->entries = grown;
        store->room = 2 * store->room + 64;
    }
    *ret = store->count;
    store->entries[store->count++] = (struct entry){.next_free = NONE};
    store->first_free = *ret;
    return 0;
}

static int entry_free(struct store *store, struct entry *entry, struct gpu_error *error)
{
    int r = store->gpu->ipc->chunk_release(store->gpu, &entry->slab, error);

    if (r < 0)
        return r;
    store->dropped -= entry->dropped;
    entry->dropped = false;
    entry->next_free = store->first_free;
    store->first_free = (uint32_t) (entry - store->entries);
    return 0;
}

static void dropped_free(struct store *store)
{
    for (uint32_t i = 0; store->dropped > 0 && i < store->count; i++) {
        if (store->entries[i].dropped)
            (void) entry_free(store, &store->entries[i], NULL);
    }
}

int store_create(struct store *store, uint64_t bytes, uint32_t *ret_index,
    unsigned char ret_token[GPU_IPC_TOKEN_SIZE], struct gpu_error *error)
{
    const struct gpu_ops *ops = store->gpu->ipc;
    struct gpu_shareable shareable;
    struct gpu_chunk slab;
    uint32_t index;
    int r;

    dropped_free(store);
    r = entry_find(store, &index);
    if (r < 0)
        return r;
    r = ops->chunk_create(store->gpu, store->device, bytes, &slab, error);
    if (r != GPU_OK)
        return r;
    r = ops->chunk_export(store->gpu, &slab, &shareable, error);
    if (r < 0) {
        (void) ops->chunk_release(store->gpu, &slab, NULL);
        return r;
    }
    store->first_free = store->entries[index].next_free;
    store->entries[index].slab = slab;
    memcpy(ret_token, shareable.ipc_token, GPU_IPC_TOKEN_SIZE);
    *ret_index = index;
    return GPU_OK;
}

int store_drop(struct store *store, uint32_t index, struct gpu_error *error)
{
    struct entry *entry = index < store->count ? &store->entries[index] : NULL;
    int r;

    if (entry == NULL || entry->slab.device == NULL || entry->dropped) {
        gpu_error_set(error, 0, "there is no slab %u", index);
        return -ENOENT;
    }
    dropped_free(store);
    r = entry_free(store, entry, error);
    entry->dropped = r < 0;
    store->dropped += entry->dropped;
    return r;
}
