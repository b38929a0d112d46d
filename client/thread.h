/* The background thread. */
#pragma once

#include "client/session.h"

/* Ends it and waits for that; nothing if there is none. Without `lock`. */
void thread_stop(struct gmb_session *session);
