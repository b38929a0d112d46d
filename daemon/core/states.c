/*
 * chunk:   NONE → CREATING → CLEAN → LEASED ⇄ CACHED → RELEASING → RELEASED → NONE
 *          A chunk made for a request goes from CREATING to LEASED; one that was never handed out
 *          goes back from LEASED to CLEAN; one whose client died goes from LEASED to RELEASING.
 * request: NONE → QUEUED → CREATING → GRANTED, and back to QUEUED when the driver lacks memory
 * lease:   NONE → PENDING → ACTIVE → ENDED
 * client:  NONE → ACTIVE ⇄ DETACHED → DEAD
 */
#include "daemon/core/states.h"

#include <assert.h>

#include "daemon/core/account.h"
#include "daemon/core/change.h"

#define TO(state) (1u << (state))

static const unsigned chunk_next[] = {
    [CHUNK_NONE] = TO(CHUNK_CREATING),
    [CHUNK_CREATING] = TO(CHUNK_NONE) | TO(CHUNK_CLEAN) | TO(CHUNK_LEASED),
    [CHUNK_CLEAN] = TO(CHUNK_LEASED) | TO(CHUNK_RELEASING),
    [CHUNK_LEASED] = TO(CHUNK_CLEAN) | TO(CHUNK_CACHED) | TO(CHUNK_RELEASING),
    [CHUNK_CACHED] = TO(CHUNK_LEASED) | TO(CHUNK_RELEASING),
    [CHUNK_RELEASING] = TO(CHUNK_RELEASED),
    [CHUNK_RELEASED] = TO(CHUNK_NONE),
};
static const char *const chunk_names[] = {
    [CHUNK_NONE] = "none",
    [CHUNK_CREATING] = "creating",
    [CHUNK_CLEAN] = "clean",
    [CHUNK_LEASED] = "leased",
    [CHUNK_CACHED] = "cached",
    [CHUNK_RELEASING] = "releasing",
    [CHUNK_RELEASED] = "released",
};
static_assert(ARRAY_SIZE(chunk_next) == CHUNK_STATE_MAX, "one row for each state");
static_assert(ARRAY_SIZE(chunk_names) == CHUNK_STATE_MAX, "one name for each state");

static const unsigned request_next[] = {
    [REQUEST_NONE] = TO(REQUEST_QUEUED),
    [REQUEST_QUEUED] = TO(REQUEST_CREATING) | TO(REQUEST_REFUSED) | TO(REQUEST_CANCELLED),
    [REQUEST_CREATING] =
        TO(REQUEST_QUEUED) | TO(REQUEST_GRANTED) | TO(REQUEST_REFUSED) | TO(REQUEST_CANCELLED),
    [REQUEST_GRANTED] = 0,
    [REQUEST_REFUSED] = 0,
    [REQUEST_CANCELLED] = 0,
};
static const char *const request_names[] = {
    [REQUEST_NONE] = "none",
    [REQUEST_QUEUED] = "queued",
    [REQUEST_CREATING] = "creating",
    [REQUEST_GRANTED] = "granted",
    [REQUEST_REFUSED] = "refused",
    [REQUEST_CANCELLED] = "cancelled",
};
static_assert(ARRAY_SIZE(request_next) == REQUEST_STATE_MAX, "one row for each state");
static_assert(ARRAY_SIZE(request_names) == REQUEST_STATE_MAX, "one name for each state");

static const unsigned lease_next[] = {
    [LEASE_NONE] = TO(LEASE_PENDING),
    [LEASE_PENDING] = TO(LEASE_ACTIVE) | TO(LEASE_ENDED),
    [LEASE_ACTIVE] = TO(LEASE_ENDED),
    [LEASE_ENDED] = 0,
};
static const char *const lease_names[] = {
    [LEASE_NONE] = "none",
    [LEASE_PENDING] = "pending",
    [LEASE_ACTIVE] = "active",
    [LEASE_ENDED] = "ended",
};
static_assert(ARRAY_SIZE(lease_next) == LEASE_STATE_MAX, "one row for each state");
static_assert(ARRAY_SIZE(lease_names) == LEASE_STATE_MAX, "one name for each state");

static const unsigned client_next[] = {
    [CLIENT_NONE] = TO(CLIENT_ACTIVE),
    [CLIENT_ACTIVE] = TO(CLIENT_DETACHED) | TO(CLIENT_DEAD),
    [CLIENT_DETACHED] = TO(CLIENT_ACTIVE) | TO(CLIENT_DEAD),
    [CLIENT_DEAD] = 0,
};
static const char *const client_names[] = {
    [CLIENT_NONE] = "none",
    [CLIENT_ACTIVE] = "active",
    [CLIENT_DETACHED] = "detached",
    [CLIENT_DEAD] = "dead",
};
static_assert(ARRAY_SIZE(client_next) == CLIENT_STATE_MAX, "one row for each state");
static_assert(ARRAY_SIZE(client_names) == CLIENT_STATE_MAX, "one name for each state");

static bool legal(const unsigned *next, unsigned count, unsigned from, unsigned to)
{
    return from < count && to < count && (next[from] & TO(to)) != 0;
}

static const char *name(const char *const *names, unsigned count, unsigned state)
{
    return state < count ? names[state] : "unknown";
}

bool chunk_state_legal(enum chunk_state from, enum chunk_state to)
{
    return legal(chunk_next, CHUNK_STATE_MAX, from, to);
}

bool request_state_legal(enum request_state from, enum request_state to)
{
    return legal(request_next, REQUEST_STATE_MAX, from, to);
}

bool lease_state_legal(enum lease_state from, enum lease_state to)
{
    return legal(lease_next, LEASE_STATE_MAX, from, to);
}

bool client_state_legal(enum client_state from, enum client_state to)
{
    return legal(client_next, CLIENT_STATE_MAX, from, to);
}

const char *chunk_state_name(enum chunk_state state)
{
    return name(chunk_names, CHUNK_STATE_MAX, state);
}

const char *request_state_name(enum request_state state)
{
    return name(request_names, REQUEST_STATE_MAX, state);
}

const char *lease_state_name(enum lease_state state)
{
    return name(lease_names, LEASE_STATE_MAX, state);
}

const char *client_state_name(enum client_state state)
{
    return name(client_names, CLIENT_STATE_MAX, state);
}

void chunk_set_state(struct chunk *chunk, enum chunk_state state, struct account *account)
{
    assert(chunk_state_legal(chunk->state, state));
    change_chunk(chunk, state);
    if (state == CHUNK_NONE)
        charge_release(&chunk->charge);
    else
        charge_move(&chunk->charge, account, state);
    chunk->state = (uint8_t) state;
}

void request_set_state(struct request *request, enum request_state state)
{
    assert(request_state_legal(request->state, state));
    request->state = state;
}

void lease_set_state(struct lease *lease, enum lease_state state)
{
    assert(lease_state_legal(lease->state, state));
    lease->state = state;
}

void client_set_state(struct client *client, enum client_state state)
{
    assert(client_state_legal(client->state, state));
    client->state = state;
}
