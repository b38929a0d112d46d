/* Reads GMB_SIM_* from the environment. See config.h. */
#include "gpu/sim/config.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "gpu/sim/duration.h"

#define DEFAULT_MEMORY (UINT64_C(1) << 30)
#define DEFAULT_GRANULARITY (UINT64_C(2) << 20)

static const char *const fills[] = {
    [SIM_FILL_NONE] = "none",
    [SIM_FILL_GARBAGE] = "garbage",
    [SIM_FILL_FULL] = "full",
};
static_assert(ARRAY_SIZE(fills) == SIM_FILL_MAX, "every fill has a name");

static const char *const hints[] = {
    [SIM_HINT_HONOUR] = "honour",
    [SIM_HINT_IGNORE] = "ignore",
    [SIM_HINT_FAIL] = "fail",
};
static_assert(ARRAY_SIZE(hints) == SIM_HINT_MAX, "every answer to a hint has a name");

static int refuse(char error[SIM_TEXT_BYTES], const char *name, const char *value)
{
    (void) snprintf(error, SIM_TEXT_BYTES, "%s=%.64s makes no sense", name, value);
    return -EINVAL;
}

static int read_devices(const char *text, unsigned *ret)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);

    if (*text < '0' || *text > '9' || *end != '\0' || value > SIM_DEVICES_MAX)
        return -EINVAL;
    *ret = (unsigned) value;
    return 0;
}

static int read_bytes(const char *text, uint64_t *ret)
{
    uint64_t bytes;

    if (size_parse(text, &bytes) < 0 || bytes > INT64_MAX)
        return -EINVAL;
    *ret = bytes;
    return 0;
}

static int read_granularity(const char *text, uint64_t *ret)
{
    uint64_t bytes;

    if (read_bytes(text, &bytes) < 0 || bytes < 4096 || (bytes & (bytes - 1)) != 0)
        return -EINVAL;
    *ret = bytes;
    return 0;
}

/* One size for each device, or one for all. */
static int read_memory(const char *text, struct sim_hardware *hardware)
{
    char list[SIM_DEVICES_MAX * 24], *at = list, *item;
    unsigned count = 0;

    if (strlen(text) >= sizeof(list))
        return -EINVAL;
    strcpy(list, text);
    while ((item = strsep(&at, ",")) != NULL) {
        if (count == SIM_DEVICES_MAX || read_bytes(item, &hardware->capacity[count]) < 0)
            return -EINVAL;
        count++;
    }
    if (count != 1 && count != hardware->devices)
        return -EINVAL;
    for (; count < hardware->devices; count++)
        hardware->capacity[count] = hardware->capacity[0];
    return 0;
}

/* Numbers of devices. */
static int read_mig(const char *text, struct sim_hardware *hardware)
{
    const char *at = text;

    for (;;) {
        char *end;
        unsigned long device = strtoul(at, &end, 10);

        if (*at < '0' || *at > '9' || device >= hardware->devices)
            return -EINVAL;
        hardware->mig |= UINT64_C(1) << device;
        if (*end == '\0')
            return 0;
        if (*end != ',')
            return -EINVAL;
        at = end + 1;
    }
}

static int read_fill(const char *text, enum sim_fill *ret)
{
    if (strcmp(text, "zero") == 0) {
        *ret = SIM_FILL_NONE;
        return 0;
    }
    for (unsigned i = 0; i < SIM_FILL_MAX; i++) {
        if (strcmp(text, fills[i]) == 0) {
            *ret = (enum sim_fill) i;
            return 0;
        }
    }
    return -EINVAL;
}

static int read_hint(const char *text, enum sim_hint *ret)
{
    for (unsigned i = 0; i < SIM_HINT_MAX; i++) {
        if (strcmp(text, hints[i]) == 0) {
            *ret = (enum sim_hint) i;
            return 0;
        }
    }
    return -EINVAL;
}

