/*
 * Two workers of two users, and so of two tenants, between whom memory changes hands: each is a
 * process of its own (handover_main.c), which is told by letters what to do and looks for bytes of
 * somebody else in all that it gets. Whatever isn't as expected ends the test. Needs root, to be
 * two users.
 */
#pragma once

#include "tests/integration/harness.h"

#define HANDOVER_SIDES 2
#define HANDOVER_BYTES (UINT64_C(4) << 20) /* of a lease, an arena or a segment */
/* Room for one of them and not for two. */
#define HANDOVER_MEMORY "GMB_SIM_MEMORY=14M"
#define HANDOVER_DEVICE "[Device *]\nReserve=8M\n"
#define HANDOVER_TENANTS "[Tenant one]\nUser=root\n[Tenant other]\nUser=*\n"

/* The tenants of the two. */
extern const char *const handover_names[HANDOVER_SIDES];

void handover_start(const struct harness *harness, unsigned side);
/* Ends it by a signal, or, with 0, lets it end by itself, which must succeed. */
void handover_end(unsigned side, int signal);
/* Waits until somebody else has killed it. */
void handover_await_killed(unsigned side, unsigned round);

/* Gives it a command, and doesn't wait; waits for the answer, which must be that it is done. */
void handover_tell(unsigned side, char command);
void handover_expect(unsigned side, unsigned round, char command);
/* Both, for each letter. */
void handover_order(unsigned side, unsigned round, const char *commands);
