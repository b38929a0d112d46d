/*
 * A step costs the same with one tenant and with a thousand: it looks at the accounts whose charge,
 * limits or stall it changed. Whether the device's common part changed is seen by comparing a few
 * numbers; then a sweep begins, at most one each SWEEP_NS, that looks at SWEEP_TENANTS in each step
 * until it is through. What needs only time to pass stands in two heaps.
 */
#include "daemon/core/pressure.h"

#include "daemon/core/account.h"
#include "daemon/core/answer.h"

/* How long a tenant's level may be behind what others did on the device. */
#define SWEEP_NS (10 * NSEC_PER_MSEC)
#define SWEEP_TENANTS 256
/* Timers that are served in one step. */
#define TIMERS 256
/* What one account may yield. */
#define ACTIONS_EACH 2

/* ------------------------------------------------------------------ figures */

static bool grants_nothing(const struct account *account)
{
    return device_closed(account->device) || !account->tenant->configured;
}

/* What waits on the device and goes before requests of this tenant. */
static uint64_t reserved_before(const struct account *account)
{
    const struct device *device = account->device;

    if (account->waiting_count > 0 || account->tenant->priority > device->reserved_priority)
        return 0;
    return device->reserved;
}

/* What is on its way back counts as free: a request waits for it, some ms, and asks nobody. Counted
 * as used, every return of what lay ready would look like growth. */
static uint64_t device_ready(const struct device *device)
{
    return device_free(device) + device->bytes[CHUNK_CLEAN] + device->spare +
           device->bytes[CHUNK_RELEASING] + device->bytes[CHUNK_RELEASED];
}

struct pressure_view pressure_account_view(const struct account *account)
{
    const struct device *device = account->device;

    uint64_t used = account->used - account_returning(account);

    if (grants_nothing(account))
        return (struct pressure_view){.used = used};
    return (struct pressure_view){
        .used = used,
        .cached = account->bytes[CHUNK_CACHED],
        .min = account->limits.min,
        .max = account->limits.max,
        .ready = device_ready(device) - account_spare(account),
        .others_unused_min = sub_saturate(device->unused_min, account_unused_min(account)),
        .reserved = reserved_before(account),
    };
}

struct pressure_figures pressure_account_figures(const struct account *account)
{
    struct pressure_view view = pressure_account_view(account);

    return (struct pressure_figures){
        .share = pressure_share(view.used - account->bytes[CHUNK_CACHED], pressure_headroom(&view)),
        .stall = stall_average(&account->stall, STALL_SOME, STALL_AVG10),
        .above_high = view.used > account->limits.high,
    };
}

uint64_t pressure_device_used(const struct device *device)
{
    return device->capacity - device_free(device) - device->bytes[CHUNK_CLEAN] -
           device->bytes[CHUNK_CACHED] - device->bytes[CHUNK_RELEASING] -
           device->bytes[CHUNK_RELEASED];
}

static struct common common_of(const struct device *device)
{
    return (struct common){
        .ready = device_ready(device),
        .unused_min = device->unused_min,
        .reserved = device->reserved,
        .reserved_priority = device->reserved_priority,
        .level = device->pressure.level,
        .draining = device_closed(device),
    };
}

static bool common_equal(const struct common *a, const struct common *b)
{
    return a->ready == b->ready && a->unused_min == b->unused_min && a->reserved == b->reserved &&
           a->reserved_priority == b->reserved_priority && a->level == b->level &&
           a->draining == b->draining;
}

/* ------------------------------------------------------------------ the ladder */

static enum pressure_level tenant_level(const struct tenant *tenant)
{
    unsigned level = PRESSURE_NONE;

    for (uint32_t i = 0; i < tenant->account_count; i++)
        level = MAX(level, (unsigned) tenant->accounts[i].pressure.level);
    return (enum pressure_level) level;
}

static bool rung_equal(const struct ladder_rung *a, const struct ladder_rung *b)
{
    return a->present == b->present && a->batch_factor == b->batch_factor &&
           a->prefix_share == b->prefix_share && a->format == b->format &&
           a->context_tokens == b->context_tokens && a->reject_below == b->reject_below;
}

static uint64_t tenant_used(const struct tenant *tenant)
{
    uint64_t used = 0;

    for (uint32_t i = 0; i < tenant->account_count; i++)
        used = add_saturate(used, tenant->accounts[i].used);
    return used;
}

