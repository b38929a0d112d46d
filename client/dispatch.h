/* Callbacks: who runs them, and when. */
#pragma once

#include "client/session.h"

/*
 * Concludes what was answered and runs its callbacks, those that come meanwhile included. The
 * number of them. With `lock` held, which it gives up around each. `verdict`, if not NULL, is what
 * they are told instead of success.
 */
int callbacks_run(struct gmb_session *session, const struct outcome *verdict);
