/*
 * Deterministic simulation of the core.
 *
 *   simulation                         the default: several seeds, 1,200,000 events in all
 *   simulation --seed N --events M     one run, exactly as it was
 *   simulation --seeds K --events M    seeds 1 to K
 */
#include <errno.h>
#include <string.h>

#include "tests/simulation/model.h"

static bool number(const char *text, uint64_t *ret)
{
    char *end;

    errno = 0;
    *ret = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0' && end != text;
}

/* What must have happened for a run of many events to mean anything. */
static void require_coverage(const struct model *model)
{
    if (model->grants == 0 || model->refusals == 0 || model->timeouts == 0 || model->ooms == 0 ||
        model->leaks == 0 || model->deaths == 0 || model->changes == 0 ||
        model->orphaned_seen == 0 || model->fills == 0 || model->returns == 0 ||
        model->reclaims == 0 || model->attached == 0 || model->shared == 0 ||
        model->outlived == 0 || model->own_reclaims == 0 || model->drains == 0 ||
        model->gangs == 0 || model->holds == 0 || model->stales == 0 || model->advices == 0 ||
        model->cuts == 0 || model->crashes == 0 || model->kept == 0 || model->seals == 0 ||
        model->demotions == 0 || model->restores == 0 || model->removals == 0 || model->lost == 0)
        model_fail(model, "a run this long met too little");
    for (unsigned i = 0; i < PRESSURE_LEVEL_MAX; i++) {
        if (model->level_seen[i] == 0)
            model_fail(model, "a run this long never had one of the levels");
    }
}

static uint64_t run(uint64_t seed, uint64_t events, bool quiet)
{
    static struct model model;

    model_init(&model, seed);
    while (model.events < events)
        model_event(&model);
    if (events >= 50000)
        require_coverage(&model);
    model_end(&model);
    if (!quiet)
        (void) printf(
            "seed %llu: %llu events, %llu steps, %llu grants, %llu refusals (%llu timed "
            "out), %llu creates failed, %llu leaks, %llu deaths, %llu fills, %llu returns, "
            "%llu wishes for memory, %llu attached, %llu gangs, %llu levels, %llu advices, "
            "%llu crashes, %llu leases mapped on, %llu segments sealed, %llu demoted, %llu "
            "restored, %llu removed, %llu lost; hash %016llx\n",
            (unsigned long long) seed, (unsigned long long) model.events,
            (unsigned long long) model.steps, (unsigned long long) model.grants,
            (unsigned long long) model.refusals, (unsigned long long) model.timeouts,
            (unsigned long long) model.ooms, (unsigned long long) model.leaks,
            (unsigned long long) model.deaths, (unsigned long long) model.fills,
            (unsigned long long) model.returns, (unsigned long long) model.reclaims,
            (unsigned long long) model.attached, (unsigned long long) model.gangs,
            (unsigned long long) model.levels, (unsigned long long) model.advices,
            (unsigned long long) model.crashes, (unsigned long long) model.kept,
            (unsigned long long) model.seals, (unsigned long long) model.demotions,
            (unsigned long long) model.restores, (unsigned long long) model.removals,
            (unsigned long long) model.lost, (unsigned long long) model.hash);
    return model.hash;
}

int main(int argc, char **argv)
{
    uint64_t seed = 0, events = 100000, seeds = 12;

    for (int i = 1; i < argc; i += 2) {
        uint64_t *value = strcmp(argv[i], "--seed") == 0     ? &seed
                          : strcmp(argv[i], "--events") == 0 ? &events
                          : strcmp(argv[i], "--seeds") == 0  ? &seeds
                                                             : NULL;

        if (!value || i + 1 >= argc || !number(argv[i + 1], value)) {
            (void) fprintf(stderr, "usage: %s [--seed N | --seeds K] [--events M]\n", argv[0]);
            return 2;
        }
    }
    if (seed != 0) {
        (void) run(seed, events, false);
        return 0;
    }
    if (run(1, 5000, true) != run(1, 5000, true) || run(1, 5000, true) == run(2, 5000, true)) {
        (void) fprintf(
            stderr, "simulation: the same seed must give the same run, another another\n");
        return 1;
    }
    for (uint64_t i = 1; i <= seeds; i++)
        (void) run(i, events, false);
    return 0;
}
