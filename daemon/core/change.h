/* What a step has changed of the things that must outlive the core. */
#pragma once

#include "daemon/core/states.h"

/* Each remembers that its object has to be written down again; what is written is read later. */
void change_tenant(struct core *core, struct tenant *tenant);
void change_account(struct account *account);
void change_client(struct core *core, struct client *client);
void change_lease(struct core *core, struct lease *lease);
/* It came to an ACTIVE lease, or leaves it. */
void change_holder(const struct holder *holder);
/* Before its state becomes `next`: not every change is worth a record. */
void change_chunk(struct chunk *chunk, enum chunk_state next);

/* Forgets all of them. */
void changes_drop(struct core *core);
