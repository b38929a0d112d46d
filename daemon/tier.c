/*
 * Slabs are numbered by their place in the memfd, and on from there in the file on the disk. A free
 * slab is on one of two stacks of its backing: those that hold host memory since somebody used them
 * are taken first, untouched ones last, so that no more memory is in use than was needed at once.
 *
 * A space keeps its slabs with room in a list for each backing, the one that was opened first in
 * front: slots are taken there, so that later slabs get empty. A full slab is in no list.
 */
#include "daemon/tier.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "daemon/tier_slots.h"

#define PAGE_BYTES 4096

struct slab {
    struct list link;         /* in its space's `open`, or in `clean` or `used` of its shelf */
    struct list all;          /* in its space's `slabs` */
    struct tier_space *space; /* NULL: free */
    struct tier_slots slots;
};

/* The slabs of one backing. */
struct shelf {
    struct list clean, used; /* free slabs: without and with host memory behind them */
    uint32_t count, clean_count, used_count;
};

struct tier {
    int fd, disk_fd;
    uint64_t slab_bytes;
    uint32_t slab_count;
    struct shelf shelves[TIER_BACKING_MAX];
    bool disk_suspended;
    uint32_t spaces;
    uint64_t slot_bytes, slot_count, peak_slabs;
    struct slab slabs[];
};

struct tier_space {
    struct tier *tier;
    struct tier_account *account;
    uint64_t slot_bytes;
    uint32_t slots_per_slab;
    uint32_t slab_counts[TIER_BACKING_MAX];
    uint64_t slot_counts[TIER_BACKING_MAX];
    struct list open[TIER_BACKING_MAX]; /* struct slab.link: with a free slot */
    struct list slabs;                  /* struct slab.all */
};

