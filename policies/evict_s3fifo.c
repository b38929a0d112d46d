/*
 * S3-FIFO (Yang et al., SOSP 2023): a small queue of a tenth of the cache filters pages used once;
 * those used again go on to the main queue, where each use (up to 3) buys another round. Keys that
 * fell out of the small queue are remembered, as many as the cache has pages: when one comes back,
 * it goes to the main queue at once.
 */
#include "policies/key_table.h"

#include <errno.h>

#define SMALL_SHARE 10 /* one part in ten */
#define USES_MAX 3

struct eviction {
    struct slot_links links;
    struct slot_list small, main;
    struct key_table ghosts;
    uint32_t small_target;
    uint8_t *uses;  /* by slot */
    bool *in_small; /* by slot */
    uint64_t *keys; /* by slot */
};

static struct eviction *s3fifo_free(struct eviction *s3)
{
    if (s3 != NULL) {
        slot_links_free(&s3->links);
        key_table_clear(&s3->ghosts);
        free(s3->uses);
        free(s3->in_small);
        free(s3->keys);
        free(s3);
    }
    return NULL;
}

static int s3fifo_new(uint32_t slots, struct eviction **ret)
{
    struct eviction *s3 = calloc(1, sizeof(*s3));

    if (s3 == NULL)
        return -ENOMEM;
    s3->small_target = MAX(slots / SMALL_SHARE, 1u);
    s3->uses = calloc(slots, sizeof(*s3->uses));
    s3->in_small = calloc(slots, sizeof(*s3->in_small));
    s3->keys = calloc(slots, sizeof(*s3->keys));
    if (slot_links_new(&s3->links, slots) < 0 || s3->uses == NULL || s3->in_small == NULL ||
        s3->keys == NULL || key_table_init(&s3->ghosts, slots) < 0) {
        s3fifo_free(s3);
        return -ENOMEM;
    }
    s3->small = SLOT_LIST_EMPTY;
    s3->main = SLOT_LIST_EMPTY;
    *ret = s3;
    return 0;
}

static void s3fifo_admit(
    struct eviction *s3, uint32_t slot, const struct eviction_access *access, uint64_t now)
{
    uint32_t ghost = key_table_find(&s3->ghosts, access->key);

    s3->uses[slot] = 0;
    s3->keys[slot] = access->key;
    s3->in_small[slot] = ghost == EVICTION_NONE;
    if (ghost != EVICTION_NONE)
        key_table_remove(&s3->ghosts, ghost);
    slot_list_push_tail(&s3->links, s3->in_small[slot] ? &s3->small : &s3->main, slot);
}

static void s3fifo_touch(
    struct eviction *s3, uint32_t slot, const struct eviction_access *access, uint64_t now)
{
    if (s3->uses[slot] < USES_MAX)
        s3->uses[slot]++;
}

/* Moves what was used on to the main queue; NONE when the whole small queue was. */
static uint32_t small_victim(struct eviction *s3)
{
    uint32_t slot;
    bool replaced;

    while ((slot = s3->small.head) != EVICTION_NONE) {
        slot_list_remove(&s3->links, &s3->small, slot);
        if (s3->uses[slot] > 0) {
            s3->uses[slot] = 0;
            s3->in_small[slot] = false;
            slot_list_push_tail(&s3->links, &s3->main, slot);
            continue;
        }
        if (key_table_find(&s3->ghosts, s3->keys[slot]) == EVICTION_NONE)
            (void) key_table_add(&s3->ghosts, s3->keys[slot], &replaced);
        return slot;
    }
    return EVICTION_NONE;
}

static uint32_t main_victim(struct eviction *s3)
{
    uint32_t slot;

    while ((slot = s3->main.head) != EVICTION_NONE) {
        slot_list_remove(&s3->links, &s3->main, slot);
        if (s3->uses[slot] == 0)
            return slot;
        s3->uses[slot]--;
        slot_list_push_tail(&s3->links, &s3->main, slot);
    }
    return EVICTION_NONE;
}

static uint32_t s3fifo_victim(struct eviction *s3, uint64_t now)
{
    uint32_t slot = EVICTION_NONE;

    if (s3->small.count >= s3->small_target || s3->main.count == 0)
        slot = small_victim(s3);
    return slot == EVICTION_NONE ? main_victim(s3) : slot;
}

const struct eviction_ops eviction_s3fifo = {
    .name = "s3fifo",
    .new = s3fifo_new,
    .free = s3fifo_free,
    .admit = s3fifo_admit,
    .touch = s3fifo_touch,
    .victim = s3fifo_victim,
};
