/* May a waiting request have its memory, and what is done if not? */
#pragma once

#include "daemon/core/types.h"
#include "policies/admission.h"

/* The decision as it would be with nobody waiting. Changes nothing. */
struct admission_decision admit_ask(struct core *core, struct request *request);
/*
 * Decides about one tenant's first request: admits it, refuses it, or leaves it waiting and sees to
 * what is in its way. `reserved` is what higher-ranked ones wait for on the device; it grows by
 * what this one waits for. True when the tenant's next may be asked about.
 */
bool admit_decide(struct core *core, struct request *request, uint64_t *reserved);
