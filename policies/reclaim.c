/*
 * Chunks stand in one array, those of each tenant together as a heap, cheapest first, so that only
 * what is taken is sorted. Stages go by in the order of their harm. In each, tenants form a heap of
 * their own; the first gives its cheapest chunk and sinks to where its use puts it now, until it
 * may not give any more at this stage.
 *
 * What a tenant can't give (its MemoryMin or its host tier forbids it) it can't give later either,
 * since use and room only shrink while a plan is made: such a chunk is passed over for good.
 */
#include "policies/reclaim.h"

#include <assert.h>

/* Restoring costs the copy back and, while it lasts, the worker: three copies' worth for a chunk in
 * use now, half of that for one that was last used a second ago (the chance that something is used
 * again falls about as the inverse of its age). */
#define RESTORE_WEIGHT 3.0
#define HALF_COLD_NS 1e9
/* A page that is dropped takes along whatever continues it. Where that leads to another chunk, how
 * far isn't known: in bytes to copy as much as so many pages. */
#define ALONG_PAGES 64.0

enum stage {
    STAGE_EMPTY,
    STAGE_ABOVE_HIGH,
    STAGE_ABOVE_LOW,
    STAGE_IDLE_SEGMENT,
    STAGE_LOWER_PRIORITY,
    STAGE_BELOW_MIN_ABOVE_LOW, /* the requester's MemoryMin, the giver's MemoryLow */
    STAGE_BELOW_MIN,
    STAGE_OWN, /* the requester's own, below its MemoryMin too */
    STAGE_MAX
};

static const char *const reason_names[] = {
    [RECLAIM_EMPTY] = "empty",
    [RECLAIM_ABOVE_HIGH] = "above MemoryHigh",
    [RECLAIM_ABOVE_LOW] = "above MemoryLow",
    [RECLAIM_IDLE_SEGMENT] = "idle segment",
    [RECLAIM_LOWER_PRIORITY] = "lower priority",
    [RECLAIM_BELOW_MIN] = "requester below MemoryMin",
    [RECLAIM_OWN] = "its own",
    [RECLAIM_OPERATOR] = "operator",
};
static_assert(ARRAY_SIZE(reason_names) == RECLAIM_REASON_MAX, "one name for each reason");

static const char *const shortfall_names[] = {
    [RECLAIM_COMPLETE] = "complete",
    [RECLAIM_NOTHING_LEFT] = "nothing left",
    [RECLAIM_PROTECTED] = "protected",
    [RECLAIM_GUARDED] = "just come",
    [RECLAIM_HOST_FULL] = "host tier full",
    [RECLAIM_CUT_SHORT] = "cut short",
    [RECLAIM_NO_MEMORY] = "no memory to plan with",
};
static_assert(ARRAY_SIZE(shortfall_names) == RECLAIM_SHORTFALL_MAX, "one name for each shortfall");

struct candidate {
    double score, recompute_cost;
    uint64_t idle_ns;
    uint32_t row;
};

/* One tenant while the plan is made. */
struct giver {
    uint64_t used, host_left, host_carrying; /* after the steps so far */
    const struct reclaim_tenant *row;
    struct candidate *heap; /* cheapest first: chunks, in their stage segments */
    uint32_t count;
    struct candidate *other; /* the heap of what isn't given at this stage */
    uint32_t other_count;
};

struct plan {
    const struct reclaim_request *request;
    const struct reclaim_tenant *beneficiary; /* NULL: an operator */
    const struct reclaim_tenant *tenants;
    const struct reclaim_chunk *chunks;
    struct giver *givers;
    struct giver **order; /* heap of those that may give at this stage */
    size_t giver_count, order_count;
    struct reclaim_step *steps;
    size_t step_count, max_steps;
    uint64_t planned;
    bool host_full, protected, guarded;
};

const char *reclaim_reason_name(enum reclaim_reason reason)
{
    return (unsigned) reason < RECLAIM_REASON_MAX ? reason_names[reason] : "unknown";
}

