/*
 * A tenant's status page: see proto/status_page.h. One writer, which never waits and whose death at
 * any instant leaves every entry whole.
 */
#pragma once

#include "proto/status_page.h"

struct status;

/* For so many devices; nothing is live yet. The memory is there before anybody maps it. -errno
 * (-EMFILE, -ENFILE: no file descriptor is left). */
int status_new(uint32_t entries, struct status **ret) _must_check_;
/* Who has mapped it keeps what it says. Accepts NULL, returns NULL. */
struct status *status_free(struct status *status);

/* A new fd of it, the caller's: sealed, so that it can be mapped read-only and not be resized. */
int status_fd_dup(const struct status *status, int *ret_fd) _must_check_;
/* Replaces an entry: `head` is the fields of status_entry.head without the sequence number. */
void status_write(
    struct status *status, uint32_t device, uint64_t head, const struct status_copy *copy);
