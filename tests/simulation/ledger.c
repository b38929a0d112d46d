/*
 * What is written down is applied record by record, as a ledger would be. A core that is made of it
 * is held against the one that ran: who held a chunk before the step holds it still, and what a
 * tenant uses is what it used, less what was only being created.
 */
#include "tests/simulation/model.h"

#include <errno.h>
#include <string.h>

/* Writes are cut off in one of so many steps. */
#define CUT_CHANCE 100
/* More than any step of this model changes. */
#define STEP_RECORDS 16384

static struct core_record *record_place(struct model *model, const struct core_record *record)
{
    struct model_ledger *ledger = &model->ledger;
    uint32_t number = record->number, limit = MODEL_RECORDS;
    struct core_record *records = NULL;

    switch (record->type) {
    case CORE_RECORD_TENANT:
        records = ledger->tenants;
        limit = MODEL_TENANTS + 2;
        break;
    case CORE_RECORD_ACCOUNT:
        records = ledger->accounts[record->account.device];
        limit = MODEL_TENANTS + 3;
        number = number == CORE_NOBODY ? limit - 1 : number;
        break;
    case CORE_RECORD_CLIENT:
        records = ledger->clients;
        break;
    case CORE_RECORD_LEASE:
        records = ledger->leases;
        break;
    case CORE_RECORD_HOLDER:
        records = ledger->holders;
        limit = MODEL_RECORDS * LIMIT_LEASE_HOLDERS;
        break;
    case CORE_RECORD_CHUNK:
        records = ledger->chunks;
        limit = MODEL_CHUNKS;
        break;
    case CORE_RECORD_SEAT:
        records = ledger->seats;
        break;
    case CORE_RECORD_MAX:
        break;
    }
    if (!records || number >= limit)
        model_fail(model, "a record %u of type %d has no place", number, (int) record->type);
    return &records[number];
}

/* ------------------------------------------------------------------ making a core of records */

static bool chunk_there(const struct model *model, const struct core_record *record)
{
    const struct model_chunk *chunk = &model->chunks[record->number];

    return !record->gone && chunk->created && chunk->generation == record->generation;
}

static void records_restore(
    struct model *model, struct core *core, const struct core_record *records, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct core_record *record = &records[i];
        bool handle = record->type == CORE_RECORD_CHUNK && chunk_there(model, record);
        bool empty = record->type == CORE_RECORD_TENANT    ? record->tenant.name[0] == '\0'
                     : record->type == CORE_RECORD_ACCOUNT ? false
                                                           : record->generation == 0;
        int r = empty ? 0 : core_restore(core, record, handle, false);

        if (r == -ESTALE &&
            (record->type == CORE_RECORD_HOLDER || record->type == CORE_RECORD_SEAT))
            continue; /* its lease is gone, and the cut was in between */
        if (r < 0)
            model_fail(
                model, "record %u of type %d is refused", record->number, (int) record->type);
    }
}

static struct core *core_make(
    struct model *model, const struct core_options *options, unsigned (*looks)[MODEL_DEVICES])
{
    struct model_ledger *ledger = &model->ledger;
    struct core_actions *actions = &model->actions;
    struct core *core;
    const char *found;

    if (core_new(options, &core) < 0)
        model_fail(model, "no host memory");
    for (unsigned i = 0; i < MODEL_DEVICES; i++) {
        struct core_event event = {.type = CORE_EVENT_DEVICE_ADD};

        event.device_add.total_bytes = model->devices[i].total;
        event.device_add.reserve_bytes = model->devices[i].reserve;
        event.device_add.granularity_bytes = 2 * MIB;
        core_step(core, &event, model->now_ns, actions);
        /* Looks at free memory: a core that stays gets its answers. */
        for (size_t k = 0; looks != NULL && k < actions->count; k++) {
            if (actions->items[k].type == CORE_ACTION_MEMORY_OBSERVE)
                (*looks)[actions->items[k].device.device]++;
        }
    }
    records_restore(model, core, ledger->tenants, ARRAY_SIZE(ledger->tenants));
    for (unsigned i = 0; i < MODEL_DEVICES; i++)
        records_restore(model, core, ledger->accounts[i], ARRAY_SIZE(ledger->accounts[i]));
    records_restore(model, core, ledger->clients, ARRAY_SIZE(ledger->clients));
    records_restore(model, core, ledger->leases, ARRAY_SIZE(ledger->leases));
    records_restore(model, core, ledger->holders, ARRAY_SIZE(ledger->holders));
    records_restore(model, core, ledger->seats, ARRAY_SIZE(ledger->seats));
    records_restore(model, core, ledger->chunks, ARRAY_SIZE(ledger->chunks));
    if (core_restore_end(core, false, (uint32_t) (model->crashes + 2) << 20) < 0)
        model_fail(model, "no host memory");
    found = core_check(core);
    if (found)
        model_fail(model, "restored: %s", found);
    return core;
}

