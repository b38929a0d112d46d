/* One planted byte or word of somebody else is found; what is one's own isn't called foreign. */
#include "client/replay/pattern.h"

#include <string.h>

#include "kernels/kernels.h"
#include "kernels/pattern.h"
#include "tests/unit/unit.h"

#define BYTES 65536

_Alignas(16) static unsigned char memory[BYTES];

static const struct kernel_dim one = {1, 1, 1}, many = {64, 1, 1};

static const struct pattern_owner chat = {.tenant = "chat", .worker = 1, .request = 7};
static const struct pattern_owner batch = {.tenant = "batch", .worker = 1, .request = 7};

static void fill(const struct pattern_owner *owner, uint64_t chunk, size_t at, size_t bytes)
{
    struct pattern_fill_args args = {.dst = (uintptr_t) memory + at,
        .bytes = bytes,
        .seed = pattern_owner_seed(owner, chunk),
        .first_word = at / 8};

    kernel_run(kernel_find("pattern_fill"), &one, &many, &args);
}

static uint64_t differing(const struct pattern_owner *owner, uint64_t chunk)
{
    uint64_t found = 0;
    struct pattern_check_args args = {.src = (uintptr_t) memory,
        .bytes = BYTES,
        .seed = pattern_owner_seed(owner, chunk),
        .differing = (uintptr_t) &found};

    kernel_run(kernel_find("pattern_check"), &one, &many, &args);
    return found;
}

static uint64_t foreign(const struct pattern_owner *owner, uint64_t chunk)
{
    uint64_t found = 0;
    struct pattern_foreign_args args = {.src = (uintptr_t) memory,
        .bytes = BYTES,
        .seed = pattern_owner_seed(owner, chunk),
        .kin_mask = PATTERN_KIN_MASK,
        .owner_mask = PATTERN_OWNER_MASK,
        .foreign = (uintptr_t) &found};

    kernel_run(kernel_find("pattern_foreign"), &one, &many, &args);
    return found;
}

START_TEST(test_a_planted_byte_is_found_before_memory_is_given_back)
{
    fill(&chat, 3, 0, BYTES);
    ck_assert_uint_eq(differing(&chat, 3), 0);
    memory[40000] ^= 0x10;
    ck_assert_uint_eq(differing(&chat, 3), 1);
}
END_TEST

START_TEST(test_another_tenants_bytes_are_found_in_received_memory)
{
    fill(&chat, 3, 0, BYTES);
    ck_assert_uint_eq(foreign(&chat, 3), 0);
    fill(&batch, 0, 4096, 16);
    ck_assert_uint_eq(foreign(&chat, 3), 16);
    fill(&batch, 0, 0, BYTES);
    ck_assert_uint_eq(foreign(&chat, 3), BYTES);
    ck_assert_uint_eq(foreign(&batch, 9), 0);
}
END_TEST

START_TEST(test_zeros_and_garbage_are_nobodys)
{
    uint64_t state = 99;

    memset(memory, 0, sizeof(memory));
    ck_assert_uint_eq(foreign(&chat, 0), 0);
    for (size_t i = 0; i < BYTES; i++) {
        state = state * UINT64_C(6364136223846793005) + 1;
        memory[i] = (unsigned char) (state >> 56);
    }
    ck_assert_uint_eq(foreign(&chat, 0), 0);
}
END_TEST

START_TEST(test_owners_that_differ_in_anything_have_other_patterns)
{
    struct pattern_owner other = chat;

    fill(&chat, 3, 0, BYTES);
    ck_assert_uint_gt(differing(&chat, 4), BYTES / 2);
    other.worker++;
    ck_assert_uint_gt(differing(&other, 3), BYTES / 2);
    other = chat;
    other.request++;
    ck_assert_uint_gt(differing(&other, 3), BYTES / 2);
    other = chat;
    other.attempt++;
    ck_assert_uint_gt(differing(&other, 3), BYTES / 2);
    /* All of them are the tenant's own. */
    ck_assert_uint_eq(foreign(&other, 3), 0);
}
END_TEST

UNIT_MAIN("replay_pattern", test_a_planted_byte_is_found_before_memory_is_given_back,
    test_another_tenants_bytes_are_found_in_received_memory, test_zeros_and_garbage_are_nobodys,
    test_owners_that_differ_in_anything_have_other_patterns)
