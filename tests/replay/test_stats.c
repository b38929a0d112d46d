/* Percentiles by the nearest rank, and levels. */
#include "client/replay/stats.h"

#include "tests/unit/unit.h"

START_TEST(test_percentiles_are_values_of_the_list)
{
    uint64_t hundred[100], values[] = {30, 10, 20};

    for (uint64_t i = 0; i < 100; i++)
        hundred[i] = i + 1;
    ck_assert_uint_eq(stats_percentile(hundred, 100, 50), 50);
    ck_assert_uint_eq(stats_percentile(hundred, 100, 99), 99);
    ck_assert_uint_eq(stats_percentile(hundred, 100, 100), 100);
    ck_assert_uint_eq(stats_percentile(hundred, 99, 99), 99); /* rank 98.01 → 99 */
    ck_assert_uint_eq(stats_percentile(hundred, 1, 1), 1);
    ck_assert_uint_eq(stats_percentile(hundred, 1, 99), 1);
    ck_assert_uint_eq(stats_percentile(NULL, 0, 99), 0);
    stats_sort(values, 3);
    ck_assert_uint_eq(values[0], 10);
    ck_assert_uint_eq(stats_percentile(values, 3, 50), 20);
    ck_assert_uint_eq(stats_percentile(values, 3, 67), 30);
}
END_TEST

START_TEST(test_peaks_of_worker_tenant_and_all_are_each_their_own)
{
    struct stats *stats;

    ck_assert_int_eq(stats_new(2, 4, 1, &stats), 0);
    stats_take(stats, 0, 100); /* tenant 0 */
    stats_give(stats, 0, 100);
    stats_take(stats, 2, 70); /* tenant 0 */
    stats_take(stats, 1, 60); /* tenant 1 */
    ck_assert_uint_eq(stats->all.now, 130);
    ck_assert_uint_eq(stats->all.peak, 130);
    ck_assert_uint_eq(stats->tenants[0].now, 70);
    ck_assert_uint_eq(stats->tenants[0].peak, 100);
    ck_assert_uint_eq(stats->tenants[1].peak, 60);
    ck_assert_uint_eq(stats->own[0].now, 0);
    ck_assert_uint_eq(stats->own[0].peak, 100);
    ck_assert_uint_eq(stats->own[2].peak, 70);
    ck_assert_ptr_null(stats_free(stats));
}
END_TEST

UNIT_MAIN("replay_stats", test_percentiles_are_values_of_the_list,
    test_peaks_of_worker_tenant_and_all_are_each_their_own)
