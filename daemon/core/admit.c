/*
 * What holds a candidate back decides what is done about it: its own MemoryMax, and what it has
 * lying ready in other sizes is given back; the device, and what lies ready there is; MemoryHigh or
 * the driver, and it sleeps. Nothing is taken from a lease.
 */
#include "daemon/core/admit.h"

#include "daemon/core/account.h"
#include "daemon/core/answer.h"
#include "daemon/core/gang.h"
#include "daemon/core/reclaim.h"
#include "daemon/core/request.h"
#include "daemon/core/supply.h"
#include "policies/throttle.h"

/* One candidate as the drain sees it. */
struct candidate {
    struct request *request;
    struct account *account;
    struct device *device;
    struct supply_plan plan;
    uint64_t growth;   /* of the tenant's use */
    uint64_t creation; /* from the device's free memory */
};

static struct candidate candidate_make(struct core *core, struct request *request)
{
    uint64_t chunk_bytes = request->lease->chunk_bytes;
    struct candidate c = {.request = request, .account = request->lease->account};

    c.device = c.account->device;
    c.plan = supply_plan_make(core, request);
    c.creation = c.plan.create * chunk_bytes;
    c.growth = c.creation + c.plan.clean * chunk_bytes;
    return c;
}

/* What must stay for the request to make sense: an arena may give other chunks back for it. */
static uint64_t candidate_held(const struct lease *lease)
{
    return lease->max > 0 ? 0 : lease->count * lease->chunk_bytes;
}

static struct admission_view candidate_view(const struct candidate *c, uint64_t reserved)
{
    const struct account *account = c->account;
    const struct device *device = c->device;

    return (struct admission_view){
        .requested = c->request->bytes,
        .held = candidate_held(c->request->lease),
        .recycled = c->request->bytes - c->growth,
        .ready = c->growth - c->creation,
        .used = account->used,
        .min = account->limits.min,
        .max = account->limits.max,
        .capacity = device->capacity,
        .free = device_free(device),
        .clean = device->bytes[CHUNK_CLEAN],
        .reserved = reserved,
        .others_unused_min = sub_saturate(device->unused_min, account_unused_min(account)),
        .others_min = sub_saturate(device->min_sum, account->limits.min),
    };
}

struct admission_decision admit_ask(struct core *core, struct request *request)
{
    struct candidate c = candidate_make(core, request);
    struct admission_view view = candidate_view(&c, 0);

    return admission_decide(&view);
}

static void candidate_hold(struct candidate *c, enum gmb_limit limit, uint64_t available_bytes)
{
    c->request->limit = limit;
    c->request->available_bytes = available_bytes;
}

/* Above MemoryHigh whoever may wait pauses once; the pause takes at most half of its wait. */
static bool candidate_throttle(struct core *core, struct candidate *c)
{
    struct request *request = c->request;
    uint64_t left_ns = sub_saturate(request->deadline.key, core->now_ns);
    uint64_t high = c->account->limits.high, delay_ns;

    if (request->immediate || request->throttled || c->growth == 0)
        return false;
    delay_ns = MIN(throttle_delay_ns(c->account->used, c->growth, high), left_ns / 2);
    if (delay_ns == 0)
        return false;
    request->throttled = true;
    request->not_before_ns = add_saturate(core->now_ns, delay_ns);
    heap_remove(&core->wakes, &request->wake);
    heap_push(&core->wakes, &request->wake, request->not_before_ns);
    candidate_hold(c, GMB_LIMIT_MEMORY_HIGH, sub_saturate(high, c->account->used));
    return true;
}

/* The driver said no a moment ago. */
static bool candidate_backed_off(const struct core *core, const struct candidate *c)
{
    return c->creation > 0 && core->now_ns < c->device->create_after_ns;
}

