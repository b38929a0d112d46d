/*
 * Slabs are numbered by their place in the memfd, and on from there in the file on the disk. A free
 * slab is on one of two stacks of its backing: those that hold host memory since somebody used them
 * are taken first, untouched ones last, so that no more memory is in use than was needed at once.
 * Beyond a limit it is on neither, and out of use for good.
 *
 * A space keeps its slabs with room in a list for each backing, the one that was opened first in
 * front: slots are taken there, so that later slabs get empty. A full slab is in no list.
 */
#include "daemon/tier.h"

#include <assert.h>
#include <errno.h>
#include <sys/stat.h>

#include "base/memfile.h"
#include "daemon/tier_file.h"
#include "daemon/tier_slots.h"

#define PAGE_BYTES 4096

struct slab {
    struct list link;         /* in its space's `open`, or in a list of its shelf */
    struct list all;          /* in its space's `slabs` */
    struct tier_space *space; /* NULL: free */
    bool clean;               /* and untouched */
    struct tier_slots slots;
};

/* The slabs of one backing. */
struct shelf {
    struct list clean, used; /* free slabs: without and with host memory behind them */
    struct list retired;     /* out of use, with host memory behind them */
    uint32_t count, clean_count, used_count;
    uint32_t most;          /* in use */
    uint32_t retired_count; /* out of use … */
    uint32_t empty_count;   /* … and without host memory */
};

