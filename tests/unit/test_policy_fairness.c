/* fairness.h: the order, and that the heap keeps to it. */
#include "policies/fairness.h"

#include "tests/unit/unit.h"

static const struct fairness_claim base = {
    .priority = 100, .weight = 100, .used = 1000, .requested = 100, .arrival = 5};

static void assert_before(struct fairness_claim a, struct fairness_claim b)
{
    ck_assert(fairness_before(&a, &b));
    ck_assert(!fairness_before(&b, &a));
}

START_TEST(priority_beats_everything)
{
    struct fairness_claim high = base;

    high.priority = 101;
    high.used = UINT64_MAX;
    high.weight = 1;
    high.arrival = UINT64_MAX;
    assert_before(high, base);
}
END_TEST

START_TEST(whoever_would_have_least_for_its_weight_goes_first)
{
    struct fairness_claim other = base;

    other.used = 999;
    other.arrival = 6;
    assert_before(other, base);
    other.used = 1001;
    other.arrival = 4;
    assert_before(base, other);
    /* 1100 / 100 = 2200 / 200: equal shares, so the earlier one. */
    other.used = 2100;
    other.weight = 200;
    assert_before(other, base);
    other.used = 2101;
    assert_before(base, other);
}
END_TEST

START_TEST(the_request_counts_as_well_as_the_use)
{
    struct fairness_claim small = base;

    small.requested = 99;
    small.arrival = 6;
    assert_before(small, base);
}
END_TEST

START_TEST(the_largest_figures_do_not_wrap)
{
    struct fairness_claim a = {1, 10000, UINT64_MAX, UINT64_MAX, 1, NULL};
    struct fairness_claim b = {1, 10000, UINT64_MAX, UINT64_MAX - 1, 2, NULL};

    assert_before(b, a);
}
END_TEST

START_TEST(claims_are_taken_in_order_and_may_come_back)
{
    struct fairness_claim claims[50], next, last;
    size_t count = 50;

    for (size_t i = 0; i < 50; i++)
        claims[i] = (struct fairness_claim){
            (uint32_t) i % 3, 1 + (uint32_t) i % 7, (i * 7919) % 1000, 10, i, NULL};
    fairness_build(claims, count);
    last = fairness_take(claims, &count);
    next = last;
    next.arrival = 1000;
    fairness_put(claims, &count, &next);
    ck_assert_uint_eq(count, 50);
    while (count > 0) {
        next = fairness_take(claims, &count);
        ck_assert(fairness_before(&last, &next));
        last = next;
    }
}
END_TEST

UNIT_MAIN("policy_fairness", priority_beats_everything,
    whoever_would_have_least_for_its_weight_goes_first, the_request_counts_as_well_as_the_use,
    the_largest_figures_do_not_wrap, claims_are_taken_in_order_and_may_come_back)