/* ------------------------------------------------------------------ a cut */

/* Nothing that somebody has, or may go on to map, lies ready for the next one, nor will once it is
 * given back. Of what this very step grants, or the shell has just lost, the record may be older.
 */
static void record_watch(const struct model *model, const struct core_record *record)
{
    const struct model_chunk *chunk;

    if (record->type != CORE_RECORD_CHUNK || !chunk_there(model, record))
        return;
    chunk = &model->chunks[record->number];
    if (chunk->changed_step == model->steps)
        return;
    if ((record->chunk.state == CORE_CHUNK_CACHED || record->chunk.state == CORE_CHUNK_CLEAN) &&
        (chunk->forsaken || chunk->segment || chunk->mapped != 0 || chunk->holders != 0))
        model_fail(model, "chunk %u lies ready though a process may map it", record->number);
    if (record->chunk.state == CORE_CHUNK_LEASED && chunk->forsaken && !record->chunk.forsaken)
        model_fail(model, "chunk %u may be mapped on, and that isn't written", record->number);
}

/* Whoever was granted a chunk in an earlier step, and still has it, has it in the new core. */
static void held_compare(struct model *model, const struct core *core, const struct model_lease *l)
{
    for (uint32_t i = 0; i < (l->max > 0 ? l->max : l->chunks); i++) {
        uint32_t number, generation, other, other_generation;

        if (l->max > 0 && (l->filled >> i & 1) == 0)
            continue;
        /* What this very step took back or granted may be either way. */
        if (!core_lease_chunk(model->core, l->id, i, &number, &generation) ||
            model->chunks[number].changed_step == model->steps)
            continue;
        if (!core_lease_chunk(core, l->id, i, &other, &other_generation) || other != number ||
            other_generation != generation)
            model_fail(model, "chunk %u of lease %llx is lost in a restart", i,
                (unsigned long long) l->id);
    }
}

static void cut_compare(struct model *model, struct core *core)
{
    struct core_record record;

    while (core_changed_next(core, &record))
        record_watch(model, &record);
    for (unsigned c = 0; c < MODEL_CLIENTS; c++) {
        const struct model_client *client = &model->clients[c];

        for (unsigned i = 0; client->id != 0 && i < MODEL_LEASES; i++) {
            if (client->leases[i].id != 0)
                held_compare(model, core, &client->leases[i]);
        }
    }
    for (unsigned d = 0; d < MODEL_DEVICES; d++) {
        uint64_t there = 0, charged;
        struct core_device_view v;

        for (unsigned i = 0; i < MODEL_CHUNKS; i++) {
            if (model->chunks[i].device == d && chunk_there(model, &model->ledger.chunks[i]))
                there += model->chunks[i].bytes;
        }
        (void) core_device_get(core, d, &v);
        charged = v.leased + v.cached + v.clean + v.releasing + v.orphaned;
        if (charged < there)
            model_fail(model, "device %u: %llu bytes are there and %llu charged", d,
                (unsigned long long) there, (unsigned long long) charged);
    }
}

