/* The host tier's books: slots, slabs and accounts, at their bounds. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "daemon/tier.h"
#include "daemon/tier_disk.h"
#include "daemon/tier_slots.h"
#include "tests/unit/unit.h"

#define SLAB UINT64_C(65536)

static struct tier *tier_make(uint64_t slabs)
{
    struct tier *tier;

    ck_assert_int_eq(tier_new(slabs * SLAB, SLAB, &tier), 0);
    return tier;
}

static struct tier_space *space_make(
    struct tier *tier, struct tier_account *account, uint64_t slot_bytes)
{
    struct tier_space *space;

    ck_assert_int_eq(tier_space_new(tier, account, slot_bytes, &space), 0);
    return space;
}

static uint64_t slot_make(struct tier_space *space)
{
    uint64_t offset;

    ck_assert_int_eq(tier_slot_alloc(space, &offset), TIER_OK);
    return offset;
}

START_TEST(slots_of_any_count_come_lowest_first_and_end)
{
    static const uint32_t counts[] = {1, 63, 64, 65, 4096, 4097, 262145};

    for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
        struct tier_slots slots;

        ck_assert_int_eq(tier_slots_init(&slots, counts[i]), 0);
        for (uint32_t slot = 0; slot < counts[i]; slot++)
            ck_assert_uint_eq(tier_slots_take(&slots), slot);
        ck_assert_uint_eq(slots.used, counts[i]);
        ck_assert_int_eq(tier_slots_give(&slots, counts[i]), -EINVAL);
        ck_assert_int_eq(tier_slots_give(&slots, counts[i] - 1), 0);
        ck_assert_int_eq(tier_slots_give(&slots, counts[i] - 1), -EINVAL);
        ck_assert_uint_eq(tier_slots_take(&slots), counts[i] - 1);
        tier_slots_done(&slots);
    }
}
END_TEST

START_TEST(slots_are_one_to_the_maximum)
{
    struct tier_slots slots;

    ck_assert_int_eq(tier_slots_init(&slots, 0), -EINVAL);
    ck_assert_int_eq(tier_slots_init(&slots, TIER_SLOTS_MAX + 1), -EINVAL);
    ck_assert_int_eq(tier_slots_init(&slots, TIER_SLOTS_MAX), 0);
    ck_assert_int_eq(tier_slots_give(&slots, TIER_SLOTS_MAX - 1), -EINVAL);
    ck_assert_uint_eq(tier_slots_take(&slots), 0);
    tier_slots_done(&slots);
}
END_TEST

START_TEST(the_file_is_sealed_and_whole_slabs_long)
{
    struct tier *tier;
    struct stat stat;

    ck_assert_int_eq(tier_new(3 * SLAB - 1, SLAB, &tier), 0);
    ck_assert_uint_eq(tier_bytes(tier), 2 * SLAB);
    ck_assert_int_eq(fstat(tier_fd(tier), &stat), 0);
    ck_assert_int_eq(stat.st_size, 2 * SLAB);
    ck_assert_int_eq(ftruncate(tier_fd(tier), 0), -1);
    ck_assert_int_eq(ftruncate(tier_fd(tier), 3 * SLAB), -1);
    ck_assert_int_eq(fcntl(tier_fd(tier), F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    tier_free(tier);
}
END_TEST

START_TEST(sizes_that_make_no_sense_are_refused)
{
    struct tier_account account = {.max_bytes = UINT64_MAX};
    struct tier_space *space;
    struct tier *tier;

    ck_assert_int_eq(tier_new(SLAB, 0, &tier), -EINVAL);
    ck_assert_int_eq(tier_new(SLAB, 4095, &tier), -EINVAL);
    ck_assert_int_eq(tier_new(UINT64_MAX, SLAB, &tier), -EINVAL);
    tier = tier_make(1);
    ck_assert_int_eq(tier_space_new(tier, &account, 0, &space), -EINVAL);
    ck_assert_int_eq(tier_space_new(tier, &account, 15, &space), -EINVAL);
    ck_assert_int_eq(tier_space_new(tier, &account, SLAB + 16, &space), -EFBIG);
    ck_assert_int_eq(tier_space_new(tier, &account, UINT64_C(1) << 63, &space), -EFBIG);
    space = space_make(tier, &account, SLAB);
    ck_assert_uint_eq(tier_space_room(space), 1);
    tier_space_free(space);
    tier_free(tier);
}
END_TEST

START_TEST(an_empty_tier_is_always_full)
{
    struct tier_account account = {.max_bytes = UINT64_MAX};
    struct tier *tier = tier_make(0);
    struct tier_space *space = space_make(tier, &account, 16);
    uint64_t offset = 77;

    ck_assert_int_eq(tier_slot_alloc(space, &offset), TIER_FULL);
    ck_assert_uint_eq(offset, 77);
    ck_assert_uint_eq(tier_space_room(space), 0);
    ck_assert_int_eq(tier_slot_free(space, 0), -EINVAL);
    tier_space_free(space);
    tier_free(tier);
}
END_TEST

START_TEST(no_two_slots_overlap_and_none_crosses_a_slab)
{
    const uint64_t slot_bytes = 4112; /* 15 to a slab */
    struct tier_account account = {.max_bytes = UINT64_MAX};
    struct tier *tier = tier_make(2);
    struct tier_space *space = space_make(tier, &account, slot_bytes);
    uint64_t offset;

    ck_assert_uint_eq(tier_space_room(space), 30);
    for (uint64_t i = 0; i < 30; i++)
        ck_assert_uint_eq(slot_make(space), i / 15 * SLAB + i % 15 * slot_bytes);
    ck_assert_int_eq(tier_slot_alloc(space, &offset), TIER_FULL);
    ck_assert_uint_eq(tier_stats(tier).slot_bytes, 30 * slot_bytes);
    tier_space_free(space);
    ck_assert_uint_eq(account.charged_bytes, 0);
    ck_assert_uint_eq(tier_stats(tier).slot_count, 0);
    tier_free(tier);
}
END_TEST