/* `reserved`: by those before it. */
static void candidate_admit(struct core *core, struct candidate *c, uint64_t reserved)
{
    struct request *request = c->request;
    int r;

    if (candidate_backed_off(core, c)) {
        candidate_hold(c, GMB_LIMIT_DRIVER, 0);
        if (request->immediate)
            request_refuse(core, request, GMB_STATUS_EXHAUSTED);
        return;
    }
    if (request->gang) {
        candidate_hold(c, GMB_LIMIT_NONE, 0);
        gang_fits(core, request, reserved);
        return;
    }
    if (candidate_throttle(core, c))
        return;
    r = supply_start(core, request, &c->plan);
    if (r == 0)
        return;
    candidate_hold(c, r == SLOTS_FULL ? GMB_LIMIT_CHUNKS : GMB_LIMIT_NONE, 0);
    request_refuse(core, request, r == SLOTS_FULL ? GMB_STATUS_EXHAUSTED : GMB_STATUS_INTERNAL);
}

/* Held back by its own MemoryMax: what the tenant has lying ready in other sizes is in the way. */
static uint64_t recover_own(struct core *core, struct candidate *c)
{
    struct account *account = c->account;
    uint64_t shortfall = c->growth - sub_saturate(account->limits.max, account->used);
    uint64_t returning = account_returning(account);
    uint64_t recycled = c->request->bytes - c->growth;

    if (returning < shortfall)
        reclaim_own(core, account, c->request->lease->chunk_bytes, shortfall - returning);
    returning = account_returning(account) + sub_saturate(account_idle(account), recycled);
    return sub_saturate(shortfall, returning);
}

/* Who may wait leaves what MemoryLow protects alone as long as arenas of others give something. */
static bool low_taken(const struct core *core, const struct request *request)
{
    return request->immediate || core->options.reclaim_ns == 0 || request->unheard;
}

/* Held back by the device: what lies ready there, or is on its way back, may do. */
static uint64_t recover_device(struct core *core, struct candidate *c, uint64_t reserved)
{
    struct device *device = c->device;
    uint64_t promised = sub_saturate(device->unused_min, account_unused_min(c->account));
    uint64_t present = device_free(device) + device->bytes[CHUNK_CLEAN];
    /* The first of those before it has some of what is reserved made already. */
    uint64_t claimed = sub_saturate(reserved, supply_ahead_ready(core, device));
    uint64_t lacking = sub_saturate(add_saturate(c->creation, claimed), device_free(device));
    uint64_t shortfall =
        MAX(lacking, sub_saturate(c->growth, sub_saturate(present, promised + reserved)));
    uint64_t returning = device->bytes[CHUNK_RELEASING] + device->bytes[CHUNK_RELEASED] +
                         device->nobody.bytes[CHUNK_CREATING];
    struct reclaim_want want = {
        .chunk_bytes = c->request->lease->chunk_bytes,
        .bytes = sub_saturate(shortfall, returning),
        .clean = lacking > 0,
        .low = low_taken(core, c->request),
    };

    return want.bytes > 0 ? reclaim_for(core, c->account, &want) : 0;
}

/* The first of those whom the device holds back: what there is for it is made ready meanwhile. */
static void candidate_prepare(const struct candidate *c)
{
    struct device *device = c->device;
    uint64_t unused_min = account_unused_min(c->account);
    uint64_t promised = sub_saturate(device->unused_min, unused_min);
    uint64_t present =
        device_free(device) + device->bytes[CHUNK_CLEAN] + device->nobody.bytes[CHUNK_CREATING];
    uint64_t shared = sub_saturate(present, promised), own = MIN(unused_min, present);
    uint64_t grantable = MAX(shared, own);

    if (device->ahead_chunk_bytes > 0)
        return;
    device->ahead_chunk_bytes = c->request->lease->chunk_bytes;
    device->ahead_bytes = MIN(c->growth, grantable);
}

/* What those behind it in its tenant's queue will need, as far as the tenant may have it: emptied
 * together with what the first one needs, it costs one plan, not one for each of them in turn. */
static uint64_t followers_bytes(const struct candidate *c, bool own)
{
    const struct account *account = c->account;
    uint64_t bytes = sub_saturate(account->waiting_bytes, c->request->bytes);
    uint64_t used = add_saturate(account->used, c->growth);

    return own ? bytes : MIN(bytes, sub_saturate(account->limits.max, used));
}

/* Nothing that lies ready will do: chunks of arenas have to be emptied. Asked for once in a while,
 * so that the shell has time to do it. */