void model_ledger_step(struct model *model)
{
    static struct core_record records[STEP_RECORDS];
    static struct core_actions actions;
    size_t count = 0, cut = SIZE_MAX;

    while (count < STEP_RECORDS && core_changed_next(model->core, &records[count]))
        count++;
    if (count == STEP_RECORDS)
        model_fail(model, "a step changes too much");
    for (size_t i = 0; i < count; i++)
        record_watch(model, &records[i]);
    if (count > 0 && model_chance(model, CUT_CHANCE))
        cut = model_below(model, count + 1);
    for (size_t i = 0; i < count; i++) {
        if (i == cut)
            break;
        *record_place(model, &records[i]) = records[i];
    }
    if (cut == SIZE_MAX)
        return;
    /* The step's actions are still looked at by whoever sent the event. */
    actions = model->actions;
    {
        struct core *core = core_make(model, &core_options_default, NULL);

        cut_compare(model, core);
        (void) core_free(core);
    }
    model->actions = actions;
    for (size_t i = cut; i < count; i++)
        *record_place(model, &records[i]) = records[i];
    model->cuts++;
}

/* ------------------------------------------------------------------ a crash */

/* What no record names was being made: its fd has no name in the ledger, and the shell lets it go.
 */
static void chunks_forget(struct model *model)
{
    for (unsigned i = 0; i < MODEL_CHUNKS; i++) {
        struct model_chunk *chunk = &model->chunks[i];

        record_watch(model, &model->ledger.chunks[i]);
        if (chunk->created && !chunk_there(model, &model->ledger.chunks[i])) {
            if (chunk->holders != 0 || chunk->mapped != 0)
                model_fail(model, "chunk %u is held and nowhere written", i);
            model->devices[chunk->device].held -= chunk->bytes;
            chunk->created = false;
        }
        chunk->asked = false;
        if (!chunk->created)
            *chunk = (struct model_chunk){.tenant = -1};
    }
    for (unsigned i = 0; i < MODEL_DEVICES; i++) {
        model->devices[i].job_count = 0;
        model->devices[i].wished_bytes = 0;
    }
}

static void use_compare(struct model *model, const struct core *core)
{
    for (unsigned t = 0; t < MODEL_TENANTS; t++) {
        uint32_t before, after;

        if (!core_tenant_find(model->core, model->names[t], &before))
            continue;
        if (!core_tenant_find(core, model->names[t], &after) || after != before)
            model_fail(model, "tenant %s isn't what it was", model->names[t]);
        for (unsigned d = 0; d < MODEL_DEVICES; d++) {
            struct core_tenant_device_view a, b;

            (void) core_tenant_device_get(model->core, before, d, &a);
            (void) core_tenant_device_get(core, after, d, &b);
            if (a.used - a.creating != b.used || b.orphaned != 0)
                model_fail(model, "tenant %s used %llu bytes and has %llu after a restart",
                    model->names[t], (unsigned long long) (a.used - a.creating),
                    (unsigned long long) b.used);
        }
    }
}

static void configure_again(struct model *model, const struct core *before)
{
    static struct core_tenant_config configs[MODEL_TENANTS];
    struct core_event event = {.type = CORE_EVENT_CONFIGURE, .cookie = 5};
    size_t count = 0;

    for (unsigned t = 0; t < MODEL_TENANTS; t++) {
        struct core_tenant_view view;
        uint32_t index;

        if (core_tenant_find(before, model->names[t], &index) &&
            core_tenant_get(before, index, &view) && view.configured &&
            core_tenant_config_get(before, index, &configs[count]))
            count++;
    }
    event.configure.tenants = configs;
    event.configure.count = count;
    model_step(model, &event);
}

static bool has_all_it_should(
    struct model *model, const struct model_client *client, const struct model_lease *lease)
{
    for (uint32_t i = 0; i < lease->max; i++) {
        if ((lease->filled >> i & 1) == 0 && core_holder_has(model->core, lease->id, client->id, i))
            return false;
    }
    return true;
}

static void client_resume_lease(
    struct model *model, struct model_client *client, struct model_lease *lease)
{
    struct core_lease_view view;
    struct core_event event = {.type = CORE_EVENT_ARENA_RETURN};

