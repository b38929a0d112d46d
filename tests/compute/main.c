/*
 * gmb-transformer: generates sequences and prints their tokens, one line each, so that two runs can
 * be compared. With --plain its KV is in memory of its own; otherwise in an arena of the broker.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/compute/engine.h"

#define EXIT_USAGE 2

struct arguments {
    struct engine_params engine;
    struct kv_space_params space;
    uint64_t seed;
    bool plain;
};

static const struct option table[] = {
    {"plain", no_argument, NULL, 'p'},
    {"socket", required_argument, NULL, 's'},
    {"sequences", required_argument, NULL, 'n'},
    {"length", required_argument, NULL, 'l'},
    {"batch", required_argument, NULL, 'b'},
    {"turn", required_argument, NULL, 't'},
    {"page-tokens", required_argument, NULL, 'k'},
    {"chunk-pages", required_argument, NULL, 'C'},
    {"pause", required_argument, NULL, 'w'},
    {"seed", required_argument, NULL, 'x'},
    {"recomputable", no_argument, NULL, 'r'},
    {"compare", no_argument, NULL, 'c'},
    {"progress", no_argument, NULL, 'v'},
    {0},
};

static const char usage[] =
    "usage: gmb-transformer [OPTION…]\n"
    "  --plain           KV in memory of the process\n"
    "  --socket PATH     of the broker\n"
    "  --sequences N     (8)      --length N  tokens of each (256)\n"
    "  --batch N         (2)      --turn N    tokens before the next batch (16)\n"
    "  --page-tokens N   (16)     --pause MS  between turns (0)\n"
    "  --chunk-pages N   (0: as many as libgmb chooses)\n"
    "  --seed N          of the weights (1)\n"
    "  --recomputable    pages may be dropped\n"
    "  --compare         each step also on plain memory; prints how far they are apart\n"
    "  --progress        a line each second on standard error\n";

/* A number from 1 (0 for a pause, a seed) to a bound that keeps products within 32 bits. */
static bool number(const char *text, uint32_t least, uint32_t *ret)
{
    char *end;
    unsigned long value;

    errno = 0;
    value = strtoul(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || *text == '-' || value < least || value > 65536)
        return false;
    *ret = (uint32_t) value;
    return true;
}

static bool take(int option, const char *text, struct arguments *to)
{
    uint32_t seed;

    switch (option) {
    case 'p':
        to->plain = true;
        return true;
    case 's':
        to->space.socket = text;
        return true;
    case 'n':
        return number(text, 1, &to->engine.sequences);
    case 'l':
        return number(text, 33, &to->engine.length);
    case 'b':
        return number(text, 1, &to->engine.batch);
    case 't':
        return number(text, 1, &to->engine.turn);
    case 'k':
        return number(text, 1, &to->space.page_tokens);
    case 'C':
        return number(text, 0, &to->space.chunk_pages);
    case 'w':
        return number(text, 0, &to->engine.pause_ms);
    case 'x':
        if (!number(text, 0, &seed))
            return false;
        to->seed = seed;
        return true;
    case 'r':
        to->space.recomputable = true;
        return true;
    case 'c':
        to->engine.compare = true;
        return true;
    case 'v':
        to->engine.progress = true;
        return true;
    default:
        return false;
    }
}

static void print(const struct engine *engine)
{
    const struct engine_params *params = &engine->params;
    uint64_t steps = 0, equal = 0;
    float worst = 0;

    for (uint32_t i = 0; i < params->sequences; i++) {
        const struct sequence *sequence = &engine->sequences[i];

        printf("sequence %u logits %016llx tokens", i, (unsigned long long) sequence->digest);
        for (uint32_t j = 0; j < sequence->known; j++)
            printf(" %u", sequence->tokens[j]);
        putchar('\n');
        steps += sequence->steps;
        equal += sequence->equal;
        worst = MAX(worst, sequence->worst);
    }
    if (params->compare)
        printf("compared steps %llu equal %llu worst %.6f\n", (unsigned long long) steps,
            (unsigned long long) equal, (double) worst);
    if (engine->space) {
        struct kv_space_stats stats = kv_space_stats(engine->space);

        printf(
            "arena evictions %llu restores %llu waits %llu lost %llu full %llu recomputed %llu\n",
            (unsigned long long) stats.evictions, (unsigned long long) stats.restores,
            (unsigned long long) stats.waits, (unsigned long long) stats.lost,
            (unsigned long long) stats.full, (unsigned long long) engine->recomputed);
    }
}

static int generate(const struct arguments *arguments, struct kv_space *space)
{
    _cleanup_(transformer_free_ptr) struct transformer *model = NULL;
    _cleanup_(engine_done) struct engine engine = {0};
    int r = transformer_new(arguments->seed, &model);

    if (r == 0)
        r = engine_init(&engine, &arguments->engine, model, space);
    if (r == 0)
        r = engine_run(&engine);
    if (r < 0) {
        fprintf(stderr, "gmb-transformer: %s\n", strerror(-r));
        return EXIT_FAILURE;
    }
    print(&engine);
    return EXIT_SUCCESS;
}

int main(int argc, char *argv[])
{
    struct arguments arguments = {
        .engine = {.sequences = 8, .length = 256, .batch = 2, .turn = 16},
        .space = {.page_tokens = 16},
        .seed = 1,
    };
    struct kv_space *space = NULL;
    int option, status;

    while ((option = getopt_long(argc, argv, "", table, NULL)) != -1) {
        if (!take(option, optarg, &arguments)) {
            fputs(usage, stderr);
            return EXIT_USAGE;
        }
    }
    arguments.space.max_tokens = (uint64_t) arguments.engine.sequences *
                                 (arguments.engine.length + arguments.space.page_tokens);
    if (!arguments.plain && kv_space_new(&arguments.space, &space) < 0)
        return EXIT_FAILURE;
    status = generate(&arguments, space);
    (void) kv_space_free(space);
    return status;
}
