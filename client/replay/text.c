/* Hand-written where libc is lenient: strtoull takes a sign, white space and `0x`; strptime has no
 * fractions and takes "1" for a month. */
#include "client/replay/text.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"

#define SPACES " \t\r\n"

char *text_trim(char *text)
{
    size_t size;

    if (!text)
        return NULL;
    text += strspn(text, SPACES);
    size = strlen(text);
    while (size > 0 && strchr(SPACES, text[size - 1]))
        size--;
    text[size] = '\0';
    return text;
}

bool text_parse_uint(const char *text, uint64_t max, uint64_t *ret)
{
    uint64_t value = 0;

    if (*text == '\0')
        return false;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9')
            return false;
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t) (*text - '0'), &value) || value > max)
            return false;
    }
    *ret = value;
    return true;
}

bool text_parse_positive(const char *text, double *ret)
{
    char *end;
    double value;

    if ((*text < '0' || *text > '9') && *text != '.')
        return false;
    if (strpbrk(text, "xX"))
        return false;
    errno = 0;
    value = strtod(text, &end);
    if (errno != 0 || *end != '\0' || !isfinite(value) || !(value > 0))
        return false;
    *ret = value;
    return true;
}

/* Exactly `digits` digits, within [min, max]; moves `*text` behind them. */
static bool take(const char **text, int digits, int min, int max, int *ret)
{
    int value = 0;

    for (int i = 0; i < digits; i++, (*text)++) {
        if (**text < '0' || **text > '9')
            return false;
        value = 10 * value + (**text - '0');
    }
    *ret = value;
    return value >= min && value <= max;
}

static bool take_char(const char **text, const char *allowed)
{
    if (**text == '\0' || !strchr(allowed, **text))
        return false;
    (*text)++;
    return true;
}

/* Nothing, or a dot and one to nine digits. */
static bool take_fraction(const char **text, uint64_t *ret_ns)
{
    uint64_t unit = NSEC_PER_SEC;

    *ret_ns = 0;
    if (**text != '.')
        return true;
    for ((*text)++; **text >= '0' && **text <= '9'; (*text)++) {
        if (unit == 1)
            return false;
        unit /= 10;
        *ret_ns += (uint64_t) (**text - '0') * unit;
    }
    return unit < NSEC_PER_SEC;
}

/* Nothing, `Z`, or `±hh:mm`: minutes east of Greenwich. */
static bool take_zone(const char **text, int64_t *ret_minutes)
{
    int sign, hours, minutes;

    *ret_minutes = 0;
    if (**text == '\0' || take_char(text, "Z"))
        return true;
    sign = **text == '-' ? -1 : 1;
    if (!take_char(text, "+-") || !take(text, 2, 0, 14, &hours) || !take_char(text, ":") ||
        !take(text, 2, 0, 59, &minutes))
        return false;
    *ret_minutes = sign * (60 * hours + minutes);
    return true;
}

static bool is_leap(int year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

static int days_in_month(int year, int month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

    return days[month - 1] + (month == 2 && is_leap(year));
}

static int64_t days_since_1970(int year, int month, int day)
{
    int64_t days = day - 1;

    for (int m = 1; m < month; m++)
        days += days_in_month(year, m);
    year--;
    /* Days of the whole years 1 … year, less those of 1 … 1969. */
    return days + 365 * (int64_t) year + year / 4 - year / 100 + year / 400 - 719162;
}

bool text_parse_time(const char *text, uint64_t *ret_ns)
{
    int year, month, day, hour, minute, second;
    int64_t seconds, zone_minutes;
    uint64_t fraction_ns;

    if (!take(&text, 4, 1970, 2400, &year) || !take_char(&text, "-") ||
        !take(&text, 2, 1, 12, &month) || !take_char(&text, "-") ||
        !take(&text, 2, 1, days_in_month(year, month), &day) || !take_char(&text, " T") ||
        !take(&text, 2, 0, 23, &hour) || !take_char(&text, ":") ||
        !take(&text, 2, 0, 59, &minute) || !take_char(&text, ":") ||
        !take(&text, 2, 0, 60, &second) || !take_fraction(&text, &fraction_ns) ||
        !take_zone(&text, &zone_minutes) || *text != '\0')
        return false;
    seconds = days_since_1970(year, month, day) * 86400 + hour * 3600 + minute * 60 + second -
              60 * zone_minutes;
    if (seconds < 0)
        return false;
    *ret_ns = (uint64_t) seconds * NSEC_PER_SEC + fraction_ns;
    return true;
}
