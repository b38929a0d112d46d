/*
 * The data files: one sparse file for each chunk, `dev<N>/<slot>`, as long as the chunk. Its open
 * descriptions are what exported fds and mappings are made of. See ledger_file.h.
 *
 * An exported fd is recognised by its path, whose last part is the slot, and by its inode, which
 * the slot must bear: a file of the same name from elsewhere isn't taken for it.
 */
#include "gpu/sim/ledger_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define GARBAGE_BYTES 4096u
/* One page of garbage for each of these: enough to show who takes fresh memory for zeros. */
#define GARBAGE_STEP 65536u

void ledger_chunk_path(char path[32], unsigned device, uint32_t slot)
{
    (void) snprintf(path, 32, "dev%u/%u", device, slot);
}

/* The same bytes for the same chunk, others for another; never zero. */
static void garbage_make(uint8_t garbage[GARBAGE_BYTES], struct ledger_id id)
{
    uint64_t state = ((uint64_t) id.generation << 32 | id.slot) * UINT64_C(0x9e3779b97f4a7c15);

    for (size_t i = 0; i < GARBAGE_BYTES; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        garbage[i] = (uint8_t) (state >> 56) | 1;
    }
}

static int data_fill(int fd, const struct ledger_chunk_info *info, enum sim_fill fill)
{
    uint64_t step = fill == SIM_FILL_FULL ? GARBAGE_BYTES : GARBAGE_STEP;
    uint8_t garbage[GARBAGE_BYTES];

    if (fill == SIM_FILL_NONE)
        return 0;
    garbage_make(garbage, info->id);
    /* Chunks are multiples of 4 KiB. */
    for (uint64_t at = 0; at < info->bytes; at += step) {
        ssize_t n = pwrite(fd, garbage, sizeof(garbage), (off_t) at);

        if (n != (ssize_t) sizeof(garbage))
            return n < 0 && errno != ENOSPC ? -errno : -ENOMEM;
    }
    return 0;
}

int ledger_data_make(
    struct ledger *ledger, const struct ledger_chunk_info *info, uint64_t *ret_inode)
{
    _cleanup_close_ int fd = -1;
    struct stat stat;
    char path[32];

    ledger_chunk_path(path, info->device, info->id.slot);
    fd = openat(ledger->dir, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, ledger->mode);
    if (fd < 0 && errno == EEXIST) {
        /* Left by someone who was killed; nobody can hold what the slot doesn't name. */
        (void) unlinkat(ledger->dir, path, 0);
        fd = openat(ledger->dir, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, ledger->mode);
    }
    if (fd < 0 || fstat(fd, &stat) < 0)
        return -errno;
    if ((stat.st_mode & 0666) != ledger->mode && fchmod(fd, ledger->mode) < 0)
        return -errno;
    if (ftruncate(fd, (off_t) info->bytes) < 0)
        return -errno;
    *ret_inode = stat.st_ino;
    return data_fill(fd, info, ledger->file->hardware.fill);
}

/* Reads a slot that the caller pins, or that it finds changed. False when it holds no chunk. */
static bool slot_read(struct ledger *ledger, uint32_t slot, struct ledger_chunk *ret)
{
    struct ledger_chunk *chunk;

    pthread_mutex_lock(&ledger->mutex);
    chunk = ledger_slot(ledger, slot);
    if (chunk != NULL) {
        *ret = *chunk;
        ret->inode = __atomic_load_n(&chunk->inode, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&ledger->mutex);
    return chunk != NULL && ret->state != CHUNK_FREE && ret->device < SIM_DEVICES_MAX &&
           ret->bytes > 0;
}

static void info_fill(
    struct ledger_chunk_info *info, uint32_t slot, const struct ledger_chunk *chunk)
{
    *info = (struct ledger_chunk_info){
        .id = {.slot = slot, .generation = chunk->generation},
        .device = chunk->device,
        .bytes = chunk->bytes,
        .handle_types = chunk->handle_types,
        .flags = chunk->flags,
    };
}

int ledger_chunk_open(struct ledger *ledger, struct ledger_id id, bool hold)
{
    _cleanup_close_ int fd = -1;
    struct ledger_chunk chunk;
    struct stat stat;
    char path[32];

    if (!slot_read(ledger, id.slot, &chunk) || chunk.generation != id.generation)
        return -ESTALE;
    ledger_chunk_path(path, chunk.device, id.slot);
    fd = openat(ledger->dir, path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT ? -ESTALE : -errno;
    while (hold && flock(fd, LOCK_SH) < 0) {
        if (errno != EINTR)
            return -errno;
    }
    if (fstat(fd, &stat) < 0)
        return -errno;
    /* Without links: it was freed between the look-up and the lock. */
    if (stat.st_ino != chunk.inode || stat.st_nlink == 0)
        return -ESTALE;
    return TAKE_FD(fd);
}

/* The slot that the path of an open file ends in. */
static int fd_slot(int fd, uint32_t *ret_slot)
{
    char link[32], path[PATH_MAX], *name, *end;
    unsigned long slot;
    ssize_t n;

    (void) snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof(path) - 1);
    if (n < 0)
        return -EBADMSG;
    path[n] = '\0';
    name = strrchr(path, '/');
    if (name == NULL || name[1] < '0' || name[1] > '9')
        return -EBADMSG;
    errno = 0;
    slot = strtoul(name + 1, &end, 10);
    if (errno != 0 || *end != '\0' || slot >= LEDGER_CHUNKS_MAX)
        return -EBADMSG;
    *ret_slot = (uint32_t) slot;
    return 0;
}

int ledger_chunk_identify(struct ledger *ledger, int fd, struct ledger_chunk_info *ret)
{
    struct ledger_chunk chunk;
    struct stat stat;
    uint32_t slot;
    int r;

    if (fstat(fd, &stat) < 0 || !S_ISREG(stat.st_mode) || stat.st_dev != ledger->device ||
        stat.st_nlink == 0)
        return -EBADMSG;
    r = fd_slot(fd, &slot);
    if (r < 0)
        return r;
    if (!slot_read(ledger, slot, &chunk) || chunk.inode != stat.st_ino ||
        chunk.bytes != (uint64_t) stat.st_size)
        return -EBADMSG;
    info_fill(ret, slot, &chunk);
    return 0;
}

int ledger_chunk_attach(struct ledger *ledger, struct ledger_id id, struct ledger_chunk_info *ret)
{
    _cleanup_close_ int fd = -1;
    struct ledger_chunk chunk;

    if (!slot_read(ledger, id.slot, &chunk) || chunk.generation != id.generation)
        return -ESTALE;
    if (chunk.state == CHUNK_OWNED && chunk.owner == ledger->self)
        return -EBUSY;
    fd = ledger_chunk_open(ledger, id, true);
    if (fd < 0)
        return fd;
    /* Asked once it is held: a creator that lets go from now on leaves it to this holder. */
    if (ledger_chunk_ownerless(ledger, id))
        return -ESTALE;
    info_fill(ret, id.slot, &chunk);
    return TAKE_FD(fd);
}

bool ledger_chunk_ownerless(struct ledger *ledger, struct ledger_id id)
{
    struct ledger_chunk chunk;

    return slot_read(ledger, id.slot, &chunk) && chunk.generation == id.generation &&
           (chunk.state == CHUNK_UNOWNED || !ledger_proc_alive(ledger, chunk.owner));
}
