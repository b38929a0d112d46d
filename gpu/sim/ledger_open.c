/*
 * Makes, opens and locks the ledger; registers the process. See ledger_file.h.
 *
 * The directory's mode says who may take part: files get its read and write bits. The default
 * directory is private and must be this user's, since /dev/shm is everybody's.
 */
#include "gpu/sim/ledger_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

int ledger_lock(struct ledger *ledger)
{
    pthread_mutex_lock(&ledger->mutex);
    while (flock(ledger->fd, LOCK_EX) < 0) {
        if (errno != EINTR) {
            int error = -errno;

            pthread_mutex_unlock(&ledger->mutex);
            return error;
        }
    }
    if (__atomic_load_n(&ledger->file->dirty, __ATOMIC_SEQ_CST) != 0)
        ledger_recount(ledger);
    return 0;
}

void ledger_unlock(struct ledger *ledger)
{
    (void) flock(ledger->fd, LOCK_UN);
    pthread_mutex_unlock(&ledger->mutex);
}

int ledger_back(struct ledger *ledger, const void *at, size_t bytes)
{
    off_t offset = (const char *) at - (const char *) ledger->file;

    return -posix_fallocate(ledger->fd, offset, (off_t) bytes);
}

static int directory_open(const struct sim_config *config, int *ret_fd, struct stat *ret_stat)
{
    _cleanup_close_ int fd = -1;

    if (mkdir(config->dir, 0700) < 0 && errno != EEXIST)
        return -errno;
    fd = open(config->dir,
        O_RDONLY | O_DIRECTORY | O_CLOEXEC | (config->dir_is_default ? O_NOFOLLOW : 0));
    if (fd < 0 || fstat(fd, ret_stat) < 0)
        return -errno;
    if (config->dir_is_default && ret_stat->st_uid != geteuid())
        return -EPERM;
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* Opens or makes a file of the directory, whatever the umask. */
static int file_open(int dir, const char *name, unsigned mode)
{
    for (;;) {
        /* Without O_CREAT first: in a sticky directory another user's file refuses it. */
        int fd = openat(dir, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

        if (fd >= 0 || errno != ENOENT)
            return fd >= 0 ? fd : -errno;
        fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (fd >= 0) {
            (void) fchmod(fd, mode);
            return fd;
        }
        if (errno != EEXIST)
            return -errno;
    }
}

/* The directory of each device's data files: not sticky, so that whoever finds a chunk free can
 * remove its file. */
static int devices_make(struct ledger *ledger, const struct sim_hardware *hardware)
{
    for (unsigned i = 0; i < hardware->devices; i++) {
        unsigned mode = ledger->mode | (ledger->mode & 0444) >> 2;
        char name[16];

        (void) snprintf(name, sizeof(name), "dev%u", i);
        if (mkdirat(ledger->dir, name, mode) == 0)
            (void) fchmodat(ledger->dir, name, mode, 0);
        else if (errno != EEXIST)
            return -errno;
    }
    return 0;
}

int ledger_configure(struct ledger *ledger, const struct sim_hardware *hardware)
{
    int r;

    r = devices_make(ledger, hardware);
    if (r < 0)
        return r;
    ledger_change(ledger);
    ledger->file->hardware = *hardware;
    ledger_changed(ledger);
    return 0;
}

static int file_make(struct ledger *ledger, const struct sim_hardware *hardware)
{
    struct ledger_file *file = ledger->file;
    int r;

    r = ledger_back(ledger, file, offsetof(struct ledger_file, procs));
    if (r < 0)
        return r;
    memset(file, 0, offsetof(struct ledger_file, procs));
    r = ledger_configure(ledger, hardware);
    if (r < 0)
        return r;
    file->version = LEDGER_VERSION;
    file->bytes = sizeof(*file);
    file->free = LEDGER_NONE;
    for (unsigned i = 0; i < SIM_DEVICES_MAX; i++)
        file->devices[i].unowned = LEDGER_NONE;
    __atomic_store_n(&file->magic, LEDGER_MAGIC, __ATOMIC_SEQ_CST);
    return 0;
}

/* Under flock: sizes the file, maps it, checks or makes its contents. */
static int file_map(struct ledger *ledger, const struct sim_config *config)
{
    struct stat stat;
    void *map;

    if (fstat(ledger->fd, &stat) < 0)
        return -errno;
    /* Of a file, not of the directory: a union file system may give them different ones. */
    ledger->device = stat.st_dev;
    if (stat.st_size == 0 && ftruncate(ledger->fd, sizeof(struct ledger_file)) < 0)
        return -errno;
    if (stat.st_size != 0 && (uint64_t) stat.st_size != sizeof(struct ledger_file))
        return -EUCLEAN;
    map = mmap(NULL, sizeof(struct ledger_file), PROT_READ | PROT_WRITE, MAP_SHARED, ledger->fd, 0);
    if (map == MAP_FAILED)
        return -errno;
    ledger->file = map;
    (void) madvise(map, sizeof(struct ledger_file), MADV_DONTFORK);
    /* A file that was sized and never got its mark belongs to a maker who died. */
    if (stat.st_blocks == 0 || ledger->file->magic == 0)
        return file_make(ledger, &config->hardware);
    if (ledger->file->magic != LEDGER_MAGIC || ledger->file->version != LEDGER_VERSION ||
        ledger->file->bytes != sizeof(struct ledger_file))
        return -EUCLEAN;
    return 0;
}

int ledger_open(const struct sim_config *config, struct ledger **ret)
{
    _cleanup_(ledger_closep) struct ledger *ledger = calloc(1, sizeof(*ledger));
    struct stat stat;
    int r;

    if (ledger == NULL)
        return -ENOMEM;
    ledger->dir = ledger->fd = ledger->procs_fd = -1;
    ledger->self = LEDGER_NONE;
    pthread_mutex_init(&ledger->mutex, NULL);
    r = directory_open(config, &ledger->dir, &stat);
    if (r < 0)
        return r;
    ledger->mode = stat.st_mode & 0666;
    ledger->procs_fd = file_open(ledger->dir, "procs", ledger->mode);
    if (ledger->procs_fd < 0)
        return ledger->procs_fd;
    ledger->fd = file_open(ledger->dir, "ledger", ledger->mode);
    if (ledger->fd < 0)
        return ledger->fd;
    while (flock(ledger->fd, LOCK_EX) < 0) {
        if (errno != EINTR)
            return -errno;
    }
    r = file_map(ledger, config);
    (void) flock(ledger->fd, LOCK_UN);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(ledger);
    return 0;
}

struct ledger *ledger_close(struct ledger *ledger)
{
    if (ledger == NULL)
        return NULL;
    if (ledger->self != LEDGER_NONE && ledger_lock(ledger) == 0) {
        ledger_change(ledger);
        ledger_proc_end(ledger, ledger->self);
        ledger_changed(ledger);
        ledger_unlock(ledger);
    }
    if (ledger->file != NULL)
        (void) munmap(ledger->file, sizeof(*ledger->file));
    close_fd(&ledger->procs_fd);
    close_fd(&ledger->fd);
    close_fd(&ledger->dir);
    pthread_mutex_destroy(&ledger->mutex);
    free(ledger);
    return NULL;
}
