/*
 * Each tenant has a queue of its own on each device; only its first request is a candidate, and a
 * tenant's candidates are ranked by policies/fairness. A candidate that its own limits hold back is
 * stepped over. One that the device holds back reserves what it asks for, so that those behind it
 * get only what it can't use or what lies within their own unused MemoryMin: it is never starved by
 * smaller requests.
 */
#include "daemon/core/queue.h"

#include "daemon/core/account.h"
#include "daemon/core/answer.h"
#include "daemon/core/reclaim.h"
#include "daemon/core/request.h"
#include "daemon/core/states.h"
#include "daemon/core/supply.h"
#include "policies/admission.h"
#include "policies/fairness.h"
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

static struct admission_view candidate_view(const struct candidate *c, uint64_t reserved)
{
    const struct account *account = c->account;
    const struct device *device = c->device;

    return (struct admission_view){
        .requested = c->request->bytes,
        .held = c->request->lease->count * c->request->lease->chunk_bytes,
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

static void queue_count(struct core *core, struct account *account, int by)
{
    account->waiting_count += (uint32_t) by;
    account->device->waiting_count += (uint32_t) by;
    account->tenant->waiting += (uint32_t) by;
    core->waiting += (uint32_t) by;
}

/* `where`: the element of account->waiting that it comes behind. */
static void queue_insert(struct core *core, struct request *request, struct list *where)
{
    struct account *account = request->lease->account;

    list_insert_after(where, &request->queue_link);
    if (!list_linked(&account->waiting_link))
        list_append(&account->device->waiting_accounts, &account->waiting_link);
    queue_count(core, account, 1);
    account->device->drain = true;
}

void queue_enter(struct core *core, struct request *request)
{
    struct account *account = request->lease->account;
    struct candidate c = candidate_make(core, request);
    struct admission_view view = candidate_view(&c, 0);
    struct admission_decision decision = admission_decide(&view);
    struct request *first = list_first(&account->waiting, struct request, queue_link);

    request->limit = decision.limit;
    request->available_bytes = decision.available_bytes;
    if (decision.verdict == ADMISSION_REFUSE) {
        request_refuse(core, request, GMB_STATUS_OVER_LIMIT);
        return;
    }
    if (first && request->immediate && !first->immediate) {
        request->limit = first->limit;
        request->available_bytes = 0;
        request_refuse(core, request, GMB_STATUS_EXHAUSTED);
        return;
    }
    heap_push(&core->deadlines, &request->deadline, add_saturate(core->now_ns, request->wait_ns));
    queue_insert(core, request, account->waiting.prev);
}

void queue_requeue(struct core *core, struct request *request)
{
    struct account *account = request->lease->account;
    struct list *where = &account->waiting;

    request_set_state(request, REQUEST_QUEUED);
    while (where->next != &account->waiting &&
           container_of(where->next, struct request, queue_link)->arrival < request->arrival)
        where = where->next;
    heap_push(&core->deadlines, &request->deadline, request->deadline.key);
    queue_insert(core, request, where);
}

void queue_remove(struct core *core, struct request *request)
{
    struct account *account = request->lease->account;

    heap_remove(&core->deadlines, &request->deadline);
    heap_remove(&core->wakes, &request->wake);
    if (!list_linked(&request->queue_link))
        return;
    list_remove(&request->queue_link);
    if (list_empty(&account->waiting))
        list_remove(&account->waiting_link);
    queue_count(core, account, -1);
}

void queue_time(struct core *core)
{
    struct heap_node *node;

    while ((node = heap_first(&core->wakes)) && node->key <= core->now_ns) {
        struct request *request = container_of(node, struct request, wake);

        heap_remove(&core->wakes, node);
        request->lease->account->device->drain = true;
    }
    while ((node = heap_first(&core->deadlines)) && node->key <= core->now_ns) {
        struct request *request = container_of(node, struct request, deadline);

        if (answer_room(core) == 0) {
            core->more = true;
            return;
        }
        request->lease->account->device->drain = true;
        request_refuse(
            core, request, request->immediate ? GMB_STATUS_EXHAUSTED : GMB_STATUS_TIMED_OUT);
    }
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
    heap_push(&core->wakes, &request->wake, request->not_before_ns);
    candidate_hold(c, GMB_LIMIT_MEMORY_HIGH, sub_saturate(high, c->account->used));
    return true;
}

static void candidate_admit(struct core *core, struct candidate *c)
{
    struct request *request = c->request;
    int r;

    if (c->creation > 0 && core->now_ns < c->device->create_after_ns) {
        candidate_hold(c, GMB_LIMIT_DRIVER, 0);
        if (request->immediate)
            request_refuse(core, request, GMB_STATUS_EXHAUSTED);
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

/* Held back by the device: what lies ready there, or is on its way back, may do. */
static uint64_t recover_device(struct core *core, struct candidate *c, uint64_t reserved)
{
    struct device *device = c->device;
    uint64_t promised = sub_saturate(device->unused_min, account_unused_min(c->account));
    uint64_t present = device_free(device) + device->bytes[CHUNK_CLEAN];
    uint64_t lacking = sub_saturate(add_saturate(c->creation, reserved), device_free(device));
    uint64_t shortfall =
        MAX(lacking, sub_saturate(c->growth, sub_saturate(present, promised + reserved)));
    uint64_t returning = device->bytes[CHUNK_RELEASING] + device->bytes[CHUNK_RELEASED];
    uint64_t ready;

    if (returning < shortfall)
        reclaim_for(
            core, c->account, c->request->lease->chunk_bytes, shortfall - returning, lacking > 0);
    ready = device->bytes[CHUNK_CACHED] + (lacking > 0 ? device->bytes[CHUNK_CLEAN] : 0);
    ready = sub_saturate(ready, c->request->bytes - c->creation);
    returning = device->bytes[CHUNK_RELEASING] + device->bytes[CHUNK_RELEASED];
    return sub_saturate(shortfall, add_saturate(ready, returning));
}

/* Decides about one tenant's first request. True when its next may be asked about. */
static bool candidate_decide(struct core *core, struct request *request, uint64_t *reserved)
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
    decision = admission_decide(&view);
    if (decision.verdict == ADMISSION_ADMIT) {
        struct list *first = &request->queue_link;

        candidate_admit(core, &c);
        return c.account->waiting.next != first;
    }
    candidate_hold(&c, decision.limit, decision.available_bytes);
    if (decision.verdict == ADMISSION_REFUSE) {
        request_refuse(core, request, GMB_STATUS_OVER_LIMIT);
        return true;
    }
    if (decision.limit == GMB_LIMIT_MEMORY_MAX) {
        beyond = recover_own(core, &c);
    } else {
        beyond = recover_device(core, &c, *reserved);
        if (!request->immediate || beyond == 0)
            *reserved =
                add_saturate(*reserved, sub_saturate(c.growth, account_unused_min(c.account)));
    }
    if (!request->immediate || beyond == 0)
        return false;
    request_refuse(core, request, GMB_STATUS_EXHAUSTED);
    return true;
}

static struct fairness_claim claim_make(struct account *account)
{
    struct request *first = list_first(&account->waiting, struct request, queue_link);

    return (struct fairness_claim){
        .priority = account->tenant->priority,
        .weight = account->tenant->weight,
        .used = account->used,
        .requested = first->bytes,
        .arrival = first->arrival,
        .owner = account,
    };
}

void queue_drain(struct core *core, struct device *device)
{
    struct fairness_claim *claims = core->claims;
    uint64_t reserved = 0;
    size_t count = 0;

    if (!device->drain)
        return;
    device->drain = false;
    list_for_each(account, &device->waiting_accounts, struct account, waiting_link)
        claims[count++] = claim_make(account);
    fairness_build(claims, count);
    while (count > 0) {
        struct account *account;
        struct request *first;

        if (answer_room(core) == 0) {
            device->drain = core->more = true;
            return;
        }
        account = fairness_take(claims, &count).owner;
        first = list_first(&account->waiting, struct request, queue_link);
        if (candidate_decide(core, first, &reserved) && !list_empty(&account->waiting)) {
            struct fairness_claim next = claim_make(account);

            fairness_put(claims, &count, &next);
        }
    }
}