START_TEST(an_account_is_charged_by_the_slab)
{
    struct tier_account account = {.max_bytes = SLAB};
    struct tier *tier = tier_make(3);
    struct tier_space *a = space_make(tier, &account, SLAB / 2),
                      *b = space_make(tier, &account, SLAB / 2);
    uint64_t first, second, offset;

    first = slot_make(a);
    ck_assert_uint_eq(account.charged_bytes, SLAB);
    ck_assert_uint_eq(tier_space_charged(a), SLAB);
    ck_assert_uint_eq(tier_space_room(a), 1);
    ck_assert_uint_eq(tier_space_room(b), 0);
    ck_assert_int_eq(tier_slot_alloc(b, &offset), TIER_HOST_MAX);
    second = slot_make(a);
    ck_assert_int_eq(tier_slot_alloc(a, &offset), TIER_HOST_MAX);
    account.max_bytes = 2 * SLAB - 1;
    ck_assert_int_eq(tier_slot_alloc(b, &offset), TIER_HOST_MAX);
    account.max_bytes = 2 * SLAB;
    offset = slot_make(b);
    ck_assert_uint_eq(account.charged_bytes, 2 * SLAB);
    /* Lowered below what is held: nothing new, and no wrap round. */
    account.max_bytes = 0;
    ck_assert_uint_eq(tier_space_room(a), 0);
    ck_assert_uint_eq(tier_space_room(b), 1);
    ck_assert_int_eq(tier_slot_free(a, first), 0);
    ck_assert_int_eq(tier_slot_free(a, second), 0);
    ck_assert_uint_eq(account.charged_bytes, SLAB);
    ck_assert_int_eq(tier_slot_free(b, offset), 0);
    ck_assert_uint_eq(account.charged_bytes, 0);
    tier_space_free(a);
    tier_space_free(b);
    tier_free(tier);
}
END_TEST

START_TEST(only_what_a_space_holds_can_be_freed)
{
    struct tier_account account = {.max_bytes = UINT64_MAX};
    struct tier *tier = tier_make(2);
    struct tier_space *a = space_make(tier, &account, 1024), *b = space_make(tier, &account, 1024);
    uint64_t of_a = slot_make(a), of_b = slot_make(b);

    ck_assert_int_eq(tier_slot_free(a, of_b), -EINVAL);
    ck_assert_int_eq(tier_slot_free(a, of_a + 16), -EINVAL);
    ck_assert_int_eq(tier_slot_free(a, of_a + 1024), -EINVAL);
    ck_assert_int_eq(tier_slot_free(a, 2 * SLAB), -EINVAL);
    ck_assert_int_eq(tier_slot_free(a, UINT64_MAX), -EINVAL);
    ck_assert_int_eq(tier_slot_free(a, of_a), 0);
    ck_assert_int_eq(tier_slot_free(a, of_a), -EINVAL);
    tier_space_free(a);
    tier_space_free(b);
    tier_free(tier);
}
END_TEST

