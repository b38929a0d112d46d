/* See hosting.h. A turn: plans, copies out, recalls and revokes, copies in. */
#include "daemon/hosting.h"

#include <errno.h>
#include <event2/event.h>

#include "base/log.h"
#include "daemon/arena_forget.h"
#include "daemon/arena_message.h"
#include "daemon/broker.h"
#include "daemon/evict.h"
#include "daemon/recall.h"
#include "daemon/restore.h"
#include "daemon/segment_walk.h"
#include "daemon/tier_kept.h"

/* ------------------------------------------------------------------ turns */

/* A timer, not event_active(): libevent runs what was made active before it polls again, and a turn
 * that kicks itself would keep everybody else waiting until all is done. */
void hosting_kick(struct hosting *hosting)
{
    const struct timeval now = {0};

    /* Once: a timer that is added again when it is due and hasn't run yet goes to the end, and a
     * peer that kicks in each round of the loop would put the turn off for ever. */
    if (!hosting->kicked)
        hosting->kicked = event_add(hosting->turn, &now) == 0;
}

void hosting_at(struct hosting *hosting, uint64_t at_ns)
{
    hosting->due_ns = MIN(hosting->due_ns, at_ns);
}

static void timer_set(struct hosting *hosting)
{
    uint64_t wait_ns = sub_saturate(hosting->due_ns, clock_now(hosting->broker->clock));
    struct timeval wait = {
        .tv_sec = (time_t) (wait_ns / NSEC_PER_SEC),
        .tv_usec = (suseconds_t) (wait_ns % NSEC_PER_SEC / NSEC_PER_USEC),
    };

    if (hosting->due_ns == CLOCK_NEVER || hosting->kicked)
        return; /* nothing to look at, or it comes anyway */
    /* Rounded up: one that fires early would be set again and again. */
    if (++wait.tv_usec == 1000000) {
        wait.tv_usec = 0;
        wait.tv_sec++;
    }
    (void) event_add(hosting->turn, &wait);
}

static void held_resume(struct hosting *hosting)
{
    list_for_each_safe(arena, &hosting->arenas, struct arena, device_link)
    {
        if (arena->held_count > 0)
            arena_held_resume(arena);
    }
}

static void on_turn(evutil_socket_t fd, short what, void *data)
{
    struct hosting *hosting = data;

    (void) fd;
    (void) what;
    hosting->due_ns = CLOCK_NEVER;
    hosting->kicked = false;
    disk_turn(hosting);
    held_resume(hosting);
    arena_forget_turn(hosting);
    reclaim_turn(hosting);
    evict_turn(hosting);
    recall_turn(hosting);
    revoke_turn(hosting);
    restore_turn(hosting);
    segment_walk_turn(hosting);
    timer_set(hosting);
    broker_settle(hosting->broker);
}

/* ------------------------------------------------------------------ the mover's side */

static int chunk_export(void *data, uint32_t number, uint32_t generation, int *ret_fd)
{
    const struct hosting *hosting = data;
    struct gpu_shareable shareable;
    struct gpu_error error;
    int r = executor_export(hosting->broker->executor, number, generation, &shareable, &error);

    if (r == 0)
        *ret_fd = shareable.fd;
    return r;
}

static void chunk_forgotten(void *data, uint32_t number, uint32_t generation)
{
    struct hosting *hosting = data;

    executor_release(hosting->broker->executor, hosting->device, number, generation);
    if (--hosting->forgetting > 0)
        return;
    for (; hosting->looks > 0; hosting->looks--)
        executor_observe(hosting->broker->executor, hosting->device);
}

void hosting_mover_spare(struct hosting *hosting)
{
    if (hosting->arena_count == 0 && hosting->segment_count == 0 && hosting->mover != NULL)
        mover_keep(hosting->mover, false);
}

/* More than a quarter of a device is no mover's context, whatever one says. */
static void memory_wanted(void *data, uint64_t bytes)
{
    struct hosting *hosting = data;
    struct core_event event = {.type = CORE_EVENT_DEVICE_HOLD};
    struct core_device_view view = {0};

    (void) core_device_get(hosting->broker->core, hosting->device, &view);
    event.device_hold.device = hosting->device;
    event.device_hold.bytes = MIN(bytes, view.total / 4);
    if (bytes > 0)
        log_info("device %u: %llu MiB are kept for a mover that isn't there", hosting->device,
            (unsigned long long) (event.device_hold.bytes >> 20));
    reclaim_hold(hosting, bytes > 0);
    broker_step(hosting->broker, &event);
    broker_settle(hosting->broker);
}

void hosting_release(struct hosting *hosting, uint32_t chunk, uint32_t generation)
{
    if (hosting->mover != NULL && mover_forget(hosting->mover, chunk, generation))
        hosting->forgetting++;
    else
        executor_release(hosting->broker->executor, hosting->device, chunk, generation);
}

void hosting_observe(struct hosting *hosting)
{
    if (hosting->forgetting > 0)
        hosting->looks++;
    else
        executor_observe(hosting->broker->executor, hosting->device);
}

static void job_done(void *data, const struct mover_result *result)
{
    const struct job_owner *owner = result->job.owner;

    owner->done(data, result);
}