static int tier_file(uint64_t bytes)
{
    _cleanup_close_ int fd = memfd_create("gmbd-host-tier", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || ftruncate(fd, (off_t) bytes) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return -errno;
    return TAKE_FD(fd);
}

static void shelf_fill(struct shelf *shelf, struct slab *slabs, uint32_t count, bool dirty)
{
    list_init(&shelf->clean);
    list_init(&shelf->used);
    shelf->count = count;
    *(dirty ? &shelf->used_count : &shelf->clean_count) = count;
    for (uint32_t i = 0; i < count; i++) {
        list_init(&slabs[i].all);
        list_append(dirty ? &shelf->used : &shelf->clean, &slabs[i].link);
    }
}

/* Takes the fds. `dirty`: there is memory behind the slabs. */
static int tier_make(int memory_fd, uint64_t bytes, uint64_t slab_bytes, int disk_fd,
    uint64_t disk_bytes, bool dirty, struct tier **ret)
{
    _cleanup_close_ int fd = memory_fd, disk = disk_fd;
    uint64_t count = bytes / slab_bytes, disk_count = disk < 0 ? 0 : disk_bytes / slab_bytes;
    struct tier *tier;

    if (bytes > INT64_MAX || disk_bytes > INT64_MAX - bytes || count + disk_count > UINT32_MAX)
        return -EINVAL;
    tier = calloc(1, sizeof(*tier) + (count + disk_count) * sizeof(tier->slabs[0]));
    if (tier == NULL)
        return -ENOMEM;
    tier->slab_bytes = slab_bytes;
    tier->slab_count = (uint32_t) (count + disk_count);
    shelf_fill(&tier->shelves[TIER_MEMORY], tier->slabs, (uint32_t) count, dirty);
    shelf_fill(&tier->shelves[TIER_DISK], tier->slabs + count, (uint32_t) disk_count, false);
    tier->fd = TAKE_FD(fd);
    tier->disk_fd = TAKE_FD(disk);
    *ret = tier;
    return 0;
}

int tier_new_consume(
    uint64_t bytes, uint64_t slab_bytes, int disk_fd, uint64_t disk_bytes, struct tier **ret)
{
    _cleanup_close_ int disk = disk_fd;
    int fd;

    if (slab_bytes == 0 || slab_bytes % PAGE_BYTES != 0 || bytes > INT64_MAX)
        return -EINVAL;
    fd = tier_file(bytes / slab_bytes * slab_bytes);
    if (fd < 0)
        return fd;
    return tier_make(fd, bytes, slab_bytes, TAKE_FD(disk), disk_bytes, false, ret);
}

int tier_adopt_consume(
    int fd, uint64_t slab_bytes, int disk_fd, uint64_t disk_bytes, struct tier **ret)
{
    _cleanup_close_ int memory = fd, disk = disk_fd;
    struct stat status;

    if (fstat(memory, &status) < 0)
        return -errno;
    if (slab_bytes == 0 || status.st_size < 0 || (uint64_t) status.st_size % slab_bytes != 0)
        return -EINVAL;
    return tier_make(TAKE_FD(memory), (uint64_t) status.st_size, slab_bytes, TAKE_FD(disk),
        disk_bytes, true, ret);
}

int tier_new(uint64_t bytes, uint64_t slab_bytes, struct tier **ret)
{
    return tier_new_consume(bytes, slab_bytes, -1, 0, ret);
}

struct tier *tier_free(struct tier *tier)
{
    if (tier == NULL)
        return NULL;
    assert(tier->spaces == 0 && tier->slot_count == 0);
    close_fd(&tier->fd);
    close_fd(&tier->disk_fd);
    free(tier);
    return NULL;
}

int tier_fd(const struct tier *tier)
{
    return tier->fd;
}

int tier_disk_fd(const struct tier *tier)
{
    return tier->disk_fd;
}

uint64_t tier_bytes(const struct tier *tier)
{
    return tier->slab_count * tier->slab_bytes;
}

uint64_t tier_slab_bytes(const struct tier *tier)
{
    return tier->slab_bytes;
}

enum tier_backing tier_backing(const struct tier *tier, uint64_t offset)
{
    return offset / tier->slab_bytes < tier->shelves[TIER_MEMORY].count ? TIER_MEMORY : TIER_DISK;
}

static enum tier_backing slab_backing(const struct slab *slab)
{
    const struct tier *tier = slab->space->tier;

    return tier_backing(tier, (uint64_t) (slab - tier->slabs) * tier->slab_bytes);
}

void tier_disk_suspend(struct tier *tier, bool suspended)
{
    tier->disk_suspended = suspended;
}

bool tier_disk_suspended(const struct tier *tier)
{
    return tier->disk_suspended;
}

static uint32_t shelf_free(const struct shelf *shelf)
{
    return shelf->clean_count + shelf->used_count;
}

/* Whether slots may be taken there. */
static bool backing_open(const struct tier *tier, enum tier_backing backing)
{
    return backing == TIER_MEMORY || !tier->disk_suspended;
}

/* Slabs that may be taken. */
static uint32_t slabs_free(const struct tier *tier)
{
    uint32_t count = 0;

    for (enum tier_backing i = 0; i < TIER_BACKING_MAX; i++)
        count += backing_open(tier, i) ? shelf_free(&tier->shelves[i]) : 0;
    return count;
}

/* Slabs that spaces hold. */
static uint32_t slabs_held(const struct tier *tier)
{
    return tier->slab_count - shelf_free(&tier->shelves[TIER_MEMORY]) -
           shelf_free(&tier->shelves[TIER_DISK]);
}

struct tier_stats tier_stats(const struct tier *tier)
{
    const struct shelf *memory = &tier->shelves[TIER_MEMORY], *disk = &tier->shelves[TIER_DISK];

    return (struct tier_stats){
        .total_bytes = tier_bytes(tier),
        .slab_bytes = slabs_held(tier) * tier->slab_bytes,
        .free_bytes = slabs_free(tier) * tier->slab_bytes,
        .disk_bytes = disk->count * tier->slab_bytes,
        .disk_slab_bytes = (disk->count - shelf_free(disk)) * tier->slab_bytes,
        .slot_bytes = tier->slot_bytes,
        .slot_count = tier->slot_count,
        .touched_bytes = (memory->count - memory->clean_count) * tier->slab_bytes,
        .slab_peak_bytes = tier->peak_slabs * tier->slab_bytes,
    };
}

int tier_space_new(
    struct tier *tier, struct tier_account *account, uint64_t slot_bytes, struct tier_space **ret)
{
    struct tier_space *space;

    if (slot_bytes == 0 || slot_bytes % 16 != 0)
        return -EINVAL;
    if (slot_bytes > tier->slab_bytes || tier->slab_bytes / slot_bytes > TIER_SLOTS_MAX)
        return -EFBIG;
    space = calloc(1, sizeof(*space));
    if (space == NULL)
        return -ENOMEM;
    space->tier = tier;
    space->account = account;
    space->slot_bytes = slot_bytes;
    space->slots_per_slab = (uint32_t) (tier->slab_bytes / slot_bytes);
    for (enum tier_backing i = 0; i < TIER_BACKING_MAX; i++)
        list_init(&space->open[i]);
    list_init(&space->slabs);
    tier->spaces++;
    *ret = space;
    return 0;
}

/* ------------------------------------------------------------------ slabs */

/* Whether the account allows another slab; it may be charged beyond a limit that was lowered. */
static bool account_allows(const struct tier_account *account, uint64_t bytes)
{
    return sub_saturate(account->max_bytes, account->charged_bytes) >= bytes;
}

/* A free slab, on the stack of those that are `used` or not, becomes the space's. -ENOMEM. */
static int slab_enter(
    struct tier_space *space, struct slab *slab, enum tier_backing backing, bool used)
{
    struct tier *tier = space->tier;
    struct shelf *shelf = &tier->shelves[backing];
    int r = tier_slots_init(&slab->slots, space->slots_per_slab);

    if (r < 0)
        return r;
    list_remove(&slab->link);
    *(used ? &shelf->used_count : &shelf->clean_count) -= 1;
    slab->space = space;
    list_append(&space->open[backing], &slab->link);
    list_append(&space->slabs, &slab->all);
    space->slab_counts[backing]++;
    space->account->charged_bytes += tier->slab_bytes;
    tier->peak_slabs = MAX(tier->peak_slabs, (uint64_t) slabs_held(tier));
    return TIER_OK;
}

static int slab_take(struct tier_space *space, enum tier_backing backing, struct slab **ret)
{
    struct tier *tier = space->tier;
    struct shelf *shelf = &tier->shelves[backing];
    bool used = shelf->used_count > 0;
    struct slab *slab;
    int r;

    if (shelf_free(shelf) == 0)
        return TIER_FULL;
    if (!account_allows(space->account, tier->slab_bytes))
        return TIER_HOST_MAX;
    slab = list_first(used ? &shelf->used : &shelf->clean, struct slab, link);
    r = slab_enter(space, slab, backing, used);
    *ret = slab;
    return r;
}

static void slab_give(struct slab *slab)
{
    struct tier_space *space = slab->space;
    struct tier *tier = space->tier;
    enum tier_backing backing = slab_backing(slab);
    struct shelf *shelf = &tier->shelves[backing];

    space->slot_counts[backing] -= slab->slots.used;
    tier->slot_count -= slab->slots.used;
    tier->slot_bytes -= slab->slots.used * space->slot_bytes;
    tier_slots_done(&slab->slots);
    slab->space = NULL;
    list_remove(&slab->link);
    list_remove(&slab->all);
    /* Last in, first out: what was used last is most likely still in a cache. */
    list_insert_after(&shelf->used, &slab->link);
    shelf->used_count++;
    space->slab_counts[backing]--;
    space->account->charged_bytes -= tier->slab_bytes;
}

struct tier_space *tier_space_free(struct tier_space *space)
{
    if (space == NULL)
        return NULL;
    list_for_each_safe(slab, &space->slabs, struct slab, all) slab_give(slab);
    assert(tier_space_slots(space) == 0 && tier_space_charged(space) == 0);
    space->tier->spaces--;
    free(space);
    return NULL;
}

/* ------------------------------------------------------------------ slots */

/* A slab with a free slot, of memory if there is any. */
static int slab_find(struct tier_space *space, struct slab **ret)
{
    int outcome = TIER_FULL;

    for (enum tier_backing i = 0; i < TIER_BACKING_MAX; i++) {
        struct slab *slab = list_first(&space->open[i], struct slab, link);
        int r;

        if (!backing_open(space->tier, i))
            continue;
        r = slab != NULL ? TIER_OK : slab_take(space, i, &slab);
        if (r == TIER_OK)
            *ret = slab;
        if (r <= TIER_OK)
            return r;
        outcome = MAX(outcome, r);
    }
    return outcome;
}

/* One more of its slots is taken. */
static void slot_count(struct slab *slab)
{
    struct tier_space *space = slab->space;

    if (slab->slots.used == slab->slots.count)
        list_remove(&slab->link);
    space->slot_counts[slab_backing(slab)]++;
    space->tier->slot_count++;
    space->tier->slot_bytes += space->slot_bytes;
}

int tier_slot_claim(struct tier_space *space, uint64_t offset)
{
    struct tier *tier = space->tier;
    uint64_t within = offset % tier->slab_bytes;
    enum tier_backing backing = tier_backing(tier, offset);
    struct slab *slab;
    int r;

    if (offset >= tier_bytes(tier) || within % space->slot_bytes != 0 ||
        within / space->slot_bytes >= space->slots_per_slab)
        return -EINVAL;
    slab = &tier->slabs[offset / tier->slab_bytes];
    if (slab->space == NULL) {
        /* Nothing was given back yet: one backing's free slabs are all on one stack. */
        r = slab_enter(space, slab, backing, tier->shelves[backing].used_count > 0);
        if (r < 0)
            return r;
    }
    if (slab->space != space ||
        tier_slots_claim(&slab->slots, (uint32_t) (within / space->slot_bytes)) < 0)
        return -EBUSY;
    slot_count(slab);
    return 0;
}

int tier_slot_alloc(struct tier_space *space, uint64_t *ret_offset)
{
    struct tier *tier = space->tier;
    struct slab *slab;
    uint32_t slot;
    int r = slab_find(space, &slab);

    if (r != TIER_OK)
        return r;
    slot = tier_slots_take(&slab->slots);
    slot_count(slab);
    *ret_offset = (uint64_t) (slab - tier->slabs) * tier->slab_bytes + slot * space->slot_bytes;
    return TIER_OK;
}

int tier_slot_free(struct tier_space *space, uint64_t offset)
{
    struct tier *tier = space->tier;
    uint64_t within = offset % tier->slab_bytes;
    struct slab *slab;
    int r;

    if (offset >= tier_bytes(tier) || within % space->slot_bytes != 0)
        return -EINVAL;
    slab = &tier->slabs[offset / tier->slab_bytes];
    if (slab->space != space)
        return -EINVAL;
    r = tier_slots_give(&slab->slots, (uint32_t) (within / space->slot_bytes));
    if (r < 0)
        return r;
    space->slot_counts[slab_backing(slab)]--;
    tier->slot_count--;
    tier->slot_bytes -= space->slot_bytes;
    if (slab->slots.used == 0)
        slab_give(slab);
    else if (!list_linked(&slab->link))
        list_append(&space->open[slab_backing(slab)], &slab->link);
    return 0;
}

uint64_t tier_space_begun(const struct tier_space *space)
{
    uint64_t room = 0;

    for (enum tier_backing i = 0; i < TIER_BACKING_MAX; i++) {
        if (backing_open(space->tier, i))
            room +=
                (uint64_t) space->slab_counts[i] * space->slots_per_slab - space->slot_counts[i];
    }
    return room;
}

uint64_t tier_space_room(const struct tier_space *space)
{
    const struct tier *tier = space->tier;
    uint64_t slabs =
        sub_saturate(space->account->max_bytes, space->account->charged_bytes) / tier->slab_bytes;

    slabs = MIN(slabs, (uint64_t) slabs_free(tier));
    return tier_space_begun(space) + slabs * space->slots_per_slab;
}

uint64_t tier_space_slots(const struct tier_space *space)
{
    return space->slot_counts[TIER_MEMORY] + space->slot_counts[TIER_DISK];
}

uint64_t tier_space_charged(const struct tier_space *space)
{
    return (space->slab_counts[TIER_MEMORY] + (uint64_t) space->slab_counts[TIER_DISK]) *
           space->tier->slab_bytes;
}

uint32_t tier_upcoming(const struct tier *tier, uint64_t *ret_offsets, uint32_t max)
{
    const struct shelf *shelf = &tier->shelves[TIER_MEMORY];
    const struct list *stacks[] = {&shelf->used, &shelf->clean};
    uint32_t count = 0;

    for (size_t i = 0; i < ARRAY_SIZE(stacks); i++) {
        list_for_each(slab, stacks[i], struct slab, link)
        {
            if (count == max)
                return count;
            ret_offsets[count++] = (uint64_t) (slab - tier->slabs) * tier->slab_bytes;
        }
    }
    return count;
}

void tier_touch(struct tier *tier, uint64_t offset)
{
    struct shelf *shelf = &tier->shelves[TIER_MEMORY];
    struct slab *slab = &tier->slabs[offset / tier->slab_bytes];

    /* One that was used before is there already. */
    if (list_first(&shelf->clean, struct slab, link) != slab)
        return;
    list_remove(&slab->link);
    list_append(&shelf->used, &slab->link);
    shelf->clean_count--;
    shelf->used_count++;
}

int tier_trim(struct tier *tier, uint32_t slabs)
{
    struct shelf *shelf = &tier->shelves[TIER_MEMORY];
    int count = 0;

    while (slabs-- > 0 && shelf->used_count > 0) {
        struct slab *slab = container_of(shelf->used.prev, struct slab, link);
        uint64_t offset = (uint64_t) (slab - tier->slabs) * tier->slab_bytes;

        if (fallocate(tier->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t) offset,
                (off_t) tier->slab_bytes) < 0)
            return -errno;
        list_remove(&slab->link);
        list_insert_after(&shelf->clean, &slab->link);
        shelf->used_count--;
        shelf->clean_count++;
        count++;
    }
    return count;
}

/* ------------------------------------------------------------------ movers of before */

static int file_reopen(int fd, int *ret_fd)
{
    char path[32];

    (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    *ret_fd = open(path, O_RDWR | O_CLOEXEC);
    return *ret_fd < 0 ? -errno : 0;
}

int tier_lend(int fd, int *ret_fd)
{
    _cleanup_close_ int own = -1;
    int r = file_reopen(fd, &own);

    if (r == 0 && flock(own, LOCK_SH | LOCK_NB) < 0)
        r = -errno;
    if (r == 0)
        *ret_fd = TAKE_FD(own);
    return r;
}

int tier_quiet_wait(int fd, uint64_t patience_ns)
{
    uint64_t deadline_ns = add_saturate(clock_now(&clock_monotonic), patience_ns);
    const struct timespec pause = {.tv_nsec = 1000000};
    _cleanup_close_ int own = -1;
    int r = file_reopen(fd, &own);

    while (r == 0 && flock(own, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK)
            r = -errno;
        else if (clock_now(&clock_monotonic) >= deadline_ns)
            r = -ETIMEDOUT;
        else
            (void) nanosleep(&pause, NULL);
    }
    return r;
}
