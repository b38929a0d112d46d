/* Reads and writes sizes. See size.h. */
#include "base/size.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char suffixes[] = "BKMGTPE";

/* `text` stands behind the digits: suffix to shift, or -EINVAL. */
static int suffix_shift(const char *text)
{
    const char *at;

    if (*text == '\0')
        return 0;
    at = strchr(suffixes, toupper((unsigned char) *text));
    if (at == NULL)
        return -EINVAL;
    text++;
    if (*text != '\0' && at != suffixes && strcasecmp(text, "B") != 0 &&
        strcasecmp(text, "iB") != 0)
        return -EINVAL;
    if (*text != '\0' && at == suffixes)
        return -EINVAL;
    return (int) (at - suffixes) * 10;
}

/* Reads a run of digits into `ret`; returns where it stopped, NULL on overflow. */
static const char *read_digits(const char *text, uint64_t *ret)
{
    uint64_t value = 0;

    for (; isdigit((unsigned char) *text); text++) {
        if (__builtin_mul_overflow(value, UINT64_C(10), &value) ||
            __builtin_add_overflow(value, (uint64_t) (*text - '0'), &value))
            return NULL;
    }
    *ret = value;
    return text;
}

/* Reads the digits behind the point as `numerator / denominator`, exact to nine of them. */
static const char *read_fraction(const char *text, uint64_t *ret_num, uint64_t *ret_den)
{
    uint64_t num = 0, den = 1;

    for (; isdigit((unsigned char) *text); text++) {
        if (den < UINT64_C(1000000000)) {
            num = num * 10 + (uint64_t) (*text - '0');
            den *= 10;
        }
    }
    *ret_num = num;
    *ret_den = den;
    return text;
}

int size_parse(const char *text, uint64_t *ret_bytes)
{
    uint64_t whole, num = 0, den = 1, bytes, part;
    int shift;

    if (strcmp(text, "infinity") == 0) {
        *ret_bytes = SIZE_INFINITY;
        return 0;
    }
    if (!isdigit((unsigned char) *text))
        return -EINVAL;
    text = read_digits(text, &whole);
    if (text == NULL)
        return -ERANGE;
    if (*text == '.') {
        if (!isdigit((unsigned char) text[1]))
            return -EINVAL;
        text = read_fraction(text + 1, &num, &den);
    }
    shift = suffix_shift(text);
    if (shift < 0)
        return shift;
    /* num < den <= 10^9 < 2^30 and the shift is at most 60: the product needs 90 bits, the quotient
     * is below 2^60. */
    part = (uint64_t) (((unsigned __int128) num << shift) / den);
    if (__builtin_mul_overflow(whole, UINT64_C(1) << shift, &bytes) ||
        __builtin_add_overflow(bytes, part, &bytes) || bytes > INT64_MAX)
        return -ERANGE;
    *ret_bytes = bytes;
    return 0;
}

char *size_format(char buffer[SIZE_TEXT_MAX], uint64_t bytes)
{
    unsigned unit = 0;
    uint64_t whole = bytes, rest = 0;

    if (bytes == SIZE_INFINITY) {
        (void) snprintf(buffer, SIZE_TEXT_MAX, "infinity");
        return buffer;
    }
    while (whole >= 1024 && unit + 1 < sizeof(suffixes) - 1) {
        rest = whole % 1024;
        whole /= 1024;
        unit++;
    }
    if (rest * 10 / 1024 == 0)
        (void) snprintf(
            buffer, SIZE_TEXT_MAX, "%llu%c", (unsigned long long) whole, suffixes[unit]);
    else
        (void) snprintf(buffer, SIZE_TEXT_MAX, "%llu.%llu%c", (unsigned long long) whole,
            (unsigned long long) (rest * 10 / 1024), suffixes[unit]);
    return buffer;
}