START_TEST(a_full_slab_opens_again_and_an_empty_one_goes_back)
{
    struct tier_account account = {.max_bytes = UINT64_MAX};
    struct tier *tier = tier_make(1);
    struct tier_space *space = space_make(tier, &account, SLAB / 4), *other;
    uint64_t slots[4];

    for (size_t i = 0; i < 4; i++)
        slots[i] = slot_make(space);
    ck_assert_int_eq(tier_slot_free(space, slots[2]), 0);
    ck_assert_uint_eq(slot_make(space), slots[2]);
    for (size_t i = 0; i < 4; i++)
        ck_assert_int_eq(tier_slot_free(space, slots[i]), 0);
    ck_assert_uint_eq(tier_stats(tier).slab_bytes, 0);
    ck_assert_uint_eq(tier_stats(tier).slab_peak_bytes, SLAB);
    /* Another size of slot may have it now. */
    other = space_make(tier, &account, SLAB);
    ck_assert_uint_eq(slot_make(other), 0);
    tier_space_free(space);
    tier_space_free(other);
    tier_free(tier);
}
END_TEST

START_TEST(trimming_gives_the_memory_of_free_slabs_back_alone)
{
    struct tier_account account = {.max_bytes = UINT64_MAX};
    struct tier *tier = tier_make(3);
    struct tier_space *space = space_make(tier, &account, SLAB);
    char *bytes = mmap(NULL, 3 * SLAB, PROT_READ | PROT_WRITE, MAP_SHARED, tier_fd(tier), 0);
    uint64_t kept;
    struct stat stat;

    ck_assert_ptr_ne(bytes, MAP_FAILED);
    kept = slot_make(space);
    (void) slot_make(space);
    for (uint64_t i = 0; i < 2 * SLAB; i += 4096)
        bytes[i] = 1;
    ck_assert_int_eq(tier_slot_free(space, SLAB), 0);
    ck_assert_uint_eq(tier_stats(tier).touched_bytes, 2 * SLAB);
    ck_assert_int_eq(tier_trim(tier, 0), 0);
    ck_assert_int_eq(tier_trim(tier, 9), 1);
    ck_assert_int_eq(tier_trim(tier, 9), 0);
    ck_assert_uint_eq(tier_stats(tier).touched_bytes, SLAB);
    ck_assert_int_eq(fstat(tier_fd(tier), &stat), 0);
    ck_assert_uint_eq((uint64_t) stat.st_blocks * 512, SLAB);
    ck_assert_int_eq(bytes[kept], 1);
    ck_assert_int_eq(bytes[SLAB], 0);
    (void) munmap(bytes, 3 * SLAB);
    tier_space_free(space);
    tier_free(tier);
}
END_TEST

START_TEST(slabs_that_come_next_are_known_and_can_be_made_ready)
{
    struct tier_account account = {.max_bytes = UINT64_MAX};
    struct tier *tier = tier_make(3);
    struct tier_space *space = space_make(tier, &account, SLAB);
    uint64_t next[3];

    ck_assert_uint_eq(tier_upcoming(tier, next, 2), 2);
    ck_assert_uint_eq(next[0], 0);
    ck_assert_uint_eq(next[1], SLAB);
    for (int i = 0; i < 2; i++) { /* the second time it is there already */
        tier_touch(tier, 0);
        ck_assert_uint_eq(tier_stats(tier).touched_bytes, SLAB);
    }
    tier_touch(tier, SLAB);
    ck_assert_uint_eq(tier_stats(tier).touched_bytes, 2 * SLAB);
    ck_assert_uint_eq(slot_make(space), 0);
    ck_assert_uint_eq(tier_upcoming(tier, next, 3), 2);
    ck_assert_uint_eq(next[0], SLAB);
    ck_assert_uint_eq(next[1], 2 * SLAB);
    ck_assert_uint_eq(slot_make(space), SLAB);
    ck_assert_int_eq(tier_slot_free(space, 0), 0);
    ck_assert_uint_eq(tier_upcoming(tier, next, 3), 2);
    ck_assert_uint_eq(next[0], 0);
    ck_assert_int_eq(tier_trim(tier, 9), 1);
    ck_assert_uint_eq(tier_stats(tier).touched_bytes, SLAB); /* the one in use */
    tier_space_free(space);
    tier_free(tier);
}
END_TEST