struct tier {
    int fd, disk_fd;
    uint64_t slab_bytes;
    uint32_t slab_count;
    struct shelf shelves[TIER_BACKING_MAX];
    uint64_t before_bytes; /* that a broker before had: something may lie there */
    bool disk_suspended, frozen;
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

static void shelf_fill(struct shelf *shelf, struct slab *slabs, uint32_t count, bool dirty)
{
    list_init(&shelf->clean);
    list_init(&shelf->used);
    list_init(&shelf->retired);
    shelf->count = shelf->most = count;
    *(dirty ? &shelf->used_count : &shelf->clean_count) = count;
    for (uint32_t i = 0; i < count; i++) {
        list_init(&slabs[i].all);
        slabs[i].clean = !dirty;
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

    if (count > TIER_SLABS_MAX || disk_count > TIER_SLABS_MAX)
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
    fd = memfile_new("gmbd-host-tier", bytes / slab_bytes * slab_bytes);
    if (fd < 0)
        return fd;
    return tier_make(fd, bytes, slab_bytes, TAKE_FD(disk), disk_bytes, false, ret);
}

int tier_adopt_consume(int fd, uint64_t slab_bytes, int disk_fd, uint64_t disk_bytes,
    bool disk_kept, struct tier **ret)
{
    _cleanup_close_ int memory = fd, disk = disk_fd;
    struct stat status;
    int r = tier_file_seal(memory);

    if (r == 0 && fstat(memory, &status) < 0)
        r = -errno;
    if (r < 0)
        return r;
    if (slab_bytes == 0 || status.st_size < 0 || (uint64_t) status.st_size % slab_bytes != 0)
        return -EINVAL;
    r = tier_make(TAKE_FD(memory), (uint64_t) status.st_size, slab_bytes, TAKE_FD(disk), disk_bytes,
        true, ret);
    if (r == 0)
        (*ret)->before_bytes = disk_kept ? tier_bytes(*ret) : (uint64_t) status.st_size;
    return r;
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

uint64_t tier_disk_bytes(const struct tier *tier)
{
    return tier->shelves[TIER_DISK].count * tier->slab_bytes;
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
    return !tier->frozen && (backing == TIER_MEMORY || !tier->disk_suspended);
}

/* Slabs that may be taken. */
static uint32_t slabs_free(const struct tier *tier)
{
    uint32_t count = 0;

    for (enum tier_backing i = 0; i < TIER_BACKING_MAX; i++)
        count += backing_open(tier, i) ? shelf_free(&tier->shelves[i]) : 0;
    return count;
}

/* Slabs that are held or free. */
static uint32_t shelf_service(const struct shelf *shelf)
{
    return shelf->count - shelf->retired_count;
}

/* Slabs that spaces hold. */
static uint32_t slabs_held(const struct tier *tier)
{
    uint32_t count = 0;

    for (enum tier_backing i = 0; i < TIER_BACKING_MAX; i++)
        count += shelf_service(&tier->shelves[i]) - shelf_free(&tier->shelves[i]);
    return count;
}

struct tier_stats tier_stats(const struct tier *tier)
{
    const struct shelf *memory = &tier->shelves[TIER_MEMORY], *disk = &tier->shelves[TIER_DISK];

    return (struct tier_stats){
        .total_bytes = (shelf_service(memory) + (uint64_t) shelf_service(disk)) * tier->slab_bytes,
        .slab_bytes = slabs_held(tier) * tier->slab_bytes,
        .free_bytes = slabs_free(tier) * tier->slab_bytes,
        .disk_bytes = shelf_service(disk) * tier->slab_bytes,
        .disk_slab_bytes = (shelf_service(disk) - shelf_free(disk)) * tier->slab_bytes,
        .slot_bytes = tier->slot_bytes,
        .slot_count = tier->slot_count,
        .touched_bytes =
            (memory->count - memory->clean_count - memory->empty_count) * tier->slab_bytes,
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

/* A free slab is on no stack any more. */
static void shelf_remove(struct shelf *shelf, struct slab *slab)
{
    list_remove(&slab->link);
    *(slab->clean ? &shelf->clean_count : &shelf->used_count) -= 1;
}

/* A free slab becomes the space's. -ENOMEM. */
static int slab_enter(struct tier_space *space, struct slab *slab, enum tier_backing backing)
{
    struct tier *tier = space->tier;
    struct shelf *shelf = &tier->shelves[backing];
    int r = tier_slots_init(&slab->slots, space->slots_per_slab);

    if (r < 0)
        return r;
    shelf_remove(shelf, slab);
    slab->clean = false;
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
    struct slab *slab;
    int r;

    if (shelf_free(shelf) == 0)
        return TIER_FULL;
    if (!account_allows(space->account, tier->slab_bytes))
        return TIER_HOST_MAX;
    slab = list_first(shelf->used_count > 0 ? &shelf->used : &shelf->clean, struct slab, link);
    r = slab_enter(space, slab, backing);
    *ret = slab;
    return r;
}

/* Its bytes in the file are no longer there, nor is what they took. -errno. */
static int slab_punch(const struct tier *tier, const struct slab *slab)
{
    uint64_t memory = tier->shelves[TIER_MEMORY].count, at = (uint64_t) (slab - tier->slabs);
    int fd = at < memory ? tier->fd : tier->disk_fd;

    at = (at < memory ? at : at - memory) * tier->slab_bytes;
    return tier_file_punch(fd, at, tier->slab_bytes);
}

/* On no stack and nobody's: nobody gets it again. A mover may have memory page-locked, and has
 * nothing of the disk; where that can't take its room back, it has it when the file is closed. */
static void slab_retire(struct tier *tier, struct slab *slab, enum tier_backing backing)
{
    struct shelf *shelf = &tier->shelves[backing];

    shelf->retired_count++;
    if (backing == TIER_DISK)
        (void) slab_punch(tier, slab);
    if (backing == TIER_DISK || slab->clean)
        shelf->empty_count++;
    else
        list_append(&shelf->retired, &slab->link);
}

void tier_limit(struct tier *tier, enum tier_backing backing, uint64_t bytes)
{
    struct shelf *shelf = &tier->shelves[backing];

    shelf->most = (uint32_t) MIN(bytes / tier->slab_bytes, (uint64_t) shelf->count);
    while (shelf_service(shelf) > shelf->most && shelf_free(shelf) > 0) {
        struct list *stack = shelf->used_count > 0 ? &shelf->used : &shelf->clean;
        struct slab *slab = container_of(stack->prev, struct slab, link);

        shelf_remove(shelf, slab);
        slab_retire(tier, slab, backing);
    }
}

void tier_freeze(struct tier *tier)
{
    tier->frozen = true;
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
    if (shelf_service(shelf) > shelf->most) {
        slab_retire(tier, slab, backing);
    } else {
        /* Last in, first out: what was used last is most likely still in a cache. */
        list_insert_after(&shelf->used, &slab->link);
        shelf->used_count++;
    }
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

    if (offset >= tier->before_bytes || within % space->slot_bytes != 0 ||
        within / space->slot_bytes >= space->slots_per_slab)
        return -EINVAL;
    slab = &tier->slabs[offset / tier->slab_bytes];
    if (slab->space == NULL) {
        r = slab_enter(space, slab, backing);
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

    for (size_t i = 0; !tier->frozen && i < ARRAY_SIZE(stacks); i++) {
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
    shelf_remove(shelf, slab);
    slab->clean = false;
    list_append(&shelf->used, &slab->link);
    shelf->used_count++;
}

int tier_trim(struct tier *tier, uint32_t slabs)
{
    struct shelf *shelf = &tier->shelves[TIER_MEMORY];
    int count = 0;

    for (; slabs > 0; slabs--) {
        bool retired = !list_empty(&shelf->retired);
        struct list *last = retired ? shelf->retired.prev : shelf->used.prev;
        struct slab *slab = container_of(last, struct slab, link);
        int r;

        if (!retired && shelf->used_count == 0)
            break;
        r = slab_punch(tier, slab);
        if (r < 0)
            return r;
        if (retired) {
            list_remove(&slab->link);
            shelf->empty_count++;
        } else {
            shelf_remove(shelf, slab);
            list_insert_after(&shelf->clean, &slab->link);
            shelf->clean_count++;
        }
        slab->clean = true;
        count++;
    }
    return count;
}