const char *reclaim_shortfall_name(enum reclaim_shortfall shortfall)
{
    return (unsigned) shortfall < RECLAIM_SHORTFALL_MAX ? shortfall_names[shortfall] : "unknown";
}

static struct candidate candidate_make(
    const struct giver *giver, const struct reclaim_chunk *chunk, uint32_t row)
{
    double bytes = (double) chunk->resident * (double) chunk->page_bytes;
    double along = bytes > (double) giver->host_left
                       ? ALONG_PAGES * chunk->continued * (double) chunk->page_bytes
                       : 0;
    double again = 1.0 / (1.0 + (double) chunk->idle_ns / HALF_COLD_NS);

    return (struct candidate){
        .score = bytes * (1.0 + RESTORE_WEIGHT * again) + along,
        .recompute_cost = chunk->recompute_cost,
        .idle_ns = chunk->idle_ns,
        .row = row,
    };
}

static bool candidate_before(const struct candidate *a, const struct candidate *b)
{
    if (a->score != b->score)
        return a->score < b->score;
    if (a->idle_ns != b->idle_ns)
        return a->idle_ns > b->idle_ns;
    if (a->recompute_cost != b->recompute_cost)
        return a->recompute_cost < b->recompute_cost;
    return a->row < b->row;
}

static void candidate_sink(struct candidate *heap, uint32_t count, uint32_t index)
{
    struct candidate moved = heap[index];

    for (uint32_t child; (child = 2 * index + 1) < count; index = child) {
        if (child + 1 < count && candidate_before(&heap[child + 1], &heap[child]))
            child++;
        if (!candidate_before(&heap[child], &moved))
            break;
        heap[index] = heap[child];
    }
    heap[index] = moved;
}

static void candidate_drop(struct giver *giver)
{
    giver->heap[0] = giver->heap[--giver->count];
    if (giver->count > 1)
        candidate_sink(giver->heap, giver->count, 0);
}

/* Equal tenants stand in the order of their rows. */
static bool giver_before(const struct giver *a, const struct giver *b)
{
    unsigned __int128 share_a = (unsigned __int128) a->used * MAX(b->row->weight, 1u);
    unsigned __int128 share_b = (unsigned __int128) b->used * MAX(a->row->weight, 1u);

    if (a->row->priority != b->row->priority)
        return a->row->priority < b->row->priority;
    if (a->row->ignores_advice != b->row->ignores_advice)
        return a->row->ignores_advice;
    if (share_a != share_b)
        return share_a > share_b;
    return a < b;
}

static void order_sink(struct giver **order, size_t count, size_t index)
{
    struct giver *moved = order[index];

    for (size_t child; (child = 2 * index + 1) < count; index = child) {
        if (child + 1 < count && giver_before(order[child + 1], order[child]))
            child++;
        if (!giver_before(order[child], moved))
            break;
        order[index] = order[child];
    }
    order[index] = moved;
}

/* Whether what is still missing reaches into the beneficiary's MemoryMin. The end of its request,
 * which lies beyond, isn't guaranteed; what came for it before was the beginning. */
static bool guarantee_lacks(const struct plan *plan)
{
    const struct reclaim_tenant *tenant = plan->beneficiary;
    uint64_t bytes = plan->request->bytes, wanted = MAX(plan->request->wanted, bytes);

    return tenant && sub_saturate(bytes, plan->planned) >
                         sub_saturate(add_saturate(tenant->used, wanted), tenant->min);
}

static bool gives_for_itself(const struct plan *plan, const struct giver *giver)
{
    return giver->row == plan->beneficiary && plan->request->from == plan->request->beneficiary;
}

/* Whether the requester may have anything at all of it that isn't empty or above MemoryHigh. */
static bool ranks_not_above(const struct plan *plan, const struct giver *giver)
{
    return !plan->beneficiary || giver->row->priority <= plan->beneficiary->priority;
}

static bool goes_before(const struct plan *plan, const struct giver *giver)
{
    return !plan->beneficiary || giver->row->priority < plan->beneficiary->priority ||
           gives_for_itself(plan, giver);
}

