/* Devices: jobs are done when they are answered, in order, like the shell's executor does. */
#include "tests/simulation/model.h"

#include <stdarg.h>
#include <string.h>

#include "base/clock.h"

void model_fail(const struct model *model, const char *format, ...)
{
    va_list arguments;

    (void) fprintf(stderr,
        "simulation: seed %llu, event %llu, step %llu: ", (unsigned long long) model->seed,
        (unsigned long long) model->events, (unsigned long long) model->steps);
    va_start(arguments, format);
    (void) vfprintf(stderr, format, arguments);
    va_end(arguments);
    (void) fprintf(stderr, "\nreplay: --seed %llu --events %llu\n",
        (unsigned long long) model->seed, (unsigned long long) model->events);
    exit(EXIT_FAILURE);
}

/* splitmix64 (Steele, Lea, Flood 2014). */
uint64_t model_random(struct model *model)
{
    uint64_t z = model->random += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t model_below(struct model *model, uint64_t bound)
{
    return model_random(model) % bound;
}

bool model_chance(struct model *model, uint64_t n)
{
    return model_below(model, n) == 0;
}

uint64_t model_free(const struct model *model, unsigned device)
{
    const struct model_device *d = &model->devices[device];
    uint64_t used = d->others + d->held + d->leaked;

    if (used > d->total)
        model_fail(model, "device %u has less than nothing free", device);
    return d->total - used;
}

void model_drift(struct model *model)
{
    for (unsigned i = 0; i < MODEL_DEVICES; i++) {
        struct model_device *d = &model->devices[i];

        for (size_t k = 0; k < d->leak_count;) {
            if ((d->leaks[k].until_ns > model->now_ns && !model->calm) || d->leaks[k].mapped != 0) {
                k++;
                continue;
            }
            d->leaked -= d->leaks[k].bytes;
            d->leaks[k] = d->leaks[--d->leak_count];
        }
        if (model->calm) {
            d->others = 0;
            continue;
        }
        if (model->still || !model_chance(model, 200))
            continue;
        /* Mostly within the reserve, at times beyond it. */
        d->others = model_below(model, d->reserve + (model_chance(model, 4) ? 128 * MIB : 1));
        d->others = MIN(d->others, d->total - d->held - d->leaked);
    }
}

static struct model_chunk *chunk_of(struct model *model, const struct core_action *job)
{
    struct model_chunk *chunk = &model->chunks[job->chunk.chunk];

    if (chunk->generation != job->chunk.generation || chunk->bytes != job->chunk.bytes)
        model_fail(model, "chunk %u is not the one that was made", job->chunk.chunk);
    return chunk;
}

static void chunk_event(struct core_event *event, const struct core_action *job)
{
    event->chunk.device = job->chunk.device;
    event->chunk.chunk = job->chunk.chunk;
    event->chunk.generation = job->chunk.generation;
}

static void answer_create(
    struct model *model, struct model_device *d, const struct core_action *job)
{
    struct model_chunk *chunk = chunk_of(model, job);
    struct core_event event = {.type = CORE_EVENT_CHUNK_CREATED};
    bool broken = !model->calm && model_chance(model, 2000);
    bool oom = model_free(model, job->chunk.device) < job->chunk.bytes ||
               (!model->calm && model_chance(model, 300));

    chunk_event(&event, job);
    chunk->asked = false;
    if (broken || oom) {
        event.type = CORE_EVENT_CHUNK_FAILED;
        event.chunk.out_of_memory = oom;
        model->ooms++;
        chunk->bytes = 0;
    } else {
        chunk->created = true;
        d->held += job->chunk.bytes;
    }
    model_step(model, &event);
}

static void answer_release(
    struct model *model, struct model_device *d, const struct core_action *job)
{
    struct model_chunk *chunk = chunk_of(model, job);
    struct core_event event = {.type = CORE_EVENT_CHUNK_RELEASED};

    chunk_event(&event, job);
    d->held -= job->chunk.bytes;
    if ((chunk->leaky && !model->calm) || chunk->mapped != 0) {
        uint64_t time_ns = model_chance(model, 3) ? 10 * SEC : 30 * MS;

        d->leaked += job->chunk.bytes;
        d->leaks[d->leak_count++] = (struct model_leak){
            job->chunk.bytes, model->now_ns + model_below(model, time_ns), chunk->mapped};
        model->leaks++;
    }
    *chunk = (struct model_chunk){.tenant = -1};
    model_step(model, &event);
}

bool model_answer(struct model *model, unsigned device)
{
    struct model_device *d = &model->devices[device];
    struct core_event event = {.type = CORE_EVENT_MEMORY_OBSERVED};
    struct core_action job;

    if (d->job_count == 0)
        return false;
    job = d->jobs[d->job_first];
    d->job_first = (d->job_first + 1) % MODEL_JOBS;
    d->job_count--;
    if (job.type == CORE_ACTION_CHUNK_CREATE) {
        answer_create(model, d, &job);
    } else if (job.type == CORE_ACTION_CHUNK_RELEASE) {
        answer_release(model, d, &job);
    } else {
        event.observed.device = device;
        event.observed.free_bytes = model_free(model, device);
        if (!model->calm && model_chance(model, 100))
            event.observed.free_bytes = UINT64_MAX; /* the driver couldn't say */
        model_step(model, &event);
    }
    return true;
}

void model_tick(struct model *model)
{
    model->idle_ticks = 0;
    while (core_next_tick(model->core) <= model->now_ns) {
        model_step(model, &(struct core_event){.type = CORE_EVENT_TICK});
        model->idle_ticks = model->actions.count == 0 ? model->idle_ticks + 1 : 0;
        if (model->idle_ticks > 1000)
            model_fail(model, "ticks without end that do nothing");
    }
}
