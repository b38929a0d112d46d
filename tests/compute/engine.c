/* Turns, and what a sequence does that didn't get its memory: it waits for its next one. */
#include "tests/compute/engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"

#define PATIENCE_NS (60 * NSEC_PER_SEC)

int engine_init(struct engine *engine, const struct engine_params *params,
    const struct transformer *model, struct kv_space *space)
{
    *engine = (struct engine){.params = *params, .model = model, .space = space};
    engine->sequences = calloc(params->sequences, sizeof(*engine->sequences));
    if (engine->sequences == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < params->sequences; i++) {
        struct kv *kv = space ? kv_arena_new(space, params->length) : kv_plain_new(params->length);
        struct kv *reference = params->compare ? kv_plain_new(params->length) : NULL;
        int r = sequence_init_consume(&engine->sequences[i], i, params->length, kv, reference);

        if (r < 0 || kv == NULL || (params->compare && reference == NULL))
            return -ENOMEM;
    }
    return 0;
}

void engine_done(struct engine *engine)
{
    for (uint32_t i = 0; engine->sequences && i < engine->params.sequences; i++)
        sequence_done(&engine->sequences[i]);
    free(engine->sequences);
    engine->sequences = NULL;
}

/* Held and ready for its turn: KV_READY; KV_FULL: not now; or -EIO. */
static int sequence_hold(struct engine *engine, struct sequence *sequence)
{
    struct kv *kv = sequence->kv;
    int r = kv->ops->hold(kv, sequence_reach(sequence, engine->params.turn));

    while (r == KV_LOST) {
        sequence_rewind(sequence);
        engine->recomputed++;
        r = kv->ops->hold(kv, sequence_reach(sequence, engine->params.turn));
    }
    return r;
}

/* The next ones that aren't finished and get their memory, from `*cursor` on. Their number or -EIO.
 */
static int batch_hold(struct engine *engine, uint32_t *cursor, struct sequence **batch)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < engine->params.sequences && count < engine->params.batch; i++) {
        struct sequence *sequence = &engine->sequences[*cursor];
        int r;

        *cursor = (*cursor + 1) % engine->params.sequences;
        if (sequence_finished(sequence))
            continue;
        r = sequence_hold(engine, sequence);
        if (r < 0)
            return r;
        if (r == KV_READY)
            batch[count++] = sequence;
    }
    return (int) count;
}

/* One token of each at a time, as a batch is computed. */
static int batch_turn(struct engine *engine, struct sequence **batch, int count)
{
    for (uint32_t step = 0; step < engine->params.turn; step++) {
        for (int i = 0; i < count; i++) {
            if (!sequence_finished(batch[i]) && sequence_step(engine->model, batch[i]) < 0)
                return -EIO;
        }
    }
    for (int i = 0; i < count; i++) {
        struct kv *kv = batch[i]->kv;

        if (kv->ops->release(kv) < 0)
            return -EIO;
        /* What is finished needs its memory no more. */
        if (sequence_finished(batch[i]))
            batch[i]->kv = kv_free(kv);
    }
    return 0;
}

static bool all_finished(const struct engine *engine)
{
    for (uint32_t i = 0; i < engine->params.sequences; i++) {
        if (!sequence_finished(&engine->sequences[i]))
            return false;
    }
    return true;
}

static void progress_print(const struct engine *engine)
{
    uint64_t tokens = 0;

    for (uint32_t i = 0; i < engine->params.sequences; i++)
        tokens += engine->sequences[i].known;
    fprintf(stderr, "%-8s %6llu of %u tokens", engine->space ? kv_space_tenant(engine->space) : "",
        (unsigned long long) tokens, engine->params.sequences * engine->params.length);
    if (engine->space) {
        struct kv_space_stats stats = kv_space_stats(engine->space);

        fprintf(stderr,
            "; pages: %llu on the device, %llu on the host; %llu evictions, %llu restores",
            (unsigned long long) sub_saturate(stats.used_pages, stats.evicted_pages),
            (unsigned long long) stats.evicted_pages, (unsigned long long) stats.evictions,
            (unsigned long long) stats.restores);
    }
    fputc('\n', stderr);
}

static void pause_ms(uint32_t ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (long) (ms % 1000) * 1000000};

    (void) nanosleep(&time, NULL);
}

int engine_run(struct engine *engine)
{
    _cleanup_free_ struct sequence **batch =
        calloc(engine->params.batch, sizeof(struct sequence *));
    uint64_t last = clock_now(&clock_monotonic), printed = last;
    uint32_t cursor = 0;

    if (batch == NULL)
        return -EIO;
    while (!all_finished(engine)) {
        int count = batch_hold(engine, &cursor, batch);
        uint64_t now = clock_now(&clock_monotonic);

        if (count < 0 || batch_turn(engine, batch, count) < 0)
            return -EIO;
        if (count > 0)
            last = now;
        if (now - last > PATIENCE_NS)
            return -ETIMEDOUT;
        if (engine->params.progress && now - printed >= NSEC_PER_SEC) {
            progress_print(engine);
            printed = now;
        }
        if (engine->params.pause_ms > 0)
            pause_ms(engine->params.pause_ms);
    }
    if (engine->params.progress)
        progress_print(engine);
    return 0;
}
