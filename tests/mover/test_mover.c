/* The real mover on the simulated device: what it evicts comes back byte for byte. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "tests/mover/bed.h"
#include "tests/mover/rig.h"
#include "tests/unit/unit.h"

#define MIB (UINT64_C(1) << 20)
#define CHUNK (2 * MIB)

struct scene {
    struct bed bed;
    struct rig rig;
    struct tier_account account;
    struct tier_space *space;
};

static struct scene scene;

static void scene_open_on(size_t chunks, uint64_t chunk_bytes, uint64_t slot_bytes,
    uint64_t memory_bytes, uint64_t disk_bytes)
{
    bed_open(&scene.bed, 256 * MIB);
    bed_chunks(&scene.bed, chunks, chunk_bytes);
    scene.rig.chunk_data = &scene.bed;
    scene.rig.chunk_fd = bed_chunk_fd;
    scene.rig.disk_bytes = disk_bytes;
    rig_open(&scene.rig, memory_bytes, scene.bed.uuid, NULL);
    scene.account.max_bytes = UINT64_MAX;
    ck_assert_int_eq(tier_space_new(scene.rig.tier, &scene.account, slot_bytes, &scene.space), 0);
}

static void scene_open(size_t chunks, uint64_t chunk_bytes, uint64_t slot_bytes)
{
    scene_open_on(chunks, chunk_bytes, slot_bytes, 128 * MIB, 0);
}

static void scene_close(void)
{
    tier_space_free(scene.space);
    rig_close(&scene.rig);
    bed_close(&scene.bed);
}

static void chunks_list(struct mover_chunk *chunks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        chunks[i] = (struct mover_chunk){.number = (uint32_t) i,
            .generation = scene.bed.chunks[i].generation,
            .bytes = scene.bed.chunk_bytes};
}

/* All whole pages of one chunk, each with a slot. */
static size_t pages_list(struct mover_copy *copies, size_t chunk, uint64_t page_bytes)
{
    size_t count = MIN(scene.bed.chunk_bytes / page_bytes, (uint64_t) MOVER_JOB_COPIES);

    for (size_t i = 0; i < count; i++) {
        copies[i] = (struct mover_copy){.chunk = (uint32_t) chunk, .chunk_offset = i * page_bytes};
        ck_assert_int_eq(tier_slot_alloc(scene.space, &copies[i].tier_offset), TIER_OK);
    }
    return count;
}

static const uint64_t sizes[] = {16, 48, 1024, 4096, 16384, 65536 + 16, 655360, 2 * MIB};

/* In memory, and on the disk alone. */
static const uint64_t memory_sizes[] = {128 * MIB, 0};

START_TEST(pages_of_any_size_come_back_as_they_were)
{
    struct mover_copy copies[MOVER_JOB_COPIES];
    uint64_t page_bytes = sizes[(size_t) _i / ARRAY_SIZE(memory_sizes)];
    uint64_t memory_bytes = memory_sizes[(size_t) _i % ARRAY_SIZE(memory_sizes)];
    struct mover_chunk chunk;
    struct mover_job job = {.kind = MOVER_EVICT,
        .page_bytes = page_bytes,
        .chunk_count = 1,
        .chunks = &chunk,
        .copies = copies};

    scene_open_on(1, CHUNK, page_bytes, memory_bytes, 64 * MIB);
    chunks_list(&chunk, 1);
    bed_fill(&scene.bed, 0, 1);
    job.copy_count = pages_list(copies, 0, page_bytes);
    rig_submit(&scene.rig, 0, &job);
    rig_wait(&scene.rig, 1);
    ck_assert_msg(scene.rig.results[0].error == 0, "%s", scene.rig.results[0].text);
    memset(bed_bytes(&scene.bed, 0), 0xee, job.copy_count * page_bytes);
    job.kind = MOVER_RESTORE;
    job.copies = scene.rig.results[0].copies;
    rig_submit(&scene.rig, 1, &job);
    rig_wait(&scene.rig, 2);
    ck_assert_msg(scene.rig.results[1].error == 0, "%s", scene.rig.results[1].text);
    for (size_t i = 0; i < job.copy_count; i++)
        ck_assert(!scene.rig.results[1].copies[i].damaged);
    ck_assert(bed_filled(&scene.bed, 0, 1));
    scene_close();
}
END_TEST

