/*
 * What the clients of a tenant said about the advice in force: their claims. What the ledger saw
 * stands beside them (core_advice_get()).
 */
#pragma once

#include "daemon/core/core.h"

struct pressure;
struct pressure_tenant;
struct listener;

enum advice_outcome { ADVICE_DONE, ADVICE_PARTLY, ADVICE_REFUSED, ADVICE_OUTCOME_MAX };

struct advice_answer {
    uint32_t clients[ADVICE_OUTCOME_MAX]; /* by what each said last */
    uint64_t freed_bytes;
};

/* Zeroed: nobody has said anything. */
struct advice {
    uint64_t id; /* of the advice that the answers are about */
    bool answered;
    struct advice_answer answers[LADDER_ACTION_MAX];
};

/* A listener's answer about one step of the advice in force. What it said of that step before is
 * replaced, the bytes add up. */
void advice_ack(struct advice *advice, struct listener *listener, enum ladder_action action,
    enum advice_outcome outcome, uint64_t freed_bytes);

/*
 * Whether the tenant was asked for something at least `grace_ns` ago and nobody answered, or nobody
 * is there to hear it. `ret_age_ns` (may be NULL) is how long ago, and `ret_id` which advice.
 */
bool advice_ignored(const struct pressure *pressure, uint32_t tenant, uint64_t now_ns,
    uint64_t grace_ns, uint64_t *ret_age_ns, uint64_t *ret_id);
