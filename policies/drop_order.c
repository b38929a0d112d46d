/* See drop_order.h. Pages form a forest by their parents; a cycle has no leaf, and is found by the
 * bound on steps alone. */
#include "policies/drop_order.h"

static uint32_t block_up(struct drop_page *pages, uint32_t link)
{
    uint32_t steps = 0;

    while (link != 0 && !pages[link - 1].blocked && steps < DROP_STEPS_MAX) {
        pages[link - 1].blocked = true;
        link = pages[link - 1].parent;
        steps++;
    }
    return steps;
}

uint32_t drop_order_add(struct drop_page *pages, uint32_t count, uint32_t page, uint32_t parent,
    const struct drop_page *what)
{
    struct drop_page *at = &pages[page];

    if (at->known)
        return 0;
    at->known = true;
    at->generation = what->generation;
    at->position = what->position;
    at->droppable = what->droppable;
    if (parent >= count)
        return 0;
    at->parent = parent + 1;
    at->sibling = pages[parent].child;
    pages[parent].child = page + 1;
    return at->blocked || !at->droppable ? block_up(pages, at->parent) : 0;
}

bool drop_order_allows(const struct drop_page *pages, uint32_t page, uint32_t generation)
{
    const struct drop_page *at = &pages[page];

    return at->known && at->droppable && !at->blocked && !at->gone && at->generation == generation;
}

uint32_t drop_order_first(struct drop_page *pages, uint32_t at, uint32_t page)
{
    uint32_t steps = 0;

    while (steps++ < DROP_STEPS_MAX && pages[at].droppable && !pages[at].blocked) {
        uint32_t child = pages[at].child;

        if (child == 0)
            return at;
        if (pages[child - 1].gone)
            pages[at].child = pages[child - 1].sibling;
        else
            at = child - 1;
    }
    drop_order_refused(pages, at, page);
    return DROP_NONE;
}

void drop_order_gone(struct drop_page *pages, uint32_t page)
{
    pages[page].gone = true;
}

void drop_order_refused(struct drop_page *pages, uint32_t refused, uint32_t page)
{
    pages[refused].blocked = true;
    for (uint32_t steps = 0; refused != page && pages[refused].parent != 0; steps++) {
        if (steps == DROP_STEPS_MAX)
            break;
        refused = pages[refused].parent - 1;
        pages[refused].blocked = true;
    }
}

int drop_order_compare(const struct drop_page *a, const struct drop_page *b)
{
    if (a->droppable != b->droppable)
        return a->droppable ? 1 : -1;
    if (a->position != b->position)
        return a->position > b->position ? 1 : -1;
    return a > b ? 1 : a < b ? -1 : 0;
}
