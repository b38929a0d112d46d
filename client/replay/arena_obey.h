/* An arena worker that acts on its tenant's ladder. */
#pragma once

#include "client/replay/arena_request.h"

/* From now on advice is applied as it comes, in the library's thread, and answered. A broker that
 * has none is no failure. */
void arena_obey_begin(struct arena_worker *worker);
/* No more of it; nothing of it runs any more when this returns. */
void arena_obey_end(struct arena_worker *worker);

/* Counts what a step did, beside its being asked: to how many, and bytes that weren't taken or were
 * given back. */
void arena_obey_count(
    struct arena_worker *worker, enum gmb_degrade step, uint64_t count, uint64_t bytes);
