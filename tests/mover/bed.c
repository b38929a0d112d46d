/* See bed.h. */
#include "tests/mover/bed.h"

#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "tests/client/fds.h"

static void uuid_parse(const char *text, uint8_t uuid[16])
{
    size_t nibbles = 0;

    for (text += strlen("GPU-"); *text != '\0'; text++) {
        unsigned value;

        if (*text == '-')
            continue;
        ck_assert_int_eq(sscanf((char[]){*text, '\0'}, "%x", &value), 1);
        uuid[nibbles / 2] = (uint8_t) (uuid[nibbles / 2] << 4 | value);
        nibbles++;
    }
    ck_assert_uint_eq(nibbles, 32);
}

void bed_open(struct bed *bed, uint64_t device_bytes)
{
    struct gpu_error error = {0};
    char text[32];

    *bed = (struct bed){0};
    strcpy(bed->directory, "/tmp/gmb-mover-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(bed->directory));
    /* For every user: a mover that root starts is somebody else. */
    ck_assert_int_eq(chmod(bed->directory, 01777), 0);
    ck_assert_int_eq(setenv("GMB_SIM_DIR", bed->directory, 1), 0);
    (void) snprintf(text, sizeof(text), "%llu", (unsigned long long) device_bytes);
    ck_assert_int_eq(setenv("GMB_SIM_MEMORY", text, 1), 0);
    ck_assert_msg(
        gpu_open(GPU_DRIVER_SIM, GPU_ROLE_BROKER, &bed->gpu, &error) == 0, "%s", error.text);
    bed->device = bed->gpu->devices[0];
    uuid_parse(bed->device->uuid, bed->uuid);
    bed->free_bytes = bed_free_bytes(bed);
    bed->open_fds = fds_open();
}

uint64_t bed_free_bytes(const struct bed *bed)
{
    struct gpu_memory memory;

    ck_assert_int_eq(bed->gpu->ops->memory_info(bed->gpu, bed->device, &memory, NULL), 0);
    return memory.free_bytes;
}

int bed_chunk_fd(void *data, uint32_t number, uint32_t generation, int *ret_fd)
{
    const struct bed *bed = data;
    struct gpu_shareable shareable;
    int r;

    if (number >= bed->chunk_count || bed->chunks[number].generation != generation)
        return -ESTALE;
    r = bed->gpu->ops->chunk_export(bed->gpu, &bed->chunks[number].chunk, &shareable, NULL);
    if (r == 0)
        *ret_fd = shareable.fd;
    return r;
}

void bed_chunks(struct bed *bed, size_t count, uint64_t bytes)
{
    bed->chunk_bytes = bytes;
    bed->chunk_count = count;
    for (size_t i = 0; i < count; i++) {
        struct bed_chunk *chunk = &bed->chunks[i];
        void *mapped;
        int fd;

        ck_assert_int_eq(
            bed->gpu->ops->chunk_create(bed->gpu, bed->device, bytes, &chunk->chunk, NULL), 0);
        chunk->generation = (uint32_t) i + 7;
        ck_assert_int_eq(bed_chunk_fd(bed, (uint32_t) i, chunk->generation, &fd), 0);
        mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ck_assert_ptr_ne(mapped, MAP_FAILED);
        chunk->bytes = mapped;
        close_fd(&fd);
    }
}

unsigned char *bed_bytes(const struct bed *bed, size_t chunk)
{
    return bed->chunks[chunk].bytes;
}

/* SplitMix64's mixing: neighbours look nothing alike. */
static uint64_t mix(uint64_t seed, uint64_t place)
{
    uint64_t z = seed * 0x2545f4914f6cdd1d + place * 0x9e3779b97f4a7c15;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    return z ^ z >> 27;
}

void bed_fill(const struct bed *bed, size_t chunk, uint64_t seed)
{
    uint64_t *words = (uint64_t *) (void *) bed_bytes(bed, chunk);

    for (uint64_t i = 0; i < bed->chunk_bytes / 8; i++)
        words[i] = mix(seed, i);
}

bool bed_filled(const struct bed *bed, size_t chunk, uint64_t seed)
{
    const uint64_t *words = (const uint64_t *) (const void *) bed_bytes(bed, chunk);

    for (uint64_t i = 0; i < bed->chunk_bytes / 8; i++) {
        if (words[i] != mix(seed, i))
            return false;
    }
    return true;
}

void bed_release(struct bed *bed)
{
    for (size_t i = 0; i < bed->chunk_count; i++) {
        (void) munmap(bed->chunks[i].bytes, bed->chunk_bytes);
        ck_assert_int_eq(bed->gpu->ops->chunk_release(bed->gpu, &bed->chunks[i].chunk, NULL), 0);
    }
    bed->chunk_count = 0;
}

static int entry_remove(const char *path, const struct stat *stat, int type, struct FTW *place)
{
    (void) stat;
    (void) type;
    (void) place;
    return remove(path);
}

void bed_close(struct bed *bed)
{
    bed_release(bed);
    ck_assert_uint_eq(bed_free_bytes(bed), bed->free_bytes);
    ck_assert_uint_eq(fds_open(), bed->open_fds);
    bed->gpu = gpu_close(bed->gpu);
    ck_assert_int_eq(nftw(bed->directory, entry_remove, 8, FTW_DEPTH | FTW_PHYS), 0);
}