    if (!core_lease_get(model->core, lease->id, &view))
        model_fail(model, "lease %llx is lost in a crash", (unsigned long long) lease->id);
    if (lease->max == 0 && view.chunks != lease->chunks)
        model_fail(model, "a lease of %u chunks has %u after a crash", lease->chunks, view.chunks);
    /* A part of a segment can't be given back by its readers. */
    if (lease->segment && !model_steward(model, client)) {
        if (!has_all_it_should(model, client, lease))
            model_release(model, client, lease, true);
        return;
    }
    event.arena_return.lease = lease->id;
    event.arena_return.count = 1;
    for (uint32_t i = 0; i < lease->max; i++) {
        if ((lease->filled >> i & 1) != 0 ||
            !core_holder_has(model->core, lease->id, client->id, i))
            continue;
        event.arena_return.first = i;
        if (!model_sync(model, client, &event))
            model_fail(model, "what was never granted can't be given back");
    }
}

/* Who doesn't say what it has may have all of it. */
static void lease_all_held(
    struct model *model, const struct model_client *client, struct model_lease *lease)
{
    for (uint32_t i = 0; i < lease->max; i++) {
        uint32_t number, generation;

        if (!core_holder_has(model->core, lease->id, client->id, i) ||
            !core_lease_chunk(model->core, lease->id, i, &number, &generation))
            continue;
        lease->filled |= UINT64_C(1) << i;
        model->chunks[number].holders |= model_bit(model, client);
    }
}

static void clients_resume(struct model *model)
{
    for (unsigned c = 0; c < MODEL_CLIENTS; c++) {
        struct model_client *client = &model->clients[c];
        struct core_event event = {.type = CORE_EVENT_CLIENT_ATTACH, .client = client->id};

        memset(client->requests, 0, sizeof(client->requests));
        for (unsigned i = 0; client->id != 0 && client->detached && i < MODEL_LEASES; i++) {
            if (client->leases[i].id != 0)
                lease_all_held(model, client, &client->leases[i]);
        }
        if (client->id == 0 || client->detached)
            continue;
        if (!model_steward(model, client))
            model_step(model, &event);
        for (unsigned i = 0; i < MODEL_LEASES; i++) {
            if (client->leases[i].id != 0)
                client_resume_lease(model, client, &client->leases[i]);
        }
    }
}

static void looks_queue(struct model *model, const unsigned looks[MODEL_DEVICES])
{
    for (unsigned i = 0; i < MODEL_DEVICES; i++) {
        struct model_device *d = &model->devices[i];

        for (unsigned k = 0; k < looks[i]; k++) {
            struct core_action *job = &d->jobs[(d->job_first + d->job_count++) % MODEL_JOBS];

            *job = (struct core_action){.type = CORE_ACTION_MEMORY_OBSERVE, .device = {i}};
        }
    }
}

void model_crash(struct model *model)
{
    struct core_options options = core_options_default;
    struct core *before = model->core, *core;
    unsigned looks[MODEL_DEVICES] = {0};

    options.prefetch_bytes = model_chance(model, 2) ? 16 * MIB : 0;
    options.recycle_idle_ns = model_chance(model, 2) ? 50 * MS : options.recycle_idle_ns;
    model->crashes++;
    chunks_forget(model);
    core = core_make(model, &options, &looks);
    looks_queue(model, looks);
    use_compare(model, core);
    model->core = core;
    model_ledger_step(model);
    /* The driver says so again, as soon as it is asked for anything. */
    for (uint32_t i = 0; i < MODEL_DEVICES; i++) {
        struct core_event event = {.type = CORE_EVENT_DEVICE_FAIL, .device_fail = {.device = i}};

        if (model->devices[i].failed)
            model_step(model, &event);
    }
    memset(model->lowered, true, sizeof(model->lowered));
    /* Levels and advice begin anew. */
    memset(model->shown, 0, sizeof(model->shown));
    memset(model->asked, 0, sizeof(model->asked));
    configure_again(model, before);
    (void) core_free(before);
    clients_resume(model);
    if (model_chance(model, 2))
        model_segments_lose(model);
}
