/* Operators' orders to move memory: Reclaim and Drain. They are answered from a later turn of the
 * loop. */
#pragma once

#include "daemon/report.h"

struct order;

/* Where the answer goes; never called from within a function of this header. */
typedef void (*order_answer)(void *data, const struct report *report);

/*
 * Gives the order. `data` is passed to `answer`, once, unless order_forget() is called before; what
 * is wrong with it is put into `report` instead, and nothing is returned: NULL.
 */
struct order *order_reclaim(struct broker *broker, const Gmb__Reclaim *body, order_answer answer,
    void *data, struct report *report);
struct order *order_drain(struct broker *broker, const Gmb__Drain *body, order_answer answer,
    void *data, struct report *report);
/* Nobody waits for the answer any more; what was ordered is done all the same. Accepts NULL. */
void order_forget(struct order *order);
