/* The real mover on the simulated device: what it evicts comes back byte for byte. */
#include <string.h>

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

static void scene_open(size_t chunks, uint64_t chunk_bytes, uint64_t slot_bytes)
{
    bed_open(&scene.bed, 256 * MIB);
    bed_chunks(&scene.bed, chunks, chunk_bytes);
    scene.rig.chunk_data = &scene.bed;
    scene.rig.chunk_fd = bed_chunk_fd;
    rig_open(&scene.rig, 128 * MIB, scene.bed.uuid, NULL);
    scene.account.max_bytes = UINT64_MAX;
    ck_assert_int_eq(tier_space_new(scene.rig.tier, &scene.account, slot_bytes, &scene.space), 0);
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

START_TEST(pages_of_any_size_come_back_as_they_were)
{
    static const uint64_t sizes[] = {16, 48, 1024, 4096, 16384, 65536 + 16, 655360, 2 * MIB};
    struct mover_copy copies[MOVER_JOB_COPIES];
    uint64_t page_bytes = sizes[_i];
    struct mover_chunk chunk;
    struct mover_job job = {.kind = MOVER_EVICT,
        .page_bytes = page_bytes,
        .chunk_count = 1,
        .chunks = &chunk,
        .copies = copies};

    scene_open(1, CHUNK, page_bytes);
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

int main(void)
{
    Suite *suite = suite_create("mover");
    TCase *tcase = tcase_create("mover");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, pages_of_any_size_come_back_as_they_were, 0, 8);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
