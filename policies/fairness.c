/* An array heap ordered by fairness_before(). Shares are compared as products, never divided. */
#include "policies/fairness.h"

static unsigned __int128 share(const struct fairness_claim *claim, uint32_t other_weight)
{
    return ((unsigned __int128) claim->used + claim->requested) * other_weight;
}

bool fairness_before(const struct fairness_claim *a, const struct fairness_claim *b)
{
    unsigned __int128 share_a = share(a, b->weight), share_b = share(b, a->weight);

    if (a->priority != b->priority)
        return a->priority > b->priority;
    if (share_a != share_b)
        return share_a < share_b;
    return a->arrival < b->arrival;
}

static void sink(struct fairness_claim *claims, size_t count, size_t index)
{
    struct fairness_claim claim = claims[index];

    for (;;) {
        size_t child = 2 * index + 1;

        if (child >= count)
            break;
        if (child + 1 < count && fairness_before(&claims[child + 1], &claims[child]))
            child++;
        if (!fairness_before(&claims[child], &claim))
            break;
        claims[index] = claims[child];
        index = child;
    }
    claims[index] = claim;
}

void fairness_build(struct fairness_claim *claims, size_t count)
{
    for (size_t i = count / 2; i > 0; i--)
        sink(claims, count, i - 1);
}

struct fairness_claim fairness_take(struct fairness_claim *claims, size_t *count)
{
    struct fairness_claim first = claims[0];

    claims[0] = claims[--*count];
    if (*count > 0)
        sink(claims, *count, 0);
    return first;
}

void fairness_put(struct fairness_claim *claims, size_t *count, const struct fairness_claim *claim)
{
    size_t index = (*count)++;

    while (index > 0) {
        size_t parent = (index - 1) / 2;

        if (!fairness_before(claim, &claims[parent]))
            break;
        claims[index] = claims[parent];
        index = parent;
    }
    claims[index] = *claim;
}
