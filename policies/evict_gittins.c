/*
 * Our own: the page whose place is worth least goes first.
 *
 * Pages fall into classes by what is known of them: how often they were used, how long the answer
 * was that the last request on them got (a long answer ends a conversation, a short one is a step
 * of one), and whether that request went further than the one before. gittins_model.h says what a
 * page of a class and an age is worth, learnt from the accesses themselves; nothing is tuned to a
 * trace.
 *
 * What is known of a page outlives its place in the cache, as long as the history has room.
 *
 * Only pages that no cached page continues may go, so that what is cached is whole prefixes. They
 * stand in one list for each class and bin of age; a bitmap in order of worth finds the first list
 * that isn't empty. A page moves to the list of its present age when it is met at the head of an
 * older one: amortised, once for each bin of its life.
 */
#include "policies/gittins_model.h"
#include "policies/key_table.h"

#include <errno.h>

#define HISTORY_EXTRA 65536u /* keys remembered beyond as many as there are slots */
#define LEARN_DISTANCE 1000u
#define SEEN_KINDS 3
#define OUTPUT_KINDS 9
#define GROWTH_KINDS 3
#define STATES (GITTINS_CLASSES * GITTINS_BINS)
#define WORDS ((STATES + 63) / 64)
#define AGING_LISTS 64 /* lists looked at for pages that aged, at each access */

_Static_assert(SEEN_KINDS *OUTPUT_KINDS *GROWTH_KINDS == GITTINS_CLASSES, "a class for each");

enum growth { GROWTH_FIRST, GROWTH_FURTHER, GROWTH_SAME };

struct memory { /* of a key */
    uint64_t last;
    uint32_t uses, output_tokens, prefix_pages;
    uint8_t growth, class;
};

struct page { /* in a slot */
    uint64_t last;
    uint64_t key;
    uint32_t parent, children;
    uint8_t class, bin;
};

struct eviction {
    struct gittins_model model;
    struct key_table history;
    struct memory *memories; /* by entry of the history */
    struct page *pages;      /* by slot */
    struct slot_links links;
    struct slot_list lists[GITTINS_CLASSES][GITTINS_BINS]; /* pages that may go */
    uint64_t filled[WORDS];                                /* by rank: the list isn't empty */
    unsigned aging;                                        /* the list to look at next */
    uint32_t until_learning;
};

static struct eviction *gittins_free(struct eviction *gittins)
{
    if (gittins != NULL) {
        key_table_clear(&gittins->history);
        slot_links_free(&gittins->links);
        free(gittins->memories);
        free(gittins->pages);
        free(gittins);
    }
    return NULL;
}

static int gittins_new(uint32_t slots, struct eviction **ret)
{
    struct eviction *gittins = calloc(1, sizeof(*gittins));
    uint32_t keys;

    if (gittins == NULL || __builtin_add_overflow(slots, HISTORY_EXTRA, &keys))
        return -ENOMEM;
    gittins->memories = calloc(keys, sizeof(*gittins->memories));
    gittins->pages = calloc(slots, sizeof(*gittins->pages));
    if (key_table_init(&gittins->history, keys) < 0 || slot_links_new(&gittins->links, slots) < 0 ||
        gittins->memories == NULL || gittins->pages == NULL) {
        gittins_free(gittins);
        return -ENOMEM;
    }
    gittins_model_init(&gittins->model);
    for (unsigned class = 0; class < GITTINS_CLASSES; class ++)
        for (unsigned bin = 0; bin < GITTINS_BINS; bin++)
            gittins->lists[class][bin] = SLOT_LIST_EMPTY;
    gittins->until_learning = LEARN_DISTANCE;
    *ret = gittins;
    return 0;
}

static unsigned log2_floor(uint32_t value)
{
    return 31u - (unsigned) __builtin_clz(value);
}

static uint8_t memory_class(const struct memory *memory)
{
    unsigned seen = MIN(memory->uses, (uint32_t) SEEN_KINDS) - 1;
    unsigned output =
        memory->output_tokens == UINT32_MAX ? 31 : log2_floor(memory->output_tokens + 1);

    output = MIN(output, OUTPUT_KINDS - 1u);
    return (uint8_t) ((seen * OUTPUT_KINDS + output) * GROWTH_KINDS + memory->growth);
}

static void list_mark(struct eviction *gittins, unsigned class, unsigned bin)
{
    unsigned rank = gittins->model.rank[class][bin];
    uint64_t bit = UINT64_C(1) << (rank % 64);

    if (gittins->lists[class][bin].count > 0)
        gittins->filled[rank / 64] |= bit;
    else
        gittins->filled[rank / 64] &= ~bit;
}

static void page_offer(struct eviction *gittins, uint32_t slot, uint64_t now, bool oldest)
{
    struct page *page = &gittins->pages[slot];
    struct slot_list *list;

    page->bin = (uint8_t) gittins_model_bin(&gittins->model, now - page->last);
    list = &gittins->lists[page->class][page->bin];
    if (oldest)
        slot_list_push_head(&gittins->links, list, slot);
    else
        slot_list_push_tail(&gittins->links, list, slot);
    list_mark(gittins, page->class, page->bin);
}

static void page_withdraw(struct eviction *gittins, uint32_t slot)
{
    struct page *page = &gittins->pages[slot];

    slot_list_remove(&gittins->links, &gittins->lists[page->class][page->bin], slot);
    list_mark(gittins, page->class, page->bin);
}