/* What the requester itself gives below its MemoryMin is the last resort: all the same, it comes
 * back to it with the grant, and cold pages of its own must not keep it from what it needs now. */
static bool lends_to_itself(const struct plan *plan, const struct giver *giver)
{
    return giver->row == plan->beneficiary && !gives_for_itself(plan, giver) &&
           sub_saturate(giver->used, giver->row->min) < plan->chunks[giver->heap[0].row].bytes;
}

static bool may_give(const struct plan *plan, const struct giver *giver, enum stage stage)
{
    if (giver->count == 0)
        return false;
    if (stage != STAGE_IDLE_SEGMENT && lends_to_itself(plan, giver) && !plan->request->whole_device)
        return stage == STAGE_OWN;
    switch (stage) {
    case STAGE_EMPTY:
        return plan->chunks[giver->heap[0].row].resident == 0;
    case STAGE_ABOVE_HIGH:
        return giver->used > giver->row->high;
    case STAGE_ABOVE_LOW:
        return giver->used > giver->row->low && ranks_not_above(plan, giver);
    case STAGE_IDLE_SEGMENT:
        return giver->used > giver->row->high || goes_before(plan, giver) ||
               (giver->used > giver->row->low && ranks_not_above(plan, giver)) ||
               guarantee_lacks(plan);
    case STAGE_LOWER_PRIORITY:
        return goes_before(plan, giver);
    case STAGE_BELOW_MIN_ABOVE_LOW:
        return guarantee_lacks(plan) && giver->used > giver->row->low;
    case STAGE_BELOW_MIN:
        return guarantee_lacks(plan);
    case STAGE_OWN:
        return giver->row == plan->beneficiary;
    case STAGE_MAX:
        break;
    }
    return false;
}

static enum reclaim_reason reason_of(
    const struct plan *plan, const struct giver *giver, enum stage stage)
{
    if (stage != STAGE_EMPTY && !plan->beneficiary)
        return RECLAIM_OPERATOR;
    switch (stage) {
    case STAGE_EMPTY:
        return RECLAIM_EMPTY;
    case STAGE_ABOVE_HIGH:
        return RECLAIM_ABOVE_HIGH;
    case STAGE_ABOVE_LOW:
        return RECLAIM_ABOVE_LOW;
    case STAGE_IDLE_SEGMENT:
        return RECLAIM_IDLE_SEGMENT;
    case STAGE_LOWER_PRIORITY:
        return gives_for_itself(plan, giver) ? RECLAIM_OWN : RECLAIM_LOWER_PRIORITY;
    case STAGE_OWN:
        return RECLAIM_OWN;
    case STAGE_BELOW_MIN_ABOVE_LOW:
    case STAGE_BELOW_MIN:
    case STAGE_MAX:
        break;
    }
    return RECLAIM_BELOW_MIN;
}

/* Pages that must be dropped so that the others have room in the host tier; false when even all
 * recomputable ones are too few. The room is taken. */
static bool host_take(struct giver *giver, const struct reclaim_chunk *chunk, uint32_t *ret_drop)
{
    uint64_t room = giver->host_left / chunk->page_bytes;
    uint32_t recomputable = MIN(chunk->recomputable, chunk->resident);
    uint64_t drop = MIN(sub_saturate(chunk->resident, room), (uint64_t) recomputable);
    uint64_t carrying = sub_saturate(chunk->resident - drop, room);

    if (carrying > giver->host_carrying / chunk->page_bytes)
        return false;
    giver->host_left -= (chunk->resident - drop - carrying) * chunk->page_bytes;
    giver->host_carrying -= carrying * chunk->page_bytes;
    *ret_drop = (uint32_t) drop;
    return true;
}

