/* What the methods take and answer; who may call them, call.c finds out. */
#pragma once

#include "daemon/bus/private.h"
#include "daemon/operate.h"

struct bus_method {
    const char *member;
    const char *action; /* of polkit */
    /*
     * Reads the arguments and does it, as `caller`: the answer is in bus->report, or, where an
     * order is returned in `ret_order`, comes there later. A negative errno with `error` set for
     * arguments that make no sense.
     */
    int (*run)(struct bus *bus, sd_bus_message *message, const struct operate_caller *caller,
        order_answer answer, void *data, struct order **ret_order, sd_bus_error *error);
    /* Appends what the report says to the reply. */
    int (*reply)(sd_bus_message *reply, const struct report *report);
};

/* NULL when there is none of that name. */
const struct bus_method *bus_method_find(const char *member);
/* The D-Bus error of an Error: never NULL. */
const char *bus_error_name(uint32_t status);
