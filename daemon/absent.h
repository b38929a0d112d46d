/*
 * Clients of the broker before that hold nothing and don't come back. Each costs a pidfd and one of
 * the tenant's places, and its process may live for ever.
 *
 * Who comes back later is greeted as a new client, which takes nothing from it.
 */
#pragma once

struct absent;
struct broker;

/* Looks once, some time after the start: by then, who waits for the broker has come back. Without
 * memory for that it isn't done, and all stay. */
struct absent *absent_new(struct broker *broker);
/* Accepts NULL, returns NULL. */
struct absent *absent_free(struct absent *absent);