/* The giver's cheapest chunk becomes a step, or is passed over for good. */
static void giver_give(struct plan *plan, struct giver *giver, enum stage stage)
{
    struct candidate first = giver->heap[0];
    const struct reclaim_chunk *chunk = &plan->chunks[first.row];
    bool bound = !plan->request->whole_device && giver->row != plan->beneficiary;
    uint32_t drop;

    candidate_drop(giver);
    if (bound && sub_saturate(giver->used, giver->row->min) < chunk->bytes) {
        plan->protected = true;
        return;
    }
    if (!host_take(giver, chunk, &drop)) {
        plan->host_full = true;
        return;
    }
    giver->used = sub_saturate(giver->used, chunk->bytes);
    plan->planned = add_saturate(plan->planned, chunk->bytes);
    plan->steps[plan->step_count++] = (struct reclaim_step){
        .chunk = first.row,
        .reason = reason_of(plan, giver, stage),
        .score = first.score,
        .drop_pages = drop,
    };
}

static bool plan_ends(const struct plan *plan)
{
    return plan->planned >= plan->request->bytes || plan->step_count == plan->max_steps;
}

/* What the stage is about stands in each giver's first heap. */
static void givers_turn(struct plan *plan)
{
    for (size_t i = 0; i < plan->giver_count; i++) {
        struct giver *giver = &plan->givers[i];
        struct candidate *heap = giver->heap;
        uint32_t count = giver->count;

        giver->heap = giver->other;
        giver->count = giver->other_count;
        giver->other = heap;
        giver->other_count = count;
    }
}

static void plan_stage(struct plan *plan, enum stage stage)
{
    plan->order_count = 0;
    for (size_t i = 0; i < plan->giver_count; i++) {
        if (may_give(plan, &plan->givers[i], stage))
            plan->order[plan->order_count++] = &plan->givers[i];
    }
    for (size_t i = plan->order_count / 2; i > 0; i--)
        order_sink(plan->order, plan->order_count, i - 1);
    while (plan->order_count > 0 && !plan_ends(plan)) {
        struct giver *giver = plan->order[0];

        if (may_give(plan, giver, stage))
            giver_give(plan, giver, stage);
        else
            plan->order[0] = plan->order[--plan->order_count];
        if (plan->order_count > 1)
            order_sink(plan->order, plan->order_count, 0);
    }
}

static enum reclaim_shortfall plan_shortfall(const struct plan *plan)
{
    bool left = false;

    if (plan->planned >= plan->request->bytes)
        return RECLAIM_COMPLETE;
    if (plan->step_count == plan->max_steps)
        return RECLAIM_CUT_SHORT;
    for (size_t i = 0; i < plan->giver_count; i++)
        left = left || plan->givers[i].count > 0 || plan->givers[i].other_count > 0;
    if (plan->host_full)
        return RECLAIM_HOST_FULL;
    if (plan->guarded)
        return RECLAIM_GUARDED;
    return plan->protected || left ? RECLAIM_PROTECTED : RECLAIM_NOTHING_LEFT;
}

/* Whether the chunk could be emptied at all, whoever asks. */
static bool chunk_movable(
    const struct reclaim_request *request, const struct reclaim_chunk *chunk, size_t tenant_count)
{
    return chunk->tenant < tenant_count && chunk->page_bytes > 0 && chunk->pinned == 0 &&
           (request->from == UINT32_MAX || request->from == chunk->tenant);
}

/* Whether the requester would take from an equal what that has just got. */
static bool chunk_guarded(const struct plan *plan, const struct reclaim_chunk *chunk)
{
    return chunk->here_ns < RECLAIM_GUARD_NS && plan->beneficiary && !plan->request->whole_device &&
           !guarantee_lacks(plan) &&
           plan->beneficiary->priority <= plan->tenants[chunk->tenant].priority;
}

static bool chunk_counts(const struct plan *plan, const struct reclaim_chunk *chunk)
{
    return chunk_movable(plan->request, chunk, plan->giver_count) && !chunk_guarded(plan, chunk);
}

static void heap_make(struct candidate *heap, uint32_t count)
{
    for (uint32_t k = count / 2; k > 0; k--)
        candidate_sink(heap, count, k - 1);
}

