/*
 * One source for two machines. A kernel is written once, in the common subset of C and CUDA C++:
 *
 *     struct scale_args { uint64_t dst; uint64_t count; uint64_t factor; };
 *
 *     KERNEL(scale)
 *     {
 *         uint64_t *dst = KERNEL_PTR(uint64_t, args->dst);
 *         KERNEL_FOR (i, index, args->count)
 *             dst[i] *= args->factor;
 *     }
 *
 * Compiled for the GPU it is an entry point `scale` of the embedded PTX, with `struct scale_args`
 * as its one parameter. Compiled for the CPU it is an entry of the table in kernels.h, run by
 * kernel_run() for one simulated thread after the other.
 *
 * Rules for kernels: device addresses travel as uint64_t; a thread works on its own elements and
 * joins the others by atomics alone (no shared memory, no barrier: the CPU runs threads in turn);
 * no call outside this folder, no lock, no allocation (a fault leaves the kernel by a jump).
 *
 * The GPU's compiler is clang or nvcc; what differs between the two stands here and nowhere else.
 * With KERNEL_EMULATED the GPU's side of each kernel is compiled for the CPU, as emulated_NAME()
 * beside kernel_NAME(): so that tests can compare the two.
 */
#pragma once

#include <stdint.h>

#if !defined(__CUDA_ARCH__) && !defined(__CUDACC__) && defined(__SSE2__)
#include <emmintrin.h>
#endif

#if defined(__CUDA_ARCH__) || defined(__CUDACC__)
#define KERNEL_GPU
#define KERNEL_GPU_COMPILER
#elif defined(KERNEL_EMULATED)
#define KERNEL_GPU
#endif

/* Where one thread stands in its launch. Counts are >= 1; `id` < `count` in each dimension. */
struct kernel_dim {
    uint32_t x;
    uint32_t y;
    uint32_t z;
};

struct kernel_index {
    struct kernel_dim grid;      /* blocks in the launch */
    struct kernel_dim block;     /* threads in a block */
    struct kernel_dim block_id;  /* this thread's block */
    struct kernel_dim thread_id; /* this thread in its block */
};

#ifndef KERNEL_GPU_COMPILER
#define KERNEL_FUNCTION static inline __attribute__((always_inline))
#elif defined(__NVCC__)
#define KERNEL_FUNCTION static __device__ __forceinline__
#else
#define KERNEL_FUNCTION static inline __attribute__((device, always_inline))
#endif

/* Two words that are loaded and stored by one 16-byte access; the address is 16-byte aligned. */
#ifdef __NVCC__ /* knows no vector types */
struct __align__(16) kernel_pair
{
    uint64_t low, high;
    __device__ __forceinline__ uint64_t operator[](int i) const
    {
        return i == 0 ? low : high;
    }
};
#else
typedef uint64_t kernel_pair __attribute__((vector_size(16)));
#endif

/* Before a loop over the elements of a local array: unrolled on the GPU, where an array that is
 * indexed at run time lies in memory. The CPU's compiler makes vector instructions of the loop. */
#ifdef KERNEL_GPU_COMPILER
#define KERNEL_UNROLL _Pragma("unroll")
#else
#define KERNEL_UNROLL
#endif

#define KERNEL_PTR(type, address) ((type *) (uintptr_t) (address))

/* Threads in the launch, and the number of this one among them. */
KERNEL_FUNCTION uint64_t kernel_volume(const struct kernel_dim *dim)
{
    return (uint64_t) dim->x * dim->y * dim->z;
}

KERNEL_FUNCTION uint64_t kernel_place(const struct kernel_dim *dim, const struct kernel_dim *id)
{
    return ((uint64_t) id->z * dim->y + id->y) * dim->x + id->x;
}

KERNEL_FUNCTION uint64_t kernel_threads(const struct kernel_index *index)
{
    return kernel_volume(&index->grid) * kernel_volume(&index->block);
}

KERNEL_FUNCTION uint64_t kernel_rank(const struct kernel_index *index)
{
    return kernel_place(&index->grid, &index->block_id) * kernel_volume(&index->block) +
           kernel_place(&index->block, &index->thread_id);
}

