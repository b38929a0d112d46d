/* The end of a request: its memory becomes usable, or everything is as it was. */
#pragma once

#include "client/session.h"

struct conclusion {
    struct outcome outcome;
    struct gmb_lease *lease; /* LEASE: NULL on failure. GROW: the lease, whatever happened */
};

/*
 * Concludes an answered request, which is gone afterwards. On success its chunks are accessible. On
 * failure, and when nobody waits any more, what was mapped is unmapped and, where the broker had
 * granted it, given back. Blocks for driver calls, never on the broker. Called without `lock` by
 * the request's owner.
 */
void request_conclude_consume(
    struct gmb_session *session, struct request *request, struct conclusion *ret);

/* Unmaps what has come of a grant that nobody has seen yet. False when the driver kept the memory:
 * the broker must not be told that it is free. Without `lock`. */
bool request_chunks_undo(struct gmb_session *session, const struct request *request);
/* The same for one that is asked for anew, from the start. */
bool request_chunks_rewind(struct gmb_session *session, struct request *request);
/* Makes a new lease's mapped chunks accessible. GPU. Without `lock`. */
int conclude_enable(
    struct gmb_session *session, const struct request *request, struct outcome *outcome);
/* Unmaps them and, where the broker had `granted` them all, gives the lease back. Without `lock`.
 */
void conclude_undo_consume(struct gmb_session *session, struct request *request, bool granted);