static void timer_set(struct heap *heap, struct heap_node *node, uint64_t due_ns)
{
    if (heap_linked(node) && node->key == due_ns)
        return;
    heap_remove(heap, node);
    if (due_ns != CLOCK_NEVER)
        heap_push(heap, node, due_ns);
}

/* To the rung of the tenant's level; other steps are a new advice. There must be room. */
static void ladder_look(struct core *core, struct tenant *tenant)
{
    uint64_t dwell_ns = core->options.pressure.degrade_dwell_ns;
    struct ladder_rung steps;

    if (tenant->clients == 0)
        tenant->rung = (struct ladder_state){0};
    else
        (void) ladder_update(&tenant->rung, tenant_level(tenant), dwell_ns, core->now_ns);
    timer_set(&core->ladders, &tenant->ladder_due, ladder_due(&tenant->rung, dwell_ns));
    steps = ladder_merge(&tenant->ladder, (enum pressure_level) tenant->rung.rung);
    if (rung_equal(&steps, &tenant->asked))
        return;
    tenant->asked = steps;
    tenant->advice++;
    tenant->advice_ns = core->now_ns;
    tenant->advice_used = tenant_used(tenant);
    answer_add(core, CORE_ACTION_ADVICE)->advice.tenant = tenant->index;
}

void pressure_ladder_changed(struct core *core, struct tenant *tenant)
{
    timer_set(&core->ladders, &tenant->ladder_due, core->now_ns);
}

/* ------------------------------------------------------------------ one account */

static bool shows_anew(struct core *core, const struct account *account, bool changed)
{
    return changed || account->shown_device_level != account->device->pressure.level ||
           core->now_ns - account->shown_ns >= CORE_PRESSURE_INTERVAL_NS;
}

/* Tells the shell now, or says when. */
static uint64_t account_show(struct core *core, struct account *account, bool changed)
{
    struct core_action *action;

    if (!shows_anew(core, account, changed))
        return account->shown_ns + CORE_PRESSURE_INTERVAL_NS;
    action = answer_add(core, CORE_ACTION_PRESSURE);
    action->pressure.device = account->device->index;
    action->pressure.tenant = account->tenant->index;
    action->pressure.level =
        changed || account->shown_device_level != account->device->pressure.level;
    account->shown_device_level = account->device->pressure.level;
    account->shown_ns = core->now_ns;
    return CLOCK_NEVER;
}

/* None of its clients is there to hear of it; who watches tenants is told that the level ends. */
static void account_quiet(struct core *core, struct account *account)
{
    if (account->pressure.level != PRESSURE_NONE) {
        struct core_action *action = answer_add(core, CORE_ACTION_PRESSURE);

        action->pressure.device = account->device->index;
        action->pressure.tenant = account->tenant->index;
        action->pressure.level = true;
    }
    account->pressure = (struct pressure_state){0};
    account->shown_device_level = PRESSURE_NONE;
    timer_set(&core->pressures, &account->due, CLOCK_NEVER);
}

/* Brings the account up to date. False when there is no room for what it may yield. */
static bool account_look(struct core *core, struct account *account)
{
    const struct pressure_thresholds *levels = &core->options.pressure.levels;
    struct pressure_figures figures;
    uint64_t due_ns;
    bool changed;

    if (answer_room(core) < ACTIONS_EACH)
        return false;
    stall_advance(&account->stall, core->now_ns);
    if (account->tenant->clients == 0) {
        account_quiet(core, account);
        return true;
    }
    figures = pressure_account_figures(account);
    changed = pressure_update(&account->pressure, levels, &figures, core->now_ns);
    if (changed)
        ladder_look(core, account->tenant);
    due_ns = account_show(core, account, changed);
    due_ns = MIN(due_ns, pressure_due(&account->pressure, levels));
    due_ns = MIN(due_ns, stall_due(&account->stall));
    timer_set(&core->pressures, &account->due, due_ns);
    return true;
}

void pressure_clients_changed(struct core *core, struct tenant *tenant)
{
    for (uint32_t i = 0; i < tenant->account_count; i++) {
        struct account *account = &tenant->accounts[i];

        account->shown_ns = 0;
        account_touch(account);
    }
    pressure_ladder_changed(core, tenant);
}

/* ------------------------------------------------------------------ a device */

static void device_level(struct core *core, struct device *device)
{
    uint64_t used = pressure_device_used(device);
    struct pressure_figures figures = {.share = pressure_share(used, device->capacity - used)};

    (void) pressure_update(
        &device->pressure, &core->options.pressure.levels, &figures, core->now_ns);
}

