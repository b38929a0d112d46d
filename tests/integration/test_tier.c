/* What lies in the host tier: room that comes back, what records of it cost, its formats, and a
 * tier that is full, isn't there, or can't be used. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/arena.h"
#include "kernels/float16.h"
#include "tests/integration/orders.h"
#include "tests/integration/pages.h"
#include "tests/unit/unit.h"

#define PAGE (UINT64_C(64) << 10)
#define PER_CHUNK ((uint32_t) (HARNESS_CHUNK / PAGE))
#define MIB(n) ((uint64_t) (n) << 20)
#define BROKER HARNESS_BROKER "MoverIdle=200ms\n"
#define TENANTS "[Tenant high]\nUser=65534\nPriority=900\n[Tenant low]\nUser=*\nPriority=100\n"

static struct harness harness;
static struct pages pages;

/* Orders evictions until exactly so many pages lie in the tier. */
static void evict_until(const char *tenant, uint64_t count)
{
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;

    while (pages_stats(&pages).evicted_pages < count) {
        ck_assert_msg(harness_now_ms() < deadline, "%llu pages of %llu were evicted",
            (unsigned long long) pages_stats(&pages).evicted_pages, (unsigned long long) count);
        (void) order_evict(&harness, tenant, MIB(512));
        harness_breathe();
    }
}

/* Until the plan finds nothing that it could evict. */
static void evict_all(const char *tenant)
{
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS, before;

    do {
        ck_assert_uint_lt(harness_now_ms(), deadline);
        before = pages_stats(&pages).evictions;
        (void) order_evict(&harness, tenant, MIB(512));
        for (int i = 0; i < 50; i++)
            harness_breathe();
    } while (pages_stats(&pages).evictions != before);
}

static uint64_t host_bytes(const char *tenant)
{
    Gmb__TenantDevice device;

    raw_tenant(&harness, tenant, &device);
    return device.host_bytes;
}

/* ------------------------------------------------------------------ room */

START_TEST(slots_of_pages_freed_in_the_tier_are_room_again)
{
    harness_start(&harness, BROKER "HostTier=32M\n" HARNESS_TENANT);
    pages_open(&pages, &harness, PAGE, HARNESS_CHUNK, MIB(128));
    pages_fill(&pages, 16 * PER_CHUNK);
    evict_until("test", 16 * PER_CHUNK); /* 32 MiB: every slot of the tier */
    pages_fill(&pages, 2 * PER_CHUNK);
    evict_all("test");
    ck_assert_uint_eq(pages_stats(&pages).evicted_pages, 16 * PER_CHUNK);
    ck_assert_int_eq(gmb_page_unref(pages.arena, 16 * PER_CHUNK, pages.pages), 0);
    ck_assert_uint_eq(pages_stats(&pages).evicted_pages, 0);
    /* The worker told nobody: the next survey finds it. */
    evict_until("test", 2 * PER_CHUNK);
    pages_check(&pages, 16 * PER_CHUNK, 2 * PER_CHUNK, 16);
    pages_close(&pages);
    ck_assert_uint_eq(host_bytes("test"), 0);
    harness_stop(&harness);
}
END_TEST

#define SMALL_PAGE UINT64_C(512)
#define SMALL_PER_CHUNK ((uint32_t) (HARNESS_CHUNK / SMALL_PAGE))
#define SPARSE_CHUNKS 30

/* One page in use in each of many chunks of small pages. */
static void sparse_pages(void)
{
    uint32_t *all = calloc(SPARSE_CHUNKS * (size_t) SMALL_PER_CHUNK, sizeof(*all)), drop = 0;
    bool kept[2 * SPARSE_CHUNKS] = {false};

    ck_assert_ptr_nonnull(all);
    ck_assert_int_eq(gmb_page_alloc(pages.arena, SPARSE_CHUNKS * (size_t) SMALL_PER_CHUNK, all,
                         HARNESS_DEADLINE_MS * UINT64_C(1000000)),
        0);
    for (uint32_t i = 0; i < SPARSE_CHUNKS * SMALL_PER_CHUNK; i++) {
        uint32_t chunk = all[i] / SMALL_PER_CHUNK;

        ck_assert_uint_lt(chunk, ARRAY_SIZE(kept));
        if (kept[chunk])
            all[drop++] = all[i];
        else
            pages.pages[pages.count++] = all[i];
        kept[chunk] = true;
    }
    ck_assert_int_eq(gmb_page_unref(pages.arena, drop, all), 0);
    free(all);
}

