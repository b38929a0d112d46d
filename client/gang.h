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
/*
 * As request_conclude_consume(). On success, if somebody waits, `ret_leases` has the leases in the
 * order of the parts; else everything is given back. It may be NULL where nobody waits.
 */
void gang_conclude_consume(struct gmb_session *session, struct request *request,
    struct gmb_lease **ret_leases, struct outcome *ret);