static void touched_look(struct core *core, struct device *device)
{
    while (!list_empty(&device->touched)) {
        struct account *account = list_first(&device->touched, struct account, touched_link);

        if (!account_look(core, account)) {
            core->more = true;
            return;
        }
        list_remove(&account->touched_link);
    }
}

static uint64_t sweep_due(const struct device *device)
{
    return device->sweep.wanted ? add_saturate(device->sweep.began_ns, SWEEP_NS) : CLOCK_NEVER;
}

/* Begins one when it is time: at once for another level, which all are told. */
static void sweep_begin(struct core *core, struct device *device)
{
    struct sweep *sweep = &device->sweep;
    struct common common = common_of(device);

    sweep->wanted = sweep->wanted || !common_equal(&common, &sweep->seen);
    if (!sweep->wanted || sweep->running)
        return;
    if (sweep_due(device) > core->now_ns && common.level == sweep->seen.level)
        return;
    *sweep = (struct sweep){.seen = common, .began_ns = core->now_ns, .running = true};
}

static void sweep_go_on(struct core *core, struct device *device)
{
    struct sweep *sweep = &device->sweep;

    for (unsigned i = 0; sweep->running && i < SWEEP_TENANTS; i++) {
        struct tenant *tenant;

        if (sweep->next >= core->tenant_high) {
            sweep->running = false;
            return;
        }
        tenant = core->tenants[sweep->next];
        if (tenant && tenant->clients > 0 && !account_look(core, &tenant->accounts[device->index]))
            break;
        sweep->next++;
    }
    core->more = core->more || sweep->running;
}

/* ------------------------------------------------------------------ time */

static void timers_run(struct core *core)
{
    struct heap_node *node;

    for (unsigned i = 0; i < TIMERS; i++) {
        node = heap_first(&core->pressures);
        if (!node || node->key > core->now_ns)
            return;
        if (!account_look(core, container_of(node, struct account, due)))
            break;
    }
    core->more = true;
}

static void ladders_run(struct core *core)
{
    struct heap_node *node;

    for (unsigned i = 0; i < TIMERS; i++) {
        node = heap_first(&core->ladders);
        if (!node || node->key > core->now_ns)
            return;
        if (answer_room(core) == 0)
            break;
        ladder_look(core, container_of(node, struct tenant, ladder_due));
    }
    core->more = true;
}

void pressure_work(struct core *core)
{
    for (uint32_t i = 0; i < core->device_count; i++) {
        struct device *device = core->devices[i];

        device_level(core, device);
        touched_look(core, device);
        sweep_begin(core, device);
        sweep_go_on(core, device);
    }
    timers_run(core);
    ladders_run(core);
}

uint64_t pressure_next(const struct core *core)
{
    const struct heap_node *account = heap_first(&core->pressures);
    const struct heap_node *tenant = heap_first(&core->ladders);
    uint64_t due_ns = CLOCK_NEVER;

    if (account)
        due_ns = account->key;
    if (tenant)
        due_ns = MIN(due_ns, tenant->key);
    for (uint32_t i = 0; i < core->device_count; i++) {
        const struct device *device = core->devices[i];

        due_ns = MIN(due_ns, pressure_due(&device->pressure, &core->options.pressure.levels));
        due_ns = MIN(due_ns, sweep_due(device));
    }
    return due_ns;
}

bool pressure_pending(const struct account *account)
{
    return list_linked(&account->touched_link) || account->device->sweep.wanted ||
           account->device->sweep.running;
}

/* ------------------------------------------------------------------ life */

void pressure_configure(struct core *core, const struct core_pressure_options *options)
{
    core->options.pressure = *options;
    for (uint32_t i = 0; i < core->device_count; i++)
        core->devices[i]->sweep = (struct sweep){.wanted = true};
}

int pressure_reserve(struct core *core)
{
    size_t tenants = core->tenant_count + 1;
    int r = heap_reserve(&core->pressures, tenants * core->device_count);

    return r < 0 ? r : heap_reserve(&core->ladders, tenants);
}

void pressure_forget(struct core *core, struct tenant *tenant)
{
    for (uint32_t i = 0; i < tenant->account_count; i++)
        heap_remove(&core->pressures, &tenant->accounts[i].due);
    heap_remove(&core->ladders, &tenant->ladder_due);
}
