/*
 * Fault and latency tables. See inject.h.
 *
 * The tables are read once and never change; a rule's count is its only state. Short latencies
 * spin, since a sleeping thread is woken some 50 us late.
 */
#include "gpu/sim/inject.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "gpu/sim/duration.h"

#define RULES_MAX 64
#define CALL_BYTES 48
#define TEXT_MAX 4096
#define PATH_BYTES 128
#define SLEEP_LATE_NS (100 * NSEC_PER_USEC)

struct fault {
    char call[CALL_BYTES];
    int device;            /* -1: any */
    uint64_t first, last;  /* of the calls, counted from 1 */
    uint64_t every;        /* 0, or each call whose number is a multiple */
    uint64_t window_ns;    /* 0, or how long after the first call */
    char path[PATH_BYTES]; /* "", or as long as that is there */
    CUresult code;
    uint64_t count, start_ns;
};

struct latency {
    char call[CALL_BYTES];
    uint64_t ns;
};

/* Averages that were measured for 2 MiB chunks on an A100 (kvcached's benchmark). */
static const struct latency a100[] = {
    {"cuMemCreate", 193000},
    {"cuMemMap", 1500},
    {"cuMemSetAccess", 36000},
    {"cuMemUnmap", 26000},
    {"cuMemAddressReserve", 19000},
};

static struct fault faults[RULES_MAX];
static struct latency latencies[RULES_MAX];
static unsigned fault_count, latency_count;
static char load_error[SIM_TEXT_BYTES];
static int load_result;
static pthread_once_t loaded = PTHREAD_ONCE_INIT;
static pthread_mutex_t count_lock = PTHREAD_MUTEX_INITIALIZER;

static int read_number(const char **text, uint64_t *ret)
{
    char *end;

    if (!isdigit((unsigned char) **text))
        return -EINVAL;
    errno = 0;
    *ret = strtoull(*text, &end, 10);
    *text = end;
    return errno != 0 ? -EINVAL : 0;
}

/* N, N+, N-M, everyN, a duration, or an absolute path. */
static int read_when(const char *text, struct fault *fault)
{
    if (strncmp(text, "every", 5) == 0) {
        text += 5;
        return read_number(&text, &fault->every) < 0 || fault->every == 0 || *text != '\0' ? -EINVAL
                                                                                           : 0;
    }
    if (*text == '/' && strlen(text) < sizeof(fault->path)) {
        strcpy(fault->path, text);
        return 0;
    }
    if (strcmp(text, "0") != 0 && duration_parse(text, &fault->window_ns) == 0)
        return fault->window_ns > 0 ? 0 : -EINVAL;
    if (read_number(&text, &fault->first) < 0 || fault->first == 0)
        return -EINVAL;
    fault->last = fault->first;
    if (strcmp(text, "+") == 0) {
        fault->last = UINT64_MAX;
        return 0;
    }
    if (*text == '-') {
        text++;
        if (read_number(&text, &fault->last) < 0 || fault->last < fault->first)
            return -EINVAL;
    }
    return *text == '\0' ? 0 : -EINVAL;
}

/* Calls that know their device when they look here. */
static bool knows_device(const char *call)
{
    static const char *const calls[] = {"cuMemCreate", "nvmlDeviceGetMemoryInfo"};

    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        if (strcmp(call, calls[i]) == 0)
            return true;
    }
    return false;
}

/* CALL or CALL@DEVICE; changes `text`. */
static int read_call(char *text, struct fault *fault)
{
    char *device = strchr(text, '@');
    const char *at;
    uint64_t index = 0;

    fault->device = -1;
    if (device != NULL) {
        *device++ = '\0';
        at = device;
        if (!knows_device(text) || read_number(&at, &index) < 0 || *at != '\0' ||
            index >= SIM_DEVICES_MAX)
            return -EINVAL;
        fault->device = (int) index;
    }
    if (*text == '\0' || strlen(text) >= sizeof(fault->call))
        return -EINVAL;
    strcpy(fault->call, text);
    return 0;
}

/* CALL[@DEVICE]:WHEN=CODE; changes `item`. */
static int read_fault(char *item, struct fault *fault)
{
    char *when = strchr(item, ':'), *code = strchr(item, '=');
    const char *at;
    uint64_t value;

    if (when == NULL || code == NULL || code < when)
        return -EINVAL;
    *when++ = '\0';
    *code++ = '\0';
    at = code;
    if (read_call(item, fault) < 0 || read_number(&at, &value) < 0 || *at != '\0' || value == 0 ||
        value > CUDA_ERROR_UNKNOWN)
        return -EINVAL;
    fault->code = (CUresult) value;
    return read_when(when, fault);
}