static int mover_make(struct hosting *hosting)
{
    struct broker *broker = hosting->broker;
    struct mover_options options = mover_options_default;
    const struct mover_handler handler = {
        .data = hosting,
        .chunk_export = chunk_export,
        .job_done = job_done,
        .memory_wanted = memory_wanted,
        .chunk_forgotten = chunk_forgotten,
    };

    options.driver = gpu_driver_name(broker->gpu->driver);
    options.idle_ns = broker->config->mover_idle_ns;
    return mover_control_new(broker->base, broker->clock, hosting->tier,
        broker->config->devices[hosting->device].uuid.bytes, &options, &handler, &hosting->mover);
}

/* ------------------------------------------------------------------ life */

int hosting_new(struct broker *broker, uint32_t device, bool movable, struct hosting **ret)
{
    struct hosting *hosting = calloc(1, sizeof(*hosting));
    int r;

    if (hosting == NULL)
        return -ENOMEM;
    hosting->broker = broker;
    hosting->device = device;
    hosting->due_ns = CLOCK_NEVER;
    list_init(&hosting->arenas);
    list_init(&hosting->closing);
    list_init(&hosting->unsent);
    list_init(&hosting->recalled);
    list_init(&hosting->wanting);
    list_init(&hosting->losing);
    list_init(&hosting->departed);
    revoke_init(&hosting->revoker);
    hosting->turn = event_new(broker->base, -1, 0, on_turn, hosting);
    r = reclaim_init(&hosting->reclaim);
    if (hosting->turn == NULL)
        r = -ENOMEM;
    if (r == 0 && movable)
        r = tier_kept_begin(hosting);
    if (r < 0) {
        (void) hosting_free(hosting);
        return r;
    }
    *ret = hosting;
    return 0;
}

static int begin(struct hosting *hosting)
{
    int r = tier_kept_end(hosting);

    if (r == 0 && hosting->tier != NULL)
        r = mover_make(hosting);
    if (r == 0 && hosting->mover != NULL && hosting->arena_count + hosting->segment_count > 0)
        mover_keep(hosting->mover, true);
    return r;
}

int hostings_begin(struct broker *broker)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < broker->device_count; i++)
        r = begin(broker->hosting[i]);
    return r;
}

void hosting_mover_end(struct hosting *hosting)
{
    if (hosting == NULL)
        return;
    list_for_each_safe(arena, &hosting->arenas, struct arena, device_link) arena_drop(arena);
    /* Ends every job: arenas that waited for one are freed with it. */
    hosting->mover = mover_control_free(hosting->mover);
}

struct hosting *hosting_free(struct hosting *hosting)
{
    if (hosting == NULL)
        return NULL;
    hosting_mover_end(hosting);
    (void) tier_free(hosting->tier);
    disk_clear(&hosting->disk);
    reclaim_clear(hosting);
    revoke_clear(&hosting->revoker);
    if (hosting->turn != NULL)
        event_free(hosting->turn);
    free(hosting);
    return NULL;
}

/* The tier's format is the tenant's when the arena is made: slots have one size. */
static uint64_t slot_format(const struct hosting *hosting, uint32_t tenant_index, uint32_t element,
    uint64_t page_bytes, uint32_t *ret_format)
{
    struct core_tenant_config tenant;
    uint64_t slot_bytes;

    *ret_format = MOVER_RAW;
    if (core_tenant_config_get(hosting->broker->core, tenant_index, &tenant))
        *ret_format = tenant.tier_format;
    slot_bytes = mover_slot_bytes(
        (enum mover_format) * ret_format, (enum mover_element) element, page_bytes);
    if (slot_bytes != 0)
        return slot_bytes;
    *ret_format = MOVER_RAW;
    return page_bytes;
}

bool hosting_page_fits(
    const struct hosting *hosting, const char *tenant, uint32_t element, uint64_t page_bytes)
{
    uint32_t index, format;

    if (hosting->tier == NULL || !core_tenant_find(hosting->broker->core, tenant, &index))
        return true;
    return slot_format(hosting, index, element, page_bytes, &format) <= TIER_SLAB_BYTES;
}

uint64_t hosting_memory_bytes(const struct hosting *hosting)
{
    const struct tier *tier = hosting->tier;

    return tier != NULL ? tier_bytes(tier) - tier_disk_bytes(tier) : 0;
}

int hosting_space_new(struct hosting *hosting, struct arena *arena)
{
    uint32_t format;
    int r;

    if (hosting->tier == NULL)
        return 0;
    arena->slot_bytes = slot_format(
        hosting, arena->tenant, arena->element, arena->table.layout.page_bytes, &format);
    arena->format = format;
    r = tier_space_new(
        hosting->tier, &hosting->accounts[arena->tenant], arena->slot_bytes, &arena->space);
    /* The format was changed since the request was looked at: its pages stay on the device. */
    return r == -EFBIG ? 0 : r;
}

bool hosting_busy(const struct hosting *hosting)
{
    struct mover_stats stats = {0};

    if (hosting->mover != NULL)
        mover_stats_get(hosting->mover, &stats);
    return stats.queued + stats.in_flight > 0 || !list_empty(&hosting->closing) ||
           !list_empty(&hosting->unsent);
}

void hosting_configure(struct hosting *hosting)
{
    for (uint32_t i = 0; i < LIMIT_TENANTS; i++) {
        struct core_tenant_config tenant;

        /* Of one that is no longer configured, what lies there stays until it is fetched. */
        hosting->accounts[i].max_bytes = 0;
        if (core_tenant_config_get(hosting->broker->core, i, &tenant))
            hosting->accounts[i].max_bytes = tenant.memory[hosting->device].host_max;
    }
}
