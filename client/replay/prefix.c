/* One figure for one policy and one size, as text and as JSON. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "client/replay/prefix.h"
#include "client/replay/prefix_cache.h"

struct prefix_report {
    const char *policy;
    uint64_t blocks, requests;
    struct prefix_result result, bound;
    bool bounded;
};

static void print(FILE *out, const struct prefix_report *report)
{
    (void) fprintf(out, "policy      %s\nblocks      %llu\nrequests    %llu\n", report->policy,
        (unsigned long long) report->blocks, (unsigned long long) report->requests);
    (void) fprintf(out, "references  %llu, %llu distinct\nhits        %llu\nhit_ratio   %.4f\n",
        (unsigned long long) report->result.references,
        (unsigned long long) report->result.distinct, (unsigned long long) report->result.hits,
        prefix_hit_ratio(&report->result));
    if (report->bounded)
        (void) fprintf(out, "bound       %.4f\n", prefix_hit_ratio(&report->bound));
}

static int write_json(const char *path, const struct prefix_report *report)
{
    json_t *object = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:f}", "policy", report->policy,
        "blocks", (json_int_t) report->blocks, "requests", (json_int_t) report->requests,
        "references", (json_int_t) report->result.references, "distinct",
        (json_int_t) report->result.distinct, "hits", (json_int_t) report->result.hits, "hit_ratio",
        prefix_hit_ratio(&report->result));
    bool standard = strcmp(path, "-") == 0;
    FILE *file;
    int r = 0;

    if (object == NULL)
        return -ENOMEM;
    if (report->bounded &&
        json_object_set_new(object, "bound", json_real(prefix_hit_ratio(&report->bound))) < 0) {
        json_decref(object);
        return -ENOMEM;
    }
    file = standard ? stdout : fopen(path, "we");
    if (file == NULL)
        r = -errno;
    else if (json_dumpf(object, file, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) < 0 ||
             fputc('\n', file) == EOF)
        r = -EIO;
    if (file != NULL && (standard ? fflush(file) : fclose(file)) != 0 && r == 0)
        r = -errno;
    json_decref(object);
    return r;
}

static const char *why(int error)
{
    if (error == -ENODATA)
        return "the trace names no blocks (hash_ids of the Mooncake format)";
    if (error == -E2BIG)
        return "more blocks than a policy can number";
    return strerror(-error);
}

int prefix_replay(const struct options *options, const struct trace *trace, FILE *out)
{
    const struct eviction_ops *ops = eviction_find(options->policy);
    struct prefix_report report = {
        .policy = ops->name,
        .blocks = options->blocks,
        .requests = trace->count,
        .bounded = options->bound,
    };
    int r = prefix_cache_play(trace, ops, options->blocks, &report.result);

    if (r == 0 && report.bounded)
        r = prefix_cache_play(trace, &eviction_belady, options->blocks, &report.bound);
    if (r < 0) {
        (void) fprintf(stderr, "gmb-replay: %s: %s\n", options->trace, why(r));
        return EXIT_FAILURE;
    }
    print(out, &report);
    r = options->json ? write_json(options->json, &report) : 0;
    if (r < 0) {
        (void) fprintf(stderr, "gmb-replay: %s: %s\n", options->json, strerror(-r));
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
