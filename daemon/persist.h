/*
 * Writes down what must outlive the broker: what a step of the core changed, before its actions are
 * carried out, with what the shell knows of it. Nothing is sent, released or granted that isn't
 * written. Without a ledger each does nothing.
 */
#pragma once

#include "daemon/core/core.h"

struct broker;
struct client;

/* What the step has changed. */
void persist_step(struct broker *broker);
/* What the shell has learnt of a client or lease since the core's step about it. */
void persist_client(struct broker *broker, const struct client *client);
void persist_lease(struct broker *broker, core_id lease);
