/*
 * Pages through the driver, as the mover moves them: out of device memory into page-locked host
 * memory and back, the table and the checksums in device memory.
 */
#include "kernels/kernels.h"
#include "kernels/pattern.h"
#include "kernels/quantize.h"
#include "tests/simexec/rig.h"

#include <string.h>

#define PAGE_BYTES (16u * 1024)
#define PAGES (RIG_BYTES / PAGE_BYTES)

/* Device memory with pages, a tier of page-locked memory, and what a launch is told. */
struct scene {
    CUmodule module;
    CUstream stream;
    struct rig_memory pages, control;
    unsigned char *tier;
    CUdeviceptr tier_address;
    uint64_t checksums[PAGES];
};

static void scene_launch(const struct scene *scene, const char *name, void *args)
{
    void *parameters[] = {args};
    CUfunction function;

    assert_ok(cuModuleGetFunction(&function, scene->module, name));
    assert_ok(cuLaunchKernel(function, 16, 1, 1, 128, 1, 1, 0, scene->stream, parameters, NULL));
    assert_ok(cuStreamSynchronize(scene->stream));
}

static void scene_pattern(const struct scene *scene)
{
    struct pattern_fill_args fill = {.dst = scene->pages.address, .bytes = RIG_BYTES, .seed = 9};

    scene_launch(scene, "pattern_fill", &fill);
}

