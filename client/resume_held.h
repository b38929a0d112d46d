/* What this process has mapped, as it is said to a broker that came back. */
#pragma once

#include "client/session.h"

/* All that is held at this moment, to be said in one or more messages. `lock` is held. -ENOMEM. */
int resume_held_take(struct gmb_session *session, struct resume_held **ret) _must_check_;
/* Sends the next part. 1: it was the last; 0; or the -errno of conn_send_consume(). */
int resume_held_send(struct resume_held *held, struct conn *conn, uint64_t id) _must_check_;
/* Accepts NULL, returns NULL. */
struct resume_held *resume_held_free(struct resume_held *held);