/* Everything of the bed's chunks, a job for each; what comes out of `jobs` can be restored. */
static void all_evict(size_t first_job, uint64_t page_bytes)
{
    static struct mover_copy copies[MOVER_JOB_COPIES];

    for (size_t i = 0; i < scene.bed.chunk_count; i++) {
        struct mover_chunk chunk = {.number = (uint32_t) i,
            .generation = scene.bed.chunks[i].generation,
            .bytes = scene.bed.chunk_bytes};
        struct mover_job job = {.kind = MOVER_EVICT,
            .page_bytes = page_bytes,
            .chunk_count = 1,
            .chunks = &chunk,
            .copies = copies};

        job.copy_count = pages_list(copies, i, page_bytes);
        for (size_t j = 0; j < job.copy_count; j++)
            copies[j].chunk = 0;
        rig_submit(&scene.rig, first_job + i, &job);
    }
}

static void all_restore(size_t first_job, size_t evicted, uint64_t page_bytes)
{
    for (size_t i = 0; i < scene.bed.chunk_count; i++) {
        struct mover_chunk chunk = {.number = (uint32_t) i,
            .generation = scene.bed.chunks[i].generation,
            .bytes = scene.bed.chunk_bytes};
        struct mover_job job = {.kind = MOVER_RESTORE,
            .page_bytes = page_bytes,
            .chunk_count = 1,
            .copy_count = scene.rig.results[evicted + i].copy_count,
            .chunks = &chunk,
            .copies = scene.rig.results[evicted + i].copies};

        rig_submit(&scene.rig, first_job + i, &job);
    }
}

static void all_fill(void)
{
    for (size_t i = 0; i < scene.bed.chunk_count; i++)
        bed_fill(&scene.bed, i, i + 1);
}

static void all_spoil(void)
{
    for (size_t i = 0; i < scene.bed.chunk_count; i++)
        memset(bed_bytes(&scene.bed, i), 0xee, scene.bed.chunk_bytes);
}

static void all_check(size_t jobs)
{
    for (size_t i = 0; i < jobs; i++)
        ck_assert_msg(scene.rig.results[i].error == 0, "job %zu: %s", i, scene.rig.results[i].text);
    for (size_t i = 0; i < scene.bed.chunk_count; i++)
        ck_assert_msg(bed_filled(&scene.bed, i, i + 1), "chunk %zu", i);
}

#define KILLS 12

/* Kills the mover at a moment that moves through the work, until `count` jobs are done. */
static void kill_until_done(size_t count)
{
    uint64_t pause_ns = 200 * NSEC_PER_USEC;

    for (unsigned kills = 0; kills < KILLS && scene.rig.done_count < count; kills++) {
        uint64_t at = clock_now(&clock_monotonic) + pause_ns;

        rig_wait_state(&scene.rig, MOVER_STATE_READY);
        while (clock_now(&clock_monotonic) < at && scene.rig.done_count < count)
            rig_turn(&scene.rig);
        if (rig_stats(&scene.rig).pid > 0)
            (void) kill(rig_stats(&scene.rig).pid, SIGKILL);
        pause_ns += 700 * NSEC_PER_USEC;
    }
    rig_wait(&scene.rig, count);
}

START_TEST(a_mover_killed_in_the_middle_loses_no_page)
{
    const uint64_t page_bytes = 16384;
    const size_t chunks = 24;
    size_t done;

    scene_open(chunks, CHUNK, page_bytes);
    all_fill();
    all_evict(0, page_bytes);
    kill_until_done(chunks);
    for (done = 0; done < chunks; done++)
        ck_assert_msg(scene.rig.results[done].error == 0, "%s", scene.rig.results[done].text);
    all_spoil();
    all_restore(chunks, 0, page_bytes);
    kill_until_done(2 * chunks);
    all_check(2 * chunks);
    ck_assert_uint_gt(rig_stats(&scene.rig).deaths, 0);
    scene_close();
}
END_TEST

