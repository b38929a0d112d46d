/*
 * A survey serves everybody who waits for one: wishes in the order in which they came, each planned
 * with what the ones before have left, then operators' orders, then the drain.
 */
#include "daemon/reclaim.h"

#include <errno.h>
#include <stdio.h>

#include "base/log.h"
#include "base/size.h"
#include "daemon/arena.h"
#include "daemon/broker.h"
#include "daemon/evict.h"
#include "daemon/pressure.h"
#include "daemon/revoke.h"
#include "daemon/segment_walk.h"

/* Steps of one plan: what is beyond is asked for again. */
#define STEPS_MAX 4096
/* Steps that are logged one by one. */
#define STEPS_LOGGED 16
/* A device that is being drained, or lacks memory for its mover, is looked at again. */
#define DRAIN_NS (500 * NSEC_PER_MSEC)

int reclaim_init(struct reclaim *reclaim)
{
    list_init(&reclaim->orders);
    reclaim->tenants = calloc(LIMIT_TENANTS, sizeof(*reclaim->tenants));
    reclaim->steps = calloc(STEPS_MAX, sizeof(*reclaim->steps));
    return reclaim->tenants != NULL && reclaim->steps != NULL ? 0 : -ENOMEM;
}

void reclaim_clear(struct hosting *hosting)
{
    struct reclaim *reclaim = &hosting->reclaim;

    list_for_each_safe(order, &reclaim->orders, struct reclaim_order, link)
    {
        list_remove(&order->link);
        order->done(order, hosting, NULL, 0, 0, RECLAIM_NOTHING_LEFT);
    }
    survey_done(&reclaim->survey);
    free(TAKE_PTR(reclaim->tenants));
    free(TAKE_PTR(reclaim->steps));
}

/* ------------------------------------------------------------------ wishes */

void reclaim_note(struct hosting *hosting, const struct core_action *action)
{
    struct reclaim *reclaim = &hosting->reclaim;
    struct reclaim_wish wish = {
        .tenant = action->reclaim.tenant,
        .own = action->reclaim.own,
        .bytes = action->reclaim.bytes,
        .wanted = action->reclaim.wanted,
    };
    size_t i = 0;

    if ((list_empty(&hosting->arenas) && hosting->segment_count == 0 &&
            !hosting->broker->config->revoke) ||
        wish.tenant >= LIMIT_TENANTS)
        return;
    while (i < reclaim->wish_count &&
           (reclaim->wishes[i].tenant != wish.tenant || reclaim->wishes[i].own != wish.own))
        i++;
    if (i == RECLAIM_WISHES)
        return;
    reclaim->wishes[i] = wish;
    reclaim->wish_count = MAX(reclaim->wish_count, i + 1);
    hosting_kick(hosting);
}

void reclaim_give(struct hosting *hosting, struct reclaim_order *order)
{
    list_init(&order->link);
    list_append(&hosting->reclaim.orders, &order->link);
    hosting_kick(hosting);
}

void reclaim_forget(struct arena *arena)
{
    struct hosting *hosting = arena->broker->hosting[arena->device];

    if (list_linked(&arena->device_link))
        survey_forget(&hosting->reclaim.survey, hosting, arena);
}

struct arena_chunk *reclaim_chunk_of(struct hosting *hosting, uint32_t row)
{
    const struct survey *survey = &hosting->reclaim.survey;
    struct arena *arena =
        row < survey->count ? arena_find(hosting->broker, survey->rows[row].lease) : NULL;

    return arena != NULL ? arena_chunk_find(arena, survey->rows[row].index) : NULL;
}

/* ------------------------------------------------------------------ a plan */

static bool advice_ignores(
    const struct hosting *hosting, uint32_t tenant, uint64_t *ret_age_ns, uint64_t *ret_id)
{
    const struct broker *broker = hosting->broker;

    return advice_ignored(broker->pressure, tenant, clock_now(broker->clock),
        broker->config->advice_grace_ns, ret_age_ns, ret_id);
}