static void scene_begin(struct scene *scene)
{
    void *tier;

    rig_begin();
    assert_ok(cuModuleLoadData(&scene->module, kernels_ptx));
    scene->stream = rig_stream(CU_STREAM_NON_BLOCKING);
    scene->pages = rig_map(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    scene->control = rig_map(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    assert_ok(cuMemHostAlloc(&tier, RIG_BYTES, 0));
    scene->tier = tier;
    assert_ok(cuMemHostGetDevicePointer_v2(&scene->tier_address, tier, 0));
    memset(tier, 0xa5, RIG_BYTES);
    scene_pattern(scene);
}

/* The table, whose memory stays: page i and slot PAGES - 1 - i, of `slot_bytes` each, from the one
 * to the other. */
static struct page_batch scene_batch(const struct scene *scene, bool out, uint64_t slot_bytes)
{
    static struct page_move moves[PAGES];
    const CUdeviceptr checksums = scene->control.address + sizeof(moves);

    for (unsigned i = 0; i < PAGES; i++) {
        CUdeviceptr page = scene->pages.address + (CUdeviceptr) i * PAGE_BYTES;
        CUdeviceptr slot = scene->tier_address + (PAGES - 1 - i) * slot_bytes;

        moves[i] = (struct page_move){out ? page : slot, out ? slot : page};
    }
    /* In the kernel's stream: the NULL stream is in no order with it. */
    assert_ok(cuMemcpyHtoDAsync_v2(scene->control.address, moves, sizeof(moves), scene->stream));
    assert_ok(cuMemsetD32Async(checksums, 0, sizeof(scene->checksums) / 4, scene->stream));
    return (struct page_batch){
        .table = scene->control.address,
        .count = PAGES,
        .page_bytes = PAGE_BYTES,
        .checksums = checksums,
    };
}

static void scene_checksums(const struct scene *scene, uint64_t checksums[PAGES])
{
    assert_ok(cuMemcpyDtoH_v2(checksums, scene->control.address + PAGES * sizeof(struct page_move),
        PAGES * sizeof(checksums[0])));
}

static uint64_t scene_differing(const struct scene *scene)
{
    const CUdeviceptr counter = scene->control.address + RIG_BYTES / 2;
    struct pattern_check_args check = {
        .src = scene->pages.address, .bytes = RIG_BYTES, .seed = 9, .differing = counter};

    assert_ok(cuMemsetD32Async(counter, 0, 2, scene->stream));
    scene_launch(scene, "pattern_check", &check);
    return rig_word(counter);
}

START_TEST(test_pages_go_to_the_tier_and_come_back)
{
    static struct scene scene;
    uint64_t checksums[PAGES];
    struct page_copy_args copy;
    struct page_scrub_args scrub;

    scene_begin(&scene);
    copy.batch = scene_batch(&scene, true, PAGE_BYTES);
    scene_launch(&scene, "page_copy", &copy);
    scene_checksums(&scene, scene.checksums);
    for (unsigned i = 0; i < PAGES; i++) {
        uint64_t word;

        memcpy(&word, scene.tier + (PAGES - 1 - i) * PAGE_BYTES + 8, sizeof(word));
        ck_assert_uint_eq(word, pattern_word(9, i * PAGE_BYTES / 8 + 1));
    }

    scrub.batch = scene_batch(&scene, false, PAGE_BYTES);
    scene_launch(&scene, "page_scrub", &scrub);
    ck_assert_uint_eq(rig_word(scene.pages.address), 0);
    ck_assert_uint_eq(rig_word(scene.pages.address + RIG_BYTES - 8), 0);

    copy.batch = scene_batch(&scene, false, PAGE_BYTES);
    scene_launch(&scene, "page_copy", &copy);
    scene_checksums(&scene, checksums);
    ck_assert_int_eq(memcmp(checksums, scene.checksums, sizeof(checksums)), 0);
    ck_assert_uint_eq(scene_differing(&scene), 0);
}
END_TEST

START_TEST(test_damage_in_the_tier_shows_in_the_page_that_has_it)
{
    static struct scene scene;
    uint64_t checksums[PAGES];
    struct page_checksum_args check;
    struct page_copy_args copy;

    scene_begin(&scene);
    copy.batch = scene_batch(&scene, true, PAGE_BYTES);
    scene_launch(&scene, "page_copy", &copy);
    scene_checksums(&scene, scene.checksums);
    scene.tier[3 * PAGE_BYTES + 77] ^= 4; /* page PAGES - 1 - 3 */
    check.batch = scene_batch(&scene, false, PAGE_BYTES);
    scene_launch(&scene, "page_checksum", &check);
    scene_checksums(&scene, checksums);
    for (unsigned i = 0; i < PAGES; i++)
        ck_assert_int_eq(checksums[i] == scene.checksums[i], i != PAGES - 1 - 3);
    ck_assert_uint_eq(scene_differing(&scene), 0);
}
END_TEST

/* Equal elements survive quantization: 1.5 in fp16, and the patterns' place is taken by them. */
START_TEST(test_quantized_pages_go_to_the_tier_and_come_back)
{
    static struct scene scene;
    const uint64_t slot_bytes = quantized_bytes(PAGE_BYTES);
    const uint64_t page_word = UINT64_C(0x3e003e003e003e00);
    uint64_t checksums[PAGES];
    struct page_quantize_args quantize = {.element = PAGE_ELEMENT_FP16, .format = PAGE_FORMAT_INT8};
    struct page_dequantize_args dequantize = {
        .element = PAGE_ELEMENT_FP16, .format = PAGE_FORMAT_INT8};

    scene_begin(&scene);
    assert_ok(
        cuMemsetD32Async(scene.pages.address, (unsigned) page_word, RIG_BYTES / 4, scene.stream));
    quantize.batch = scene_batch(&scene, true, slot_bytes);
    scene_launch(&scene, "page_quantize", &quantize);
    scene_checksums(&scene, scene.checksums);
    ck_assert_uint_eq(scene.tier[PAGE_BYTES / 32], 127); /* scales: 4 bytes for 128 */
    ck_assert_uint_eq(scene.tier[PAGES * slot_bytes - 1], 127);
    ck_assert_uint_eq(scene.tier[PAGES * slot_bytes], 0xa5);

    scene_pattern(&scene);
    dequantize.batch = scene_batch(&scene, false, slot_bytes);
    scene_launch(&scene, "page_dequantize", &dequantize);
    scene_checksums(&scene, checksums);
    ck_assert_int_eq(memcmp(checksums, scene.checksums, sizeof(checksums)), 0);
    for (CUdeviceptr at = 0; at < RIG_BYTES; at += PAGE_BYTES)
        ck_assert_uint_eq(rig_word(scene.pages.address + at), page_word);
    ck_assert_uint_eq(rig_word(scene.pages.address + RIG_BYTES - 8), page_word);
}
END_TEST

START_TEST(test_page_that_is_not_there_is_a_fault_of_the_launch)
{
    static struct scene scene;
    struct page_copy_args copy;
    void *parameters[] = {&copy};
    CUfunction function;

    scene_begin(&scene);
    copy.batch = scene_batch(&scene, true, PAGE_BYTES);
    rig_unmap(&scene.pages);
    assert_ok(cuModuleGetFunction(&function, scene.module, "page_copy"));
    assert_ok(cuLaunchKernel(function, 4, 1, 1, 128, 1, 1, 0, scene.stream, parameters, NULL));
    assert_cuda(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(scene.stream));
}
END_TEST

RIG_MAIN("simexec-pages", test_pages_go_to_the_tier_and_come_back,
    test_damage_in_the_tier_shows_in_the_page_that_has_it,
    test_quantized_pages_go_to_the_tier_and_come_back,
    test_page_that_is_not_there_is_a_fault_of_the_launch)