START_TEST(records_of_the_tier_take_a_bounded_part_of_it)
{
    /* A sixteenth of the tier; a chunk's record has an entry for each of its 4,096 pages. */
    const uint64_t most = MIB(64) / 16 / (SMALL_PER_CHUNK * sizeof(struct arena_page));

    ck_assert(most > 0);
    harness_start(&harness, BROKER "HostTier=64M\n" HARNESS_TENANT);
    /* HostMax= counts slabs; it bounds the records as well. */
    ck_assert_int_eq(raw_set(&harness, "test", "HostMax", "32M"), GMB_STATUS_OK);
    pages_open(&pages, &harness, SMALL_PAGE, HARNESS_CHUNK, MIB(256));
    sparse_pages();
    ck_assert_uint_eq(pages.count, SPARSE_CHUNKS);
    evict_all("test");
    ck_assert_uint_eq(pages_stats(&pages).evicted_pages, most / 2);
    ck_assert(harness_logged(&harness, "HostMax="));
    /* With the last page that lies there a record goes, and makes room for another. */
    pages_restore(&pages);
    ck_assert_uint_eq(pages_stats(&pages).evicted_pages, 0);
    ck_assert_int_eq(raw_set(&harness, "test", "HostMax", "64M"), GMB_STATUS_OK);
    evict_until("test", MIN(most, (uint64_t) SPARSE_CHUNKS));
    pages_close(&pages);
    harness_stop(&harness);
}
END_TEST

START_TEST(pages_that_no_slab_can_hold_are_refused)
{
    struct gmb_options options = {.size = sizeof(options)};
    struct gmb_arena_params params = {
        .size = sizeof(params),
        .page_bytes = MIB(64),
        .chunk_bytes = MIB(64),
        .max_bytes = MIB(256),
    };
    gmb_session *session;
    gmb_arena *arena;

    harness_start(&harness, BROKER "HostTier=128M\n" HARNESS_TENANT);
    options.socket = harness.client_socket;
    ck_assert_int_eq(gmb_connect(&options, &session), 0);
    ck_assert_int_eq(gmb_arena_new(session, &params, &arena), GMB_E_INVALID);
    ck_assert_msg(
        strstr(gmb_error_text(), "slab of the host tier (32M)") != NULL, "%s", gmb_error_text());
    gmb_disconnect(session);
    /* One that fills a slab is moved as any other. */
    pages_open(&pages, &harness, MIB(32), MIB(32), MIB(128));
    pages_fill(&pages, 2);
    evict_until("test", 2);
    pages_check(&pages, 0, 2, 1);
    pages_close(&pages);
    harness_stop(&harness);
}
END_TEST

/* ------------------------------------------------------------------ formats */

#define ELEMENTS ((uint32_t) (PAGE / 2))
#define BLOCK 64
#define FORMAT_PAGES (2 * PER_CHUNK)

static const struct format {
    const char *name;
    float of_largest; /* the error is at most this part of the block's largest element … */
    float of_itself;  /* … or this part of the element (kernels/quantize.h) */
} formats[] = {
    {"int8", 1.0F / 254, 0},
    {"fp8", 1.0F / (448 * 1024), 1.0F / 16},
};

/* Blocks of magnitudes from 2^-8 to 2^7, of either sign, no two elements of a block alike. */
static float element_value(uint32_t page, uint32_t i)
{
    uint32_t bits = (page * 2654435761U) ^ (i * 40503U);
    float part = (float) ((int) (bits % 2001) - 1000) / 1000;

    return ldexpf(part, (int) (i / BLOCK + page) % 16 - 8);
}