static void tenant_read(struct hosting *hosting, uint32_t tenant, uint64_t tier_left)
{
    struct reclaim_tenant *row = &hosting->reclaim.tenants[tenant];
    const struct tier_account *account = &hosting->accounts[tenant];
    struct core *core = hosting->broker->core;
    struct core_tenant_device_view use;
    struct core_tenant_view view;

    *row = (struct reclaim_tenant){.weight = 1};
    if (!core_tenant_get(core, tenant, &view) ||
        !core_tenant_device_get(core, tenant, hosting->device, &use))
        return;
    *row = (struct reclaim_tenant){
        .used = sub_saturate(use.used, hosting->leaving[tenant]),
        .min = use.limits.min,
        .low = use.limits.low,
        .high = use.limits.high,
        .host_left = MIN(sub_saturate(account->max_bytes, account->charged_bytes), tier_left),
        .priority = view.priority,
        .weight = view.weight,
        .ignores_advice = advice_ignores(hosting, tenant, NULL, NULL),
    };
}

const struct reclaim_tenant *reclaim_tenants_read(struct hosting *hosting)
{
    struct reclaim_tenant *rows = hosting->reclaim.tenants;
    uint64_t tier_left = 0;

    if (hosting->tier != NULL) {
        struct tier_stats stats = tier_stats(hosting->tier);

        tier_left = stats.free_bytes;
    }
    for (uint32_t i = 0; i < LIMIT_TENANTS; i++)
        tenant_read(hosting, i, tier_left);
    /* Slabs that a tenant has begun have room, too. */
    list_for_each(arena, &hosting->arenas, struct arena, device_link)
    {
        if (arena->space != NULL)
            rows[arena->tenant].host_left += tier_space_begun(arena->space) * arena->slot_bytes;
    }
    /* And what lies there and may be dropped makes some. */
    for (uint32_t i = 0; i < LIMIT_TENANTS; i++) {
        rows[i].host_left = add_saturate(rows[i].host_left, hosting->reclaim.survey.spare[i]);
        rows[i].host_carrying = hosting->reclaim.survey.carrying[i];
    }
    list_for_each(chunk, &hosting->recalled, struct arena_chunk, link)
    {
        if (chunk->overdue)
            rows[chunk->arena->tenant].ignores_advice = true;
    }
    revoke_count(hosting, rows);
    return rows;
}

static void tenant_name(const struct hosting *hosting, uint32_t tenant, char name[128])
{
    struct core_tenant_view view;

    if (tenant != UINT32_MAX && core_tenant_get(hosting->broker->core, tenant, &view))
        (void) snprintf(name, 128, "tenant %s", view.name);
    else
        (void) snprintf(name, 128, "an operator");
}

static void step_log(struct hosting *hosting, const struct reclaim_step *step)
{
    const struct survey *survey = &hosting->reclaim.survey;
    const struct reclaim_chunk *row = &survey->chunks[step->chunk];
    char name[128], asked[96] = "";
    uint64_t age_ns, advice;

    if (advice_ignores(hosting, row->tenant, &age_ns, &advice))
        (void) snprintf(asked, sizeof(asked),
            "; it was asked to degrade %.1f s ago (advice %llu) and nobody answered",
            (double) age_ns / (double) NSEC_PER_SEC, (unsigned long long) advice);
    tenant_name(hosting, row->tenant, name);
    if (row->segment) {
        log_info("  segment of lease %llu of %s: %s, score %.0f, idle %.1f s%s",
            (unsigned long long) survey->rows[step->chunk].lease, name,
            reclaim_reason_name(step->reason), step->score,
            (double) row->idle_ns / (double) NSEC_PER_SEC, asked);
        return;
    }
    log_info("  chunk %u of arena %llu of %s: %s, score %.0f, %u resident, %u recomputable, "
             "%u to drop, idle %.1f s%s",
        survey->rows[step->chunk].index, (unsigned long long) survey->rows[step->chunk].lease, name,
        reclaim_reason_name(step->reason), step->score, row->resident, row->recomputable,
        step->drop_pages, (double) row->idle_ns / (double) NSEC_PER_SEC, asked);
}