static void candidate_reclaim(struct core *core, struct candidate *c, uint64_t beyond, bool own)
{
    struct request *request = c->request;
    uint64_t followers = followers_bytes(c, own);
    struct core_action *action;

    if (beyond == 0 || request->immediate || core->options.reclaim_ns == 0)
        return;
    if (own && list_linked(&c->account->over_link))
        return; /* first what is above the limit: that is wished for already */
    if (request->reclaim_ns <= core->now_ns && answer_room(core) > 0) {
        request->unheard = request->wished_bytes > 0 && beyond >= request->wished_bytes;
        request->wished_bytes = beyond;
        c->device->drain = c->device->drain || request->unheard;
        action = answer_add(core, CORE_ACTION_RECLAIM);
        action->reclaim.device = c->device->index;
        action->reclaim.tenant = c->account->tenant->index;
        action->reclaim.bytes = add_saturate(MIN(beyond, c->growth), followers);
        action->reclaim.wanted = add_saturate(c->growth, followers);
        action->reclaim.own = own;
        request->reclaim_ns = add_saturate(core->now_ns, core->options.reclaim_ns);
    }
    if (!heap_linked(&request->wake))
        heap_push(&core->wakes, &request->wake, request->reclaim_ns);
}

bool admit_stands(struct core *core, struct request *request)
{
    struct candidate c = candidate_make(core, request);
    struct admission_view view = candidate_view(&c, 0);
    struct admission_decision decision = admission_decide(&view);

    return decision.verdict != ADMISSION_REFUSE && decision.limit != GMB_LIMIT_MEMORY_MAX &&
           !device_closed(c.device) &&
           list_first(&c.account->waiting, struct request, queue_link) == request &&
           request->not_before_ns <= core->now_ns && !candidate_backed_off(core, &c);
}

bool admit_fits(struct core *core, struct request *request, uint64_t reserved)
{
    struct candidate c = candidate_make(core, request);
    struct admission_view view = candidate_view(&c, reserved);
    struct admission_decision decision = admission_decide(&view);

    candidate_hold(&c, decision.limit, decision.available_bytes);
    return decision.verdict == ADMISSION_ADMIT;
}

bool admit_pauses(struct core *core, struct request *request)
{
    struct candidate c = candidate_make(core, request);

    return candidate_throttle(core, &c);
}

/* What it takes beyond its tenant's own guarantee is kept from those behind it. */
static void candidate_reserve(const struct candidate *c, uint64_t *reserved)
{
    *reserved = add_saturate(*reserved, sub_saturate(c->growth, account_unused_min(c->account)));
}

bool admit_decide(struct core *core, struct request *request, uint64_t *reserved)
{
    struct candidate c = candidate_make(core, request);
    struct admission_view view = candidate_view(&c, *reserved);
    struct admission_decision decision;
    uint64_t beyond = 0;

    if (!c.account->tenant->configured) {
        candidate_hold(&c, GMB_LIMIT_NONE, 0);
        request_refuse(core, request, GMB_STATUS_DENIED);
        return true;
    }
    if (request->not_before_ns > core->now_ns)
        return false;
    if (!gang_stands(core, request)) {
        candidate_hold(&c, GMB_LIMIT_NONE, 0);
        return false;
    }
    decision = admission_decide(&view);
    if (decision.verdict == ADMISSION_ADMIT) {
        struct list *first = &request->queue_link;

        candidate_admit(core, &c, *reserved);
        if (c.account->waiting.next != first)
            return true;
        if (request->gang && request->limit == GMB_LIMIT_NONE)
            candidate_reserve(&c, reserved);
        return false;
    }
    candidate_hold(&c, decision.limit, decision.available_bytes);
    if (decision.verdict == ADMISSION_REFUSE) {
        request_refuse(core, request, GMB_STATUS_OVER_LIMIT);
        return true;
    }
    if (decision.limit == GMB_LIMIT_MEMORY_MAX) {
        beyond = recover_own(core, &c);
    } else {
        candidate_prepare(&c);
        beyond = recover_device(core, &c, *reserved);
        if (!request->immediate || beyond == 0)
            candidate_reserve(&c, reserved);
    }
    candidate_reclaim(core, &c, beyond, decision.limit == GMB_LIMIT_MEMORY_MAX);
    if (!request->immediate || beyond == 0)
        return false;
    request_refuse(core, request, GMB_STATUS_EXHAUSTED);
    return true;
}
