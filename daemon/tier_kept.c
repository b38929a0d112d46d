/* See tier_kept.h. */
#include "daemon/tier_kept.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "daemon/arena_recover.h"
#include "daemon/broker.h"
#include "daemon/ledger/ledger.h"
#include "daemon/tier_file.h"

/* They get SIGKILL when their broker dies; a copy that a device is at work on comes to its end. All
 * devices wait that long together. */
#define MOVERS_NS (10 * NSEC_PER_SEC)

/* ------------------------------------------------------------------ the store */

static uint32_t number_of(const struct hosting *hosting)
{
    return ledger_device(hosting->broker->ledger, hosting->device);
}

/* NULL also where two have the name. */
static struct fdstore_item *item_of(const struct hosting *hosting, enum fdstore_kind kind)
{
    struct fdstore_item *item = fdstore_find(hosting->broker->store, kind, number_of(hosting));

    return item != NULL && !item->ambiguous ? item : NULL;
}

static void forget(const struct hosting *hosting)
{
    fdstore_forget(hosting->broker->store, FDSTORE_TIER, number_of(hosting));
    fdstore_forget(hosting->broker->store, FDSTORE_DISK, number_of(hosting));
}

static int put(const struct hosting *hosting, enum fdstore_kind kind, int fd)
{
    struct fdstore *store = hosting->broker->store;

    /* What wasn't taken over lies there under the name. */
    fdstore_forget(store, kind, number_of(hosting));
    return fd < 0 ? 0 : fdstore_put(store, kind, number_of(hosting), fd);
}

/* `memory`: not the disk's file alone. */
static void tier_put(struct hosting *hosting, bool memory)
{
    int r = 0;

    if (hosting->broker->ledger == NULL)
        return;
    if (memory)
        r = put(hosting, FDSTORE_TIER, tier_fd(hosting->tier));
    if (r == 0)
        r = put(hosting, FDSTORE_DISK, tier_disk_fd(hosting->tier));
    if (r == 0)
        r = fdstore_barrier(hosting->broker->store);
    if (r < 0)
        log_warning("device %u: the host tier can't be stored (%s): pages that lie there don't "
                    "outlive this broker",
            hosting->device, strerror(-r));
}

/* ------------------------------------------------------------------ as configured */

static uint64_t memory_wanted(const struct hosting *hosting)
{
    uint64_t bytes = hosting->broker->config->devices[hosting->device].tier_bytes;

    return bytes - bytes % TIER_SLAB_BYTES;
}

static int tier_renew(struct hosting *hosting)
{
    uint64_t memory_bytes = memory_wanted(hosting), disk_bytes;
    int disk_fd, r;

    r = disk_open(hosting, &disk_fd, &disk_bytes);
    if (r < 0 || memory_bytes + disk_bytes == 0)
        return r;
    r = tier_new_consume(memory_bytes, TIER_SLAB_BYTES, disk_fd, disk_bytes, &hosting->tier);
    if (r == 0)
        tier_put(hosting, true);
    return r;
}

/* ------------------------------------------------------------------ of the broker before */

static uint64_t patience(const struct hosting *hosting)
{
    const struct broker *broker = hosting->broker;

    return sub_saturate(MOVERS_NS, clock_now(broker->clock) - broker->start_ns);
}

/* True if one may still write there. The lock of the memory is gone with its mapping, that of a
 * file on a disk with its fd. One that can't be looked at is nobody's. */
static bool mover_left(const struct hosting *hosting, int memory_fd, int disk_fd)
{
    return tier_quiet_wait(memory_fd, patience(hosting)) == -ETIMEDOUT ||
           (disk_fd >= 0 && tier_quiet_wait(disk_fd, patience(hosting)) == -ETIMEDOUT);
}

/* The file on the disk: that of before, or what the configuration asks for. -ENOMEM. */
static int disk_take(struct hosting *hosting, int *ret_fd, uint64_t *ret_bytes, bool *ret_kept)
{
    struct fdstore_item *item = item_of(hosting, FDSTORE_DISK);

    *ret_kept = false;
    if (item != NULL && disk_adopt(hosting, item->fd, ret_bytes) == 0) {
        *ret_fd = TAKE_FD(item->fd);
        *ret_kept = true;
        return 0;
    }
    if (item != NULL)
        log_error("device %u: what is kept as the host tier's file on the disk is none of ours; "
                  "pages that lay there are lost",
            hosting->device);
    return disk_open(hosting, ret_fd, ret_bytes);
}

