/* What a client's messages mean: the state × message table of docs/protocol.md. */
#pragma once

#include "daemon/session.h"

/*
 * Decodes and handles one frame of the session's peer; whatever it holds, at worst the session is
 * doomed.
 */
void message_handle(struct session *session, const uint8_t *bytes, size_t size);

/* Sends an Error; dooms the session when the peer doesn't read. `text` is cut to its bound. */
void message_refuse(struct session *session, uint64_t id, enum gmb_status status,
    enum gmb_limit limit, uint64_t requested, uint64_t available, const char *text);
/* The same where no limit was asked. */
void message_refuse_plainly(
    struct session *session, uint64_t id, enum gmb_status status, const char *text);
void message_done(struct session *session, uint64_t id);
/* Sends any message without fds; dooms the session when the peer doesn't read. */
void message_send(struct session *session, Gmb__BrokerMessage *message);
/* The record of a tenant that has a client, and an fd of its status page. -errno. */
int message_page_open(struct broker *broker, uint32_t tenant, struct pressure_tenant **ret,
    struct fdset *ret_page) _must_check_;
/* `client` is set. The fd of `page`, if any, moves into the message. */
void message_welcome(struct session *session, uint64_t id, bool resumed, struct fdset *page);
/* The same with fds, which move here. */
void message_send_fds(struct session *session, Gmb__BrokerMessage *message, struct fdset *fds);
