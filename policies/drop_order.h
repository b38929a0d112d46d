/*
 * In which order pages that can be computed again are dropped: a page that others continue is worth
 * something only as long as it is there for them, and they nothing without it. So none goes before
 * every page that continues it.
 *
 * Pure. The caller adds every page that can be dropped or continues another, from copies of what a
 * tenant wrote: links may form cycles or lead nowhere. What such a tenant gets is pages that are
 * never dropped; no call takes more than DROP_STEPS_MAX steps.
 *
 * To drop a page, ask drop_order_first() for the one that goes first, and say drop_order_gone() of
 * it; then go on with what that one continued, until it is the page itself. So a chain costs as
 * many steps as it has pages.
 */
#pragma once

#include "base/macro.h"

#define DROP_NONE UINT32_MAX
/* Pages that hang on one, one behind the other; steps of a call take some ten nanoseconds each. */
#define DROP_STEPS_MAX 65536u

/* All zero: a page of which nothing is known; it is never dropped. Links are numbers + 1. */
struct drop_page {
    uint32_t generation;
    uint32_t parent, child, sibling; /* that it continues; that continue it, the last added first */
    uint32_t position;               /* in its sequence */
    bool known : 1, droppable : 1, blocked : 1, gone : 1;
    bool resident : 1; /* it is on the device */
    bool apart : 1;    /* … and lies in another chunk than what it continues */
    bool carries : 1;  /* a resident page continues it, or what does continues what continues it */
    bool torn : 1;     /* one that lies apart continues it */
};

/*
 * The page (below `count`, not added before) is in use by its tenant in this generation; `parent`
 * DROP_NONE or out of range: it continues none. Of `what` count the fields up to `apart`. One that
 * isn't droppable blocks all that it continues, as far as DROP_STEPS_MAX; a resident one is carried
 * by all of that. Returns the steps that took.
 */
uint32_t drop_order_add(struct drop_page *pages, uint32_t count, uint32_t page, uint32_t parent,
    const struct drop_page *what);

/* Whether it is as far as is known one that may be dropped, after all that continue it. */
bool drop_order_allows(const struct drop_page *pages, uint32_t page, uint32_t generation);

/* The page that goes first for `at` to go: itself, if none continues it. `at` is `page` or hangs on
 * it. DROP_NONE if it can't: all from there up to `page` is blocked from then on. */
uint32_t drop_order_first(struct drop_page *pages, uint32_t at, uint32_t page);

/* It was dropped, or is no longer the page that was added. */
void drop_order_gone(struct drop_page *pages, uint32_t page);

/* It could not be dropped: it and what it continues, up to `page`, are blocked. */
void drop_order_refused(struct drop_page *pages, uint32_t refused, uint32_t page);

/* To sort those that go first to the end: what can't be dropped, then by position, then by number.
 * Both are of one array. */
int drop_order_compare(const struct drop_page *a, const struct drop_page *b);
