/*
 * Runs one scenario of policies/pressure.h, stall.h and ladder.h: figures come at times, and what
 * follows from them is expected. Shares are in millionths.
 *
 *   levels LOW MEDIUM CRITICAL [KEY=VALUE …]    shares; stall-low, stall-medium, stall-critical,
 *                                               hysteresis=SHARE dwell=MS degrade=MS
 *   rung low|medium|critical STEP,STEP…         blanks of a step as one `:`
 *   at MS share=SHARE [stall=SHARE] [high=1]    the level, and the ladder with it
 *   expect level LEVEL, expect rung LEVEL
 *   expect steps [STEP …]                       in force, as they are written above
 *   expect fall MS | never                      when the level falls if nothing changes
 *
 *   account [KEY=SIZE …]                        used cached min max ready others reserved
 *   expect headroom SIZE, expect share SHARE    of what is not cached
 *
 *   stall MS stalled=N active=N                 from then on
 *   look MS                                     brings it up to date
 *   expect total some|full MS
 *   expect average some|full 10|60|300 SHARE
 *   window MS, grow MS BY, expect growth MS     a trigger's window, and a total at a time
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"
#include "policies/ladder.h"
#include "policies/stall.h"
#include "tests/scenario/lines.h"

#define MS NSEC_PER_MSEC

static struct pressure_thresholds thresholds;
static struct pressure_state level;
static struct ladder ladder;
static struct ladder_state rung;
static uint64_t degrade_ns;
static struct pressure_view account;
static struct stall stall;
static struct stall_window window;
static uint64_t total_ns, growth_ns;

static enum pressure_level level_named(const char *name)
{
    unsigned i = 0;

    while (i < PRESSURE_LEVEL_MAX && strcmp(pressure_level_name((enum pressure_level) i), name))
        i++;
    if (i == PRESSURE_LEVEL_MAX)
        fail("no level %s", name);
    return (enum pressure_level) i;
}

static void run_levels(void)
{
    static const char *const keys[] = {NULL, "stall-low", "stall-medium", "stall-critical"};

    thresholds = (struct pressure_thresholds){
        .hysteresis = (uint32_t) value_number(4, "hysteresis", 0),
        .dwell_ns = value_number(4, "dwell", 0) * MS,
    };
    for (unsigned i = PRESSURE_LOW; i < PRESSURE_LEVEL_MAX; i++) {
        thresholds.share[i] = (uint32_t) number_of(word(i));
        thresholds.stall[i] = (uint32_t) value_number(4, keys[i], PRESSURE_WHOLE + i);
    }
    degrade_ns = value_number(4, "degrade", 0) * MS;
    level = (struct pressure_state){0};
    rung = (struct ladder_state){0};
}

static void run_rung(void)
{
    char text[256], reason[LADDER_REASON_BYTES];

    (void) snprintf(text, sizeof(text), "%s", word_count() > 2 ? word(2) : "");
    for (char *at = text; *at; at++) {
        if (*at == ':')
            *at = ' ';
    }
    if (ladder_rung_parse(text, &ladder.rungs[level_named(word(1))], reason) < 0)
        fail("%s", reason);
}

static void run_at(void)
{
    const struct pressure_figures figures = {
        .share = (uint32_t) value_number(2, "share", 0),
        .stall = (uint32_t) value_number(2, "stall", 0),
        .above_high = value_number(2, "high", 0) != 0,
    };
    uint64_t now_ns = number_of(word(1)) * MS;

    (void) pressure_update(&level, &thresholds, &figures, now_ns);
    (void) ladder_update(&rung, (enum pressure_level) level.level, degrade_ns, now_ns);
}

static void run_account(void)
{
    account = (struct pressure_view){
        .used = value_size(1, "used", 0),
        .cached = value_size(1, "cached", 0),
        .min = value_size(1, "min", 0),
        .max = value_size(1, "max", UINT64_MAX),
        .ready = value_size(1, "ready", 0),
        .others_unused_min = value_size(1, "others", 0),
        .reserved = value_size(1, "reserved", 0),
    };
}

static bool run_stall_line(void)
{
    if (is(0, "stall")) {
        stall_change(&stall, number_of(word(1)) * MS, (uint32_t) value_number(2, "stalled", 0),
            (uint32_t) value_number(2, "active", 0));
    } else if (is(0, "look")) {
        stall_advance(&stall, number_of(word(1)) * MS);
    } else if (is(0, "window")) {
        window = (struct stall_window){.size_ns = number_of(word(1)) * MS};
    } else if (is(0, "grow")) {
        total_ns += number_of(word(2)) * MS;
        growth_ns = stall_window_update(&window, number_of(word(1)) * MS, total_ns);
    } else {
        return false;
    }
    return true;
}

static void expect_number(uint64_t found, uint64_t expected)
{
    if (found != expected)
        fail("it is %llu", (unsigned long long) found);
}

static void step_text(const struct ladder_rung *steps, enum ladder_action action, char text[64])
{
    const char *name = ladder_action_name(action);

    if (action == LADDER_REDUCE_BATCH)
        (void) snprintf(text, 64, "%s:%g", name, steps->batch_factor / 1e6);
    else if (action == LADDER_DROP_PREFIX_CACHE)
        (void) snprintf(text, 64, "%s:%g", name, steps->prefix_share / 1e6);
    else if (action == LADDER_QUANTIZE_KV)
        (void) snprintf(text, 64, "%s:%s", name, steps->format == LADDER_INT8 ? "int8" : "fp8");
    else if (action == LADDER_SHRINK_CONTEXT)
        (void) snprintf(text, 64, "%s:%u", name, steps->context_tokens);
    else if (action == LADDER_REJECT_BELOW_PRIORITY)
        (void) snprintf(text, 64, "%s:%u", name, steps->reject_below);
    else
        (void) snprintf(text, 64, "%s", name);
}

static void expect_steps(void)
{
    struct ladder_rung steps = ladder_merge(&ladder, (enum pressure_level) rung.rung);
    size_t at = 2;

    for (unsigned i = LADDER_NONE + 1; i < LADDER_ACTION_MAX; i++) {
        char text[64];

        if (!ladder_rung_has(&steps, (enum ladder_action) i))
            continue;
        step_text(&steps, (enum ladder_action) i, text);
        if (!is(at++, text))
            fail("there is %s", text);
    }
    if (at != word_count())
        fail("there is no %s", word(at));
}

static void expect_fall(void)
{
    uint64_t due_ns = pressure_due(&level, &thresholds);

    if (is(2, "never"))
        expect_number(due_ns, CLOCK_NEVER);
    else
        expect_number(due_ns, number_of(word(2)) * MS);
}

static void expect_level(unsigned found)
{
    if (found != level_named(word(2)))
        fail("it is %s", pressure_level_name((enum pressure_level) found));
}

static enum stall_line line_named(const char *name)
{
    return strcmp(name, "full") == 0 ? STALL_FULL : STALL_SOME;
}

static void expect_average(void)
{
    enum stall_average average = is(3, "10")   ? STALL_AVG10
                                 : is(3, "60") ? STALL_AVG60
                                               : STALL_AVG300;

    expect_number(stall_average(&stall, line_named(word(2)), average), number_of(word(4)));
}

static void run_expect(void)
{
    if (is(1, "level"))
        expect_level(level.level);
    else if (is(1, "rung"))
        expect_level(rung.rung);
    else if (is(1, "steps"))
        expect_steps();
    else if (is(1, "fall"))
        expect_fall();
    else if (is(1, "headroom"))
        expect_number(pressure_headroom(&account), size_of(word(2)));
    else if (is(1, "share"))
        expect_number(pressure_share(account.used - account.cached, pressure_headroom(&account)),
            number_of(word(2)));
    else if (is(1, "total"))
        expect_number(stall.total_ns[line_named(word(2))], number_of(word(3)) * MS);
    else if (is(1, "average"))
        expect_average();
    else if (is(1, "growth"))
        expect_number(growth_ns, number_of(word(2)) * MS);
    else
        fail("what is expected?");
}

static void run_line(void)
{
    if (is(0, "levels"))
        run_levels();
    else if (is(0, "rung"))
        run_rung();
    else if (is(0, "at"))
        run_at();
    else if (is(0, "account"))
        run_account();
    else if (is(0, "expect"))
        run_expect();
    else if (!run_stall_line())
        fail("what is %s?", word(0));
}

int main(int argc, char **argv)
{
    return lines_run(argc, argv, run_line);
}
