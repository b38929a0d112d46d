/* Tenants and their configuration. */
#pragma once

#include "daemon/core/types.h"

/* NULL where there is none; `name` may be NULL. */
struct tenant *tenant_find(const struct core *core, const char *name);
struct tenant *tenant_at(const struct core *core, uint32_t index);
/* An unconfigured one; there must be room. NULL without host memory. */
struct tenant *tenant_new(struct core *core, const char *name);
/* The same under a free index. */
struct tenant *tenant_new_at(struct core *core, const char *name, uint32_t index);
/* Nothing of it may be left. */
void tenant_free(struct core *core, struct tenant *tenant);
/* Forgets tenants that are no longer configured and of which nothing is left. */
void tenants_sweep(struct core *core);
/* At the end of a core: whatever is left. */
void tenants_free(struct core *core);

void tenant_configure_event(struct core *core, const struct core_event *event);
void tenant_set_event(struct core *core, const struct core_event *event);
