/*
 * org.gmbd.Broker1 on the system bus: what gmbctl shows and does, for programs that speak D-Bus,
 * with signals of what changes. docs/dbus.md has the interfaces.
 *
 * The broker works the same without a bus: one that isn't there is looked for again, one that is
 * slow is given up. Nothing here waits for the bus, for polkit or for a caller.
 */
#pragma once

#include "base/macro.h"

struct broker;
struct bus;

/* Looks for the bus from the loop on. `broker` is borrowed. -ENOMEM. */
int bus_new(struct broker *broker, struct bus **ret) _must_check_;
/* Accepts NULL, returns NULL. */
struct bus *bus_free(struct bus *bus);
