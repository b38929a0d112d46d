/* What has to be done for arenas besides answering: giving back, keeping ready. */
#pragma once

#include "client/session.h"

/* Looks after every arena that is due. By the seat, with the lock, which it gives up around driver
 * calls. */
void arenas_serve(struct gmb_session *session);
