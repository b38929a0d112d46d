/*
 * What a client that speaks the protocol by hand asks about pressure, and what it waits for.
 */
#pragma once

#include "tests/integration/raw.h"

/* Each returns the number of the request. */
uint64_t pressure_subscribe(struct raw *raw, bool off);
uint64_t pressure_watch(struct raw *raw, uint32_t level, uint64_t stall_us, uint64_t window_us);
uint64_t pressure_unwatch(struct raw *raw, uint64_t watch);
uint64_t pressure_ack(
    struct raw *raw, uint64_t advice, int action, int outcome, uint64_t freed_bytes);

/* The next message that is of this kind, the caller's; others are passed over. */
Gmb__BrokerMessage *pressure_next(struct raw *raw, Gmb__BrokerMessage__BodyCase body_case);
/* Reads on until the tenant is told to be at that level. */
void pressure_await(struct raw *raw, uint32_t level);
/* The fd of the next answer, which must be PressureWatching for this request; the caller's. */
int pressure_watching(struct raw *raw, uint64_t id, uint64_t *ret_watch);
/* Whether the fd is readable within so long, and what is read then. */
bool pressure_rings(int fd, int ms);
uint64_t pressure_rung(int fd);

/* What an operator sees: to be freed with frame_message_free(). */
Gmb__ControlReply *pressure_page(const struct harness *harness);
/* Whether the first tenant is shown as one that ignores its advice. */
bool pressure_ignored(const struct harness *harness);

/* The tenant has 20 chunks: 16 are low, 18 medium, all critical. Levels fall at once. */
#define PRESSURE_SETUP                                                                             \
    HARNESS_BROKER "PressureDwell=1ms\nDegradeDwell=1ms\nAdviceGrace=200ms\n"                      \
                   "[Tenant test]\nUser=*\nMemoryMax=40M\n"
#define PRESSURE_LADDER                                                                            \
    "DegradeLow=reduce-batch 0.75\nDegradeCritical=quantize-kv int8, reject-below-priority 50\n"
#define PRESSURE_MIB (UINT64_C(1) << 20)
