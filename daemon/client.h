/*
 * A process that holds or may hold leases: from the core's CLIENT_ADDED to its CLIENT_GONE. It
 * outlives its connection: what it has mapped stays mapped until it is dead, and its pidfd tells.
 *
 * All of it belongs to the loop's thread.
 */
#pragma once

#include "base/list.h"
#include "daemon/core/core.h"
#include "daemon/identity.h"

struct broker;
struct event;
struct session;

/* The id, so that it is found, and as many random bytes. It is good for its own process alone. */
#define CLIENT_TOKEN_BYTES 16

/* Name that a client gave to a lease, for people. */
struct label {
    core_id lease; /* first: the key */
    char text[];
};

struct client {
    core_id id; /* first: the key of broker.clients */
    struct broker *broker;
    struct session *session; /* NULL once the connection ended */
    struct identity identity;
    uint8_t token[CLIENT_TOKEN_BYTES]; /* its session is resumed with */
    core_id host;                      /* a guest: client of the session that it belongs to; 0 */
    struct event *death;               /* readable pidfd */
    struct list holdings;              /* struct arena_holder.client_link */
    uint32_t arena_count, arena_chunks;
    uint32_t tenant_index;  /* the core's */
    struct list noted_link; /* broker.noted: whether it waits for pages may have changed */
    uint64_t restoring;     /* devices on which the core knows it to wait for pages, a bit each */
    void *labels;           /* tsearch(3) tree of struct label */
    char tenant[LIMIT_NAME_BYTES + 1];
    char program[LIMIT_NAME_BYTES + 1];
};

/*
 * Takes `identity` over on success and watches its pidfd. The client is found by `id` in the
 * broker from now on. -ENOMEM.
 */
int client_new_take(struct broker *broker, core_id id, const char *tenant, const char *program,
    struct identity *identity, struct client **ret) _must_check_;
/* The client that the token is of, if `identity` is that process; else NULL. */
struct client *client_by_token(const struct broker *broker, const uint8_t *token, size_t size,
    const struct identity *identity);
/* Takes it out of the broker. Accepts NULL, returns NULL. */
struct client *client_free(struct client *client);

/* Its connection, if messages of any kind may be sent over it: NULL while it resumes, too. */
struct session *client_session(const struct client *client);

/* NULL when there is none. */
struct client *client_find(const struct broker *broker, core_id id);

/* Remembers the name of a lease; "" forgets it. Without memory the lease just stays nameless. */
void client_label_set(struct client *client, core_id lease, const char *text);
/* "" when it has none. */
const char *client_label_get(const struct client *client, core_id lease);
