/*
 * Guests: a process of a tenant that uses what belongs to its share group is a client of the group,
 * too. Its guest is a second client of the core's, for the same process and connection, and ends
 * with it; so what the group has is counted, held and taken back as everything else is.
 */
#pragma once

#include "daemon/session.h"

/*
 * The session's guest in its tenant's share group, made if need be. NULL after an Error for the
 * request: DENIED where the tenant is in no group. Steps the core.
 */
struct client *guest_get(struct session *session, uint64_t request);
/* Whether it may use the group still: its tenant may have been taken out of it. */
bool guest_belongs(const struct session *session);
/*
 * The connection of a client and its guest has ended. As long as the guest holds something its
 * client stays, too: who comes back with that one's token finds both. Either may be NULL. Steps the
 * core.
 */
void guest_detach(struct broker *broker, struct client *client, struct client *guest);
/* The session resumes: its client's guest, if there is one, is its guest again. Steps the core. */
void guest_come_back(struct session *session);
