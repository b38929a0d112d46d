/* See slabs.h. One lock: threads that want the same slab must wait for it anyway. */
#include "daemon/mover/slabs.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>

struct slabs {
    const struct device *device;
    pthread_mutex_t mutex;
    char *base;
    uint64_t tier_bytes, slab_bytes, count;
    uint64_t addresses[]; /* on the device; 0: not locked yet */
};

static int file_check(int fd, uint64_t bytes)
{
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat stat;

    if (fstat(fd, &stat) < 0)
        return -errno;
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || stat.st_size < 0 ||
        (uint64_t) stat.st_size != bytes)
        return -EINVAL;
    return 0;
}

int slabs_new(const struct device *device, int tier_fd, uint64_t tier_bytes, uint64_t slab_bytes,
    struct slabs **ret)
{
    struct slabs *slabs;
    uint64_t count;
    int r;

    if (slab_bytes == 0 || slab_bytes % 4096 != 0 || tier_bytes % slab_bytes != 0)
        return -EINVAL;
    r = file_check(tier_fd, tier_bytes);
    if (r < 0)
        return r;
    count = tier_bytes / slab_bytes;
    slabs = calloc(1, sizeof(*slabs) + count * sizeof(slabs->addresses[0]));
    if (slabs == NULL)
        return -ENOMEM;
    slabs->device = device;
    slabs->tier_bytes = tier_bytes;
    slabs->slab_bytes = slab_bytes;
    slabs->count = count;
    slabs->base = tier_bytes == 0 ? NULL
                                  : mmap(NULL, tier_bytes, PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_NORESERVE, tier_fd, 0);
    if (slabs->base == MAP_FAILED) {
        r = -errno;
        free(slabs);
        return r;
    }
    /* Advice: where huge pages of shared memory are off, small ones do. */
    if (tier_bytes > 0)
        (void) madvise(slabs->base, tier_bytes, MADV_HUGEPAGE);
    (void) pthread_mutex_init(&slabs->mutex, NULL);
    *ret = slabs;
    return 0;
}

struct slabs *slabs_free(struct slabs *slabs)
{
    if (slabs == NULL)
        return NULL;
    for (uint64_t i = 0; i < slabs->count; i++) {
        if (slabs->addresses[i] != 0)
            (void) slabs->device->cuda->mem_host_unregister(slabs->base + i * slabs->slab_bytes);
    }
    if (slabs->base != NULL)
        (void) munmap(slabs->base, slabs->tier_bytes);
    (void) pthread_mutex_destroy(&slabs->mutex);
    free(slabs);
    return NULL;
}

static int slab_lock(struct slabs *slabs, uint64_t slab, struct gpu_error *error)
{
    const struct device *device = slabs->device;
    char *at = slabs->base + slab * slabs->slab_bytes;
    CUdeviceptr address = (uintptr_t) at;
    int r = device_check(device,
        device->cuda->mem_host_register(
            at, slabs->slab_bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
        "cuMemHostRegister_v2", error);

    if (r < 0)
        return r;
    if (device->cuda->mem_host_get_device_pointer != NULL)
        r = device_check(device, device->cuda->mem_host_get_device_pointer(&address, at, 0),
            "cuMemHostGetDevicePointer_v2", error);
    if (r < 0) {
        (void) device->cuda->mem_host_unregister(at);
        return r;
    }
    slabs->addresses[slab] = address;
    return 0;
}

int slabs_address(
    struct slabs *slabs, uint64_t offset, uint64_t *ret_address, struct gpu_error *error)
{
    uint64_t slab = offset / slabs->slab_bytes;
    int r = 0;

    (void) pthread_mutex_lock(&slabs->mutex);
    if (slabs->addresses[slab] == 0)
        r = slab_lock(slabs, slab, error);
    if (r == 0)
        *ret_address = slabs->addresses[slab] + offset % slabs->slab_bytes;
    (void) pthread_mutex_unlock(&slabs->mutex);
    return r;
}