START_TEST(a_sticky_error_costs_a_mover_and_no_work)
{
    const uint64_t page_bytes = 65536;
    const size_t chunks = 16;

    scene_open(chunks, CHUNK, page_bytes);
    /* This process has opened its driver already: the movers alone are hit. */
    ck_assert_int_eq(setenv("GMB_SIM_FAULTS", "cuLaunchKernel:3+=719", 1), 0);
    all_fill();
    all_evict(0, page_bytes);
    rig_wait(&scene.rig, chunks);
    all_spoil();
    all_restore(chunks, 0, page_bytes);
    rig_wait(&scene.rig, 2 * chunks);
    all_check(2 * chunks);
    ck_assert_uint_ge(rig_stats(&scene.rig).deaths, 3);
    scene_close();
}
END_TEST

START_TEST(an_error_that_passes_costs_no_mover)
{
    const uint64_t page_bytes = 65536;
    const size_t chunks = 4;

    scene_open(chunks, CHUNK, page_bytes);
    ck_assert_int_eq(setenv("GMB_SIM_FAULTS",
                         "cuMemHostRegister_v2:1-2=2,cuMemMap:2=2,cuMemcpyHtoDAsync_v2:2=1", 1),
        0);
    all_fill();
    all_evict(0, page_bytes);
    rig_wait(&scene.rig, chunks);
    all_spoil();
    all_restore(chunks, 0, page_bytes);
    rig_wait(&scene.rig, 2 * chunks);
    all_check(2 * chunks);
    ck_assert_uint_eq(rig_stats(&scene.rig).deaths, 0);
    ck_assert_uint_gt(rig_stats(&scene.rig).jobs_repeated, 0);
    scene_close();
}
END_TEST

START_TEST(a_mover_that_stands_still_is_replaced)
{
    const uint64_t page_bytes = 65536;

    scene.rig.options = mover_options_default;
    scene.rig.options.driver = "sim";
    scene.rig.options.progress_ns = 2 * NSEC_PER_SEC;
    scene_open(2, CHUNK, page_bytes);
    all_fill();
    all_evict(0, page_bytes);
    rig_wait(&scene.rig, 2);
    ck_assert_int_eq(kill(rig_stats(&scene.rig).pid, SIGSTOP), 0);
    all_spoil();
    all_restore(2, 0, page_bytes);
    rig_wait(&scene.rig, 4);
    all_check(4);
    ck_assert_uint_eq(rig_stats(&scene.rig).deaths, 1);
    scene_close();
}
END_TEST

START_TEST(a_damaged_slot_is_told_and_its_page_wiped)
{
    const uint64_t page_bytes = 655360; /* three to a chunk */
    struct mover_copy *copies;
    unsigned char *slot;

    scene_open(1, CHUNK, page_bytes);
    all_fill();
    all_evict(0, page_bytes);
    rig_wait(&scene.rig, 1);
    copies = scene.rig.results[0].copies;
    slot = mmap(NULL, tier_bytes(scene.rig.tier), PROT_READ | PROT_WRITE, MAP_SHARED,
        tier_fd(scene.rig.tier), 0);
    ck_assert_ptr_ne(slot, MAP_FAILED);
    slot[copies[1].tier_offset + page_bytes - 1] ^= 1;
    (void) munmap(slot, tier_bytes(scene.rig.tier));
    all_spoil();
    all_restore(1, 0, page_bytes);
    rig_wait(&scene.rig, 2);
    ck_assert_int_eq(scene.rig.results[1].error, 0);
    for (size_t i = 0; i < 3; i++)
        ck_assert_int_eq(scene.rig.results[1].copies[i].damaged, i == 1);
    for (uint64_t i = 0; i < page_bytes; i++)
        ck_assert_uint_eq(bed_bytes(&scene.bed, 0)[page_bytes + i], 0);
    ck_assert_uint_eq(rig_stats(&scene.rig).damaged_pages, 1);
    scene_close();
}
END_TEST

/* ------------------------------------------------------------------ the disk */

#define DISK_PAGE (UINT64_C(48) << 10) /* 42 to a chunk, 682 to a slab: no job ends with a slab */

/* Whole pages: what is left at the end of a chunk isn't moved. */
static void disk_pages_spoil(void)
{
    for (size_t i = 0; i < scene.bed.chunk_count; i++)
        memset(bed_bytes(&scene.bed, i), 0xee, CHUNK / DISK_PAGE * DISK_PAGE);
}

