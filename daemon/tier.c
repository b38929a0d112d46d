/*
 * Slabs are numbered by their place in the memfd. A free slab is on one of two stacks: those that
 * hold host memory since somebody used them are taken first, untouched ones last, so that no more
 * memory is in use than was needed at once.
 *
 * A space keeps its slabs with room in a list, the one that was opened first in front: slots are
 * taken there, so that later slabs get empty. A full slab is in no list.
 */
#include "daemon/tier.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>

#include "daemon/tier_slots.h"

#define PAGE_BYTES 4096

struct slab {
    struct list link;         /* in its space's `open`, or in `clean` or `used` of the tier */
    struct list all;          /* in its space's `slabs` */
    struct tier_space *space; /* NULL: free */
    struct tier_slots slots;
};

struct tier {
    int fd;
    uint64_t slab_bytes;
    uint32_t slab_count;
    struct list clean, used; /* free slabs: without and with host memory behind them */
    uint32_t clean_count, used_count;
    uint32_t spaces;
    uint64_t slot_bytes, slot_count, peak_slabs;
    struct slab slabs[];
};

struct tier_space {
    struct tier *tier;
    struct tier_account *account;
    uint64_t slot_bytes;
    uint32_t slots_per_slab, slab_count;
    uint64_t slot_count;
    struct list open;  /* struct slab.link: with a free slot */
    struct list slabs; /* struct slab.all */
};

