/*
 * The device address space. See va.h.
 *
 * Ranges stand sorted in an array. Each has a table with one entry per granule of its address
 * space that points at the mapping there: a look-up is two steps whatever is mapped. Entries of
 * untouched granules cost nothing (the table is a zero mapping).
 *
 * The write lock is for whoever changes the table, the read lock for whoever relies on it, which
 * includes all access to the bytes (sim_va_begin). Waiting writers go first, or a busy stream
 * could hold off an unmap for ever.
 */
#include "gpu/sim/va.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "base/list.h"
#include "gpu/sim/chunk.h"

/* With 47 address bits or more: above the heap of a program at a fixed address, below where the
 * kernel puts position-independent programs and, from the top, all else. */
#define WINDOW_START UINT64_C(0x200000000000)
#define WINDOW_END UINT64_C(0x500000000000)

struct mapping {
    struct list link; /* in its range's, or in one of those to end */
    CUdeviceptr base;
    uint64_t bytes;
    struct va_memory memory;
    uint8_t access[SIM_DEVICES_MAX]; /* enum sim_access by ledger index */
};

struct range {
    enum sim_memory_kind kind;
    CUdeviceptr base;
    uint64_t bytes;
    uint64_t first, count; /* granules */
    struct list mappings;  /* all: a leak checker doesn't look into the table */
    struct mapping **granules;
};

static pthread_rwlock_t lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static struct range **ranges;
static size_t range_count, range_capacity;
static uint64_t granule = 1;

void va_init(uint64_t granularity)
{
    granule = granularity;
}

void sim_va_begin(void)
{
    pthread_rwlock_rdlock(&lock);
}

void sim_va_end(void)
{
    pthread_rwlock_unlock(&lock);
}

