/*
 * See slabs.h. A slab that is being locked says so, and whoever wants that one waits for it; the
 * mutex is never held meanwhile, so that the others' work goes on.
 */
#include "daemon/mover/slabs.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* Of a slab that isn't locked, and of one that some thread is about to: no address is so low. */
#define ADDRESS_NONE 0
#define ADDRESS_COMING 1

struct slabs {
    const struct device *device;
    pthread_mutex_t mutex;
    pthread_cond_t came; /* … or didn't */
    char *base;
    int disk_fd;
    uint64_t memory_bytes, slab_bytes, count; /* `count`: of memory */
    _Atomic uint64_t addresses[];             /* on the device; written under `mutex` */
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

static int memory_map(struct slabs *slabs, int tier_fd)
{
    void *base;

    if (slabs->memory_bytes == 0)
        return 0;
    base = mmap(
        NULL, slabs->memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, tier_fd, 0);
    if (base == MAP_FAILED)
        return -errno;
    slabs->base = base;
    /* Advice: where huge pages of shared memory are off, small ones do. */
    (void) madvise(slabs->base, slabs->memory_bytes, MADV_HUGEPAGE);
    return 0;
}

static int disk_hold(struct slabs *slabs, const struct slabs_files *files)
{
    if (files->disk_bytes == 0)
        return 0;
    slabs->disk_fd = fcntl(files->disk_fd, F_DUPFD_CLOEXEC, 0);
    return slabs->disk_fd < 0 ? -errno : 0;
}

int slabs_new(const struct device *device, const struct slabs_files *files, struct slabs **ret)
{
    uint64_t slab_bytes = files->slab_bytes, memory_bytes, count;
    struct slabs *slabs;
    int r;

    if (slab_bytes == 0 || slab_bytes % 4096 != 0 || files->tier_bytes % slab_bytes != 0 ||
        files->disk_bytes % slab_bytes != 0 || files->disk_bytes > files->tier_bytes)
        return -EINVAL;
    memory_bytes = files->tier_bytes - files->disk_bytes;
    r = file_check(files->tier_fd, memory_bytes);
    if (r < 0)
        return r;
    count = memory_bytes / slab_bytes;
    slabs = calloc(1, sizeof(*slabs) + count * sizeof(slabs->addresses[0]));
    if (slabs == NULL)
        return -ENOMEM;
    slabs->device = device;
    slabs->disk_fd = -1;
    slabs->memory_bytes = memory_bytes;
    slabs->slab_bytes = slab_bytes;
    slabs->count = count;
    (void) pthread_mutex_init(&slabs->mutex, NULL);
    (void) pthread_cond_init(&slabs->came, NULL);
    r = memory_map(slabs, files->tier_fd);
    if (r == 0)
        r = disk_hold(slabs, files);
    if (r < 0) {
        slabs_free(slabs);
        return r;
    }
    *ret = slabs;
    return 0;
}

struct slabs *slabs_free(struct slabs *slabs)
{
    if (slabs == NULL)
        return NULL;
    for (uint64_t i = 0; i < slabs->count; i++) {
        if (slabs->addresses[i] != ADDRESS_NONE)
            (void) slabs->device->cuda->mem_host_unregister(slabs->base + i * slabs->slab_bytes);
    }
    if (slabs->base != NULL)
        (void) munmap(slabs->base, slabs->memory_bytes);
    close_fd(&slabs->disk_fd);
    (void) pthread_cond_destroy(&slabs->came);
    (void) pthread_mutex_destroy(&slabs->mutex);
    free(slabs);
    return NULL;
}

static int slab_lock(
    const struct slabs *slabs, uint64_t slab, uint64_t *ret_address, struct gpu_error *error)
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
    *ret_address = address;
    return 0;
}

/* One of those that want it locks it; when that fails the next one tries. */
static int slab_need(
    struct slabs *slabs, uint64_t slab, uint64_t *ret_address, struct gpu_error *error)
{
    uint64_t address;
    int r = 0;

    (void) pthread_mutex_lock(&slabs->mutex);
    while ((address = slabs->addresses[slab]) == ADDRESS_COMING)
        (void) pthread_cond_wait(&slabs->came, &slabs->mutex);
    if (address == ADDRESS_NONE) {
        slabs->addresses[slab] = ADDRESS_COMING;
        (void) pthread_mutex_unlock(&slabs->mutex);
        r = slab_lock(slabs, slab, &address, error);
        (void) pthread_mutex_lock(&slabs->mutex);
        slabs->addresses[slab] = r == 0 ? address : ADDRESS_NONE;
        (void) pthread_cond_broadcast(&slabs->came);
    }
    (void) pthread_mutex_unlock(&slabs->mutex);
    if (r == 0)
        *ret_address = address;
    return r;
}

int slabs_address(
    struct slabs *slabs, uint64_t offset, uint64_t *ret_address, struct gpu_error *error)
{
    uint64_t slab = offset / slabs->slab_bytes, address = slabs->addresses[slab];
    int r = 0;

    if (address <= ADDRESS_COMING)
        r = slab_need(slabs, slab, &address, error);
    if (r == 0)
        *ret_address = address + offset % slabs->slab_bytes;
    return r;
}

int slabs_prepare(struct slabs *slabs, uint64_t offset, struct gpu_error *error)
{
    uint64_t address;
    int r;

    do
        r = madvise(slabs->base + offset, slabs->slab_bytes, MADV_POPULATE_WRITE) < 0 ? -errno : 0;
    while (r == -EINTR || r == -EAGAIN);
    /* A kernel that can't leaves it to the driver, which page-locks them one by one. */
    if (r == 0 || r == -EINVAL)
        return slabs_address(slabs, offset, &address, error);
    error->code = 0;
    (void) snprintf(error->text, sizeof(error->text), "no host memory for a slab of the tier: %s",
        strerror(-r));
    return -ENOMEM;
}

/* ------------------------------------------------------------------ the disk */

uint64_t slabs_slab_bytes(const struct slabs *slabs)
{
    return slabs->slab_bytes;
}

bool slabs_on_disk(const struct slabs *slabs, uint64_t offset)
{
    return offset >= slabs->memory_bytes;
}

static int disk_error(struct gpu_error *error, const char *what, int number)
{
    error->code = 0;
    (void) snprintf(error->text, sizeof(error->text), "%s: %s", what, strerror(number));
    return -EREMOTEIO;
}

int slabs_disk_read(
    struct slabs *slabs, uint64_t offset, void *to, uint64_t bytes, struct gpu_error *error)
{
    uint64_t at = offset - slabs->memory_bytes;

    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = pread(slabs->disk_fd, (char *) to + done, bytes - done, (off_t) (at + done));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return disk_error(error, "pread", n < 0 ? errno : ENODATA);
        done += (uint64_t) n;
    }
    return 0;
}

int slabs_disk_write(
    struct slabs *slabs, uint64_t offset, const void *from, uint64_t bytes, struct gpu_error *error)
{
    uint64_t at = offset - slabs->memory_bytes;

    for (uint64_t done = 0; done < bytes;) {
        ssize_t n =
            pwrite(slabs->disk_fd, (const char *) from + done, bytes - done, (off_t) (at + done));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return disk_error(error, "pwrite", n < 0 ? errno : EIO);
        done += (uint64_t) n;
    }
    /* The bytes alone: the file needs no name nor a length after a crash. An error that the disk
     * has with them is told here or never. */
    if (sync_file_range(slabs->disk_fd, (off_t) at, (off_t) bytes,
            SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER) < 0)
        return disk_error(error, "sync_file_range", errno);
    return 0;
}
