/* Questions 8 and 9: what sharing costs, and what recycled memory holds. */
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/gpu/probe.h"

#define ROUNDS 101

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *) a, y = *(const uint64_t *) b;

    return x < y ? -1 : x > y;
}

static void times_say(struct probe *probe, const char *what, size_t bytes, uint64_t times[ROUNDS])
{
    qsort(times, ROUNDS, sizeof(times[0]), compare);
    probe_say(probe, "%s, %zu MiB: median %.1f us, p99 %.1f us", what, bytes >> 20,
        (double) times[ROUNDS / 2] / 1e3, (double) times[ROUNDS * 99 / 100] / 1e3);
}

enum step { STEP_CREATE, STEP_EXPORT, STEP_IMPORT, STEP_RELEASE, STEP_CLOSE, STEP_MAX };

static const char *const step_names[] = {
    [STEP_CREATE] = "create",
    [STEP_EXPORT] = "export",
    [STEP_IMPORT] = "import",
    [STEP_RELEASE] = "release of the import",
    [STEP_CLOSE] = "close of the fd that is not the last holder",
};
_Static_assert(ARRAY_SIZE(step_names) == STEP_MAX, "a name for each step");

static void steps_measure(struct probe *probe, size_t bytes)
{
    static uint64_t times[STEP_MAX][ROUNDS];
    CUmemGenericAllocationHandle handle, imported;

    for (size_t i = 0; i < ROUNDS; i++) {
        uint64_t at[STEP_MAX + 1];
        int fd = -1;

        at[STEP_CREATE] = clock_now(&clock_monotonic);
        handle = probe_chunk(probe, bytes);
        at[STEP_EXPORT] = clock_now(&clock_monotonic);
        probe_need(probe, "export", probe_export(probe, handle, &fd));
        at[STEP_IMPORT] = clock_now(&clock_monotonic);
        probe_need(probe, "import", probe_import(probe, fd, &imported));
        at[STEP_RELEASE] = clock_now(&clock_monotonic);
        probe_need(probe, "cuMemRelease", probe->cu.mem_release(imported));
        at[STEP_CLOSE] = clock_now(&clock_monotonic);
        (void) close(fd);
        at[STEP_MAX] = clock_now(&clock_monotonic);
        probe_need(probe, "cuMemRelease", probe->cu.mem_release(handle));
        for (size_t step = 0; step < STEP_MAX; step++)
            times[step][i] = at[step + 1] - at[step];
    }
    for (size_t step = 0; step < STEP_MAX; step++)
        times_say(probe, step_names[step], bytes, times[step]);
}

/* How long close(2) of the last holder takes, and until NVML shows the memory as free. */
static void last_close_measure(struct probe *probe, size_t bytes)
{
    CUmemGenericAllocationHandle handle = probe_chunk(probe, bytes);
    uint64_t held, start, closed, deadline;
    int fd = -1;

    probe_need(probe, "export", probe_export(probe, handle, &fd));
    probe_need(probe, "cuMemRelease", probe->cu.mem_release(handle));
    held = probe_free(probe);
    start = clock_now(&clock_monotonic);
    (void) close(fd);
    closed = clock_now(&clock_monotonic);
    deadline = closed + 5 * NSEC_PER_SEC;
    while (probe_free(probe) < held + bytes / 2 && clock_now(&clock_monotonic) < deadline) {
    }
    probe_say(probe, "last close, %zu MiB: %.1f us, then %.1f us until NVML shows it free%s",
        bytes >> 20, (double) (closed - start) / 1e3,
        (double) (clock_now(&clock_monotonic) - closed) / 1e3,
        clock_now(&clock_monotonic) >= deadline ? " (it never did)" : "");
}

void ask_latencies(struct probe *probe)
{
    probe_init(probe);
    steps_measure(probe, probe->granule);
    steps_measure(probe, 16 * probe->granule);
    last_close_measure(probe, probe->granule);
    last_close_measure(probe, 256 * probe->granule);
}

/* How many of the first 4 KiB of each granule are neither zero nor the old fill. */
void ask_zeroing(struct probe *probe)
{
    size_t bytes, zero = 0, old = 0, other = 0;
    CUmemGenericAllocationHandle handle;
    unsigned char page[4096];
    CUdeviceptr address;

    probe_init(probe);
    probe_context(probe);
    bytes = 64 * probe->granule;
    handle = probe_chunk(probe, bytes);
    address = probe_map(probe, handle, bytes);
    probe_need(probe, "cuMemSetAccess", probe_access(probe, address, bytes));
    probe_need(probe, "cuMemsetD8", probe->cu.memset_d8(address, 0x5a, bytes));
    probe_need(probe, "cuCtxSynchronize", probe->cu.ctx_synchronize());
    probe_need(probe, "cuMemUnmap", probe->cu.mem_unmap(address, bytes));
    probe_need(probe, "cuMemRelease", probe->cu.mem_release(handle));
    handle = probe_chunk(probe, bytes);
    probe_need(probe, "cuMemMap", probe->cu.mem_map(address, bytes, 0, handle, 0));
    probe_need(probe, "cuMemSetAccess", probe_access(probe, address, bytes));
    for (size_t at = 0; at < bytes; at += probe->granule) {
        probe_need(probe, "cuMemcpyDtoH", probe->cu.memcpy_dtoh(page, address + at, sizeof(page)));
        for (size_t i = 0; i < sizeof(page); i++) {
            zero += page[i] == 0;
            old += page[i] == 0x5a;
            other += page[i] != 0 && page[i] != 0x5a;
        }
    }
    probe_say(probe,
        "released with 0x5a and created anew: %zu bytes zero, %zu still 0x5a, %zu else", zero, old,
        other);
}