static void lives_learn(struct eviction *gittins, uint64_t now)
{
    struct gittins_model *model = &gittins->model;
    const struct key_table *history = &gittins->history;

    for (unsigned class = 0; class < GITTINS_CLASSES; class ++)
        for (unsigned bin = 0; bin < GITTINS_BINS; bin++)
            model->going[class][bin] = 0;
    for (uint32_t entry = history->order.head; entry != EVICTION_NONE;
         entry = history->links.next[entry]) {
        const struct memory *memory = &gittins->memories[entry];

        model->going[memory->class][gittins_model_bin(model, now - memory->last)]++;
    }
    gittins_model_learn(model);
    for (unsigned class = 0; class < GITTINS_CLASSES; class ++)
        for (unsigned bin = 0; bin < GITTINS_BINS; bin++)
            list_mark(gittins, class, bin);
}

/* Moves pages at the old end of some lists to where their age belongs now. */
static void pages_age(struct eviction *gittins, uint64_t now)
{
    for (unsigned i = 0; i < AGING_LISTS; i++) {
        struct slot_list *list;
        unsigned state = gittins->aging;

        gittins->aging = (state + 1) % STATES;
        list = &gittins->lists[state / GITTINS_BINS][state % GITTINS_BINS];
        while (list->head != EVICTION_NONE) {
            uint32_t slot = list->head;
            const struct page *page = &gittins->pages[slot];

            if (gittins_model_bin(&gittins->model, now - page->last) == page->bin)
                break;
            page_withdraw(gittins, slot);
            page_offer(gittins, slot, now, false);
        }
    }
}

/* Books a use of `key`: ends one life, begins the next. */
static uint8_t memory_use(
    struct eviction *gittins, const struct eviction_access *access, uint64_t now)
{
    struct gittins_model *model = &gittins->model;
    uint32_t entry = key_table_find(&gittins->history, access->key);
    struct memory *memory;
    bool replaced;

    pages_age(gittins, now);
    if (gittins->until_learning-- == 0) {
        lives_learn(gittins, now);
        gittins->until_learning = MAX(LEARN_DISTANCE, gittins->history.order.count / 4);
    }
    if (entry != EVICTION_NONE) {
        memory = &gittins->memories[entry];
        model->hits[memory->class][gittins_model_bin(model, now - memory->last)] += 1;
        memory->growth = access->prefix_pages > memory->prefix_pages ? GROWTH_FURTHER : GROWTH_SAME;
        memory->uses = MIN(memory->uses + 1, (uint32_t) SEEN_KINDS);
        key_table_refresh(&gittins->history, entry);
    } else {
        entry = key_table_add(&gittins->history, access->key, &replaced);
        memory = &gittins->memories[entry];
        if (replaced)
            model->cut[memory->class][gittins_model_bin(model, now - memory->last)] += 1;
        *memory = (struct memory){.uses = 1, .growth = GROWTH_FIRST};
    }
    memory->prefix_pages = access->prefix_pages;
    memory->last = now;
    memory->class = memory_class(memory);
    return memory->class;
}

static void gittins_admit(
    struct eviction *gittins, uint32_t slot, const struct eviction_access *access, uint64_t now)
{
    struct page *page = &gittins->pages[slot];

    *page = (struct page){.last = now, .key = access->key, .parent = access->parent};
    page->class = memory_use(gittins, access, now);
    if (page->parent != EVICTION_NONE && gittins->pages[page->parent].children++ == 0)
        page_withdraw(gittins, page->parent);
    page_offer(gittins, slot, now, false);
}

static void gittins_touch(
    struct eviction *gittins, uint32_t slot, const struct eviction_access *access, uint64_t now)
{
    struct page *page = &gittins->pages[slot];

    if (page->children == 0)
        page_withdraw(gittins, slot);
    page->class = memory_use(gittins, access, now);
    page->last = now;
    if (page->children == 0)
        page_offer(gittins, slot, now, false);
}

static void gittins_finish(
    struct eviction *gittins, uint32_t slot, uint32_t output_tokens, uint64_t now)
{
    struct page *page = &gittins->pages[slot];
    uint32_t entry = key_table_find(&gittins->history, page->key);

    if (entry == EVICTION_NONE)
        return;
    if (page->children == 0)
        page_withdraw(gittins, slot);
    gittins->memories[entry].output_tokens = output_tokens;
    page->class = gittins->memories[entry].class = memory_class(&gittins->memories[entry]);
    if (page->children == 0)
        page_offer(gittins, slot, now, false);
}

static uint32_t gittins_victim(struct eviction *gittins, uint64_t now)
{
    for (unsigned word = 0; word < WORDS; word++) {
        uint32_t slot, parent;
        unsigned state;

        if (gittins->filled[word] == 0)
            continue;
        state = gittins->model.state[word * 64 + (unsigned) __builtin_ctzll(gittins->filled[word])];
        slot = gittins->lists[state / GITTINS_BINS][state % GITTINS_BINS].head;
        page_withdraw(gittins, slot);
        parent = gittins->pages[slot].parent;
        if (parent != EVICTION_NONE && --gittins->pages[parent].children == 0)
            page_offer(gittins, parent, now, true);
        return slot;
    }
    return EVICTION_NONE;
}

const struct eviction_ops eviction_gittins = {
    .name = "gittins",
    .keeps_prefixes = true,
    .new = gittins_new,
    .free = gittins_free,
    .admit = gittins_admit,
    .touch = gittins_touch,
    .finish = gittins_finish,
    .victim = gittins_victim,
};
