/* See drop_order.h. Pages form a forest by their parents; a cycle has no leaf, and is found by the
 * bound on steps alone. */
#include "policies/drop_order.h"

/* As far up as something is new, so that all pages together take no more steps than twice their
 * number. */
static uint32_t mark_up(struct drop_page *pages, uint32_t link, bool blocked, bool carries)
{
    uint32_t steps = 0;

    while (link != 0 && steps < DROP_STEPS_MAX) {
        struct drop_page *at = &pages[link - 1];

        if ((at->blocked || !blocked) && (at->carries || !carries))
            break;
        at->blocked = at->blocked || blocked;
        at->carries = at->carries || carries;
        link = at->parent;
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
    at->resident = what->resident;
    at->apart = what->apart;
    if (parent >= count)
        return 0;
    at->parent = parent + 1;
    at->sibling = pages[parent].child;
    pages[parent].child = page + 1;
    pages[parent].torn = pages[parent].torn || (at->resident && at->apart);
    return mark_up(pages, at->parent, at->blocked || !at->droppable, at->carries || at->resident);
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
