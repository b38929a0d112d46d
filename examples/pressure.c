/*
 * A worker with a cache: sizes it by what it may have, hears that memory gets short, gives the
 * share back that it is asked for, and says so.
 *
 *     cc pressure.c $(pkg-config --cflags --libs gmb) -o pressure && ./pressure
 *
 * Its tenant's section of the configuration has the line
 *
 *     DegradeLow=drop-prefix-cache 0.5
 */
#include <gmb.h>
#include <stdio.h>
#include <stdlib.h>

struct cache {
    gmb_session *session;
    gmb_lease *memory;
    double dropped; /* share that it was asked for and gave */
};

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s (limit: %s)\n", what, gmb_error_text(), gmb_error_limit());
    return EXIT_FAILURE;
}

/* In the thread that dispatches: here, main()'s. Every step is answered, also what we don't do. */
static void on_advice(void *user, const struct gmb_advice *advice)
{
    struct cache *cache = user;

    for (uint32_t i = 0; i < advice->step_count; i++) {
        const struct gmb_advice_step *step = &advice->steps[i];
        enum gmb_advice_outcome outcome = GMB_ADVICE_REFUSED;
        uint64_t before = gmb_lease_bytes(cache->memory), freed = 0;

        if (step->action == GMB_DEGRADE_DROP_PREFIX_CACHE) {
            uint64_t keep = (uint64_t) ((double) before * (1 - step->factor));

            if (gmb_lease_shrink(cache->memory, keep) == 0)
                outcome = GMB_ADVICE_DONE;
            freed = before - gmb_lease_bytes(cache->memory);
            cache->dropped = step->factor;
        }
        if (gmb_advice_ack(
                cache->session, advice->id, (enum gmb_degrade) step->action, outcome, freed) != 0)
            fail("answer");
    }
}

static int work(struct cache *cache)
{
    struct gmb_lease_params params = {
        .size = sizeof(params), .wait_ns = UINT64_C(5000000000), .label = "cache"};
    uint64_t free_bytes, total_bytes;

    if (gmb_memory_info(cache->session, 0, &free_bytes, &total_bytes) != 0)
        return fail("memory");
    params.bytes = free_bytes / 10 * 9;
    if (gmb_lease_new(cache->session, &params, &cache->memory) != 0)
        return fail("lease");
    if (gmb_pressure_subscribe(cache->session, NULL, on_advice, cache) != 0)
        return fail("subscribe");
    while (cache->dropped == 0) {
        if (gmb_dispatch(cache->session, 10000) < 0)
            return fail("dispatch");
    }
    printf("%s: a cache of %.0f %% of the memory gave %.0f %% of itself\n",
        gmb_tenant(cache->session), 100.0 * (double) params.bytes / (double) total_bytes,
        100 * cache->dropped);
    return gmb_lease_release(cache->memory) == 0 ? EXIT_SUCCESS : fail("release");
}

int main(void)
{
    struct cache cache = {0};
    int status;

    if (gmb_connect(NULL, &cache.session) != 0)
        return fail("connect");
    status = work(&cache);
    gmb_disconnect(cache.session);
    return status;
}