/* ------------------------------------------------------------------ the disk */

static struct tier *tier_make_with_disk(uint64_t slabs, uint64_t disk_slabs)
{
    int fd = memfd_create("disk", MFD_CLOEXEC);
    struct tier *tier;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(tier_new_consume(slabs * SLAB, SLAB, fd, disk_slabs * SLAB, &tier), 0);
    return tier;
}

START_TEST(memory_is_taken_before_the_disk)
{
    struct tier_account account = {.max_bytes = UINT64_MAX};
    struct tier *tier = tier_make_with_disk(1, 2);
    struct tier_space *space = space_make(tier, &account, SLAB / 2);
    struct tier_stats stats;
    uint64_t offset;

    ck_assert_uint_eq(tier_bytes(tier), 3 * SLAB);
    ck_assert_int_eq(tier_backing(tier, SLAB - 1), TIER_MEMORY);
    ck_assert_int_eq(tier_backing(tier, SLAB), TIER_DISK);
    ck_assert_uint_eq(tier_space_room(space), 6);
    for (uint64_t i = 0; i < 5; i++)
        ck_assert_uint_eq(slot_make(space), i * SLAB / 2);
    stats = tier_stats(tier);
    ck_assert_uint_eq(stats.disk_bytes, 2 * SLAB);
    ck_assert_uint_eq(stats.disk_slab_bytes, 2 * SLAB);
    ck_assert_uint_eq(stats.slab_bytes, 3 * SLAB);
    ck_assert_uint_eq(stats.free_bytes, 0);
    ck_assert_uint_eq(tier_space_begun(space), 1);
    /* What gets free in memory is used before the disk's last slot. */
    ck_assert_int_eq(tier_slot_free(space, SLAB / 2), 0);
    ck_assert_uint_eq(slot_make(space), SLAB / 2);
    ck_assert_uint_eq(slot_make(space), 5 * SLAB / 2);
    ck_assert_int_eq(tier_slot_alloc(space, &offset), TIER_FULL);
    /* Its room stays reserved. */
    ck_assert_int_eq(tier_slot_free(space, SLAB), 0);
    ck_assert_int_eq(tier_slot_free(space, SLAB + SLAB / 2), 0);
    ck_assert_int_eq(tier_trim(tier, 9), 0);
    tier_space_free(space);
    ck_assert_int_eq(tier_trim(tier, 9), 1);
    ck_assert_uint_eq(account.charged_bytes, 0);
    tier_free(tier);
}
END_TEST

START_TEST(a_suspended_disk_gives_nothing_and_keeps_what_it_has)
{
    struct tier_account account = {.max_bytes = 2 * SLAB};
    struct tier *tier = tier_make_with_disk(1, 2);
    struct tier_space *space = space_make(tier, &account, SLAB / 2);
    uint64_t offset;

    for (size_t i = 0; i < 3; i++)
        (void) slot_make(space);
    tier_disk_suspend(tier, true);
    ck_assert(tier_disk_suspended(tier));
    ck_assert_uint_eq(tier_space_room(space), 0);
    ck_assert_uint_eq(tier_stats(tier).free_bytes, 0);
    ck_assert_int_eq(tier_slot_alloc(space, &offset), TIER_FULL);
    ck_assert_uint_eq(tier_space_slots(space), 3);
    ck_assert_uint_eq(tier_space_charged(space), 2 * SLAB);
    ck_assert_int_eq(tier_slot_free(space, 0), 0);
    ck_assert_uint_eq(tier_space_room(space), 1);
    ck_assert_uint_eq(slot_make(space), 0);
    tier_disk_suspend(tier, false);
    ck_assert_uint_eq(tier_space_room(space), 1);
    ck_assert_uint_eq(slot_make(space), 3 * SLAB / 2);
    ck_assert_int_eq(tier_slot_alloc(space, &offset), TIER_HOST_MAX);
    tier_space_free(space);
    tier_free(tier);
}
END_TEST

/* ------------------------------------------------------------------ of a broker before */

static uint64_t file_blocks(int fd)
{
    struct stat stat;

    ck_assert_int_eq(fstat(fd, &stat), 0);
    return (uint64_t) stat.st_blocks * 512;
}

