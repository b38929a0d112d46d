/*
 * A Markov-modulated Poisson process with two states. Since exponential times have no memory, an
 * arrival that would fall behind the next change of state is drawn anew from that moment on.
 */
#include "client/replay/generator.h"

#include <errno.h>

#include "base/clock.h"
#include "client/replay/random.h"

const struct generator_params generator_defaults = {
    .seed = 1,
    .requests = 2000,
    .rate = 4.5,
    .burst_factor = 3,
    .calm_s = 30,
    .burst_s = 5,
    .prompt_median = 650,
    .prompt_sigma = 1.1,
    .answer_median = 140,
    .answer_sigma = 0.9,
    .prompt_max = 16384,
    .answer_max = 2048,
};

struct generator {
    struct trace_reader reader;
    struct generator_params params;
    struct random random;
    uint64_t made;
    double now_s, change_s; /* of the last arrival; when the state changes next */
    bool burst;
};

static double next_arrival(struct generator *generator)
{
    const struct generator_params *params = &generator->params;

    for (;;) {
        double rate = params->rate * (generator->burst ? params->burst_factor : 1);
        double at = generator->now_s + random_exponential(&generator->random, 1 / rate);

        if (at <= generator->change_s)
            return at;
        generator->now_s = generator->change_s;
        generator->burst = !generator->burst;
        generator->change_s += random_exponential(
            &generator->random, generator->burst ? params->burst_s : params->calm_s);
    }
}

static uint64_t lognormal(struct random *random, double median, double sigma, uint64_t max)
{
    double value = median * exp(sigma * random_normal(random));

    if (!(value >= 1))
        return 1;
    return value >= (double) max ? max : (uint64_t) value;
}

static int generator_next(
    struct trace_reader *reader, struct trace_request *ret, struct trace_error *error)
{
    struct generator *generator = container_of(reader, struct generator, reader);
    const struct generator_params *params = &generator->params;

    (void) error;
    if (generator->made == params->requests)
        return TRACE_END;
    generator->made++;
    generator->now_s = next_arrival(generator);
    *ret =
        (struct trace_request){.arrival_ns = (uint64_t) (generator->now_s * (double) NSEC_PER_SEC)};
    /* One statement each: the order of draws must not be the compiler's choice. */
    ret->context_tokens = lognormal(
        &generator->random, params->prompt_median, params->prompt_sigma, params->prompt_max);
    ret->generated_tokens = lognormal(
        &generator->random, params->answer_median, params->answer_sigma, params->answer_max);
    return TRACE_OK;
}

static void generator_close(struct trace_reader *reader)
{
    free(container_of(reader, struct generator, reader));
}

static const struct trace_ops generator_ops = {.next = generator_next, .close = generator_close};

int generator_new(const struct generator_params *params, struct trace_reader **ret)
{
    struct generator *generator = calloc(1, sizeof(*generator));

    if (!generator)
        return -ENOMEM;
    generator->reader =
        (struct trace_reader){.ops = &generator_ops, .format = TRACE_FORMAT_GENERATED};
    generator->params = *params;
    generator->random.seed = params->seed;
    generator->change_s = random_exponential(&generator->random, params->calm_s);
    *ret = &generator->reader;
    return 0;
}
