/* What a client asks of the broker about pressure. */
#pragma once

#include "client/session.h"

/* Sends a request of the kinds SUBSCRIBE, WATCH, UNWATCH and ACK. As conn_send_consume(). */
int pressure_transmit(struct conn *conn, struct request *request);
/* What each of these calls begins with: a request, or NULL with the reason why there is none. */
struct request *pressure_request_new(
    struct gmb_session *session, enum request_kind kind, struct outcome *outcome);
/* One exchange whose answer says nothing but yes or no. */
int pressure_exchange_consume(
    struct gmb_session *session, struct request *request, struct outcome *outcome);
/* The broker came back: who was subscribed is so again. With `lock` held. */
void pressure_subscribe_again(struct gmb_session *session);