/* Two slabs of memory and two on the disk, all of them written; the tier has the fds. */
static struct tier *tier_make_adopted(bool disk_kept)
{
    int memory = memfd_create("memory", MFD_CLOEXEC | MFD_ALLOW_SEALING),
        disk = memfd_create("disk", MFD_CLOEXEC);
    struct tier *tier;

    ck_assert(memory >= 0 && disk >= 0);
    ck_assert_int_eq(fallocate(memory, 0, 0, 2 * SLAB), 0);
    ck_assert_int_eq(fallocate(disk, 0, 0, 2 * SLAB), 0);
    ck_assert_int_eq(tier_adopt_consume(memory, SLAB, disk, 2 * SLAB, disk_kept, &tier), 0);
    return tier;
}

START_TEST(what_lay_there_is_claimed_once_and_nothing_in_a_new_file)
{
    struct tier_account account = {.max_bytes = 0};
    struct tier *tier = tier_make_adopted(true);
    struct tier_space *a = space_make(tier, &account, SLAB / 2),
                      *b = space_make(tier, &account, SLAB / 4);

    ck_assert_int_eq(ftruncate(tier_fd(tier), SLAB), -1); /* sealed by now */
    ck_assert_int_eq(tier_slot_claim(a, SLAB / 2), 0);
    ck_assert_int_eq(tier_slot_claim(a, SLAB / 2), -EBUSY);
    ck_assert_int_eq(tier_slot_claim(b, 0), -EBUSY); /* a slab is one space's */
    ck_assert_int_eq(tier_slot_claim(b, SLAB + 1), -EINVAL);
    ck_assert_int_eq(tier_slot_claim(b, 4 * SLAB), -EINVAL);
    ck_assert_int_eq(tier_slot_claim(b, 3 * SLAB + SLAB / 4), 0);
    ck_assert_uint_eq(tier_stats(tier).slot_count, 2);
    ck_assert_uint_eq(account.charged_bytes, 2 * SLAB);
    tier_space_free(a);
    tier_space_free(b);
    tier_free(tier);
    tier = tier_make_adopted(false);
    a = space_make(tier, &account, SLAB / 2);
    ck_assert_int_eq(tier_slot_claim(a, 2 * SLAB), -EINVAL);
    ck_assert_int_eq(tier_slot_claim(a, SLAB), 0);
    tier_space_free(a);
    tier_free(tier);
}
END_TEST

START_TEST(files_of_no_use_are_refused)
{
    int odd = memfd_create("odd", MFD_CLOEXEC | MFD_ALLOW_SEALING),
        huge = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct tier *tier;

    ck_assert_int_eq(ftruncate(odd, SLAB + 1), 0);
    ck_assert_int_eq(ftruncate(huge, SLAB * ((off_t) TIER_SLABS_MAX + 1)), 0);
    ck_assert_int_eq(tier_adopt_consume(odd, SLAB, -1, 0, false, &tier), -EINVAL);
    ck_assert_int_eq(tier_adopt_consume(huge, SLAB, -1, 0, false, &tier), -EINVAL);
    ck_assert_int_eq(
        tier_adopt_consume(memfd_create("plain", MFD_CLOEXEC), SLAB, -1, 0, false, &tier), -EINVAL);
}
END_TEST

START_TEST(beyond_a_limit_nothing_is_taken_again_and_all_is_given_back)
{
    struct tier_account account = {.max_bytes = UINT64_MAX};
    struct tier *tier = tier_make_adopted(true);
    struct tier_space *space = space_make(tier, &account, SLAB);
    uint64_t offset;

    ck_assert_int_eq(tier_slot_claim(space, 0), 0);
    ck_assert_int_eq(tier_slot_claim(space, 2 * SLAB), 0);
    tier_limit(tier, TIER_MEMORY, 0);
    tier_limit(tier, TIER_DISK, SLAB + SLAB / 2);              /* one */
    ck_assert_uint_eq(tier_stats(tier).total_bytes, 2 * SLAB); /* what is held */
    ck_assert_uint_eq(tier_stats(tier).free_bytes, 0);
    ck_assert_uint_eq(file_blocks(tier_disk_fd(tier)), SLAB);
    ck_assert_uint_eq(tier_stats(tier).touched_bytes, 2 * SLAB);
    ck_assert_int_eq(tier_trim(tier, 9), 1);
    ck_assert_uint_eq(file_blocks(tier_fd(tier)), SLAB);
    ck_assert_int_eq(tier_slot_alloc(space, &offset), TIER_FULL);
    ck_assert_int_eq(tier_slot_free(space, 0), 0);
    ck_assert_uint_eq(tier_stats(tier).total_bytes, SLAB);
    ck_assert_int_eq(tier_trim(tier, 9), 1);
    ck_assert_uint_eq(file_blocks(tier_fd(tier)), 0);
    ck_assert_uint_eq(tier_stats(tier).touched_bytes, 0);
    ck_assert_int_eq(tier_trim(tier, 9), 0);
    /* The one on the disk is within its limit. */
    ck_assert_int_eq(tier_slot_free(space, 2 * SLAB), 0);
    ck_assert_uint_eq(slot_make(space), 2 * SLAB);
    ck_assert_int_eq(tier_slot_alloc(space, &offset), TIER_FULL);
    tier_space_free(space);
    tier_free(tier);
}
END_TEST

