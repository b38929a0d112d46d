/* See tier_kept.h. */
#include "daemon/tier_kept.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/broker.h"
#include "daemon/ledger/ledger.h"

/* They get SIGKILL when their broker dies; a copy that a device is at work on comes to its end. */
#define MOVERS_NS (10 * NSEC_PER_SEC)

static struct fdstore_item *item_of(
    const struct broker *broker, enum fdstore_kind kind, uint32_t device)
{
    struct fdstore_item *item =
        fdstore_find(broker->store, kind, ledger_device(broker->ledger, device));

    return item != NULL && !item->ambiguous ? item : NULL;
}

static int quiet_wait(const struct fdstore_item *memory, const struct fdstore_item *disk)
{
    int r = tier_quiet_wait(memory->fd, MOVERS_NS);

    return r == 0 && disk != NULL ? tier_quiet_wait(disk->fd, MOVERS_NS) : r;
}

static void disk_replace(struct fdstore_item *item, int *disk_fd, uint64_t *disk_bytes)
{
    struct stat status;

    if (item == NULL || fstat(item->fd, &status) < 0 || status.st_size < 0)
        return;
    close_fd(disk_fd);
    *disk_fd = TAKE_FD(item->fd);
    *disk_bytes = (uint64_t) status.st_size;
}

static int put(struct broker *broker, enum fdstore_kind kind, uint32_t device, int fd)
{
    uint32_t number = ledger_device(broker->ledger, device);

    /* A file that couldn't be taken over lies there under the name. */
    if (fdstore_find(broker->store, kind, number) != NULL)
        (void) fdstore_remove(broker->store, kind, number);
    return fdstore_put(broker->store, kind, number, fd);
}

static void refused(uint32_t device, int r)
{
    if (r < 0)
        log_warning("device %u: the host tier can't be stored (%s): pages that lie there don't "
                    "outlive this broker",
            device, strerror(-r));
}

static void disk_put(struct broker *broker, uint32_t device, const struct tier *tier)
{
    int r = put(broker, FDSTORE_DISK, device, tier_disk_fd(tier));

    if (r == 0)
        r = fdstore_barrier(broker->store);
    refused(device, r);
}

bool tier_kept_take(
    struct broker *broker, uint32_t device, int *disk_fd, uint64_t disk_bytes, struct tier **ret)
{
    struct fdstore_item *memory, *disk;
    int r;

    if (broker->ledger == NULL || broker->recovery.epoch == 0)
        return false;
    memory = item_of(broker, FDSTORE_TIER, device);
    disk = item_of(broker, FDSTORE_DISK, device);
    if (memory == NULL)
        return false;
    r = quiet_wait(memory, disk);
    if (r == 0) {
        disk_replace(disk, disk_fd, &disk_bytes);
        r = tier_adopt_consume(
            TAKE_FD(memory->fd), TIER_SLAB_BYTES, TAKE_FD(*disk_fd), disk_bytes, ret);
    }
    if (r == 0) {
        if (disk == NULL && tier_disk_fd(*ret) >= 0)
            disk_put(broker, device, *ret);
        return true;
    }
    log_error("device %u: the host tier of the broker before can't be taken over: %s; pages that "
              "lie there are lost",
        device, r == -ETIMEDOUT ? "a mover of that one still runs" : strerror(-r));
    return false;
}

void tier_kept_put(struct broker *broker, uint32_t device, const struct tier *tier)
{
    int r;

    if (broker->ledger == NULL)
        return;
    r = put(broker, FDSTORE_TIER, device, tier_fd(tier));
    if (r == 0 && tier_disk_fd(tier) >= 0)
        r = put(broker, FDSTORE_DISK, device, tier_disk_fd(tier));
    if (r == 0)
        r = fdstore_barrier(broker->store);
    refused(device, r);
}
