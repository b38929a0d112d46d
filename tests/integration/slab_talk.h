/*
 * Talk with a broker whose first device shares its memory over CUDA IPC, while something fails:
 * what is told meanwhile is counted, and another client looks whether it is served.
 */
#pragma once

#include "tests/integration/slabs.h"

/* Its other tenant is who slab_other_start() is, where there can be two users. */
#define SLAB_TENANTS "[Tenant other]\nUser=65534\n[Tenant test]\nUser=*\n"

/* What was told of the first device, by events that no request asked for. */
struct slab_told {
    unsigned lost, failed;
};

/* The answer to request `id`, to be freed; what comes in between is noted. */
Gmb__BrokerMessage *slab_answer(struct raw *raw, uint64_t id, struct slab_told *told);
/* It must be a slab, whose lease is returned; or Done. */
uint64_t slab_granted(struct raw *raw, uint64_t id, struct slab_told *told);
void slab_returned(struct raw *raw, uint64_t id, struct slab_told *told);
/* It must be a refusal of that status, in a sentence with `part`. */
void slab_refused(
    struct raw *raw, uint64_t id, enum gmb_status status, const char *part, struct slab_told *told);

/* Why the first device is out of service. */
void slab_failure(const struct harness *harness, char ret[LIMIT_TEXT_BYTES]);
/* Of the tenant `test` there. */
void slab_account(const struct harness *harness, Gmb__TenantDevice *ret);

/* As raw_lease(), of the device with that number. */
uint64_t slab_lease(
    struct raw *raw, const struct harness *harness, unsigned device, uint64_t bytes, uint64_t wait);

/* Another client, which takes so much and gives it back; joining it means that it was served. */
pid_t slab_other_start(const struct harness *harness, unsigned device, uint64_t bytes);
void slab_other_join(pid_t pid);
void slab_other_served(const struct harness *harness, unsigned device);

/* Nothing is leased any more: all of it is accounted for, and there again. */
void slab_expect_nothing_left(struct harness *harness);