/* Index of the first range that ends behind the address. */
static size_t range_index(CUdeviceptr address)
{
    size_t low = 0, high = range_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (ranges[middle]->base + ranges[middle]->bytes <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct range *range_find(CUdeviceptr address)
{
    size_t i = range_index(address);

    return i < range_count && ranges[i]->base <= address ? ranges[i] : NULL;
}

/* The range that holds all of [base, base + bytes), bytes > 0. */
static struct range *range_find_whole(CUdeviceptr base, uint64_t bytes)
{
    struct range *range = range_find(base);

    return range != NULL && bytes <= range->base + range->bytes - base ? range : NULL;
}

static struct mapping **range_entry(const struct range *range, CUdeviceptr address)
{
    return &range->granules[address / granule - range->first];
}

static struct mapping *mapping_find(CUdeviceptr address)
{
    const struct range *range = range_find(address);

    return range != NULL ? *range_entry(range, address) : NULL;
}

static size_t table_bytes(const struct range *range)
{
    return range->count * sizeof(struct mapping *);
}

static void range_free(struct range **at)
{
    struct range *range = *at;

    if (range == NULL)
        return;
    if (range->granules != NULL)
        (void) munmap(range->granules, table_bytes(range));
    if (range->base != 0)
        (void) munmap((void *) (uintptr_t) range->base, range->bytes);
    free(range);
}

/*
 * Where to look for address space: each place once, in a window where neither heap nor libraries
 * lie. So what a stale device pointer leads to stays a fault when its reservation is gone, and
 * never becomes memory of the host. Once the window is used up, or where there is none (another
 * address size, a sanitizer's shadow), it is the kernel's choice.
 */
static void *space_suggest(uint64_t bytes)
{
    static uint64_t next = WINDOW_START;
    uint64_t at = __atomic_load_n(&next, __ATOMIC_RELAXED);

    do {
        if (bytes > WINDOW_END - at)
            return NULL;
    } while (!__atomic_compare_exchange_n(
        &next, &at, at + bytes, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return (void *) (uintptr_t) at;
}

/* Address space at the hint, or anywhere with the alignment. */
static int space_take(struct range *range, uint64_t alignment, CUdeviceptr hint)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    uint64_t whole, front;
    char *at;

    if (hint != 0 && hint % alignment == 0) {
        void *wanted = (void *) (uintptr_t) hint;

        at = mmap(wanted, range->bytes, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
        if (at == wanted) {
            range->base = hint;
            return 0;
        }
        if (at != MAP_FAILED)
            (void) munmap(at, range->bytes);
    }
    if (__builtin_add_overflow(range->bytes, alignment, &whole))
        return -ENOMEM;
    at = mmap(space_suggest(whole), whole, PROT_NONE, flags, -1, 0);
    if (at == MAP_FAILED)
        return -ENOMEM;
    front = (alignment - (uintptr_t) at % alignment) % alignment;
    if (front > 0)
        (void) munmap(at, front);
    (void) munmap(at + front + range->bytes, whole - front - range->bytes);
    range->base = (uintptr_t) (at + front);
    return 0;
}

static int range_insert(struct range *range)
{
    size_t i;

    if (range_count == range_capacity) {
        size_t capacity = range_capacity > 0 ? 2 * range_capacity : 16;
        struct range **grown = reallocarray(ranges, capacity, sizeof(*ranges));

        if (grown == NULL)
            return -ENOMEM;
        ranges = grown;
        range_capacity = capacity;
    }
    i = range_index(range->base);
    memmove(&ranges[i + 1], &ranges[i], (range_count - i) * sizeof(*ranges));
    ranges[i] = range;
    range_count++;
    return 0;
}

CUresult va_reserve(enum sim_memory_kind kind, uint64_t bytes, uint64_t alignment, CUdeviceptr hint,
    CUdeviceptr *ret_base)
{
    _cleanup_(range_free) struct range *range = calloc(1, sizeof(*range));
    void *table;
    int r;

    if (range == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range->kind = kind;
    range->bytes = bytes;
    list_init(&range->mappings);
    if (space_take(range, MAX(alignment, granule), hint) < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    /* A forked child has no driver, and its copy would keep the memory. */
    (void) madvise((void *) (uintptr_t) range->base, bytes, MADV_DONTFORK);
    range->first = range->base / granule;
    range->count = (range->base + bytes - 1) / granule - range->first + 1;
    table = mmap(NULL, table_bytes(range), PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (table == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range->granules = table;
    *ret_base = range->base;
    pthread_rwlock_wrlock(&lock);
    r = range_insert(range);
    pthread_rwlock_unlock(&lock);
    if (r < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (void) TAKE_PTR(range);
    return CUDA_SUCCESS;
}

CUresult va_release(enum sim_memory_kind kind, CUdeviceptr base, uint64_t bytes)
{
    _cleanup_(range_free) struct range *range = NULL;
    size_t i;

    pthread_rwlock_wrlock(&lock);
    i = range_index(base);
    if (i < range_count && ranges[i]->base == base && ranges[i]->bytes == bytes &&
        ranges[i]->kind == kind && list_empty(&ranges[i]->mappings)) {
        range = ranges[i];
        range_count--;
        memmove(&ranges[i], &ranges[i + 1], (range_count - i) * sizeof(*ranges));
    }
    pthread_rwlock_unlock(&lock);
    return range != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult map_locked(enum sim_memory_kind kind, struct mapping *mapping, int fd)
{
    struct range *range = range_find_whole(mapping->base, mapping->bytes);
    void *at = (void *) (uintptr_t) mapping->base;

    if (range == NULL || range->kind != kind)
        return CUDA_ERROR_INVALID_VALUE;
    for (uint64_t done = 0; done < mapping->bytes; done += granule) {
        if (*range_entry(range, mapping->base + done) != NULL)
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (mmap(at, mapping->bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (void) madvise(at, mapping->bytes, MADV_DONTFORK);
    for (uint64_t done = 0; done < mapping->bytes; done += granule)
        *range_entry(range, mapping->base + done) = mapping;
    list_append(&range->mappings, &mapping->link);
    return CUDA_SUCCESS;
}

CUresult va_map(enum sim_memory_kind kind, CUdeviceptr base, uint64_t bytes, int fd,
    const struct va_memory *memory)
{
    struct mapping *mapping = calloc(1, sizeof(*mapping));
    CUresult result;

    if (mapping == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    mapping->base = base;
    mapping->bytes = bytes;
    mapping->memory = *memory;
    pthread_rwlock_wrlock(&lock);
    result = map_locked(kind, mapping, fd);
    pthread_rwlock_unlock(&lock);
    if (result != CUDA_SUCCESS)
        free(mapping);
    return result;
}

/* 1 unless whole mappings fill the range without a hole. The lock is held. */
static CUresult check_whole(CUdeviceptr base, uint64_t bytes)
{
    const struct range *range = bytes > 0 ? range_find_whole(base, bytes) : NULL;
    uint64_t done = 0;

    if (range == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    while (done < bytes) {
        const struct mapping *mapping = *range_entry(range, base + done);

        if (mapping == NULL || mapping->base != base + done || mapping->bytes > bytes - done)
            return CUDA_ERROR_INVALID_VALUE;
        done += mapping->bytes;
    }
    return CUDA_SUCCESS;
}

CUresult va_check_whole(CUdeviceptr base, uint64_t bytes)
{
    CUresult result;

    sim_va_begin();
    result = check_whole(base, bytes);
    sim_va_end();
    return result;
}

/* Takes the mappings, which fill the range, out of it and puts them into `ended`. */
static void unmap_locked(struct range *range, CUdeviceptr base, uint64_t bytes, struct list *ended)
{
    for (uint64_t done = 0; done < bytes; done += granule) {
        struct mapping **entry = range_entry(range, base + done);
        struct mapping *mapping = *entry;

        if (mapping->base == base + done) {
            list_remove(&mapping->link);
            list_append(ended, &mapping->link);
        }
        *entry = NULL;
    }
}

CUresult va_unmap(enum sim_memory_kind kind, CUdeviceptr base, uint64_t bytes)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    void *at = (void *) (uintptr_t) base;
    struct list ended = {&ended, &ended};
    CUresult result;

    pthread_rwlock_wrlock(&lock);
    result = check_whole(base, bytes);
    if (result == CUDA_SUCCESS && range_find(base)->kind != kind)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && mmap(at, bytes, PROT_NONE, flags, -1, 0) == MAP_FAILED)
        result = CUDA_ERROR_UNMAP_FAILED;
    if (result == CUDA_SUCCESS) {
        (void) madvise(at, bytes, MADV_DONTFORK);
        unmap_locked(range_find(base), base, bytes, &ended);
    }
    pthread_rwlock_unlock(&lock);
    list_for_each_safe(mapping, &ended, struct mapping, link)
    {
        if (mapping->memory.handle != 0)
            chunk_unmapped(mapping->memory.handle);
        free(mapping);
    }
    return result;
}

/* What the host's page tables must allow for what the devices may. */
static int protection(const struct mapping *mapping)
{
    unsigned access = 0;

    for (unsigned i = 0; i < SIM_DEVICES_MAX; i++)
        access |= mapping->access[i];
    if ((access & SIM_ACCESS_WRITE) == SIM_ACCESS_WRITE)
        return PROT_READ | PROT_WRITE;
    return access != 0 ? PROT_READ : PROT_NONE;
}

CUresult va_set_access(CUdeviceptr base, uint64_t bytes, unsigned device, enum sim_access access)
{
    CUresult result;

    pthread_rwlock_wrlock(&lock);
    result = check_whole(base, bytes);
    for (uint64_t done = 0; result == CUDA_SUCCESS && done < bytes;) {
        struct mapping *mapping = mapping_find(base + done);
        void *at = (void *) (uintptr_t) mapping->base;

        mapping->access[device] = (uint8_t) access;
        if (mprotect(at, mapping->bytes, protection(mapping)) < 0)
            result = CUDA_ERROR_OUT_OF_MEMORY;
        done += mapping->bytes;
    }
    pthread_rwlock_unlock(&lock);
    return result;
}

CUresult va_get_access(CUdeviceptr address, unsigned device, enum sim_access *ret)
{
    const struct mapping *mapping;

    sim_va_begin();
    mapping = mapping_find(address);
    if (mapping != NULL)
        *ret = (enum sim_access) mapping->access[device];
    sim_va_end();
    return mapping != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult va_retain(CUdeviceptr address, uint64_t *ret_handle)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    const struct range *range;
    const struct mapping *mapping;

    sim_va_begin();
    range = range_find(address);
    mapping = range != NULL && range->kind == SIM_MEMORY_VMM ? *range_entry(range, address) : NULL;
    if (mapping != NULL) {
        result = chunk_retain(mapping->memory.handle);
        *ret_handle = mapping->memory.handle;
    }
    sim_va_end();
    return result;
}

bool va_range(CUdeviceptr address, CUdeviceptr *ret_base, uint64_t *ret_bytes)
{
    const struct range *range;

    sim_va_begin();
    range = range_find(address);
    if (range != NULL) {
        *ret_base = range->base;
        *ret_bytes = range->bytes;
    }
    sim_va_end();
    return range != NULL;
}

static void info_fill(
    struct sim_va_info *info, const struct range *range, const struct mapping *mapping)
{
    *info = (struct sim_va_info){
        .kind = range->kind,
        .range_base = range->base,
        .range_bytes = range->bytes,
        .base = mapping->base,
        .bytes = mapping->bytes,
        .device = sim_device_ordinal(mapping->memory.chunk.device),
        .context = mapping->memory.context,
        .slot = mapping->memory.chunk.id.slot,
        .handle_types = mapping->memory.chunk.handle_types,
        .flags = mapping->memory.chunk.flags,
        .handle = range->kind == SIM_MEMORY_VMM ? mapping->memory.handle : 0,
    };
}

bool sim_va_find(CUdeviceptr address, struct sim_va_info *ret)
{
    const struct range *range;
    const struct mapping *mapping;

    sim_va_begin();
    range = range_find(address);
    mapping = range != NULL ? *range_entry(range, address) : NULL;
    if (mapping != NULL)
        info_fill(ret, range, mapping);
    sim_va_end();
    return mapping != NULL;
}

CUresult sim_va_check_held(
    CUdeviceptr address, uint64_t bytes, enum sim_access access, CUdevice device)
{
    int index = sim_device_index(device);
    CUdeviceptr end;

    if (bytes == 0)
        return CUDA_SUCCESS;
    if (index < 0 || __builtin_add_overflow(address, bytes, &end))
        return CUDA_ERROR_INVALID_VALUE;
    while (address < end) {
        const struct mapping *mapping = mapping_find(address);

        if (mapping == NULL || (mapping->access[index] & access) != access)
            return CUDA_ERROR_INVALID_VALUE;
        address = mapping->base + mapping->bytes;
    }
    return CUDA_SUCCESS;
}

CUresult sim_va_check(CUdeviceptr address, uint64_t bytes, enum sim_access access, CUdevice device)
{
    CUresult result;

    sim_va_begin();
    result = sim_va_check_held(address, bytes, access, device);
    sim_va_end();
    return result;
}
