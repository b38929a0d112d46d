/* See disk.h. */
#include "daemon/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "daemon/broker.h"

/* A disk that is busy with its errors isn't helped by more work; one that is back should be used
 * before somebody who waits for his pages gives up. */
#define PAUSE_NS NSEC_PER_SEC
#define PAUSE_MAX_NS (30 * NSEC_PER_SEC)

static const char old_text[] = "HostTierPath= names no folder on its file system any more: what "
                               "lies there comes back, and nothing is put there";

static uint64_t configured(const struct hosting *hosting)
{
    uint64_t bytes = hosting->broker->config->tier_disk_bytes;

    return hosting->broker->config->tier_path != NULL ? bytes - bytes % TIER_SLAB_BYTES : 0;
}

/* Forgets what was there, and remembers what is configured. -ENOMEM. */
static int begin(struct hosting *hosting)
{
    const char *path = hosting->broker->config->tier_path;

    disk_clear(&hosting->disk);
    if (path != NULL)
        hosting->disk.path = strdup(path);
    return path != NULL && hosting->disk.path == NULL ? -ENOMEM : 0;
}

int disk_open(struct hosting *hosting, int *ret_fd, uint64_t *ret_bytes)
{
    struct disk *disk = &hosting->disk;
    uint64_t bytes = configured(hosting);
    int r = begin(hosting);

    *ret_fd = -1;
    *ret_bytes = 0;
    if (r < 0 || bytes == 0)
        return r;
    if (tier_disk_open(disk->path, bytes, ret_fd, disk->text) == 0) {
        *ret_bytes = bytes;
        return 0;
    }
    disk->refused = true;
    log_error("device %u: the host tier goes on without a disk: %s", hosting->device, disk->text);
    return 0;
}

int disk_adopt(struct hosting *hosting, int fd, uint64_t *ret_bytes)
{
    struct disk *disk = &hosting->disk;
    struct stat file, folder;
    int flags = fcntl(fd, F_GETFL), r;

    if (flags < 0 || (flags & O_ACCMODE) != O_RDWR || fstat(fd, &file) < 0 ||
        !S_ISREG(file.st_mode) || file.st_size < (off_t) TIER_SLAB_BYTES ||
        (uint64_t) file.st_size / TIER_SLAB_BYTES > TIER_SLABS_MAX)
        return -EINVAL;
    r = begin(hosting);
    if (r < 0)
        return r;
    *ret_bytes = (uint64_t) file.st_size - (uint64_t) file.st_size % TIER_SLAB_BYTES;
    disk->old = disk->path == NULL || stat(disk->path, &folder) < 0 || folder.st_dev != file.st_dev;
    if (disk->old)
        (void) snprintf(disk->text, sizeof(disk->text), "%s", old_text);
    return 0;
}

uint64_t disk_wanted(const struct hosting *hosting)
{
    return hosting->disk.old || hosting->disk.refused ? 0 : configured(hosting);
}

void disk_clear(struct disk *disk)
{
    free(disk->path);
    *disk = (struct disk){0};
}

static const char *place(const struct disk *disk)
{
    return disk->old ? "of a start before" : disk->path;
}

static void failed(struct hosting *hosting, const char *text)
{
    struct disk *disk = &hosting->disk;

    if (tier_disk_suspended(hosting->tier))
        return; /* it was on its way when another one failed */
    disk->pause_ns = disk->pause_ns == 0 ? PAUSE_NS : MIN(2 * disk->pause_ns, PAUSE_MAX_NS);
    disk->retry_ns = add_saturate(clock_now(hosting->broker->clock), disk->pause_ns);
    (void) snprintf(disk->text, sizeof(disk->text), "%s", text);
    tier_disk_suspend(hosting->tier, true);
    hosting_at(hosting, disk->retry_ns);
    log_error("device %u: the disk of the host tier (HostTierPath=%s) fails: %s; it is tried again "
              "in %llu s",
        hosting->device, place(disk), text, (unsigned long long) (disk->pause_ns / NSEC_PER_SEC));
}

static bool touches_disk(const struct hosting *hosting, const struct mover_job *job)
{
    for (size_t i = 0; i < job->copy_count; i++) {
        if (tier_backing(hosting->tier, job->copies[i].tier_offset) == TIER_DISK)
            return true;
    }
    return false;
}

void disk_judge(struct hosting *hosting, const struct mover_result *result)
{
    struct disk *disk = &hosting->disk;

    if (result->error == -EREMOTEIO) {
        failed(hosting, result->text);
        return;
    }
    if (result->error < 0 || disk->pause_ns == 0 || tier_disk_suspended(hosting->tier) ||
        !touches_disk(hosting, &result->job))
        return;
    log_notice("device %u: the disk of the host tier (HostTierPath=%s) works again",
        hosting->device, place(disk));
    disk->pause_ns = 0;
    (void) snprintf(disk->text, sizeof(disk->text), "%s", disk->old ? old_text : "");
}

bool disk_failing(const struct hosting *hosting)
{
    return hosting->tier != NULL && tier_disk_suspended(hosting->tier);
}

void disk_turn(struct hosting *hosting)
{
    if (!disk_failing(hosting))
        return;
    if (clock_now(hosting->broker->clock) >= hosting->disk.retry_ns)
        tier_disk_suspend(hosting->tier, false);
    else
        hosting_at(hosting, hosting->disk.retry_ns);
}
