/*
 * The host tier of one device: where evicted pages lie.
 *
 * One memfd and, behind it, perhaps a file on a disk (tier_disk.h): both owned by the broker, so
 * that the bytes outlive a mover, and cut into slabs. A slab belongs to one space at a time (the
 * pages of one arena) and is cut into slots of that space's size. The broker never maps either: a
 * slot is an offset that a mover is told, and the disk's begin where those of the memfd end.
 * Memory is taken before the disk.
 *
 * A disk that fails is suspended: nothing new is put there, and what lies there stays.
 *
 * What a tenant may hold is counted in whole slabs, so that small pages cannot pin more host memory
 * than is charged. A space takes a slab with its first slot in it and gives it back with its last.
 *
 * A slot must stay allocated until no job that names it is unanswered: the mover writes to it.
 *
 * Not thread-safe; nothing here blocks, but tier_trim() for as long as the kernel frees pages.
 */
#pragma once

#include "base/list.h"
#include "base/macro.h"

/* What a mover page-locks at once: one call for thousands of pages, and little enough to give. */
#define TIER_SLAB_BYTES (UINT64_C(32) << 20)
/* Of memory, and of a disk: 32 TiB. Each costs a hundred bytes, used or not. */
#define TIER_SLABS_MAX (UINT32_C(1) << 20)

enum tier_backing { TIER_MEMORY, TIER_DISK, TIER_BACKING_MAX };

enum tier_outcome {
    TIER_OK = 0,
    TIER_FULL,     /* no slab of the device may be taken */
    TIER_HOST_MAX, /* the tenant's HostMax= */
    TIER_OUTCOME_MAX
};

/* A tenant's account, embedded by whoever knows tenants; must outlive the spaces charged to it. */
struct tier_account {
    uint64_t max_bytes;     /* HostMax=; may change at any time, also below what is charged */
    uint64_t charged_bytes; /* whole slabs */
    uint64_t record_bytes;  /* of the broker's own memory that say what lies there */
};

struct tier_stats {
    uint64_t total_bytes;     /* of slabs that are held or may be, once limits are off: no others */
    uint64_t slab_bytes;      /* of slabs that spaces hold */
    uint64_t free_bytes;      /* of slabs that may be taken now */
    uint64_t disk_bytes;      /* of total_bytes, on the disk … */
    uint64_t disk_slab_bytes; /* … and of slab_bytes */
    uint64_t slot_bytes;      /* of allocated slots: the rest of the slabs is slack */
    uint64_t slot_count;      /* allocated */
    uint64_t touched_bytes;   /* of slabs that may hold host memory: taken since the last trim */
    uint64_t slab_peak_bytes;
};

struct tier;
struct tier_space;

/*
 * `bytes` is rounded down to whole slabs of `slab_bytes`, a multiple of 4096 (TIER_SLAB_BYTES but
 * in tests); 0 is a tier that is always full. The memfd is sealed against any change of its size.
 * -EINVAL, -ENOMEM, -errno of the kernel.
 */
int tier_new(uint64_t bytes, uint64_t slab_bytes, struct tier **ret) _must_check_;
/* The same with `disk_bytes` (rounded down as well) in a file that is at least that long and whose
 * room is reserved. Takes the fd, also when it fails; −1 and 0: no disk. */
int tier_new_consume(uint64_t bytes, uint64_t slab_bytes, int disk_fd, uint64_t disk_bytes,
    struct tier **ret) _must_check_;
/*
 * The tier of a broker before: the memfd as it is, and a file on the disk (−1 and 0: none), where
 * something lies only if it is that broker's, too (`disk_kept`). Takes both fds, also on failure.
 * Nothing is allocated; tier_slot_claim() says what is. -EINVAL for what can't be one of ours: no
 * memory file, of no whole slabs, or of a size that isn't fixed and can't be.
 */
int tier_adopt_consume(int fd, uint64_t slab_bytes, int disk_fd, uint64_t disk_bytes,
    bool disk_kept, struct tier **ret) _must_check_;
/* Every space must have been freed. Accepts NULL, returns NULL. */
struct tier *tier_free(struct tier *tier);

/* Borrowed: of the memfd, and of the disk's file; −1: there is none. */
int tier_fd(const struct tier *tier);
int tier_disk_fd(const struct tier *tier);
/* Of both, and of the disk's alone, as the files are. */
uint64_t tier_bytes(const struct tier *tier);
uint64_t tier_disk_bytes(const struct tier *tier);
uint64_t tier_slab_bytes(const struct tier *tier);
struct tier_stats tier_stats(const struct tier *tier);

/* Which of the two the byte at `offset` lies in. */
enum tier_backing tier_backing(const struct tier *tier, uint64_t offset);
/* Whether something may be put on the disk, from now on. */
void tier_disk_suspend(struct tier *tier, bool suspended);
bool tier_disk_suspended(const struct tier *tier);

/*
 * From now on no more than `bytes` of that backing are held: what is free beyond them is never
 * taken again, and what is held beyond them neither, once it is given back. The disk's room is
 * free then, memory's after tier_trim(). Once for each backing.
 */
void tier_limit(struct tier *tier, enum tier_backing backing, uint64_t bytes);
/* From now on no slot is taken at all: somebody may still write where nothing lies. */
void tier_freeze(struct tier *tier);

/*
 * The slots of one arena, of `slot_bytes` each (a multiple of 16). -EINVAL for other sizes, -EFBIG
 * when one doesn't fit in a slab, -ENOMEM. Takes no slab yet.
 */
int tier_space_new(struct tier *tier, struct tier_account *account, uint64_t slot_bytes,
    struct tier_space **ret) _must_check_;
/* Frees every slot and gives every slab back. Accepts NULL, returns NULL. */
struct tier_space *tier_space_free(struct tier_space *space);

/* An enum tier_outcome, with the slot's offset in the memfd; or -ENOMEM. O(1). */
int tier_slot_alloc(struct tier_space *space, uint64_t *ret_offset) _must_check_;
/* -EINVAL when `offset` is no allocated slot of this space. O(1). */
int tier_slot_free(struct tier_space *space, uint64_t offset) _must_check_;

/* The slot at `offset` is this space's: found in what a broker before has left. -EINVAL when none
 * of its size lies there, or nothing of before, -EBUSY when it is somebody's. Asks no limit, and
 * comes before one. -ENOMEM. */
int tier_slot_claim(struct tier_space *space, uint64_t offset) _must_check_;

/* Slots that tier_slot_alloc() would give from now on, if nobody else took a slab. */
uint64_t tier_space_room(const struct tier_space *space);
/* Of these, in slabs that the space has already. */
uint64_t tier_space_begun(const struct tier_space *space);
/* Allocated slots, and what the account is charged for this space. */
uint64_t tier_space_slots(const struct tier_space *space);
uint64_t tier_space_charged(const struct tier_space *space);

/* Slabs of memory that are taken next, if nothing is given back before: at most `max` of their
 * offsets, in that order; how many. */
uint32_t tier_upcoming(const struct tier *tier, uint64_t *ret_offsets, uint32_t max);
/* There will be host memory behind that one of them: somebody makes it ready. */
void tier_touch(struct tier *tier, uint64_t offset);

/*
 * Gives the host memory of up to `slabs` free slabs back to the kernel (the disk's room stays
 * reserved), of those beyond a limit first; how many they were, or -errno. Only while no mover
 * runs: it page-locks slabs, and memory that is locked would go on being used by it
 * behind the memfd's back.
 */
int tier_trim(struct tier *tier, uint32_t slabs) _must_check_;
