/*
 * A simulated device of this test's own, with chunks that it creates, fills and reads: what a
 * broker holds and what a worker would see.
 */
#pragma once

#include "daemon/mover_control.h"
#include "gpu/gpu.h"

#define BED_CHUNKS 64

struct bed_chunk {
    struct gpu_chunk chunk;
    uint32_t generation;
    unsigned char *bytes; /* its data, mapped without the driver */
};

struct bed {
    char directory[64];
    struct gpu *gpu;
    const struct gpu_device *device;
    uint8_t uuid[16];
    uint64_t free_bytes; /* of the device, when nothing was on it */
    size_t open_fds;
    uint64_t chunk_bytes;
    size_t chunk_count;
    struct bed_chunk chunks[BED_CHUNKS];
};

/* Opens a device of `device_bytes` in a state directory of its own. */
void bed_open(struct bed *bed, uint64_t device_bytes);
/* Creates chunks numbered 0 to `count` and maps their bytes, with no context: a broker has none. */
void bed_chunks(struct bed *bed, size_t count, uint64_t bytes);
/* For struct rig: `data` is the bed. */
int bed_chunk_fd(void *data, uint32_t number, uint32_t generation, int *ret_fd);
unsigned char *bed_bytes(const struct bed *bed, size_t chunk);
/* Each byte depends on `seed` and its place. */
void bed_fill(const struct bed *bed, size_t chunk, uint64_t seed);
bool bed_filled(const struct bed *bed, size_t chunk, uint64_t seed);
uint64_t bed_free_bytes(const struct bed *bed);
void bed_release(struct bed *bed);
/* Gives the chunks back and checks that memory and fds are as they were. */
void bed_close(struct bed *bed);
