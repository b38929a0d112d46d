/* All work on a device is done at the end of each step, whatever the event was: one place, one
 * order. Each part has nothing to do most of the time and finds that out at once. */
#include "daemon/core/device.h"

#include "daemon/core/account.h"
#include "daemon/core/answer.h"
#include "daemon/core/change.h"
#include "daemon/core/chunk.h"
#include "daemon/core/client.h"
#include "daemon/core/reclaim.h"
#include "daemon/core/supply.h"
#include "daemon/core/verify.h"

static struct device *device_new(struct core *core, const struct core_event *event)
{
    struct device *device = calloc(1, sizeof(*device));

    if (!device)
        return NULL;
    device->core = core;
    device->index = core->device_count;
    device->total = event->device_add.total_bytes;
    device->reserve = event->device_add.reserve_bytes;
    device->granularity = event->device_add.granularity_bytes;
    device->whole = event->device_add.whole;
    device->capacity = device->total - device->reserve;
    device->observe_ns = core->now_ns;
    device->expire_ns = CLOCK_NEVER;
    device->age_ns = CLOCK_NEVER;
    account_init(&device->nobody, NULL, device);
    list_init(&device->idle_accounts);
    list_init(&device->releasing_accounts);
    list_init(&device->waiting_accounts);
    list_init(&device->suspect_accounts);
    list_init(&device->over_accounts);
    list_init(&device->supply);
    list_init(&device->touched);
    list_init(&device->verify.chunks);
    return device;
}

struct device *device_free_object(struct device *device)
{
    free(device);
    return NULL;
}

void device_add_event(struct core *core, const struct core_event *event)
{
    struct device *device;

    if (core->device_count >= LIMIT_DEVICES || core->tenant_count > 0) {
        answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
            "at most %d devices, and all before the first tenant", LIMIT_DEVICES);
        return;
    }
    if (event->device_add.granularity_bytes == 0 ||
        event->device_add.granularity_bytes > LIMIT_CHUNK_BYTES ||
        event->device_add.total_bytes > INT64_MAX ||
        event->device_add.reserve_bytes > event->device_add.total_bytes) {
        answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
            "device %u: the reserve is larger than the device, or a size makes no sense",
            core->device_count);
        return;
    }
    device = device_new(core, event);
    if (!device) {
        answer_refuse(core, event, GMB_STATUS_INTERNAL, GMB_LIMIT_NONE,
            "no host memory in the broker for another device");
        return;
    }
    core->devices[core->device_count++] = device;
    client_slots_init(core);
    answer_add(core, CORE_ACTION_DEVICE_ADDED)->device.device = device->index;
    core->actions->items[core->actions->count - 1].cookie = event->cookie;
}

void device_drain_event(struct core *core, const struct core_event *event)
{
    struct device *device;

    if (event->device_drain.device >= core->device_count)
        return;
    device = core->devices[event->device_drain.device];
    device->draining = !event->device_drain.undo;
    change_account(&device->nobody);
    device->drain = true;
    device->expire_ns = core->now_ns; /* what lies ready has another time to go */
}

/* What it has can't be used nor given to anybody: whether it comes back is not asked any more. */
void device_fail_event(struct core *core, const struct core_event *event)
{
    struct device *device;

    if (event->device_fail.device >= core->device_count)
        return;
    device = core->devices[event->device_fail.device];
    device->failed = true;
    device->drain = true;
    device->expire_ns = core->now_ns;
    suspect_credit(device, device->suspects);
}

void device_hold_event(struct core *core, const struct core_event *event)
{
    struct device *device;

    if (event->device_hold.device >= core->device_count)
        return;
    device = core->devices[event->device_hold.device];
    device->hold_wanted = MIN(event->device_hold.bytes, device->capacity);
    device->hold_looks = device->looks;
    /* The same look that sees that the process has gone, or that it has its memory, changes what is
     * kept back: never both at once, nor neither. */
    device->observe_ns = MIN(device->observe_ns, core->now_ns);
    device->drain = true;
}

