/*
 * What an operator may do, whichever way he asks: the one implementation behind control.sock and
 * D-Bus. Whoever calls has found out that he may; here it is logged that he did.
 *
 * Each fills `report` with the answer, an Error included, or gives an order whose answer comes
 * later.
 */
#pragma once

#include <sys/types.h>

#include "daemon/order.h"

struct operate_caller {
    uid_t uid;
    pid_t pid; /* for the log */
};

/* Changes values of one tenant, all of them or none. */
void operate_set(struct broker *broker, const struct operate_caller *caller,
    const Gmb__TenantSet *set, struct report *report);
/* Reads the configuration again, or keeps the old one. */
void operate_reload(
    struct broker *broker, const struct operate_caller *caller, struct report *report);
/* Does something to segments, or begins it. */
void operate_segments(struct broker *broker, const struct operate_caller *caller,
    const Gmb__SegmentChange *change, struct report *report);
/* As order_reclaim() and order_drain(). */
struct order *operate_reclaim(struct broker *broker, const struct operate_caller *caller,
    const Gmb__Reclaim *body, order_answer answer, void *data, struct report *report);
struct order *operate_drain(struct broker *broker, const struct operate_caller *caller,
    const Gmb__Drain *body, order_answer answer, void *data, struct report *report);
