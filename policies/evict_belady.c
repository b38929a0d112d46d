/*
 * The clairvoyant bound (Belady 1966): the page that is used again last goes first. It needs the
 * future, so it serves as the measure of the others. A page that is used again later than all
 * others needn't be cached to begin with, so victims are asked for when the request's pages are all
 * there. Logarithmic time.
 */
#include "base/heap.h"
#include "policies/eviction.h"

#include <errno.h>

struct eviction {
    struct heap heap;
    struct heap_node *nodes; /* by slot */
};

static struct eviction *belady_free(struct eviction *belady)
{
    if (belady != NULL) {
        heap_done(&belady->heap);
        free(belady->nodes);
        free(belady);
    }
    return NULL;
}

static int belady_new(uint32_t slots, struct eviction **ret)
{
    struct eviction *belady = calloc(1, sizeof(*belady));

    if (belady == NULL)
        return -ENOMEM;
    belady->nodes = calloc(slots, sizeof(*belady->nodes));
    if (belady->nodes == NULL || heap_reserve(&belady->heap, slots) < 0) {
        belady_free(belady);
        return -ENOMEM;
    }
    *ret = belady;
    return 0;
}

static void belady_admit(
    struct eviction *belady, uint32_t slot, const struct eviction_access *access, uint64_t now)
{
    heap_push(&belady->heap, &belady->nodes[slot], UINT64_MAX - access->next_use);
}

static void belady_touch(
    struct eviction *belady, uint32_t slot, const struct eviction_access *access, uint64_t now)
{
    heap_remove(&belady->heap, &belady->nodes[slot]);
    belady_admit(belady, slot, access, now);
}

static uint32_t belady_victim(struct eviction *belady, uint64_t now)
{
    struct heap_node *node = heap_first(&belady->heap);

    if (node == NULL)
        return EVICTION_NONE;
    heap_remove(&belady->heap, node);
    return (uint32_t) (node - belady->nodes);
}

const struct eviction_ops eviction_belady = {
    .name = "belady",
    .keeps_prefixes = true,
    .new = belady_new,
    .free = belady_free,
    .admit = belady_admit,
    .touch = belady_touch,
    .victim = belady_victim,
};
