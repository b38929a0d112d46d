/*
 * The slabs of one device that this process has, under small numbers. One thread.
 *
 * They are the process's: when it ends the driver takes them back, and what others have mapped of
 * them is theirs to make sense of.
 */
#pragma once

#include "gpu/gpu.h"

struct store;

/* Opens the driver and makes the context. -ENODEV when `uuid` isn't visible; the driver's -errno,
 * -ENOMEM also when the device has no memory for the context. */
int store_new(enum gpu_driver driver, const uint8_t uuid[16], struct store **ret,
    struct gpu_error *error) _must_check_;
/* Frees every slab. Accepts NULL, returns NULL. */
struct store *store_free(struct store *store);

/* Device memory that went while the store was made: what this process costs. */
uint64_t store_context_bytes(const struct store *store);

/* A slab of zeros, with its number and its token. 0, GPU_NO_MEMORY, or -errno. Blocks for the time
 * that filling takes. */
int store_create(struct store *store, uint64_t bytes, uint32_t *ret_index,
    unsigned char ret_token[GPU_IPC_TOKEN_SIZE], struct gpu_error *error) _must_check_;
/* -ENOENT where there is none. One that the driver fails to free is gone for the caller all the
 * same: it is tried again with each later call. */
int store_drop(struct store *store, uint32_t index, struct gpu_error *error) _must_check_;
