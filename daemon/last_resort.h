/* A worker that keeps what was asked back of it long past the deadline is killed, where every guard
 * of policies/reclaim.h allows it. */
#pragma once

#include "policies/reclaim.h"

struct client;
struct hosting;

/*
 * Kills `client` (NULL: nobody, though the guards are asked) of tenant `victim` for `beneficiary`,
 * which is UINT32_MAX for an operator, unless a guard forbids it. `kept` says for the log what it
 * kept. The verdict; what the killed process held comes back when it is dead.
 */
enum reclaim_kill_verdict last_resort_try(struct hosting *hosting, const struct client *client,
    uint32_t victim, uint32_t beneficiary, const char *kept);
/* Whether a request of the tenant waits for memory of this device. */
bool last_resort_wanted(const struct hosting *hosting, uint32_t tenant);