START_TEST(jobs_may_lie_in_memory_and_on_the_disk)
{
    scene_open_on(24, CHUNK, DISK_PAGE, 32 * MIB, 32 * MIB);
    all_fill();
    all_evict(0, DISK_PAGE);
    rig_wait(&scene.rig, 24);
    ck_assert_uint_gt(tier_stats(scene.rig.tier).disk_slab_bytes, 0);
    disk_pages_spoil();
    all_restore(24, 0, DISK_PAGE);
    rig_wait(&scene.rig, 48);
    for (size_t i = 0; i < 24; i++)
        ck_assert_msg(bed_filled(&scene.bed, i, i + 1), "chunk %zu", i);
    scene_close();
}
END_TEST

START_TEST(what_the_disk_spoils_is_told_and_its_page_wiped)
{
    struct mover_copy *copies;
    char byte;
    int fd;

    scene_open_on(1, CHUNK, DISK_PAGE, 0, 32 * MIB);
    all_fill();
    all_evict(0, DISK_PAGE);
    rig_wait(&scene.rig, 1);
    copies = scene.rig.results[0].copies;
    fd = tier_disk_fd(scene.rig.tier);
    ck_assert_int_eq(pread(fd, &byte, 1, (off_t) copies[5].tier_offset), 1);
    byte = (char) ~byte;
    ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t) copies[5].tier_offset), 1);
    disk_pages_spoil();
    all_restore(1, 0, DISK_PAGE);
    rig_wait(&scene.rig, 2);
    ck_assert_int_eq(scene.rig.results[1].error, 0);
    for (size_t i = 0; i < scene.rig.results[1].copy_count; i++)
        ck_assert_int_eq(scene.rig.results[1].copies[i].damaged, i == 5);
    for (uint64_t i = 0; i < DISK_PAGE; i++)
        ck_assert_uint_eq(bed_bytes(&scene.bed, 0)[5 * DISK_PAGE + i], 0);
    scene_close();
}
END_TEST

START_TEST(a_file_that_is_cut_short_is_an_error_and_kills_nobody)
{
    int fd;

    scene_open_on(2, CHUNK, DISK_PAGE, 0, 32 * MIB);
    all_fill();
    all_evict(0, DISK_PAGE);
    rig_wait(&scene.rig, 2);
    fd = tier_disk_fd(scene.rig.tier);
    ck_assert_int_eq(ftruncate(fd, (off_t) CHUNK), 0);
    disk_pages_spoil();
    all_restore(2, 0, DISK_PAGE);
    rig_wait(&scene.rig, 4);
    ck_assert_int_eq(scene.rig.results[2].error, 0);
    ck_assert(bed_filled(&scene.bed, 0, 1));
    ck_assert_int_eq(scene.rig.results[3].error, -EREMOTEIO);
    ck_assert_ptr_nonnull(strstr(scene.rig.results[3].text, "pread"));
    ck_assert_uint_eq(rig_stats(&scene.rig).deaths, 0);
    ck_assert_uint_eq(rig_stats(&scene.rig).jobs_repeated, 0);
    scene_close();
}
END_TEST

START_TEST(a_quantized_page_comes_back_about_as_it_was)
{
    const uint64_t page_bytes = 4096;
    struct mover_chunk chunk;
    struct mover_copy copies[MOVER_JOB_COPIES];
    struct mover_job job = {.kind = MOVER_EVICT,
        .format = MOVER_INT8,
        .element = MOVER_FP16,
        .page_bytes = page_bytes,
        .chunk_count = 1,
        .chunks = &chunk,
        .copies = copies};
    uint16_t *elements;

    scene_open(1, CHUNK, mover_slot_bytes(MOVER_INT8, MOVER_FP16, page_bytes));
    chunks_list(&chunk, 1);
    elements = (uint16_t *) (void *) bed_bytes(&scene.bed, 0);
    /* 1.0 and -0.5, which 127 steps to the largest hit exactly and within half a step. */
    for (size_t i = 0; i < CHUNK / 2; i++)
        elements[i] = i % 2 == 0 ? 0x3c00 : 0xb800;
    job.copy_count = pages_list(copies, 0, page_bytes);
    rig_submit(&scene.rig, 0, &job);
    rig_wait(&scene.rig, 1);
    memset(elements, 0xee, CHUNK);
    job.kind = MOVER_RESTORE;
    job.copies = scene.rig.results[0].copies;
    rig_submit(&scene.rig, 1, &job);
    rig_wait(&scene.rig, 2);
    ck_assert_int_eq(scene.rig.results[1].error, 0);
    for (size_t i = 0; i < CHUNK / 2; i++) {
        if (i % 2 == 0)
            ck_assert_uint_eq(elements[i], 0x3c00);
        else /* within 1 / 254 of 0.5, whose unit in the last place is 2^-11 below and above */
            ck_assert_int_le(abs((int) elements[i] - 0xb800), 17);
    }
    scene_close();
}
END_TEST

