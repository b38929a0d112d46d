/* Segments of a broker before, from their records in the store and their leases in the core. */
#pragma once

#include "daemon/core/core.h"

struct broker;

/* The steward of a tenant or group is this client of the core's. -ENOMEM. */
int segments_steward_restore(struct broker *broker, uint32_t tenant, core_id steward) _must_check_;
/* What can't be gone on with ends: the stewards let go of it, and its readers hear that it is lost.
 * At start, behind the core's records and the deaths. Steps the core. */
void segments_recover(struct broker *broker);
