/* The state machines: legal transitions and names. All changes of state go through here. */
#pragma once

#include "daemon/core/types.h"

bool chunk_state_legal(enum chunk_state from, enum chunk_state to);
bool request_state_legal(enum request_state from, enum request_state to);
bool lease_state_legal(enum lease_state from, enum lease_state to);
bool client_state_legal(enum client_state from, enum client_state to);

const char *chunk_state_name(enum chunk_state state);
const char *request_state_name(enum request_state state);
const char *lease_state_name(enum lease_state state);
const char *client_state_name(enum client_state state);

/* Moves the charge along: the same bytes, charged to `account` from here on. */
void chunk_set_state(struct chunk *chunk, enum chunk_state state, struct account *account);
void request_set_state(struct request *request, enum request_state state);
void lease_set_state(struct lease *lease, enum lease_state state);
void client_set_state(struct client *client, enum client_state state);
