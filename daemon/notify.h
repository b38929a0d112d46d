/*
 * What the service manager is told (sd_notify(3)): readiness, reloads, a line about what goes on,
 * the end, and that the loop makes progress. Without NOTIFY_SOCKET nothing is sent and nothing
 * costs.
 *
 * Never blocks: a manager that doesn't read misses lines, and gets the latest when it reads again.
 */
#pragma once

#include "base/macro.h"

struct broker;
struct notify;

/* Between two status lines, and before one that couldn't be sent is tried again. */
#define NOTIFY_STATUS_MS 500

/* Connects to the manager, if any, and starts to feed its watchdog if it has one. -errno. */
int notify_new(struct broker *broker, struct notify **ret) _must_check_;
/* Accepts NULL, returns NULL. */
struct notify *notify_free(struct notify *notify);

/* The broker serves. The status line is kept from now on. */
void notify_ready(struct notify *notify);
/* Around a reload, refused or not. */
void notify_reloading(struct notify *notify);
void notify_reloaded(struct notify *notify);
/* The broker ends. */
void notify_stopping(struct notify *notify);
