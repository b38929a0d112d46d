/* Segments: memory that one process writes and others read. */
#pragma once

#include "client/session.h"

/* Sends what is said of a segment. -errno of the connection. */
int segment_transmit(struct conn *conn, struct request *request);
