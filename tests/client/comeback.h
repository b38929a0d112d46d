/* A scripted broker that goes away and comes back, for sessions with `tokens`. */
#pragma once

#include "tests/client/script.h"

/* Until gmb_connection() is that, by somebody else's work. */
void wait_for_connection(struct script *script, int wanted);
/* The broker closes; the session has noticed. */
void go_away(struct script *script);
/* Takes the connection and the greeting, which must carry the token; its id. */
uint64_t hello_again(struct script *script);
void resumed(struct script *script, uint64_t id, uint64_t *lost, size_t count);
/* Comes back knowing everything; the Resume is the caller's to free. */
Gmb__ClientMessage *come_back(struct script *script);
/* The same where nothing or one lease of so many chunks must be named. */
void come_back_to(struct script *script, size_t leases, uint32_t chunks);
