/*
 * See persist.h. Clients and leases are written twice when they come: with the core's step, so that
 * nothing is had that isn't there, and when the shell knows who and what they are, before the
 * answer is sent. A client of which only the first was written is no process: it is dead at the
 * next start.
 */
#include "daemon/persist.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "daemon/arena.h"
#include "daemon/broker.h"
#include "daemon/ledger/ledger.h"

static core_id record_id(const struct core_record *record)
{
    return (uint64_t) record->generation << 32 | ((uint64_t) record->number + 1);
}

static void client_fill(const struct client *client, struct ledger_client *ret)
{
    ret->host = client->host;
    ret->pid = client->identity.pid;
    ret->uid = client->identity.uid;
    ret->start_ticks = client->identity.start_ticks;
    memcpy(ret->token, client->token, sizeof(ret->token));
    (void) snprintf(ret->program, sizeof(ret->program), "%s", client->program);
}

static void lease_fill(
    const struct broker *broker, core_id lease, core_id owner, struct ledger_lease *ret)
{
    const struct client *client = client_find(broker, owner);

    if (client != NULL)
        (void) snprintf(ret->label, sizeof(ret->label), "%s", client_label_get(client, lease));
}

/* The shell's part of a record. */
static void record_fill(const struct broker *broker, struct ledger_record *record)
{
    const struct core_record *core = &record->core;
    const struct client *client;

    if (core->gone)
        return;
    if (core->type == CORE_RECORD_CLIENT) {
        client = client_find(broker, record_id(core));
        if (client != NULL)
            client_fill(client, &record->client);
    } else if (core->type == CORE_RECORD_LEASE) {
        lease_fill(broker, record_id(core), core->lease.client, &record->lease);
    } else if (core->type == CORE_RECORD_CHUNK) {
        record->chunk_kept = executor_kept(broker->executor, core->number, core->generation);
    }
}

static void record_write(struct broker *broker, struct ledger_record *record)
{
    int r;

    record_fill(broker, record);
    r = ledger_write(broker->ledger, record);
    if (r == 0 || broker->ledger_failed)
        return;
    broker->ledger_failed = true;
    log_error("the ledger can't be written: %s; a restart would find an older state and put what "
              "doesn't fit it back",
        strerror(-r));
}

void persist_step(struct broker *broker)
{
    struct ledger_record record;

    if (broker->ledger == NULL)
        return;
    memset(&record, 0, sizeof(record));
    while (core_changed_next(broker->core, &record.core)) {
        record_write(broker, &record);
        memset(&record, 0, sizeof(record));
    }
}

void persist_client(struct broker *broker, const struct client *client)
{
    struct ledger_record record = {.core = {.type = CORE_RECORD_CLIENT}};

    if (broker->ledger == NULL)
        return;
    record.core.number = (uint32_t) client->id - 1;
    record.core.generation = (uint32_t) (client->id >> 32);
    if (core_tenant_find(broker->core, client->tenant, &record.core.client.tenant))
        record_write(broker, &record);
}

void persist_lease(struct broker *broker, core_id lease)
{
    struct ledger_record record = {0};

    if (broker->ledger == NULL || !core_lease_record(broker->core, lease, &record.core))
        return;
    record_write(broker, &record);
}
