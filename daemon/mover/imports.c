/*
 * A hash table by number. Idle imports wait in a list, the one used last at its end. One that is
 * forgotten or replaced while it is used leaves the table and waits among the doomed.
 */
#include "daemon/mover/imports.h"

#include <errno.h>

#define BUCKETS 4096

struct imports {
    const struct device *device;
    struct list idle;
    struct list doomed;
    uint32_t count; /* in the table */
    struct import *buckets[BUCKETS];
};

int imports_new(const struct device *device, struct imports **ret)
{
    struct imports *imports = calloc(1, sizeof(*imports));

    if (imports == NULL)
        return -ENOMEM;
    imports->device = device;
    list_init(&imports->idle);
    list_init(&imports->doomed);
    *ret = imports;
    return 0;
}

static void import_unmap(const struct device *device, uint64_t address, uint64_t bytes, bool mapped)
{
    const struct gpu_ops *ops = device->gpu->ops;

    /* A failure leaves a mapping behind, until the process ends; the next job will tell. */
    if (mapped)
        (void) ops->span_unmap(device->gpu, address, bytes, NULL);
    (void) ops->range_free(device->gpu, address, bytes, NULL);
}

static void import_free(struct imports *imports, struct import *import)
{
    list_remove(&import->link);
    import_unmap(imports->device, import->address, import->bytes, true);
    free(import);
}

static struct import **bucket_place(struct imports *imports, uint32_t number)
{
    struct import **at = &imports->buckets[number % BUCKETS];

    while (*at != NULL && (*at)->number != number)
        at = &(*at)->next;
    return at;
}

/* Takes the import out of the table; it goes at once if nobody uses it. True when it is gone. */
static bool import_remove(struct imports *imports, struct import **place)
{
    struct import *import = *place;

    *place = import->next;
    imports->count--;
    if (import->users == 0) {
        import_free(imports, import);
        return true;
    }
    import->doomed = true;
    list_append(&imports->doomed, &import->link);
    return false;
}

struct imports *imports_free(struct imports *imports)
{
    if (imports == NULL)
        return NULL;
    list_for_each_safe(import, &imports->idle, struct import, link) import_free(imports, import);
    free(imports);
    return NULL;
}

/* Imports and maps; the handle isn't kept, the mapping alone is. */
static int import_map(
    const struct device *device, int fd, struct import *import, struct gpu_error *error)
{
    const struct gpu_ops *ops = device->gpu->ops;
    const struct gpu_shareable shareable = {.type = GPU_HANDLE_POSIX_FD, .fd = fd};
    struct gpu_chunk chunk = {0};
    uint64_t address;
    bool mapped = false;
    int r = ops->range_reserve(device->gpu, import->bytes, 0, &address, error);

    if (r < 0)
        return r;
    r = ops->chunk_import_borrow(
        device->gpu, device->info, &shareable, import->bytes, &chunk, error);
    if (r == 0) {
        r = ops->chunk_map(device->gpu, &chunk, address, NULL, error);
        mapped = r == 0;
    }
    if (r == 0)
        r = ops->span_set_access(
            device->gpu, device->info, address, import->bytes, GPU_ACCESS_READ_WRITE, error);
    (void) ops->chunk_release(device->gpu, &chunk, NULL);
    if (r < 0) {
        import_unmap(device, address, import->bytes, mapped);
        return r;
    }
    import->address = address;
    return 0;
}

static int import_make(struct imports *imports, const struct import *what, int fd,
    struct import **ret, struct gpu_error *error)
{
    _cleanup_free_ struct import *import = malloc(sizeof(*import));
    int r;

    if (import == NULL)
        return -ENOMEM;
    *import = *what;
    list_init(&import->link);
    if (imports->count >= IMPORTS_MAX) {
        struct import *oldest = list_first(&imports->idle, struct import, link);

        if (oldest != NULL)
            (void) import_remove(imports, bucket_place(imports, oldest->number));
    }
    r = import_map(imports->device, fd, import, error);
    if (r < 0)
        return r;
    import->next = imports->buckets[what->number % BUCKETS];
    imports->buckets[what->number % BUCKETS] = import;
    imports->count++;
    *ret = TAKE_PTR(import);
    return 0;
}

int imports_use(struct imports *imports, uint32_t number, uint32_t generation, uint64_t bytes,
    int fd, struct import **ret, struct gpu_error *error)
{
    struct import **place = bucket_place(imports, number), *import = *place;

    if (import != NULL && import->generation != generation) {
        if (fd < 0)
            return -ENOENT;
        (void) import_remove(imports, place);
        import = NULL;
    }
    if (import == NULL) {
        const struct import what = {.number = number, .generation = generation, .bytes = bytes};
        int r = fd < 0 ? -ENOENT : import_make(imports, &what, fd, &import, error);

        if (r < 0)
            return r;
    } else if (import->bytes != bytes) {
        gpu_error_set(error, 0, "chunk %u has another size", number);
        return -EINVAL;
    }
    list_remove(&import->link);
    import->users++;
    *ret = import;
    return 0;
}

void imports_drop(struct imports *imports, struct import *import)
{
    if (--import->users > 0)
        return;
    if (import->doomed)
        import_free(imports, import);
    else
        list_append(&imports->idle, &import->link);
}

bool imports_forget(struct imports *imports, uint32_t number, uint32_t generation)
{
    struct import **place = bucket_place(imports, number);

    if (*place != NULL && (*place)->generation == generation)
        return import_remove(imports, place);
    list_for_each(import, &imports->doomed, struct import, link)
    {
        if (import->number == number && import->generation == generation)
            return false;
    }
    return true;
}
