/* One table of units, largest first. */
#include "client/ctl/duration.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/macro.h"

static const struct {
    const char *name;
    uint64_t ns;
} units[] = {
    {"d", 86400 * NSEC_PER_SEC},
    {"h", 3600 * NSEC_PER_SEC},
    {"min", 60 * NSEC_PER_SEC},
    {"s", NSEC_PER_SEC},
    {"ms", NSEC_PER_MSEC},
};

char *duration_format(char buffer[DURATION_TEXT_MAX], uint64_t ns)
{
    size_t i = 0;
    uint64_t rest;

    while (i + 1 < ARRAY_SIZE(units) && ns < units[i].ns)
        i++;
    rest = ns % units[i].ns;
    /* Milliseconds matter below a second alone. */
    if (i + 2 < ARRAY_SIZE(units) && rest >= units[i + 1].ns)
        (void) snprintf(buffer, DURATION_TEXT_MAX, "%" PRIu64 "%s %" PRIu64 "%s", ns / units[i].ns,
            units[i].name, rest / units[i + 1].ns, units[i + 1].name);
    else
        (void) snprintf(
            buffer, DURATION_TEXT_MAX, "%" PRIu64 "%s", ns / units[i].ns, units[i].name);
    return buffer;
}
