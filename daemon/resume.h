/*
 * A client that comes back: with its token, and with what it has mapped (proto/gmb.proto, Resume).
 * What it doesn't have is taken back, so that it and the ledger agree before it asks for anything.
 */
#pragma once

#include "daemon/session.h"
#include "proto/gmb.pb-c.h"

/*
 * Hello with a token. True: it was answered, by a Welcome that says `resumed` or an Error. False:
 * the token is nobody's that this process is, and the client is a new one.
 */
bool resume_hello(struct session *session, const Gmb__ClientMessage *message);
void on_resume(struct session *session, const Gmb__ClientMessage *message);

/* A request of a resumed session that the one before may have carried out: true if it is Done. */
bool resume_done(struct session *session, uint64_t id, core_id lease);
bool resume_returned(
    struct session *session, uint64_t id, core_id lease, uint32_t first, uint32_t count);

/* Forgets what it has named. */
void resume_forget(struct session *session);