/* Relaxed atomic addition in device memory. */
KERNEL_FUNCTION void kernel_atomic_add(uint64_t *at, uint64_t value)
{
#ifdef __NVCC__
    (void) atomicAdd((unsigned long long *) at, (unsigned long long) value);
#else
    (void) __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
#endif
}

/*
 * A store of what nobody reads soon: on the CPU around the caches, which would only fetch the line
 * to overwrite it. kernel_stores_end() comes after the last one and before anybody is told.
 */
#if !defined(KERNEL_GPU) && defined(__SSE2__)
KERNEL_FUNCTION void kernel_store_away(kernel_pair *at, kernel_pair value)
{
    _mm_stream_si128((__m128i *) (void *) at, (__m128i) value);
}

KERNEL_FUNCTION void kernel_stores_end(void)
{
    _mm_sfence();
}
#else
KERNEL_FUNCTION void kernel_store_away(kernel_pair *at, kernel_pair value)
{
    *at = value;
}

KERNEL_FUNCTION void kernel_stores_end(void)
{
}
#endif

/* A float and its bits. */
KERNEL_FUNCTION uint32_t kernel_bits(float value)
{
    union {
        float value;
        uint32_t bits;
    } both = {value};

    return both.bits;
}

KERNEL_FUNCTION float kernel_float(uint32_t bits)
{
    union {
        uint32_t bits;
        float value;
    } both = {bits};

    return both.value;
}

/*
 * Work in two steps, where elements come in units that a block works on together:
 *
 *     KERNEL_UNITS (unit, index, units)
 *         KERNEL_LANES (i, index, elements)
 *
 * On the GPU the blocks share the units and the threads of a block the elements of a unit,
 * neighbours side by side. On the CPU the first thread of a block does all of the block's share
 * and the others nothing. Either way thread `lane` of `lanes` that work on a unit visits elements
 * lane, lane + lanes, …
 */
#define KERNEL_LANES(i, index, count)                                                              \
    for (uint64_t i = kernel_lane(index); i < (count); i += kernel_lanes(index))

#ifdef KERNEL_GPU

#define KERNEL_UNITS(unit, index, count)                                                           \
    for (uint64_t unit = kernel_place(&(index)->grid, &(index)->block_id); unit < (count);         \
         unit += kernel_volume(&(index)->grid))

KERNEL_FUNCTION uint64_t kernel_lane(const struct kernel_index *index)
{
    return kernel_place(&index->block, &index->thread_id);
}

KERNEL_FUNCTION uint64_t kernel_lanes(const struct kernel_index *index)
{
    return kernel_volume(&index->block);
}

