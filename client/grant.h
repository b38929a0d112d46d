/* Chunks as they arrive: checked, imported, mapped; not yet accessible. */
#pragma once

#include "client/session.h"

/*
 * Takes one part of a grant for `request`; answers the request with the last part. Takes of the fds
 * what it uses. Called by the seat with `lock` held, which it gives up around driver calls. A
 * failure of the driver is the request's outcome; what is returned is a breach of the protocol
 * (PROTOCOL).
 */
int grant_take(struct gmb_session *session, struct request *request, const Gmb__Grant *grant,
    struct fdset *fds, struct outcome *why);

/* The same, but the request isn't answered: whether it has everything, grant_complete() says. */
int grant_part_take(struct gmb_session *session, struct request *request, const Gmb__Grant *grant,
    struct fdset *fds, struct outcome *why);
bool grant_complete(const struct request *request);

/* Address space for all that the lease may become, in whole chunks. INVALID, GPU. Without `lock`.
 */
int grant_range_reserve(struct gmb_session *session, struct gmb_lease *lease, uint64_t chunk_bytes,
    struct outcome *ret);

/* Imports and maps one chunk at its index; `fd` stays the caller's. GPU. Without `lock`. */
int grant_chunk_map(struct gmb_session *session, struct gmb_lease *lease, uint32_t index, int fd,
    struct outcome *ret);

/* PROTOCOL unless the chunks are of a kind that we know, and of the lease's device. */
int grant_belongs(const struct gmb_lease *lease, const Gmb__Grant *grant, struct outcome *why);