START_TEST(scrubbed_chunks_are_zero_and_others_untouched)
{
    struct mover_chunk chunks[3];
    struct mover_job job = {.kind = MOVER_SCRUB, .chunk_count = 2, .chunks = chunks};

    scene_open(3, CHUNK, 4096);
    all_fill();
    chunks_list(chunks, 3);
    rig_submit(&scene.rig, 0, &job);
    rig_wait(&scene.rig, 1);
    ck_assert_int_eq(scene.rig.results[0].error, 0);
    for (uint64_t i = 0; i < CHUNK; i++)
        ck_assert_uint_eq(bed_bytes(&scene.bed, 0)[i] | bed_bytes(&scene.bed, 1)[i], 0);
    ck_assert(bed_filled(&scene.bed, 2, 3));
    scene_close();
}
END_TEST

START_TEST(a_forgotten_chunk_holds_no_memory)
{
    uint64_t before;

    scene_open(4, CHUNK, 65536);
    all_fill();
    all_evict(0, 65536);
    rig_wait(&scene.rig, 4);
    before = bed_free_bytes(&scene.bed);
    for (uint32_t i = 0; i < 4; i++)
        ck_assert(mover_forget(scene.rig.control, i, scene.bed.chunks[i].generation));
    rig_wait_until(&scene.rig, scene.rig.forgotten_count >= 4);
    ck_assert_uint_eq(rig_stats(&scene.rig).held_chunks, 0);
    bed_release(&scene.bed);
    ck_assert_uint_eq(bed_free_bytes(&scene.bed), before + 4 * CHUNK);
    ck_assert_int_eq(rig_stats(&scene.rig).state, MOVER_STATE_READY);
    scene_close();
}
END_TEST

/* Its user isn't root, it has no capability and can gain none: by the kernel's word. */
static bool privileges_none(int pid)
{
    char path[64], line[256];
    unsigned uid = 0, no_new = 0;
    unsigned long long capabilities = 1;
    FILE *file;

    (void) snprintf(path, sizeof(path), "/proc/%d/status", pid);
    file = fopen(path, "re");
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        (void) sscanf(line, "Uid: %u", &uid);
        (void) sscanf(line, "NoNewPrivs: %u", &no_new);
        (void) sscanf(line, "CapPrm: %llx", &capabilities);
    }
    (void) fclose(file);
    return uid != 0 && no_new == 1 && capabilities == 0;
}

static uint64_t tier_resident(void)
{
    struct stat status;

    ck_assert_int_eq(fstat(tier_fd(scene.rig.tier), &status), 0);
    return (uint64_t) status.st_blocks * 512;
}

START_TEST(slabs_are_there_before_they_are_needed)
{
    struct mover_chunk chunks[1];
    struct mover_copy copies[2];
    struct mover_job job = {.kind = MOVER_EVICT,
        .page_bytes = MIB,
        .chunk_count = 1,
        .chunks = chunks,
        .copies = copies};

    scene_open(1, CHUNK, MIB); /* four slabs */
    mover_keep(scene.rig.control, true);
    rig_wait_until(&scene.rig, tier_resident() >= 2 * TIER_SLAB_BYTES);
    /* One that is taken is followed by the next. */
    bed_fill(&scene.bed, 0, 1);
    chunks_list(chunks, 1);
    job.copy_count = pages_list(copies, 0, MIB);
    rig_submit(&scene.rig, 0, &job);
    rig_wait(&scene.rig, 1);
    ck_assert_int_eq(scene.rig.results[0].error, 0);
    rig_wait_until(&scene.rig, tier_resident() >= 3 * TIER_SLAB_BYTES);
    for (int i = 0; i < 5; i++)
        rig_turn(&scene.rig);
    ck_assert_uint_eq(tier_resident(), 3 * TIER_SLAB_BYTES);
    /* Without arenas nothing of it is kept. */
    scene.space = tier_space_free(scene.space);
    mover_keep(scene.rig.control, false);
    rig_wait_state(&scene.rig, MOVER_STATE_NONE);
    rig_wait_until(&scene.rig, tier_resident() == 0);
    scene_close();
}
END_TEST

