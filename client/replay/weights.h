/*
 * The weights of a tenant's model: one segment, which its first worker writes and the others read
 * (--weights). Every byte of it is compared before the worker begins and after it has ended.
 *
 * Errors are negative errno with one line in `text`. Blocks on the broker; one thread.
 */
#pragma once

#include "client/gmb.h"
#include "client/replay/device.h"

#define WEIGHTS_TEXT_BYTES 320

struct weights {
    gmb_lease *lease; /* NULL: none were asked for */
    struct device *device;
    struct pattern_owner owner;
};

/* Takes `bytes` (0: none) of the tenant's, written by whoever of its workers comes first. */
int weights_take(gmb_session *session, struct device *device, const char *tenant, uint64_t bytes,
    struct weights *ret, char text[WEIGHTS_TEXT_BYTES]) _must_check_;
/* Compares them once more, gives this worker's part back, and lets nobody else find them. Bytes
 * that differ are told in `ret_differing`. */
int weights_give(gmb_session *session, struct weights *weights, uint64_t *ret_differing,
    char text[WEIGHTS_TEXT_BYTES]) _must_check_;
