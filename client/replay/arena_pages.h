/*
 * The pages of one request: filled with its pattern as they come, pinned while it runs, compared
 * before they go. Not thread-safe, other than against other requests.
 */
#pragma once

#include "client/replay/arena_state.h"

enum pages_outcome {
    PAGES_OK = 0,
    PAGES_SHORT = 1,   /* not within the time for it; later perhaps */
    PAGES_REFUSED = 2, /* more than a limit can ever allow */
    PAGES_LOST = 3,    /* dropped by the broker; nothing is pinned */
    PAGES_FAILED = 4,  /* noted for the worker, or the worker is to stop */
};

struct pages {
    struct arena_worker *worker;
    struct pattern_owner owner;
    uint32_t *numbers; /* owned */
    size_t count, room;
    bool pinned;
};

/* Room for `room` pages. -ENOMEM. */
int pages_init(struct pages *pages, struct arena_worker *worker, uint64_t request, size_t room);
void pages_done(struct pages *pages);

/* Takes `count` more pages, pins them and writes them. What was there must be pinned or nothing.
 * OK, SHORT, REFUSED (gmb_error_limit() says by what) or FAILED. */
enum pages_outcome pages_take(struct pages *pages, size_t count, uint64_t wait_ns) _must_check_;
/* Pins what isn't pinned, and waits until all of it is on the device. OK, SHORT, LOST or FAILED. */
enum pages_outcome pages_pin(struct pages *pages, uint64_t wait_ns) _must_check_;
/* Pages that aren't pinned may be evicted. */
void pages_unpin(struct pages *pages);
/* Compares all bytes with what was written. Pinned. False after a failure, which it has noted. */
bool pages_check(struct pages *pages) _must_check_;
/* Tells that the pages may be dropped, as nobody is in the middle of using them. */
void pages_allow_drop(struct pages *pages);
/* Gives all pages back. */
void pages_drop(struct pages *pages);
