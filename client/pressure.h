/* What a client asks of the broker about pressure. */
#pragma once

#include "client/session.h"

/* Sends a request of the kinds SUBSCRIBE, WATCH, UNWATCH and ACK. As conn_send_consume(). */
int pressure_transmit(struct conn *conn, struct request *request);
