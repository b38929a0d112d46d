/*
 * The end in order: nobody is accepted any more, clients are told, what was begun is finished. It
 * takes ENDING_MS at most, whatever anybody does, and nothing when there is nothing to finish.
 * What waits for memory isn't waited for.
 */
#pragma once

#include "base/macro.h"

struct broker;
struct ending;
struct server;

/* Below the time that the unit gives (TimeoutStopSec=), with movers' ends to come. */
#define ENDING_MS 5000

/* Borrows both. -ENOMEM. */
int ending_new(struct broker *broker, struct server *server, struct ending **ret) _must_check_;
/* Accepts NULL, returns NULL. */
struct ending *ending_free(struct ending *ending);

/* Begins; asked for again, it breaks the loop at once. Otherwise the loop is broken at its end. */
void ending_request(struct ending *ending);