/* How many of each giver count; what is guarded is noted. */
static void givers_count(struct plan *plan, size_t chunk_count)
{
    for (size_t i = 0; i < chunk_count; i++) {
        const struct reclaim_chunk *chunk = &plan->chunks[i];

        if (!chunk_movable(plan->request, chunk, plan->giver_count))
            continue;
        if (chunk_guarded(plan, chunk))
            plan->guarded = true;
        else if (chunk->segment)
            plan->givers[chunk->tenant].other_count++;
        else
            plan->givers[chunk->tenant].count++;
    }
}

/* What counts, that of each tenant together, chunks and segments apart. `candidates` has room for
 * all. */
static void givers_fill(struct plan *plan, struct candidate *candidates, size_t chunk_count)
{
    const struct reclaim_tenant *tenants = plan->tenants;

    for (size_t i = 0; i < plan->giver_count; i++)
        plan->givers[i] = (struct giver){
            .used = tenants[i].used,
            .host_left = tenants[i].host_left,
            .host_carrying = tenants[i].host_carrying,
            .row = &tenants[i],
        };
    givers_count(plan, chunk_count);
    for (size_t i = 0; i < plan->giver_count; i++) {
        struct giver *giver = &plan->givers[i];

        giver->heap = candidates;
        giver->other = giver->heap + giver->count;
        candidates = giver->other + giver->other_count;
        giver->count = giver->other_count = 0;
    }
    for (size_t i = 0; i < chunk_count; i++) {
        const struct reclaim_chunk *chunk = &plan->chunks[i];
        struct giver *giver;

        if (!chunk_counts(plan, chunk))
            continue;
        giver = &plan->givers[chunk->tenant];
        if (chunk->segment)
            giver->other[giver->other_count++] = candidate_make(giver, chunk, (uint32_t) i);
        else
            giver->heap[giver->count++] = candidate_make(giver, chunk, (uint32_t) i);
    }
    for (size_t i = 0; i < plan->giver_count; i++) {
        heap_make(plan->givers[i].heap, plan->givers[i].count);
        heap_make(plan->givers[i].other, plan->givers[i].other_count);
    }
}

size_t reclaim_plan(const struct reclaim_request *request, const struct reclaim_tenant *tenants,
    size_t tenant_count, const struct reclaim_chunk *chunks, size_t chunk_count,
    struct reclaim_step *ret_steps, size_t max_steps, uint64_t *ret_planned,
    enum reclaim_shortfall *ret_shortfall)
{
    _cleanup_free_ struct giver *givers = calloc(MAX(tenant_count, (size_t) 1), sizeof(*givers));
    _cleanup_free_ struct giver **order = calloc(MAX(tenant_count, (size_t) 1), sizeof(*order));
    _cleanup_free_ struct candidate *candidates =
        calloc(MAX(chunk_count, (size_t) 1), sizeof(*candidates));
    struct plan plan = {
        .request = request,
        .beneficiary = request->beneficiary < tenant_count ? &tenants[request->beneficiary] : NULL,
        .tenants = tenants,
        .chunks = chunks,
        .givers = givers,
        .order = order,
        .giver_count = tenant_count,
        .steps = ret_steps,
        .max_steps = max_steps,
    };

    assert(request->beneficiary == UINT32_MAX || request->beneficiary < tenant_count);
    *ret_planned = 0;
    *ret_shortfall = RECLAIM_NO_MEMORY;
    if (!givers || !order || !candidates)
        return 0;
    givers_fill(&plan, candidates, chunk_count);
    for (enum stage stage = 0; stage < STAGE_MAX && !plan_ends(&plan); stage++) {
        if (request->empty_only && stage != STAGE_EMPTY)
            continue;
        if (stage == STAGE_IDLE_SEGMENT)
            givers_turn(&plan);
        plan_stage(&plan, stage);
        if (stage == STAGE_IDLE_SEGMENT)
            givers_turn(&plan);
    }
    *ret_planned = plan.planned;
    *ret_shortfall = plan_shortfall(&plan);
    return plan.step_count;
}
