/*
 * The copy that is not in force is written, then the head names it. A reader that still copies what
 * the head named before sees another number when it is through: between two heads lies a fence, so
 * that no word of the next copy can be seen before the head that came first.
 */
#include "daemon/status.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

struct status {
    int fd;
    uint32_t entries;
    size_t bytes;
    struct status_page *page; /* NULL: not mapped */
};

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL)
#define SEQUENCE_MASK ((UINT64_C(1) << STATUS_SEQUENCE_BITS) - 1)
#define COPY_WORDS (sizeof(struct status_copy) / sizeof(uint64_t))

static int page_make(struct status *status)
{
    void *at;
    int r;

    status->fd = memfd_create("gmbd-status", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (status->fd < 0)
        return -errno;
    if (ftruncate(status->fd, (off_t) status->bytes) < 0)
        return -errno;
    /* A page that can't be had is to be missing now, and not when it is written. */
    r = posix_fallocate(status->fd, 0, (off_t) status->bytes);
    if (r != 0)
        return -r;
    at = mmap(NULL, status->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, status->fd, 0);
    if (at == MAP_FAILED)
        return -errno;
    status->page = at;
    status->page->header = (struct status_header){
        .magic = STATUS_MAGIC,
        .entries = status->entries,
        .entry_bytes = sizeof(struct status_entry),
    };
    return fcntl(status->fd, F_ADD_SEALS, SEALS) < 0 ? -errno : 0;
}

int status_new(uint32_t entries, struct status **ret)
{
    struct status *status = calloc(1, sizeof(*status));
    int r;

    if (status == NULL)
        return -ENOMEM;
    status->entries = entries;
    status->bytes = sizeof(struct status_page) + entries * sizeof(struct status_entry);
    r = page_make(status);
    if (r < 0) {
        (void) status_free(status);
        return r;
    }
    *ret = status;
    return 0;
}

struct status *status_free(struct status *status)
{
    if (status == NULL)
        return NULL;
    if (status->page != NULL)
        (void) munmap(status->page, status->bytes);
    close_fd(&status->fd);
    free(status);
    return NULL;
}

int status_fd_dup(const struct status *status, int *ret_fd)
{
    int fd = fcntl(status->fd, F_DUPFD_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    *ret_fd = fd;
    return 0;
}

void status_write(
    struct status *status, uint32_t device, uint64_t head, const struct status_copy *copy)
{
    struct status_entry *entry = &status->page->entries[device];
    uint64_t next = (__atomic_load_n(&entry->head, __ATOMIC_RELAXED) + 1) & SEQUENCE_MASK;
    uint64_t *to = (uint64_t *) (void *) &entry->copies[next & 1];
    uint64_t words[COPY_WORDS];

    memcpy(words, copy, sizeof(words));
    /* Each a release: who sees a word of this copy sees the number that took the copy out of force,
     * too, and reads again. (A fence would say it once; thread sanitizers don't know it.) */
    for (size_t i = 0; i < COPY_WORDS; i++)
        __atomic_store_n(&to[i], words[i], __ATOMIC_RELEASE);
    __atomic_store_n(&entry->head, head | STATUS_FLAG_LIVE | next, __ATOMIC_RELEASE);
}