void device_stale_event(struct core *core, const struct core_event *event)
{
    struct device *device;

    if (event->device_stale.device >= core->device_count)
        return;
    device = core->devices[event->device_stale.device];
    for (uint32_t i = 0; i < core->chunks.high; i++) {
        struct chunk *chunk = slots_at(&core->chunks, i);

        if (!chunk || chunk->charge.account->device != device)
            continue;
        if (chunk->state == CHUNK_CLEAN || chunk->state == CHUNK_CACHED)
            chunk_discard(core, chunk);
        else if (chunk->state == CHUNK_LEASED && !chunk->forsaken)
            chunk_forsake(chunk);
    }
    for (uint32_t i = 0; i < core->chunks.high; i++) {
        struct chunk *chunk = slots_at(&core->chunks, i);

        if (chunk && chunk->charge.account->device == device && chunk->state == CHUNK_LEASED &&
            chunk->request)
            supply_again(core, chunk->request);
    }
    device->drain = true;
}

/* What is kept back goes before every request: what lies ready makes room for it. */
static void hold_reclaim(struct core *core, struct device *device)
{
    const struct reclaim_want want = {
        .bytes = device_hold_lacking(device), .clean = true, .low = true};

    if (want.bytes == 0)
        return;
    device->ahead_chunk_bytes = device->ahead_bytes = 0;
    (void) reclaim_for(core, &device->nobody, &want);
}

/* Tenants above a MemoryMax that was lowered give back from their arenas. */
static void overage_reclaim(struct core *core, struct device *device)
{
    uint64_t pause_ns = core->options.reclaim_ns;

    list_for_each_safe(account, &device->over_accounts, struct account, over_link)
    {
        uint64_t leased = account->bytes[CHUNK_LEASED], over;
        struct core_action *action;

        reclaim_overage(core, account);
        over = sub_saturate(
            sub_saturate(account->used, account_returning(account)), account->limits.max);
        if (over == 0 || !account->tenant->configured || pause_ns == 0 || device->failed ||
            leased + account->bytes[CHUNK_CREATING] == 0) {
            list_remove(&account->over_link);
            continue;
        }
        if (account->over_reclaim_ns > core->now_ns || answer_room(core) == 0)
            continue;
        account->over_reclaim_ns = add_saturate(core->now_ns, pause_ns);
        if (leased == 0)
            continue; /* what is being made will be */
        action = answer_add(core, CORE_ACTION_RECLAIM);
        action->reclaim.device = device->index;
        action->reclaim.tenant = account->tenant->index;
        action->reclaim.bytes = MIN(over, leased);
        action->reclaim.own = true;
    }
}

void device_wake(struct core *core, struct device *device)
{
    if (device->create_after_ns != 0 && device->create_after_ns <= core->now_ns) {
        device->create_after_ns = 0;
        device->drain = true;
    }
    if (device->expire_ns <= core->now_ns)
        reclaim_expired(core, device);
    if (device->suspects > 0)
        device->age_ns = suspect_age(device, core->now_ns, core->options.orphan_grace_ns);
    hold_reclaim(core, device);
    overage_reclaim(core, device);
}

void device_work(struct core *core, struct device *device)
{
    supply_work(core, device);
    verify_work(core, device);
    supply_prefetch(core, device);
}

uint64_t device_due(const struct device *device)
{
    uint64_t due_ns = MIN(verify_due(device), device->expire_ns);

    if (device->suspects > 0)
        due_ns = MIN(due_ns, device->age_ns);
    list_for_each(account, &device->over_accounts, struct account, over_link) due_ns =
        MIN(due_ns, account->over_reclaim_ns);
    if (device->create_after_ns != 0)
        due_ns = MIN(due_ns, device->create_after_ns);
    return due_ns;
}
