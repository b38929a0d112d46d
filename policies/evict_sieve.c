/*
 * SIEVE (Zhang et al., NSDI 2024): pages stand in order of admission; a hand goes from the oldest
 * to the youngest, spares each page used since it last passed, and takes the first that wasn't.
 */
#include "policies/slot_list.h"

#include <errno.h>

struct eviction {
    struct slot_links links;
    struct slot_list list;
    uint32_t hand;
    bool *visited; /* by slot */
};

static struct eviction *sieve_free(struct eviction *sieve)
{
    if (sieve != NULL) {
        slot_links_free(&sieve->links);
        free(sieve->visited);
        free(sieve);
    }
    return NULL;
}

static int sieve_new(uint32_t slots, struct eviction **ret)
{
    struct eviction *sieve = calloc(1, sizeof(*sieve));

    if (sieve == NULL || slot_links_new(&sieve->links, slots) < 0 ||
        (sieve->visited = calloc(slots, sizeof(*sieve->visited))) == NULL) {
        sieve_free(sieve);
        return -ENOMEM;
    }
    sieve->list = SLOT_LIST_EMPTY;
    sieve->hand = EVICTION_NONE;
    *ret = sieve;
    return 0;
}

static void sieve_admit(
    struct eviction *sieve, uint32_t slot, const struct eviction_access *access, uint64_t now)
{
    sieve->visited[slot] = false;
    slot_list_push_tail(&sieve->links, &sieve->list, slot);
}

static void sieve_touch(
    struct eviction *sieve, uint32_t slot, const struct eviction_access *access, uint64_t now)
{
    sieve->visited[slot] = true;
}

static uint32_t sieve_victim(struct eviction *sieve, uint64_t now)
{
    uint32_t slot = sieve->hand == EVICTION_NONE ? sieve->list.head : sieve->hand;

    if (slot == EVICTION_NONE)
        return EVICTION_NONE;
    while (sieve->visited[slot]) {
        sieve->visited[slot] = false;
        slot = sieve->links.next[slot];
        if (slot == EVICTION_NONE)
            slot = sieve->list.head;
    }
    sieve->hand = sieve->links.next[slot];
    slot_list_remove(&sieve->links, &sieve->list, slot);
    return slot;
}

const struct eviction_ops eviction_sieve = {
    .name = "sieve",
    .new = sieve_new,
    .free = sieve_free,
    .admit = sieve_admit,
    .touch = sieve_touch,
    .victim = sieve_victim,
};
