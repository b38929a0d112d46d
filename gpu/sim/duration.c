/* Reads durations. See duration.h. */
#include "gpu/sim/duration.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/clock.h"

static const struct {
    const char *name;
    uint64_t ns;
} units[] = {
    {"ns", 1},
    {"us", NSEC_PER_USEC},
    {"ms", NSEC_PER_MSEC},
    {"s", NSEC_PER_SEC},
};

#define DURATION_MAX_NS (3600 * NSEC_PER_SEC)

int duration_parse(const char *text, uint64_t *ret_ns)
{
    uint64_t whole = 0, fraction = 0, scale = 1;

    if (strcmp(text, "0") == 0) {
        *ret_ns = 0;
        return 0;
    }
    if (!isdigit((unsigned char) *text))
        return -EINVAL;
    for (; isdigit((unsigned char) *text); text++) {
        whole = whole * 10 + (uint64_t) (*text - '0');
        if (whole > DURATION_MAX_NS)
            return -EINVAL;
    }
    if (*text == '.') {
        if (!isdigit((unsigned char) *++text))
            return -EINVAL;
        for (; isdigit((unsigned char) *text); text++) {
            if (scale < 1000000) {
                fraction = fraction * 10 + (uint64_t) (*text - '0');
                scale *= 10;
            }
        }
    }
    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        uint64_t ns;

        if (strcmp(text, units[i].name) != 0)
            continue;
        if (__builtin_mul_overflow(whole, units[i].ns, &ns))
            return -EINVAL;
        ns += fraction * units[i].ns / scale;
        if (ns > DURATION_MAX_NS)
            return -EINVAL;
        *ret_ns = ns;
        return 0;
    }
    return -EINVAL;
}
