/*
 * Each tenant has a queue of its own on each device; only its first request is a candidate, and a
 * tenant's candidates are ranked by policies/fairness. A candidate that its own limits hold back is
 * stepped over. One that the device holds back reserves what it asks for, so that those behind it
 * get only what it can't use or what lies within their own unused MemoryMin: it is never starved by
 * smaller requests.
 */
#include "daemon/core/queue.h"

#include "daemon/core/account.h"
#include "daemon/core/admit.h"
#include "daemon/core/answer.h"
#include "daemon/core/gang.h"
#include "daemon/core/request.h"
#include "daemon/core/stalled.h"
#include "daemon/core/states.h"
#include "policies/fairness.h"

static void queue_count(struct core *core, const struct request *request, int by)
{
    struct account *account = request->lease->account;

    account->waiting_bytes += by > 0 ? request->bytes : -request->bytes;
    account->waiting_count += (uint32_t) by;
    account->device->waiting_count += (uint32_t) by;
    account->device->gang_count += request->gang ? (uint32_t) by : 0;
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
    queue_count(core, request, 1);
    stalled_request(core, account, request->client, 1);
    if (where == &account->waiting)
        account->device->drain = true; /* behind others of its tenant it changes nothing */
}

static bool goes_before(const struct request *request, const struct request *other)
{
    if (request->urgent != other->urgent)
        return request->urgent;
    return request->arrival < other->arrival;
}

/* Behind the last one of its tenant that goes before it; nearly always that is the last of all. */
static struct list *queue_place(const struct request *request)
{
    struct list *waiting = &request->lease->account->waiting, *where = waiting->prev;

    while (
        where != waiting && goes_before(request, container_of(where, struct request, queue_link)))
        where = where->prev;
    return where;
}

/* The first of a queue holds back those behind it by what holds it back itself; a part of a gang
 * that waits for others of its parts reserves what those behind it would get. */
static void limit_inherit(struct request *request, const struct request *first)
{
    request->limit = first->limit == GMB_LIMIT_NONE ? GMB_LIMIT_DEVICE : first->limit;
    request->available_bytes = 0;
}

/* Whether it may wait; else it has been refused, and with it the other parts of its gang. */
static bool enter_allowed(struct core *core, struct request *request)
{
    struct account *account = request->lease->account;
    struct admission_decision decision = admit_ask(core, request);
    struct request *first = list_first(&account->waiting, struct request, queue_link);

    request->limit = decision.limit;
    request->available_bytes = decision.available_bytes;
    if (decision.verdict == ADMISSION_REFUSE) {
        request_refuse(core, request, GMB_STATUS_OVER_LIMIT);
        return false;
    }
    if (first && request->immediate && !first->immediate && goes_before(first, request)) {
        limit_inherit(request, first);
        request_refuse(core, request, GMB_STATUS_EXHAUSTED);
        return false;
    }
    return true;
}

void queue_enter(struct core *core, struct request *request)
{
    uint32_t parts = request_parts(request);

    for (uint32_t i = 0; i < parts; i++) {
        if (!enter_allowed(core, request_part(request, i)))
            return;
    }
    for (uint32_t i = 0; i < parts; i++) {
        struct request *part = request_part(request, i);

        heap_push(&core->deadlines, &part->deadline, add_saturate(core->now_ns, part->wait_ns));
        queue_insert(core, part, queue_place(part));
    }
}

void queue_requeue(struct core *core, struct request *request)
{
    for (uint32_t i = 0; i < request_parts(request); i++) {
        struct request *part = request_part(request, i);

        request_set_state(part, REQUEST_QUEUED);
        heap_push(&core->deadlines, &part->deadline, part->deadline.key);
        queue_insert(core, part, queue_place(part));
    }
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
    queue_count(core, request, -1);
    stalled_request(core, account, request->client, -1);
}

/* One that stood behind others of its tenant was held back by what held back the first. */
static void part_expire(struct core *core, struct request *request)
{
    struct account *account = request->lease->account;
    struct request *first = list_first(&account->waiting, struct request, queue_link);

    if (request != first) {
        limit_inherit(request, first);
    } else if (request->queue_link.next != &account->waiting) {
        struct request *next = container_of(request->queue_link.next, struct request, queue_link);

        next->limit = request->limit;
    }
    account->device->drain = true;
    stalled_waited(core, request);
}

static void queue_expire(struct core *core, struct request *request)
{
    for (uint32_t i = 0; i < request_parts(request); i++)
        part_expire(core, request_part(request, i));
    request = gang_culprit(request);
    request_refuse(core, request, request->immediate ? GMB_STATUS_EXHAUSTED : GMB_STATUS_TIMED_OUT);
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
        queue_expire(core, request);
    }
}

static struct fairness_claim claim_make(struct core *core, struct account *account)
{
    struct request *first = list_first(&account->waiting, struct request, queue_link);
    uint64_t used, requested;

    gang_rank(core, first, &used, &requested);
    return (struct fairness_claim){
        .priority = account->tenant->priority,
        .weight = account->tenant->weight,
        .used = used,
        .requested = requested,
        .arrival = first->arrival,
        .owner = account,
    };
}

/* An operator empties the device, or it failed: nobody gets anything there. */
static void queue_refuse_all(struct core *core, struct device *device)
{
    while (!list_empty(&device->waiting_accounts)) {
        struct account *account =
            list_first(&device->waiting_accounts, struct account, waiting_link);
        struct request *request = list_first(&account->waiting, struct request, queue_link);

        if (answer_room(core) == 0) {
            device->drain = core->more = true;
            return;
        }
        request->limit = device_closed_limit(device);
        request->available_bytes = 0;
        request_refuse(core, request, device_closed_status(device));
    }
}

void queue_drain(struct core *core, struct device *device)
{
    struct fairness_claim *claims = core->claims;
    uint64_t reserved = 0, before;
    size_t count = 0;

    if (!device->drain)
        return;
    device->drain = false;
    device->reserved = device->reserved_priority = 0;
    device->ahead_chunk_bytes = device->ahead_bytes = 0;
    if (device_closed(device)) {
        queue_refuse_all(core, device);
        return;
    }
    list_for_each(account, &device->waiting_accounts, struct account, waiting_link)
        claims[count++] = claim_make(core, account);
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
        before = reserved;
        if (admit_decide(core, first, &reserved) && !list_empty(&account->waiting)) {
            struct fairness_claim next = claim_make(core, account);

            fairness_put(claims, &count, &next);
        }
        if (reserved > before)
            device->reserved_priority = MAX(device->reserved_priority, account->tenant->priority);
        device->reserved = reserved;
    }
}
