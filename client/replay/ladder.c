/* A reduced batch is a share of what ran when it was asked for: a limit that nobody reaches gives
 * nothing. It stays that number until the factor changes, however many have ended meanwhile. */
#include "client/replay/ladder.h"

void ladder_init(struct ladder *ladder, uint32_t batch_limit)
{
    *ladder = (struct ladder){
        .batch_limit = batch_limit,
        .batch = batch_limit,
        .batch_factor = 1,
        .density = 1,
        .context_tokens = UINT64_MAX,
    };
}

static void batch_set(struct ladder *ladder, double factor, uint32_t running)
{
    double reduced = factor * (double) MIN(ladder->batch_limit, running);

    if (factor >= 1)
        ladder->batch = ladder->batch_limit;
    else if (factor < ladder->batch_factor || ladder->batch_factor >= 1)
        ladder->batch = MAX((uint32_t) reduced, 1u);
    else if (factor > ladder->batch_factor) /* a rung down: as much larger as the factor is */
        ladder->batch =
            MAX((uint32_t) ((double) ladder->batch * factor / ladder->batch_factor), 1u);
    ladder->batch_factor = factor;
}

void ladder_apply(struct ladder *ladder, const struct gmb_advice *advice, uint32_t running)
{
    struct ladder next;
    double factor = 1;

    ladder_init(&next, ladder->batch_limit);
    next.batch = ladder->batch;
    next.batch_factor = ladder->batch_factor;
    next.drop_debt = ladder->drop_debt;
    for (uint32_t i = 0; i < advice->step_count; i++) {
        const struct gmb_advice_step *step = &advice->steps[i];

        if (step->action >= LADDER_STEPS)
            continue;
        next.in_force[step->action] = true;
        if (step->action == GMB_DEGRADE_REDUCE_BATCH)
            factor = step->factor;
        else if (step->action == GMB_DEGRADE_QUANTIZE_KV)
            next.density = 2;
        else if (step->action == GMB_DEGRADE_SHRINK_CONTEXT)
            next.context_tokens = step->value;
        else if (step->action == GMB_DEGRADE_DROP_PREFIX_CACHE)
            next.drop_share = step->factor;
        else if (step->action == GMB_DEGRADE_PAUSE_NEW)
            next.paused = true;
    }
    batch_set(&next, factor, running);
    *ladder = next;
}

size_t ladder_drop_now(const struct ladder *ladder, size_t count)
{
    return MIN((size_t) (ladder->drop_share * (double) count + 0.5), count);
}

bool ladder_drop_next(struct ladder *ladder)
{
    ladder->drop_debt += ladder->drop_share;
    /* Shares of a half, a third … add up to a whole, but for the last bit. */
    if (ladder->drop_debt < 1 - 1e-9)
        return false;
    ladder->drop_debt -= 1;
    return true;
}
