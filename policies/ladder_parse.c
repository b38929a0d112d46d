/* Steps of a rung, as they stand in the configuration. Nothing is guessed: what isn't a step
 * exactly as described refuses the whole rung. */
#include "policies/ladder.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Longer than any step with its value. */
#define STEP_BYTES 64

static const char *const names[] = {
    [LADDER_NONE] = "none",
    [LADDER_REDUCE_BATCH] = "reduce-batch",
    [LADDER_QUANTIZE_KV] = "quantize-kv",
    [LADDER_SHRINK_CONTEXT] = "shrink-context",
    [LADDER_DROP_PREFIX_CACHE] = "drop-prefix-cache",
    [LADDER_REJECT_BELOW_PRIORITY] = "reject-below-priority",
    [LADDER_PAUSE_NEW] = "pause-new",
};
static_assert(ARRAY_SIZE(names) == LADDER_ACTION_MAX, "every step has a name");

/* What each takes, for the refusal. */
static const char *const takes[] = {
    [LADDER_NONE] = "",
    [LADDER_REDUCE_BATCH] = "a factor above 0 and below 1, as 0.75",
    [LADDER_QUANTIZE_KV] = "int8 or fp8",
    [LADDER_SHRINK_CONTEXT] = "a number of tokens from 1 to 4294967295",
    [LADDER_DROP_PREFIX_CACHE] = "a share above 0 and at most 1, as 0.5",
    [LADDER_REJECT_BELOW_PRIORITY] = "a priority from 1 to 4294967295",
    [LADDER_PAUSE_NEW] = "no value",
};
static_assert(ARRAY_SIZE(takes) == LADDER_ACTION_MAX, "every step says what it takes");

const char *ladder_action_name(enum ladder_action action)
{
    return (unsigned) action < LADDER_ACTION_MAX ? names[action] : "unknown";
}

/* Digits alone, from 1 to UINT32_MAX. */
static bool number_parse(const char *text, uint32_t *ret)
{
    size_t length = strlen(text);
    unsigned long long number;

    if (length == 0 || length > 10 || strspn(text, "0123456789") != length)
        return false;
    number = strtoull(text, NULL, 10);
    if (number == 0 || number > UINT32_MAX)
        return false;
    *ret = (uint32_t) number;
    return true;
}

/* `0.75`, `1`, `.5`: millionths above 0 and at most all. Digits beyond the sixth must be zeros. */
static bool share_parse(const char *text, uint32_t *ret)
{
    uint32_t millionths = 0, unit = PRESSURE_WHOLE;
    bool digits = false, point = false;

    for (; *text != '\0'; text++) {
        uint32_t digit = (uint32_t) (*text - '0');

        if (*text == '.' && !point) {
            point = true;
            continue;
        }
        if (*text < '0' || *text > '9')
            return false;
        if (point)
            unit /= 10;
        if (digit > 1 && !point)
            return false;
        if (unit == 0 && digit != 0)
            return false;
        /* No more digits before the point than one: 10 × 1,000,000 is beyond all. */
        millionths = (point ? millionths : millionths * 10) + digit * unit;
        if (millionths > PRESSURE_WHOLE)
            return false;
        digits = true;
    }
    *ret = millionths;
    return digits && millionths > 0;
}

static bool value_parse(struct ladder_rung *rung, enum ladder_action action, const char *value)
{
    switch (action) {
    case LADDER_REDUCE_BATCH:
        return share_parse(value, &rung->batch_factor) && rung->batch_factor < PRESSURE_WHOLE;
    case LADDER_QUANTIZE_KV:
        rung->format = strcmp(value, "int8") == 0 ? LADDER_INT8 : LADDER_FP8;
        return rung->format == LADDER_INT8 || strcmp(value, "fp8") == 0;
    case LADDER_SHRINK_CONTEXT:
        return number_parse(value, &rung->context_tokens);
    case LADDER_DROP_PREFIX_CACHE:
        return share_parse(value, &rung->prefix_share);
    case LADDER_REJECT_BELOW_PRIORITY:
        return number_parse(value, &rung->reject_below);
    case LADDER_PAUSE_NEW:
        return value[0] == '\0';
    case LADDER_NONE:
    case LADDER_ACTION_MAX:
        break;
    }
    return false;
}

static enum ladder_action action_find(const char *name)
{
    unsigned action = LADDER_NONE + 1;

    while (action < LADDER_ACTION_MAX && strcmp(name, names[action]) != 0)
        action++;
    return (enum ladder_action) action;
}

/* One step without blanks around it. */
static int step_parse(char *step, struct ladder_rung *rung, char reason[LADDER_REASON_BYTES])
{
    size_t name_length = strcspn(step, " \t");
    char *value = step + name_length + strspn(step + name_length, " \t");
    enum ladder_action action;

    step[name_length] = '\0';
    action = action_find(step);
    if (action == LADDER_ACTION_MAX)
        (void) snprintf(reason, LADDER_REASON_BYTES, "there is no step '%s'", step);
    else if (ladder_rung_has(rung, action))
        (void) snprintf(reason, LADDER_REASON_BYTES, "step %s stands there twice", step);
    else if (!value_parse(rung, action, value))
        (void) snprintf(
            reason, LADDER_REASON_BYTES, "step %s takes %s, not '%s'", step, takes[action], value);
    else {
        rung->present |= UINT32_C(1) << action;
        return 0;
    }
    return -EINVAL;
}

/* Copies [start, end) without the blanks around it; false when it is empty or too long. */
static bool step_cut(const char *start, const char *end, char step[STEP_BYTES])
{
    while (start < end && strchr(" \t", *start))
        start++;
    while (end > start && strchr(" \t", end[-1]))
        end--;
    if (start == end || end - start >= STEP_BYTES)
        return false;
    memcpy(step, start, (size_t) (end - start));
    step[end - start] = '\0';
    return true;
}

int ladder_rung_parse(const char *text, struct ladder_rung *ret, char reason[LADDER_REASON_BYTES])
{
    struct ladder_rung rung = {0};
    bool more = text[strspn(text, " \t")] != '\0';

    while (more) {
        const char *end = text + strcspn(text, ",");
        char step[STEP_BYTES];
        int r;

        if (!step_cut(text, end, step)) {
            (void) snprintf(reason, LADDER_REASON_BYTES, "'%.40s' is no step", text);
            return -EINVAL;
        }
        r = step_parse(step, &rung, reason);
        if (r < 0)
            return r;
        more = *end == ',';
        text = end + 1;
    }
    *ret = rung;
    return 0;
}