START_TEST(a_frozen_tier_gives_nothing_and_keeps_what_it_has)
{
    struct tier_account account = {.max_bytes = UINT64_MAX};
    struct tier *tier = tier_make_adopted(true);
    struct tier_space *space = space_make(tier, &account, SLAB / 2);
    uint64_t offset;

    ck_assert_int_eq(tier_slot_claim(space, 0), 0);
    tier_freeze(tier);
    ck_assert_int_eq(tier_slot_alloc(space, &offset), TIER_FULL);
    ck_assert_uint_eq(tier_space_room(space), 0);
    ck_assert_uint_eq(tier_stats(tier).free_bytes, 0);
    ck_assert_uint_eq(tier_upcoming(tier, &offset, 1), 0);
    ck_assert_int_eq(tier_slot_free(space, 0), 0);
    tier_space_free(space);
    tier_free(tier);
}
END_TEST

START_TEST(the_file_on_the_disk_has_its_room_and_no_name)
{
    char dir[SCRATCH_PATH_BYTES], reason[TIER_DISK_TEXT];
    size_t names = 0;
    struct stat stat;
    DIR *folder;
    int fd;

    ck_assert_int_eq(scratch_make(dir), 0);
    ck_assert_int_eq(tier_disk_open(dir, 3 * SLAB, &fd, reason), 0);
    ck_assert_int_eq(fstat(fd, &stat), 0);
    ck_assert_int_eq(stat.st_size, 3 * SLAB);
    ck_assert_uint_ge((uint64_t) stat.st_blocks * 512, 3 * SLAB);
    ck_assert_uint_eq(stat.st_nlink, 0);
    folder = opendir(dir);
    ck_assert_ptr_nonnull(folder);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        names += entry->d_name[0] != '.';
    (void) closedir(folder);
    ck_assert_uint_eq(names, 0);
    (void) close(fd);
    /* Larger than any file. */
    ck_assert_int_lt(tier_disk_open(dir, UINT64_MAX, &fd, reason), 0);
    ck_assert_ptr_nonnull(strstr(reason, dir));
    ck_assert_int_eq(scratch_remove(dir), 0);
    ck_assert_int_eq(tier_disk_open(dir, SLAB, &fd, reason), -ENOENT);
    ck_assert_ptr_nonnull(strstr(reason, dir));
    ck_assert_int_eq(tier_disk_open("/proc", SLAB, &fd, reason), -EOPNOTSUPP);
    ck_assert_ptr_nonnull(strstr(reason, "O_TMPFILE"));
}
END_TEST

UNIT_MAIN("tier", slots_of_any_count_come_lowest_first_and_end, slots_are_one_to_the_maximum,
    the_file_is_sealed_and_whole_slabs_long, sizes_that_make_no_sense_are_refused,
    an_empty_tier_is_always_full, no_two_slots_overlap_and_none_crosses_a_slab,
    an_account_is_charged_by_the_slab, only_what_a_space_holds_can_be_freed,
    a_full_slab_opens_again_and_an_empty_one_goes_back,
    trimming_gives_the_memory_of_free_slabs_back_alone,
    slabs_that_come_next_are_known_and_can_be_made_ready, memory_is_taken_before_the_disk,
    a_suspended_disk_gives_nothing_and_keeps_what_it_has,
    what_lay_there_is_claimed_once_and_nothing_in_a_new_file, files_of_no_use_are_refused,
    beyond_a_limit_nothing_is_taken_again_and_all_is_given_back,
    a_frozen_tier_gives_nothing_and_keeps_what_it_has,
    the_file_on_the_disk_has_its_room_and_no_name)
