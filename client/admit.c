/* Admission before anything is taken: a few loads of shared memory, and a judgement. */
#include "client/arena.h"
#include "client/status.h"

/* Bytes of whole chunks for the pages beyond those that are free; UINT64_MAX: too many. */
static uint64_t bytes_lacking(const struct gmb_arena *arena, uint64_t pages)
{
    uint32_t per_chunk = arena->pool.table.layout.pages_per_chunk;
    uint64_t lacking = sub_saturate(pages, arena_pool_free(&arena->pool)), bytes;

    if (__builtin_mul_overflow(lacking / per_chunk + (lacking % per_chunk != 0),
            arena->pool.table.layout.chunk_bytes, &bytes))
        return UINT64_MAX;
    return bytes;
}

static bool fits_ever(
    const struct gmb_arena *arena, const struct gmb_pressure *pressure, uint64_t pages)
{
    uint64_t bytes, most = MIN(pressure->reachable_bytes, pressure->max_bytes);

    return pages <= arena->pool.table.page_count &&
           !__builtin_mul_overflow(pages, arena->pool.table.layout.page_bytes, &bytes) &&
           bytes <= most;
}

static enum gmb_admission judge(const struct gmb_arena *arena, const struct gmb_pressure *pressure,
    uint64_t pages, uint32_t priority)
{
    uint64_t free_bytes, total_bytes, lacking;

    lacking = bytes_lacking(arena, pages);
    if (!fits_ever(arena, pressure, pages) || (priority < pressure->reject_below && lacking > 0))
        return GMB_ADMIT_REJECT;
    if ((pressure->flags & GMB_PRESSURE_PAUSE_NEW) != 0)
        return GMB_ADMIT_WAIT;
    status_memory(pressure, arena->lease.device->info.capacity_bytes, &free_bytes, &total_bytes);
    return lacking <= free_bytes ? GMB_ADMIT_NOW : GMB_ADMIT_WAIT;
}

_public_ int gmb_admit(gmb_arena *arena, uint64_t pages, uint32_t priority, uint64_t *ret_wait_ns)
{
    const struct gmb_session *session = arena->lease.session;
    struct outcome outcome = OUTCOME_OK;
    struct gmb_pressure pressure;
    enum gmb_admission admission;

    if (status_pressure_read(
            session, (unsigned) (arena->lease.device - session->devices), &pressure, &outcome) < 0)
        return outcome_publish(&outcome);
    admission = judge(arena, &pressure, pages, priority);
    if (ret_wait_ns != NULL)
        *ret_wait_ns = admission == GMB_ADMIT_WAIT ? pressure.wait_estimate_ns : 0;
    return (int) admission;
}
