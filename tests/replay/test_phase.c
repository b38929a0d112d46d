/* The whole matrix of a request's life. */
#include "client/replay/phase.h"

#include "tests/unit/unit.h"

/* Row: from, column: to, in the order of the enum. */
static const char *const matrix[PHASE_MAX] = {
    [PHASE_PENDING] = ".A.......L",
    [PHASE_ASKING] = "..WP....RL",
    [PHASE_WAITING] = "...P....RL",
    [PHASE_PREFILL] = "....D....L",
    [PHASE_DECODE] = ".....G.C.L",
    [PHASE_GROWING] = "....D.S.RL",
    [PHASE_STALLED] = "..W.D...RL",
    [PHASE_COMPLETED] = "..........",
    [PHASE_REFUSED] = "..........",
    [PHASE_LOST] = "..........",
};

START_TEST(test_every_pair_of_phases_is_legal_or_not_as_the_matrix_says)
{
    for (int from = 0; from < PHASE_MAX; from++)
        for (int to = 0; to < PHASE_MAX; to++)
            ck_assert_msg(
                phase_may_follow((enum phase) from, (enum phase) to) == (matrix[from][to] != '.'),
                "%s to %s", phase_name((enum phase) from), phase_name((enum phase) to));
}
END_TEST

START_TEST(test_outside_the_enum_nothing_is_legal)
{
    ck_assert(!phase_may_follow(PHASE_MAX, PHASE_LOST));
    ck_assert(!phase_may_follow(PHASE_PENDING, PHASE_MAX));
    ck_assert_str_eq(phase_name(PHASE_MAX), "unknown");
}
END_TEST

START_TEST(test_the_last_three_phases_are_final)
{
    static const char kind[] = ".......FFF"; /* in the order of the enum */

    for (int phase = 0; phase < PHASE_MAX; phase++)
        ck_assert_int_eq(phase_is_final((enum phase) phase), kind[phase] == 'F');
}
END_TEST

UNIT_MAIN("replay_phase", test_every_pair_of_phases_is_legal_or_not_as_the_matrix_says,
    test_outside_the_enum_nothing_is_legal, test_the_last_three_phases_are_final)