static void plan_log(struct hosting *hosting, const struct reclaim_request *request, size_t count,
    uint64_t planned, enum reclaim_shortfall shortfall)
{
    char bytes[SIZE_TEXT_MAX], plan[SIZE_TEXT_MAX], name[128];
    struct reclaim *reclaim = &hosting->reclaim;
    uint64_t nothing = (uint64_t) request->beneficiary << 8 | (uint64_t) shortfall | 1u << 7;

    /* A plan of nothing is made again and again while somebody waits: it is said once. */
    if (count == 0 && reclaim->planned_log == nothing)
        return;
    reclaim->planned_log = count == 0 ? nothing : 0;
    tenant_name(hosting, request->beneficiary, name);
    log_notice("device %u: %s needs %s: %zu candidates, %s of %zu chunks planned: %s",
        hosting->device, name, size_format(bytes, request->bytes), reclaim->survey.count,
        size_format(plan, planned), count, reclaim_shortfall_name(shortfall));
    for (size_t i = 0; i < count && i < STEPS_LOGGED; i++)
        step_log(hosting, &reclaim->steps[i]);
    if (count > STEPS_LOGGED)
        log_info("  and %zu more", count - STEPS_LOGGED);
}

static void segment_take(
    struct hosting *hosting, const struct reclaim_step *step, uint32_t beneficiary)
{
    const struct survey *survey = &hosting->reclaim.survey;
    struct segment *segment = segment_of_lease(
        hosting->broker, survey->chunks[step->chunk].tenant, survey->rows[step->chunk].lease);

    /* One that can't go any more is planned without the next time. */
    if (segment != NULL && segment_demote(segment, beneficiary) < 0)
        log_debug("segment %s stays: somebody has it by now", segment->name);
}

/* Chunks of earlier plans of this survey are closed by now and refuse. */
static void plan_run(struct hosting *hosting, const struct reclaim_request *request, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct reclaim_step *step = &hosting->reclaim.steps[i];
        struct arena_chunk *chunk = reclaim_chunk_of(hosting, step->chunk);

        /* No longer a candidate for the next plan of this survey. */
        hosting->reclaim.survey.chunks[step->chunk].page_bytes = 0;
        if (hosting->reclaim.survey.chunks[step->chunk].segment)
            segment_take(hosting, step, request->beneficiary);
        else if (chunk != NULL)
            (void) evict_start(chunk, step->drop_pages, request->beneficiary);
    }
}

static size_t plan_make(struct hosting *hosting, const struct reclaim_request *request,
    uint64_t *ret_planned, enum reclaim_shortfall *ret_shortfall)
{
    struct reclaim *reclaim = &hosting->reclaim;
    size_t count;

    (void) reclaim_tenants_read(hosting);
    count = reclaim_plan(request, reclaim->tenants, LIMIT_TENANTS, reclaim->survey.chunks,
        reclaim->survey.count, reclaim->steps, STEPS_MAX, ret_planned, ret_shortfall);
    plan_log(hosting, request, count, *ret_planned, *ret_shortfall);
    return count;
}

/* Whether what falls short is nothing that comes by itself or by the next plan: only workspaces are
 * left then. */
static bool only_workspaces_left(enum reclaim_shortfall shortfall)
{
    return shortfall == RECLAIM_NOTHING_LEFT || shortfall == RECLAIM_PROTECTED ||
           shortfall == RECLAIM_HOST_FULL;
}

static void wish_run(struct hosting *hosting, const struct reclaim_wish *wish)
{
    uint64_t coming =
        add_saturate(hosting->coming[wish->tenant], revoke_coming(hosting, wish->tenant));
    struct reclaim_request request = {
        .bytes = sub_saturate(wish->bytes, coming),
        .beneficiary = wish->tenant,
        .from = wish->own ? wish->tenant : UINT32_MAX,
        .wanted = wish->wanted,
    };
    enum reclaim_shortfall shortfall;
    uint64_t planned;

    if (request.bytes == 0)
        return;
    plan_run(hosting, &request, plan_make(hosting, &request, &planned, &shortfall));
    if (!wish->own && only_workspaces_left(shortfall))
        revoke_note(hosting, wish->tenant, sub_saturate(request.bytes, planned), request.wanted);
}

