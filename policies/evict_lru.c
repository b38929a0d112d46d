/* Least recently used: one list, a used page goes to its young end. */
#include "policies/slot_list.h"

#include <errno.h>

struct eviction {
    struct slot_links links;
    struct slot_list list;
};

static struct eviction *lru_free(struct eviction *lru)
{
    if (lru != NULL) {
        slot_links_free(&lru->links);
        free(lru);
    }
    return NULL;
}

static int lru_new(uint32_t slots, struct eviction **ret)
{
    struct eviction *lru = calloc(1, sizeof(*lru));

    if (lru == NULL || slot_links_new(&lru->links, slots) < 0) {
        lru_free(lru);
        return -ENOMEM;
    }
    lru->list = SLOT_LIST_EMPTY;
    *ret = lru;
    return 0;
}

static void lru_admit(
    struct eviction *lru, uint32_t slot, const struct eviction_access *access, uint64_t now)
{
    slot_list_push_tail(&lru->links, &lru->list, slot);
}

static void lru_touch(
    struct eviction *lru, uint32_t slot, const struct eviction_access *access, uint64_t now)
{
    slot_list_remove(&lru->links, &lru->list, slot);
    slot_list_push_tail(&lru->links, &lru->list, slot);
}

static uint32_t lru_victim(struct eviction *lru, uint64_t now)
{
    uint32_t slot = lru->list.head;

    if (slot != EVICTION_NONE)
        slot_list_remove(&lru->links, &lru->list, slot);
    return slot;
}

const struct eviction_ops eviction_lru = {
    .name = "lru",
    .new = lru_new,
    .free = lru_free,
    .admit = lru_admit,
    .touch = lru_touch,
    .victim = lru_victim,
};
