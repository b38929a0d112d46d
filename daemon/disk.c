/* See disk.h. */
#include "daemon/disk.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "daemon/broker.h"

/* A disk that is busy with its errors isn't helped by more work; one that is back should be used
 * before somebody who waits for his pages gives up. */
#define PAUSE_NS NSEC_PER_SEC
#define PAUSE_MAX_NS (30 * NSEC_PER_SEC)

int disk_open(struct disk *disk, const struct config *config, uint32_t device, int *ret_fd,
    uint64_t *ret_bytes)
{
    uint64_t bytes = config->tier_disk_bytes - config->tier_disk_bytes % TIER_SLAB_BYTES;

    *ret_fd = -1;
    *ret_bytes = 0;
    if (config->tier_path == NULL)
        return 0;
    disk->path = strdup(config->tier_path);
    if (disk->path == NULL)
        return -ENOMEM;
    if (bytes == 0 || tier_disk_open(disk->path, bytes, ret_fd, disk->text) == 0) {
        *ret_bytes = bytes;
        return 0;
    }
    log_error("device %u: the host tier goes on without a disk: %s", device, disk->text);
    return 0;
}

void disk_clear(struct disk *disk)
{
    free(disk->path);
    *disk = (struct disk){0};
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
        hosting->device, disk->path, text, (unsigned long long) (disk->pause_ns / NSEC_PER_SEC));
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
        hosting->device, disk->path);
    disk->pause_ns = 0;
    disk->text[0] = '\0';
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
