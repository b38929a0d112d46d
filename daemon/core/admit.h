/* May a waiting request have its memory, and what is done if not? */
#pragma once

#include "daemon/core/types.h"
#include "policies/admission.h"

/* The decision as it would be with nobody waiting. Changes nothing. */
struct admission_decision admit_ask(struct core *core, struct request *request);
/*
 * Decides about one tenant's first request: admits it, refuses it, or leaves it waiting and sees to
 * what is in its way. `reserved` is what higher-ranked ones wait for on the device; it grows by
 * what this one waits for. True when the tenant's next may be asked about. A part of a gang is not
 * admitted but noted to fit (gang_fits).
 */
bool admit_decide(struct core *core, struct request *request, uint64_t *reserved);

/* Of a part of a gang: */
/* Whether nothing of its tenant's own holds it back: an earlier request, a limit, a pause;
 * and nothing is about to refuse it. */
bool admit_stands(struct core *core, struct request *request);
/* Whether it may be admitted behind `reserved` bytes; if not, its limit says why. */
bool admit_fits(struct core *core, struct request *request, uint64_t reserved);
/* Whether it has to pause, from now on, since its tenant is above MemoryHigh. */
bool admit_pauses(struct core *core, struct request *request);