/* Neighbouring threads take neighbouring elements, so that a warp's accesses join. */
#define KERNEL_FOR(i, index, count)                                                                \
    for (uint64_t i = kernel_rank(index), i##_step = kernel_threads(index); i < (count);           \
         i += i##_step)

#else

/* Where the share of number `rank` begins: `count` elements over `sharers`, the first
 * `count % sharers` shares one larger. kernel_share(count, sharers, sharers) == count. */
KERNEL_FUNCTION uint64_t kernel_share(uint64_t count, uint64_t rank, uint64_t sharers)
{
    uint64_t rest = count % sharers;

    return count / sharers * rank + (rank < rest ? rank : rest);
}

/* A block's units are neighbours, which a cache likes. */
#define KERNEL_UNITS(unit, index, count)                                                           \
    for (uint64_t unit = kernel_unit_bound((index), (count), 0),                                   \
                  unit##_end = kernel_unit_bound((index), (count), 1);                             \
         unit < unit##_end; unit++)

/* Where the block's units begin, or with `next` = 1 end. For all threads but the first that is the
 * same place. */
KERNEL_FUNCTION uint64_t kernel_unit_bound(
    const struct kernel_index *index, uint64_t count, uint64_t next)
{
    const struct kernel_dim *thread = &index->thread_id;

    if ((thread->x | thread->y | thread->z) != 0)
        return 0;
    return kernel_share(
        count, kernel_place(&index->grid, &index->block_id) + next, kernel_volume(&index->grid));
}

KERNEL_FUNCTION uint64_t kernel_lane(const struct kernel_index *index)
{
    (void) index;
    return 0;
}

KERNEL_FUNCTION uint64_t kernel_lanes(const struct kernel_index *index)
{
    (void) index;
    return 1;
}

/* Each thread takes one run of neighbouring elements: what a cache likes. Together the threads
 * visit exactly the elements that they visit on the GPU. */
#define KERNEL_FOR(i, index, count)                                                                \
    for (uint64_t i = kernel_share((count), kernel_rank(index), kernel_threads(index)),            \
                  i##_end = kernel_share((count), kernel_rank(index) + 1, kernel_threads(index));  \
         i < i##_end; i++)

#endif

#ifdef KERNEL_GPU_COMPILER

KERNEL_FUNCTION struct kernel_index kernel_index_read(void)
{
    struct kernel_index index;

#ifdef __NVCC__
    index.grid = {gridDim.x, gridDim.y, gridDim.z};
    index.block = {blockDim.x, blockDim.y, blockDim.z};
    index.block_id = {blockIdx.x, blockIdx.y, blockIdx.z};
    index.thread_id = {threadIdx.x, threadIdx.y, threadIdx.z};
#else
    index.grid.x = __nvvm_read_ptx_sreg_nctaid_x();
    index.grid.y = __nvvm_read_ptx_sreg_nctaid_y();
    index.grid.z = __nvvm_read_ptx_sreg_nctaid_z();
    index.block.x = __nvvm_read_ptx_sreg_ntid_x();
    index.block.y = __nvvm_read_ptx_sreg_ntid_y();
    index.block.z = __nvvm_read_ptx_sreg_ntid_z();
    index.block_id.x = __nvvm_read_ptx_sreg_ctaid_x();
    index.block_id.y = __nvvm_read_ptx_sreg_ctaid_y();
    index.block_id.z = __nvvm_read_ptx_sreg_ctaid_z();
    index.thread_id.x = __nvvm_read_ptx_sreg_tid_x();
    index.thread_id.y = __nvvm_read_ptx_sreg_tid_y();
    index.thread_id.z = __nvvm_read_ptx_sreg_tid_z();
#endif
    return index;
}

#define KERNEL(name)                                                                               \
    KERNEL_FUNCTION void name##_thread(                                                            \
        const struct kernel_index *index, const struct name##_args *args);                         \
    extern "C" __attribute__((global)) void name(const struct name##_args args);                   \
    extern "C" __attribute__((global)) void name(const struct name##_args args)                    \
    {                                                                                              \
        const struct kernel_index index = kernel_index_read();                                     \
        name##_thread(&index, &args);                                                              \
    }                                                                                              \
    KERNEL_FUNCTION void name##_thread(                                                            \
        const struct kernel_index *index, const struct name##_args *args)

#else

/* The simulator's GPU is the CPU at hand: what it has beyond the oldest of its kind is used. Not by
 * clang, whose 14 gives the dispatching symbol another name than the function's. */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define KERNEL_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define KERNEL_CLONES
#endif

#ifdef KERNEL_EMULATED
#define KERNEL_SYMBOL(name) emulated_##name
#else
#define KERNEL_SYMBOL(name) kernel_##name
#endif

#define KERNEL(name)                                                                               \
    KERNEL_FUNCTION void name##_thread(                                                            \
        const struct kernel_index *index, const struct name##_args *args);                         \
    void KERNEL_SYMBOL(name)(const struct kernel_index *index, const void *params);                \
    KERNEL_CLONES void KERNEL_SYMBOL(name)(const struct kernel_index *index, const void *params)   \
    {                                                                                              \
        name##_thread(index, (const struct name##_args *) params);                                 \
    }                                                                                              \
    KERNEL_FUNCTION void name##_thread(                                                            \
        const struct kernel_index *index, const struct name##_args *args)

#endif