static int read_latency(char *item)
{
    char *value = strchr(item, '=');
    struct latency *latency;

    if (strcmp(item, "a100") == 0) {
        if (latency_count + ARRAY_SIZE(a100) > RULES_MAX)
            return -EINVAL;
        memcpy(&latencies[latency_count], a100, sizeof(a100));
        latency_count += ARRAY_SIZE(a100);
        return 0;
    }
    if (value == NULL || latency_count == RULES_MAX)
        return -EINVAL;
    *value++ = '\0';
    latency = &latencies[latency_count];
    if (*item == '\0' || strlen(item) >= sizeof(latency->call) ||
        duration_parse(value, &latency->ns) < 0)
        return -EINVAL;
    strcpy(latency->call, item);
    latency_count++;
    return 0;
}

static int read_table(const char *name, bool is_fault)
{
    const char *text = getenv(name);
    char copy[TEXT_MAX], *at = copy, *item;

    if (text == NULL || *text == '\0')
        return 0;
    if (strlen(text) >= sizeof(copy))
        return -E2BIG;
    strcpy(copy, text);
    while ((item = strsep(&at, ",")) != NULL) {
        char shown[CALL_BYTES];
        int r;

        (void) snprintf(shown, sizeof(shown), "%s", item);
        if (is_fault)
            r = fault_count < RULES_MAX ? read_fault(item, &faults[fault_count++]) : -E2BIG;
        else
            r = read_latency(item);
        if (r < 0) {
            (void) snprintf(load_error, sizeof(load_error), "%s: `%s` makes no sense", name, shown);
            return r;
        }
    }
    return 0;
}

static void load(void)
{
    load_result = read_table("GMB_SIM_FAULTS", true);
    if (load_result == 0)
        load_result = read_table("GMB_SIM_LATENCY", false);
    if (load_result < 0)
        fault_count = latency_count = 0;
}

int inject_load(char error[SIM_TEXT_BYTES])
{
    pthread_once(&loaded, load);
    if (load_result < 0)
        memcpy(error, load_error, SIM_TEXT_BYTES);
    return load_result;
}

static void delay(uint64_t ns)
{
    uint64_t end = add_saturate(clock_now(&clock_monotonic), ns);

    if (ns > 2 * SLEEP_LATE_NS) {
        uint64_t early = ns - SLEEP_LATE_NS;
        struct timespec time = {
            .tv_sec = (time_t) (early / NSEC_PER_SEC), .tv_nsec = (long) (early % NSEC_PER_SEC)};

        (void) clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
    }
    while (clock_now(&clock_monotonic) < end) {
    }
}

/* Counts the call for one rule; true when it is the rule's turn. */
static bool fault_due(struct fault *fault)
{
    fault->count++;
    if (fault->path[0] != '\0')
        return access(fault->path, F_OK) == 0;
    if (fault->window_ns > 0) {
        uint64_t now = clock_now(&clock_monotonic);

        if (fault->count == 1)
            fault->start_ns = now;
        return now - fault->start_ns < fault->window_ns;
    }
    if (fault->every > 0)
        return fault->count % fault->every == 0;
    return fault->count >= fault->first && fault->count <= fault->last;
}

static CUresult fault_find(const char *call, int device)
{
    CUresult result = CUDA_SUCCESS;

    if (fault_count == 0)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&count_lock);
    for (unsigned i = 0; i < fault_count; i++) {
        if (faults[i].device == device && strcmp(faults[i].call, call) == 0 &&
            fault_due(&faults[i]) && result == CUDA_SUCCESS)
            result = faults[i].code;
    }
    pthread_mutex_unlock(&count_lock);
    return result;
}

CUresult inject(const char *call)
{
    pthread_once(&loaded, load);
    /* The last entry wins, so that one figure of a named table can be replaced. */
    for (unsigned i = latency_count; i-- > 0;) {
        if (strcmp(latencies[i].call, call) == 0) {
            delay(latencies[i].ns);
            break;
        }
    }
    return fault_find(call, -1);
}

CUresult inject_device(const char *call, unsigned device)
{
    pthread_once(&loaded, load);
    return fault_find(call, (int) device);
}
