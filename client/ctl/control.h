/* A connection to the control socket: one question, one answer. */
#pragma once

#include "client/outcome.h"
#include "proto/conn.h"

/* DISCONNECTED, DENIED, TIMED_OUT … as dial() has them, with the text saying what to do. */
int control_connect(const char *path, struct conn **ret, struct outcome *outcome);

/*
 * Asks, and waits 10 s for the reply, which is the caller's to free with frame_message_free() and
 * is of kind `expected`. The broker's Error; DISCONNECTED, TIMED_OUT, PROTOCOL.
 */
int control_ask(struct conn *conn, Gmb__ControlRequest *request,
    Gmb__ControlReply__BodyCase expected, Gmb__ControlReply **ret, struct outcome *outcome);

/* Every page of a list. Items are borrowed from the replies. */
struct listing {
    size_t reply_count, count;
    Gmb__ControlReply **replies;
    ProtobufCMessage **items; /* TenantStatus, ClientStatus, LeaseStatus or TenantPressure */
};

/* `kind` is TENANTS_GET, CLIENTS_GET, LEASES_GET or PRESSURE_GET, of which the first reply has the
 * devices. Ended with listing_free(), on failure too. */
int control_list(struct conn *conn, Gmb__ControlRequest__BodyCase kind, struct listing *ret,
    struct outcome *outcome);
void listing_free(struct listing *listing);
