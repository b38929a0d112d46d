/*
 * A kernel's two sides: what the simulator runs, and what the GPU runs, compiled for the CPU with
 * blocks and threads that share the work as there. A test runs both and expects the same.
 */
#pragma once

#include <stdio.h>
#include <string.h>

#include "kernels/kernels.h"
#include "tests/unit/unit.h"

/* ck_assert() writes a message for each check: too slow for millions. */
#define assert_each(condition)                                                                     \
    do {                                                                                           \
        if (!(condition))                                                                          \
            ck_abort_msg("%s", #condition);                                                        \
    } while (0)

enum side { SIDE_CPU, SIDE_GPU, SIDE_MAX };

void emulated_page_checksum(const struct kernel_index *index, const void *params);
void emulated_page_copy(const struct kernel_index *index, const void *params);
void emulated_page_dequantize(const struct kernel_index *index, const void *params);
void emulated_page_quantize(const struct kernel_index *index, const void *params);
void emulated_page_scrub(const struct kernel_index *index, const void *params);

static const struct kernel_info kernel_emulated[] = {
    {.name = "page_checksum", .thread = emulated_page_checksum},
    {.name = "page_copy", .thread = emulated_page_copy},
    {.name = "page_dequantize", .thread = emulated_page_dequantize},
    {.name = "page_quantize", .thread = emulated_page_quantize},
    {.name = "page_scrub", .thread = emulated_page_scrub},
};

struct shape {
    struct kernel_dim grid;
    struct kernel_dim block;
};

static const struct shape shapes[] = {
    {{1, 1, 1}, {1, 1, 1}},
    {{1, 1, 1}, {128, 1, 1}},
    {{7, 1, 1}, {33, 1, 1}},
    {{2, 3, 2}, {5, 2, 3}},
};

static inline void side_run(
    enum side side, const char *name, const struct shape *shape, const void *args)
{
    const struct kernel_info *kernel = side == SIDE_CPU ? kernel_find(name) : NULL;

    for (size_t i = 0; side == SIDE_GPU && i < ARRAY_SIZE(kernel_emulated); i++)
        if (strcmp(kernel_emulated[i].name, name) == 0)
            kernel = &kernel_emulated[i];
    ck_assert_ptr_nonnull(kernel);
    kernel_run(kernel, &shape->grid, &shape->block, args);
}

/* The checksum as checksum.h states it, byte by byte. */
static inline uint64_t reference_checksum(const unsigned char *bytes, uint64_t count)
{
    uint64_t sum = 0;

    for (uint64_t n = 0; n < count / 8; n++) {
        uint64_t key = (n + 1) * 0x9e3779b97f4a7c15;
        uint64_t half[2] = {0, 0}, keyed[2];

        for (unsigned i = 0; i < 8; i++)
            half[i / 4] |= (uint64_t) bytes[8 * n + i] << (8 * (i % 4));
        keyed[0] = half[0] ^ (key % 4294967296);
        keyed[1] = half[1] ^ (key / 4294967296);
        sum += keyed[0] * keyed[1] + (half[0] + half[1]) * 4294967296;
    }
    return sum;
}