/* A start with a smaller HostTier= keeps what lies beyond it, in slabs that no limit counts. */
START_TEST(what_lies_beyond_a_smaller_limit_is_moved_all_the_same)
{
    struct mover_chunk chunk;
    struct mover_copy copy = {0};
    struct mover_job job = {
        .page_bytes = MIB, .chunk_count = 1, .chunks = &chunk, .copy_count = 1, .copies = &copy};

    scene_open_on(1, CHUNK, TIER_SLAB_BYTES, 200 * TIER_SLAB_BYTES, 0);
    for (uint64_t i = 0; i < 200; i++) {
        ck_assert_int_eq(tier_slot_alloc(scene.space, &copy.tier_offset), TIER_OK);
        ck_assert_uint_eq(copy.tier_offset, i * TIER_SLAB_BYTES);
    }
    tier_limit(scene.rig.tier, TIER_MEMORY, 2 * TIER_SLAB_BYTES);
    rig_control_renew(&scene.rig, scene.bed.uuid);
    chunks_list(&chunk, 1);
    for (size_t i = 0; i < 2; i++) {
        job.kind = i == 0 ? MOVER_EVICT : MOVER_RESTORE;
        rig_submit(&scene.rig, i, &job);
        rig_wait(&scene.rig, i + 1);
        ck_assert_msg(scene.rig.results[i].error == 0, "%s", scene.rig.results[i].text);
        copy.checksum = scene.rig.results[i].copies[0].checksum;
    }
    scene_close();
}
END_TEST

START_TEST(the_context_is_the_movers_and_the_user_is_nobody)
{
    struct gpu_process processes[8];
    size_t count = 0;

    scene_open(1, CHUNK, 65536);
    ck_assert_int_eq(
        scene.bed.gpu->ops->processes(scene.bed.gpu, scene.bed.device, 8, processes, &count, NULL),
        0);
    ck_assert_uint_eq(count, 0);
    all_evict(0, 65536);
    rig_wait(&scene.rig, 1);
    ck_assert_int_eq(scene.rig.results[0].error, 0);
    ck_assert_int_eq(
        scene.bed.gpu->ops->processes(scene.bed.gpu, scene.bed.device, 8, processes, &count, NULL),
        0);
    ck_assert_uint_eq(count, 1);
    ck_assert_int_eq(processes[0].pid, rig_stats(&scene.rig).pid);
    if (geteuid() == 0)
        ck_assert_msg(privileges_none(processes[0].pid), "the mover kept privileges");
    scene_close();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {a_mover_killed_in_the_middle_loses_no_page,
        a_sticky_error_costs_a_mover_and_no_work, an_error_that_passes_costs_no_mover,
        a_mover_that_stands_still_is_replaced, a_damaged_slot_is_told_and_its_page_wiped,
        jobs_may_lie_in_memory_and_on_the_disk, what_the_disk_spoils_is_told_and_its_page_wiped,
        a_file_that_is_cut_short_is_an_error_and_kills_nobody,
        a_quantized_page_comes_back_about_as_it_was, scrubbed_chunks_are_zero_and_others_untouched,
        a_forgotten_chunk_holds_no_memory, slabs_are_there_before_they_are_needed,
        what_lies_beyond_a_smaller_limit_is_moved_all_the_same,
        the_context_is_the_movers_and_the_user_is_nobody};
    Suite *suite = suite_create("mover");
    TCase *tcase = tcase_create("mover");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tcase, 120);
    for (size_t i = 0; i < ARRAY_SIZE(tests); i++)
        tcase_add_test(tcase, tests[i]);
    tcase_add_loop_test(tcase, pages_of_any_size_come_back_as_they_were, 0,
        (int) (ARRAY_SIZE(sizes) * ARRAY_SIZE(memory_sizes)));
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