/* 0 or 1 for all devices, or one for each: `1,0`. A bit for each device. */
static int read_switches(const char *text, unsigned devices, uint64_t *ret)
{
    uint64_t bits = 0;
    unsigned count = 0;

    for (const char *at = text;; at += 2) {
        if ((*at != '0' && *at != '1') || (at[1] != '\0' && at[1] != ',') ||
            count == SIM_DEVICES_MAX)
            return -EINVAL;
        bits |= (uint64_t) (*at == '1') << count++;
        if (at[1] == '\0')
            break;
    }
    if (count != 1 && count != devices)
        return -EINVAL;
    *ret = count > 1 ? bits : bits != 0 ? UINT64_MAX : 0;
    return 0;
}

/* Garbage occupies a sixteenth of what it stands in: not for devices larger than this machine. */
static enum sim_fill default_fill(const struct sim_hardware *hardware)
{
    uint64_t total = 0;
    uint64_t host = (uint64_t) sysconf(_SC_PHYS_PAGES) * (uint64_t) sysconf(_SC_PAGESIZE);

    for (unsigned i = 0; i < hardware->devices; i++)
        total = add_saturate(total, hardware->capacity[i]);
    return total <= host ? SIM_FILL_GARBAGE : SIM_FILL_NONE;
}

static int read_hardware(struct sim_hardware *hardware, char error[SIM_TEXT_BYTES])
{
    const char *text;

#define READ(name, call)                                                                           \
    do {                                                                                           \
        text = getenv(name);                                                                       \
        if (text != NULL && (call) < 0)                                                            \
            return refuse(error, name, text);                                                      \
    } while (0)

    READ("GMB_SIM_DEVICES", read_devices(text, &hardware->devices));
    for (unsigned i = 0; i < SIM_DEVICES_MAX; i++)
        hardware->capacity[i] = i < hardware->devices ? DEFAULT_MEMORY : 0;
    READ("GMB_SIM_MEMORY", read_memory(text, hardware));
    READ("GMB_SIM_GRANULARITY", read_granularity(text, &hardware->granularity));
    READ("GMB_SIM_CONTEXT_OVERHEAD", read_bytes(text, &hardware->context_overhead));
    READ("GMB_SIM_FREE_DELAY", duration_parse(text, &hardware->free_delay_ns));
    READ("GMB_SIM_MIG", read_mig(text, hardware));
    READ("GMB_SIM_VMM", read_switches(text, hardware->devices, &hardware->vmm));
    READ("GMB_SIM_POSIX_FD", read_switches(text, hardware->devices, &hardware->posix_fd));
    hardware->fill = default_fill(hardware);
    READ("GMB_SIM_FILL", read_fill(text, &hardware->fill));
#undef READ
    return 0;
}

int sim_config_read(struct sim_config *ret, char error[SIM_TEXT_BYTES])
{
    struct sim_config config = {
        .hardware = {.devices = 1,
            .granularity = DEFAULT_GRANULARITY,
            .vmm = UINT64_MAX,
            .posix_fd = UINT64_MAX},
    };
    const char *dir = getenv("GMB_SIM_DIR"), *hint = getenv("GMB_SIM_HINT");
    int n, r;

    r = read_hardware(&config.hardware, error);
    if (r < 0)
        return r;
    if (hint != NULL && read_hint(hint, &config.hint) < 0)
        return refuse(error, "GMB_SIM_HINT", hint);
    config.dir_is_default = dir == NULL;
    if (dir != NULL && *dir == '\0')
        return refuse(error, "GMB_SIM_DIR", dir);
    if (dir != NULL)
        n = snprintf(config.dir, sizeof(config.dir), "%s", dir);
    else
        n = snprintf(
            config.dir, sizeof(config.dir), "/dev/shm/gmb-sim-%lu", (unsigned long) geteuid());
    if (n < 0 || (size_t) n >= sizeof(config.dir))
        return refuse(error, "GMB_SIM_DIR", dir != NULL ? dir : "");
    *ret = config;
    return 0;
}
