/*
 * Leases on several devices by one request, all of them or none. To the rest of the library a gang
 * is one request; its parts are requests that nobody else sees, one for each lease.
 */
#pragma once

#include "client/session.h"

struct conclusion;

/* Sends what is asked for; see conn_send_consume(). */
int gang_transmit(struct conn *conn, const struct request *request);
/* As grant_take(), for the part whose turn it is. */
int gang_grant_take(struct gmb_session *session, struct request *request, const Gmb__Grant *grant,
    struct fdset *fds, struct outcome *why);
/* The connection has ended before all parts were granted: none is this process's. Nothing for a
 * request that is no gang. With the lock. */
void gang_disown(const struct request *request);
/* It is asked for anew; what was mapped of its parts is undone. False when the driver keeps some.
 * Without the lock. */
bool gang_rewind(struct gmb_session *session, struct request *request);
/*
 * As request_conclude_consume(). On success, if somebody waits, `ret_leases` has the leases in the
 * order of the parts; else everything is given back. It may be NULL where nobody waits.
 */
void gang_conclude_consume(struct gmb_session *session, struct request *request,
    struct gmb_lease **ret_leases, struct outcome *ret);
