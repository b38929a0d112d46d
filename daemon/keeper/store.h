/*
 * Fds that the keeper holds for the broker, by name: what systemd calls a service's fd store.
 *
 * Not thread-safe; no call blocks.
 */
#pragma once

#include "base/macro.h"

/* As systemd has it: longer names are refused. */
#define STORE_NAME_BYTES 255

struct stored_fd {
    int fd; /* owned */
    char *name;
};

struct store {
    struct stored_fd *fds; /* in the order in which they came */
    size_t count, room, max;
    size_t names_bytes; /* of all names, with a byte between two */
};

/* An empty store for at most `max` fds. Release with store_clear(). */
void store_init(struct store *store, size_t max);
/* Closes every fd. */
void store_clear(struct store *store);

/* 1 to 255 printable ASCII characters without ':', as sd_notify(3) has it. */
bool store_name_valid(const char *name);
/*
 * Takes the fd over, on failure too, where it is closed. Several may have the same name. -EINVAL:
 * the name; -ENFILE: the store is full; -E2BIG: so are
 * the names that can be handed over (pass.h); -ENOMEM.
 */
int store_consume_fd(struct store *store, const char *name, int fd) _must_check_;
/* Closes all of that name. Returns how many there were. */
size_t store_remove(struct store *store, const char *name);