static void order_run(struct hosting *hosting, struct reclaim_order *order)
{
    const struct reclaim_request request = order->request;
    bool dry_run = order->dry_run;
    enum reclaim_shortfall shortfall;
    uint64_t planned;
    size_t count = plan_make(hosting, &request, &planned, &shortfall);

    /* The answer reads the rows as they were planned. */
    list_remove(&order->link);
    order->done(order, hosting, hosting->reclaim.steps, count, planned, shortfall);
    if (!dry_run)
        plan_run(hosting, &request, count);
}

void reclaim_hold(struct hosting *hosting, bool hold)
{
    hosting->reclaim.hold = hold;
    hosting->reclaim.hold_ns = 0;
    hosting_kick(hosting);
}

static void hold_run(struct hosting *hosting)
{
    struct reclaim_request request = {
        .beneficiary = UINT32_MAX,
        .from = UINT32_MAX,
        .empty_only = true,
    };
    enum reclaim_shortfall shortfall;
    struct core_device_view view = {0};
    uint64_t planned;
    size_t count;

    (void) core_device_get(hosting->broker->core, hosting->device, &view);
    request.bytes = view.lacking;
    count = request.bytes > 0 ? plan_make(hosting, &request, &planned, &shortfall) : 0;
    /* Less than all of it helps no mover, and costs those who were about to use it. */
    if (count > 0 && planned >= request.bytes)
        plan_run(hosting, &request, count);
    hosting->reclaim.hold_ns = clock_now(hosting->broker->clock) + DRAIN_NS;
    hosting_at(hosting, hosting->reclaim.hold_ns);
}

static bool hold_due(const struct hosting *hosting)
{
    return hosting->reclaim.hold && hosting->reclaim.hold_ns <= clock_now(hosting->broker->clock);
}

static void drain_run(struct hosting *hosting)
{
    const struct reclaim_request request = {
        .bytes = UINT64_MAX,
        .beneficiary = UINT32_MAX,
        .from = UINT32_MAX,
        .whole_device = true,
    };
    enum reclaim_shortfall shortfall;
    uint64_t planned;

    plan_run(hosting, &request, plan_make(hosting, &request, &planned, &shortfall));
    hosting->drain_ns = clock_now(hosting->broker->clock) + DRAIN_NS;
}

static bool drain_due(const struct hosting *hosting)
{
    return hosting->draining && hosting->drain_ns <= clock_now(hosting->broker->clock);
}

void reclaim_turn(struct hosting *hosting)
{
    struct reclaim *reclaim = &hosting->reclaim;
    struct reclaim_order *order;
    size_t wishes;

    if (hosting->broker->ending)
        return; /* what was begun is finished, nothing else */
    if (hosting->draining)
        hosting_at(hosting, hosting->drain_ns);
    if (reclaim->hold)
        hosting_at(hosting, hosting->reclaim.hold_ns);
    if (!reclaim->survey.running) {
        if (reclaim->wish_count == 0 && list_empty(&reclaim->orders) && !drain_due(hosting) &&
            !hold_due(hosting))
            return;
        survey_begin(&reclaim->survey);
    }
    if (!survey_turn(&reclaim->survey, hosting)) {
        hosting_kick(hosting);
        return;
    }
    wishes = reclaim->wish_count;
    reclaim->wish_count = 0;
    for (size_t i = 0; i < wishes; i++)
        wish_run(hosting, &reclaim->wishes[i]);
    while ((order = list_first(&reclaim->orders, struct reclaim_order, link)) != NULL)
        order_run(hosting, order);
    if (hold_due(hosting))
        hold_run(hosting);
    if (drain_due(hosting)) {
        drain_run(hosting);
        hosting_at(hosting, hosting->drain_ns);
    }
}
