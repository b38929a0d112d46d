/* The CPU's side: a table from names to compiled kernels, and the loop that stands for a GPU. */
#include "kernels/kernels.h"

#include "kernels/pages.h"
#include "kernels/pattern.h"
#include "kernels/quantize.h"

#include <string.h>

#define KERNEL_ENTRY(kernel)                                                                       \
    {                                                                                              \
        .name = #kernel, .params_bytes = sizeof(struct kernel##_args), .thread = kernel_##kernel,  \
    }
#define KERNEL_DECLARE(kernel) void kernel_##kernel(const struct kernel_index *, const void *)

KERNEL_DECLARE(page_checksum);
KERNEL_DECLARE(page_copy);
KERNEL_DECLARE(page_dequantize);
KERNEL_DECLARE(page_quantize);
KERNEL_DECLARE(page_scrub);
KERNEL_DECLARE(pattern_check);
KERNEL_DECLARE(pattern_fill);
KERNEL_DECLARE(pattern_foreign);

static const struct kernel_info kernels[] = {
    KERNEL_ENTRY(page_checksum),
    KERNEL_ENTRY(page_copy),
    KERNEL_ENTRY(page_dequantize),
    KERNEL_ENTRY(page_quantize),
    KERNEL_ENTRY(page_scrub),
    KERNEL_ENTRY(pattern_check),
    KERNEL_ENTRY(pattern_fill),
    KERNEL_ENTRY(pattern_foreign),
};

const struct kernel_info *kernel_find(const char *name)
{
    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++)
        if (strcmp(kernels[i].name, name) == 0)
            return &kernels[i];
    return NULL;
}

/* The place in `dim` that comes after `id`; false after the last one, and `id` is the first again.
 */
static bool dim_next(const struct kernel_dim *dim, struct kernel_dim *id)
{
    if (++id->x < dim->x)
        return true;
    id->x = 0;
    if (++id->y < dim->y)
        return true;
    id->y = 0;
    if (++id->z < dim->z)
        return true;
    id->z = 0;
    return false;
}

void kernel_run(const struct kernel_info *kernel, const struct kernel_dim *grid,
    const struct kernel_dim *block, const void *params)
{
    struct kernel_index index = {.grid = *grid, .block = *block};

    do {
        do {
            kernel->thread(&index, params);
        } while (dim_next(block, &index.thread_id));
    } while (dim_next(grid, &index.block_id));
}