static int tier_file(uint64_t bytes)
{
    _cleanup_close_ int fd = memfd_create("gmbd-host-tier", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || ftruncate(fd, (off_t) bytes) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return -errno;
    return TAKE_FD(fd);
}

int tier_new(uint64_t bytes, uint64_t slab_bytes, struct tier **ret)
{
    struct tier *tier;
    uint64_t count;

    if (slab_bytes == 0 || slab_bytes % PAGE_BYTES != 0)
        return -EINVAL;
    count = bytes / slab_bytes;
    if (count > UINT32_MAX || bytes > INT64_MAX)
        return -EINVAL;
    tier = calloc(1, sizeof(*tier) + count * sizeof(tier->slabs[0]));
    if (tier == NULL)
        return -ENOMEM;
    tier->slab_bytes = slab_bytes;
    tier->slab_count = tier->clean_count = (uint32_t) count;
    list_init(&tier->clean);
    list_init(&tier->used);
    for (uint32_t i = 0; i < count; i++) {
        list_init(&tier->slabs[i].all);
        list_append(&tier->clean, &tier->slabs[i].link);
    }
    tier->fd = tier_file(count * slab_bytes);
    if (tier->fd < 0) {
        int r = tier->fd;

        free(tier);
        return r;
    }
    *ret = tier;
    return 0;
}

struct tier *tier_free(struct tier *tier)
{
    if (tier == NULL)
        return NULL;
    assert(tier->spaces == 0 && tier->slot_count == 0);
    close_fd(&tier->fd);
    free(tier);
    return NULL;
}

int tier_fd(const struct tier *tier)
{
    return tier->fd;
}

uint64_t tier_bytes(const struct tier *tier)
{
    return tier->slab_count * tier->slab_bytes;
}

uint64_t tier_slab_bytes(const struct tier *tier)
{
    return tier->slab_bytes;
}

static uint32_t slabs_free(const struct tier *tier)
{
    return tier->clean_count + tier->used_count;
}

struct tier_stats tier_stats(const struct tier *tier)
{
    return (struct tier_stats){
        .total_bytes = tier_bytes(tier),
        .slab_bytes = (tier->slab_count - slabs_free(tier)) * tier->slab_bytes,
        .slot_bytes = tier->slot_bytes,
        .slot_count = tier->slot_count,
        .touched_bytes = (tier->slab_count - tier->clean_count) * tier->slab_bytes,
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
    list_init(&space->open);
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

static int slab_take(struct tier_space *space, struct slab **ret)
{
    struct tier *tier = space->tier;
    struct slab *slab;
    bool used = tier->used_count > 0;
    int r;

    if (slabs_free(tier) == 0)
        return TIER_FULL;
    if (!account_allows(space->account, tier->slab_bytes))
        return TIER_HOST_MAX;
    slab = list_first(used ? &tier->used : &tier->clean, struct slab, link);
    r = tier_slots_init(&slab->slots, space->slots_per_slab);
    if (r < 0)
        return r;
    list_remove(&slab->link);
    *(used ? &tier->used_count : &tier->clean_count) -= 1;
    slab->space = space;
    list_append(&space->open, &slab->link);
    list_append(&space->slabs, &slab->all);
    space->slab_count++;
    space->account->charged_bytes += tier->slab_bytes;
    tier->peak_slabs = MAX(tier->peak_slabs, (uint64_t) tier->slab_count - slabs_free(tier));
    *ret = slab;
    return TIER_OK;
}

static void slab_give(struct slab *slab)
{
    struct tier_space *space = slab->space;
    struct tier *tier = space->tier;

    space->slot_count -= slab->slots.used;
    tier->slot_count -= slab->slots.used;
    tier->slot_bytes -= slab->slots.used * space->slot_bytes;
    tier_slots_done(&slab->slots);
    slab->space = NULL;
    list_remove(&slab->link);
    list_remove(&slab->all);
    /* Last in, first out: what was used last is most likely still in a cache. */
    list_insert_after(&tier->used, &slab->link);
    tier->used_count++;
    space->slab_count--;
    space->account->charged_bytes -= tier->slab_bytes;
}

struct tier_space *tier_space_free(struct tier_space *space)
{
    if (space == NULL)
        return NULL;
    list_for_each_safe(slab, &space->slabs, struct slab, all) slab_give(slab);
    assert(space->slot_count == 0 && space->slab_count == 0);
    space->tier->spaces--;
    free(space);
    return NULL;
}

/* ------------------------------------------------------------------ slots */

int tier_slot_alloc(struct tier_space *space, uint64_t *ret_offset)
{
    struct tier *tier = space->tier;
    struct slab *slab = list_first(&space->open, struct slab, link);
    uint32_t slot;

    if (slab == NULL) {
        int r = slab_take(space, &slab);

        if (r != TIER_OK)
            return r;
    }
    slot = tier_slots_take(&slab->slots);
    if (slab->slots.used == slab->slots.count)
        list_remove(&slab->link);
    space->slot_count++;
    tier->slot_count++;
    tier->slot_bytes += space->slot_bytes;
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
    space->slot_count--;
    tier->slot_count--;
    tier->slot_bytes -= space->slot_bytes;
    if (slab->slots.used == 0)
        slab_give(slab);
    else if (!list_linked(&slab->link))
        list_append(&space->open, &slab->link);
    return 0;
}

uint64_t tier_space_room(const struct tier_space *space)
{
    const struct tier *tier = space->tier;
    uint64_t held = (uint64_t) space->slab_count * space->slots_per_slab;
    uint64_t slabs =
        sub_saturate(space->account->max_bytes, space->account->charged_bytes) / tier->slab_bytes;

    slabs = MIN(slabs, (uint64_t) slabs_free(tier));
    return held - space->slot_count + slabs * space->slots_per_slab;
}

uint64_t tier_space_slots(const struct tier_space *space)
{
    return space->slot_count;
}

uint64_t tier_space_charged(const struct tier_space *space)
{
    return space->slab_count * space->tier->slab_bytes;
}

int tier_trim(struct tier *tier, uint32_t slabs)
{
    int count = 0;

    while (slabs-- > 0 && tier->used_count > 0) {
        struct slab *slab = container_of(tier->used.prev, struct slab, link);
        uint64_t offset = (uint64_t) (slab - tier->slabs) * tier->slab_bytes;

        if (fallocate(tier->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t) offset,
                (off_t) tier->slab_bytes) < 0)
            return -errno;
        list_remove(&slab->link);
        list_insert_after(&tier->clean, &slab->link);
        tier->used_count--;
        tier->clean_count++;
        count++;
    }
    return count;
}