static void formatted_pages_write(void)
{
    static uint16_t elements[ELEMENTS];

    ck_assert_int_eq(gmb_page_alloc(pages.arena, FORMAT_PAGES, pages.pages,
                         HARNESS_DEADLINE_MS * UINT64_C(1000000)),
        0);
    pages.count = FORMAT_PAGES;
    ck_assert_int_eq(gmb_page_pin(pages.arena, pages.count, pages.pages), GMB_PIN_READY);
    for (uint32_t k = 0; k < pages.count; k++) {
        for (uint32_t i = 0; i < ELEMENTS; i++)
            elements[i] = fp16_from_float(element_value(k, i));
        ck_assert_int_eq(
            pages.to_device(gmb_arena_address(pages.arena) + pages.pages[k] * PAGE, elements, PAGE),
            0);
    }
    ck_assert_int_eq(gmb_page_unpin(pages.arena, pages.count, pages.pages), 0);
}

/* Compares a page with what was written; how many elements changed. */
static uint32_t formatted_page_check(
    uint32_t page, const uint16_t *elements, const struct format *format)
{
    uint32_t changed = 0;

    for (uint32_t first = 0; first < ELEMENTS; first += BLOCK) {
        float largest = 0;

        for (uint32_t i = first; i < first + BLOCK; i++)
            largest =
                fmaxf(largest, fabsf(float_from_fp16(fp16_from_float(element_value(page, i)))));
        for (uint32_t i = first; i < first + BLOCK; i++) {
            float was = float_from_fp16(fp16_from_float(element_value(page, i)));
            float is = float_from_fp16(elements[i]);
            float bound = fmaxf(format->of_largest * largest, format->of_itself * fabsf(was));

            /* To within 1/1000, and half a unit in the last place of an fp16 below 2^-10 of it. */
            bound = bound * 1.001F + fmaxf(fabsf(is), ldexpf(1, -14)) * ldexpf(1, -11);
            ck_assert_msg(fabsf(is - was) <= bound, "%s: page %u element %u was %g and is %g",
                format->name, page, i, (double) was, (double) is);
            changed += is != was;
        }
    }
    return changed;
}

START_TEST(a_quantized_tier_keeps_its_error_bound)
{
    static uint16_t elements[ELEMENTS];
    const struct format *format = &formats[_i];
    const struct gmb_arena_params params = {
        .page_bytes = PAGE,
        .chunk_bytes = HARNESS_CHUNK,
        .max_bytes = MIB(64),
        .element = GMB_ELEMENT_FP16,
    };
    char text[256];
    uint32_t changed = 0;

    (void) snprintf(text, sizeof(text), BROKER "HostTier=64M\n" HARNESS_TENANT "QuantizedTier=%s\n",
        format->name);
    harness_start(&harness, text);
    pages_open_with(&pages, &harness, &params);
    formatted_pages_write();
    evict_until("test", FORMAT_PAGES);
    pages_restore(&pages);
    for (uint32_t k = 0; k < pages.count; k++) {
        ck_assert_int_eq(gmb_page_pin(pages.arena, 1, &pages.pages[k]), GMB_PIN_READY);
        ck_assert_int_eq(
            pages.to_host(elements, gmb_arena_address(pages.arena) + pages.pages[k] * PAGE, PAGE),
            0);
        ck_assert_int_eq(gmb_page_unpin(pages.arena, 1, &pages.pages[k]), 0);
        changed += formatted_page_check(k, elements, format);
    }
    /* Most elements can't be told in 8 bits: the bytes were not simply kept. */
    ck_assert_uint_gt(changed, FORMAT_PAGES * ELEMENTS / 2);
    pages_close(&pages);
    harness_stop(&harness);
}
END_TEST

START_TEST(bytes_are_never_quantized)
{
    harness_start(&harness, BROKER "HostTier=64M\n" HARNESS_TENANT "QuantizedTier=int8\n");
    pages_open(&pages, &harness, PAGE, HARNESS_CHUNK, MIB(64));
    pages_fill(&pages, 2 * PER_CHUNK);
    evict_until("test", 2 * PER_CHUNK);
    pages_check(&pages, 0, pages.count, 16);
    pages_close(&pages);
    harness_stop(&harness);
}
END_TEST

/* ------------------------------------------------------------------ no tier */

/* Somebody entitled wants all but 8 MiB of the device and gets nothing, nobody is killed, and every
 * page is as it was. */
static void claim_in_vain(void)
{
    struct claimant claimant;

    claimant_start(&claimant, &harness, HARNESS_MEMORY - MIB(8), 1500);
    ck_assert_int_eq(claimant_answer(&claimant), GMB_STATUS_TIMED_OUT);
    claimant_end(&claimant);
    ck_assert(!harness_logged(&harness, "killed pid"));
    pages_check(&pages, 0, pages.count, 16);
}

