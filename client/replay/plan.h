/*
 * What the trace asks for if nobody ever waits: timelines of requests, summed for each worker, each
 * tenant and in all. Pure: from a trace, a model and a number of workers; no clock, no broker.
 *
 * Request i goes to worker i mod N. That is as even as it gets, and so the kindest split for
 * private pools: with the uneven load of real tenants sharing gains more.
 */
#pragma once

#include "client/replay/model.h"

struct plan_peaks {
    uint64_t pooled_bytes;  /* the most that all requests together hold at one moment */
    uint64_t static_bytes;  /* the sum of the workers' own peaks: a private pool for each */
    uint64_t largest_bytes; /* of one request */
    uint64_t work_chunks;   /* that all requests together take: what is written and checked */
    uint64_t *worker_bytes; /* peak of each worker, owned */
    uint64_t *tenant_bytes; /* peak of each tenant, owned; worker w is tenant w mod tenants */
    uint64_t service_ns;    /* from the first arrival to the last end */
};

struct plan_shape {
    uint32_t tenants; /* > 0 */
    uint32_t workers; /* in all, a multiple of tenants */
};

/* -ENOMEM, -EOVERFLOW when the sums leave 64 bits. Free with plan_peaks_free(). */
int plan_peaks(const struct trace *trace, const struct model *model, const struct plan_shape *shape,
    struct plan_peaks *ret) _must_check_;
void plan_peaks_free(struct plan_peaks *peaks);

/*
 * Requests that a static split of `device_bytes` into equal pools, one for each worker, would have
 * refused: at arrival or while they grow, since their pool has no room. A refused request gives
 * back what it held; nobody waits. -ENOMEM.
 */
int plan_static_refused(const struct trace *trace, const struct model *model,
    const struct plan_shape *shape, uint64_t device_bytes, uint64_t *ret_refused) _must_check_;