static int tier_adopt(struct hosting *hosting, struct fdstore_item *memory)
{
    uint64_t disk_bytes;
    bool left, kept;
    int disk_fd, r = disk_take(hosting, &disk_fd, &disk_bytes, &kept);

    if (r < 0)
        return r;
    left = mover_left(hosting, memory->fd, kept ? disk_fd : -1);
    r = tier_adopt_consume(
        TAKE_FD(memory->fd), TIER_SLAB_BYTES, disk_fd, disk_bytes, kept, &hosting->tier);
    if (r < 0)
        return r;
    hosting->tier_kept = true;
    hosting->tier_left = left;
    if (left)
        tier_freeze(hosting->tier);
    if (!kept)
        tier_put(hosting, false);
    return 0;
}

/* False: there is none to go on with. */
static bool tier_take(struct hosting *hosting)
{
    const struct broker *broker = hosting->broker;
    struct fdstore_item *memory;
    int r;

    if (broker->ledger == NULL || broker->recovery.epoch == 0)
        return false;
    memory = item_of(hosting, FDSTORE_TIER);
    if (memory == NULL)
        return false;
    r = tier_file_seal(memory->fd);
    if (r == 0)
        r = tier_adopt(hosting, memory);
    if (r == 0)
        return true;
    log_error("device %u: the host tier of the broker before can't be taken over (%s): pages that "
              "lie there are lost",
        hosting->device, r == -EINVAL ? "it is none of ours" : strerror(-r));
    return false;
}

int tier_kept_begin(struct hosting *hosting)
{
    return tier_take(hosting) ? 0 : tier_renew(hosting);
}

/* ------------------------------------------------------------------ arenas are there again */

/* Whether it is what a start without one would make. */
static bool tier_fits(const struct hosting *hosting)
{
    return !hosting->tier_left && hosting_memory_bytes(hosting) == memory_wanted(hosting) &&
           tier_disk_bytes(hosting->tier) == disk_wanted(hosting);
}

static int tier_replace(struct hosting *hosting)
{
    int r = 0;

    log_notice("device %u: nothing lies in the host tier of the broker before: one as it is "
               "configured now takes its place",
        hosting->device);
    list_for_each(arena, &hosting->arenas, struct arena, device_link) arena->space =
        tier_space_free(arena->space);
    hosting->tier = tier_free(hosting->tier);
    forget(hosting);
    /* The disk may have room for one of them. */
    (void) fdstore_barrier(hosting->broker->store);
    r = tier_renew(hosting);
    list_for_each(arena, &hosting->arenas, struct arena, device_link)
    {
        if (r == 0)
            r = arena_space_make(arena, arena->format);
    }
    return r;
}

static void tier_bound(struct hosting *hosting)
{
    uint64_t disk = tier_disk_bytes(hosting->tier), memory = hosting_memory_bytes(hosting);
    uint64_t wanted = memory_wanted(hosting), beyond = sub_saturate(memory, wanted);

    log_notice("device %u: pages lie in the host tier of the broker before: it stays one of %llu "
               "MiB of memory and %llu MiB on the disk, and what is configured beyond that has to "
               "wait for a start that finds it empty; of what isn't configured any more nothing is "
               "used again",
        hosting->device, (unsigned long long) (memory >> 20), (unsigned long long) (disk >> 20));
    tier_limit(hosting->tier, TIER_MEMORY, wanted);
    tier_limit(hosting->tier, TIER_DISK, disk_wanted(hosting));
    if (tier_trim(hosting->tier, (uint32_t) (beyond / TIER_SLAB_BYTES)) < 0)
        log_warning("device %u: memory of the host tier can't be given back", hosting->device);
}

int tier_kept_end(struct hosting *hosting)
{
    if (!hosting->tier_kept || tier_fits(hosting))
        return 0;
    if (tier_stats(hosting->tier).slot_count == 0)
        return tier_replace(hosting);
    if (hosting->tier_left)
        recover_degraded(&hosting->broker->recovery, LOG_LEVEL_ERROR,
            "device %u: a mover of the broker before still runs: what lies in the host tier can be "
            "fetched, and nothing is put there until a start without it",
            hosting->device);
    else
        tier_bound(hosting);
    return 0;
}