START_TEST(who_waits_for_a_full_tier_is_refused_in_time_and_nothing_is_lost)
{
    struct claimant claimant;

    unit_need_root();
    harness_start(&harness, BROKER "HostTier=32M\nKill=yes\n" TENANTS);
    pages_open(&pages, &harness, PAGE, HARNESS_CHUNK, MIB(128));
    pages_fill(&pages, 32 * PER_CHUNK);
    claim_in_vain();
    ck_assert(harness_logged(&harness, "host tier full"));
    /* Half of them are no longer needed: there is a place for the rest. */
    ck_assert_int_eq(gmb_page_unref(pages.arena, 20 * PER_CHUNK, pages.pages), 0);
    claimant_start(&claimant, &harness, HARNESS_MEMORY - MIB(8), 30000);
    ck_assert_int_eq(claimant_answer(&claimant), GMB_STATUS_OK);
    claimant_end(&claimant);
    pages_check(&pages, 20 * PER_CHUNK, 12 * PER_CHUNK, 16);
    pages_close(&pages);
    harness_stop(&harness);
}
END_TEST

START_TEST(without_a_tier_only_what_can_be_computed_again_goes)
{
    const struct gmb_page_hint hint = {.parent = UINT32_MAX, .tokens = 16, .recomputable = 1};
    struct claimant claimant;

    unit_need_root();
    harness_start(&harness, BROKER "HostTier=0\n" TENANTS);
    pages_open(&pages, &harness, PAGE, HARNESS_CHUNK, MIB(128));
    pages_fill(&pages, 8 * PER_CHUNK);
    claim_in_vain();
    ck_assert_uint_eq(pages_stats(&pages).evictions, 0);
    for (uint32_t i = 0; i < pages.count; i++)
        ck_assert_int_eq(gmb_page_set_hint(pages.arena, pages.pages[i], &hint), 0);
    claimant_start(&claimant, &harness, HARNESS_MEMORY - MIB(8), 30000);
    ck_assert_int_eq(claimant_answer(&claimant), GMB_STATUS_OK);
    claimant_end(&claimant);
    ck_assert_int_eq(gmb_page_pin(pages.arena, 1, pages.pages), GMB_PIN_LOST);
    pages_close(&pages);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_tier_that_cannot_be_page_locked_loses_no_page)
{
    /* As under a limit of locked memory: the mover's calls alone. */
    static const char *const environment[] = {"GMB_SIM_FAULTS=cuMemHostRegister_v2:1+=2", NULL};

    unit_need_root();
    harness_start_with(&harness, BROKER "HostTier=64M\n" TENANTS, environment);
    pages_open(&pages, &harness, PAGE, HARNESS_CHUNK, MIB(128));
    pages_fill(&pages, 8 * PER_CHUNK);
    claim_in_vain();
    ck_assert_uint_eq(pages_stats(&pages).evictions, 0);
    ck_assert(harness_logged(&harness, "the mover gave up a job"));
    ck_assert(harness_logged(&harness, "cuMemHostRegister_v2"));
    pages_close(&pages);
    harness_stop(&harness);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tier");
    TCase *tcase = tcase_create("tier");

    tcase_add_test(tcase, slots_of_pages_freed_in_the_tier_are_room_again);
    tcase_add_test(tcase, records_of_the_tier_take_a_bounded_part_of_it);
    tcase_add_test(tcase, pages_that_no_slab_can_hold_are_refused);
    tcase_add_loop_test(
        tcase, a_quantized_tier_keeps_its_error_bound, 0, (int) ARRAY_SIZE(formats));
    tcase_add_test(tcase, bytes_are_never_quantized);
    tcase_add_test(tcase, who_waits_for_a_full_tier_is_refused_in_time_and_nothing_is_lost);
    tcase_add_test(tcase, without_a_tier_only_what_can_be_computed_again_goes);
    tcase_add_test(tcase, a_tier_that_cannot_be_page_locked_loses_no_page);
    suite_add_tcase(suite, tcase);
    return unit_run_suite(suite);
}
