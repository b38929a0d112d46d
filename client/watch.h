/* Watches: fds that the broker makes readable. */
#pragma once

#include "client/session.h"

/* The connection has ended, and with it every watch: each rings a last time. With `lock` held. */
void watches_end(struct gmb_session *session);
