/*
 * See recover.h. The ledger is read twice: first to see which fds are meant by a record, so that
 * what isn't is let go before anybody looks at free memory, then to restore.
 */
#include "daemon/recover.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/log.h"
#include "daemon/absent.h"
#include "daemon/arena_recover.h"
#include "daemon/broker.h"
#include "daemon/ledger/ledger.h"
#include "daemon/persist.h"
#include "daemon/segment_recover.h"

/* Above the generations of the ledger, those of a damaged record could be as much higher. */
#define GENERATION_MARGIN (UINT32_C(1) << 24)

/* Sockets, the driver, some clients. */
#define FDS_BESIDE UINT64_C(1024)

/* ------------------------------------------------------------------ store and ledger */

void recover_degraded(struct recovery *found, enum log_level level, const char *format, ...)
{
    char text[LIMIT_TEXT_BYTES];
    size_t length = strlen(found->degraded);
    va_list args;

    va_start(args, format);
    (void) vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    log_write(level, "%s", text);
    (void) snprintf(found->degraded + length, sizeof(found->degraded) - length, "%s%s",
        length > 0 ? "; " : "", text);
}

static size_t uuids_get(const struct broker *broker, struct uuid uuids[LIMIT_DEVICES])
{
    for (size_t i = 0; i < broker->device_count; i++)
        uuids[i] = broker->config->devices[i].uuid;
    return broker->device_count;
}

/* Without it nothing is kept, and all goes on as without a store. */
static void store_give_up(struct broker *broker, const char *what, int r)
{
    recover_degraded(&broker->recovery, LOG_LEVEL_WARNING,
        "%s: %s; a restart will lose every lease", what, strerror(-r));
    broker->ledger = ledger_free(broker->ledger);
    broker->store = fdstore_free(broker->store);
}

static void items_drop_all(struct broker *broker)
{
    struct fdstore_item *items;
    size_t count = fdstore_inherited(broker->store, &items);

    for (size_t i = 0; i < count; i++) {
        if (items[i].fd >= 0)
            fdstore_forget(broker->store, items[i].kind, items[i].number);
    }
}

static int ledger_make(struct broker *broker)
{
    struct uuid uuids[LIMIT_DEVICES];
    size_t count = uuids_get(broker, uuids);
    int r = ledger_new(uuids, count, &broker->ledger);

    if (r == 0)
        r = fdstore_put(broker->store, FDSTORE_LEDGER, 0, ledger_fd(broker->ledger));
    if (r == 0)
        r = fdstore_barrier(broker->store);
    return r;
}

/* True if there is one to go on with. What it can't be read of is not guessed at: workers keep
 * their mappings, and what the fds hold is let go, so that it is free once they end. */
static bool ledger_take(struct broker *broker)
{
    struct fdstore_item *item = fdstore_find(broker->store, FDSTORE_LEDGER, 0), *items;
    struct uuid uuids[LIMIT_DEVICES];
    size_t count = uuids_get(broker, uuids);
    uint32_t version;
    int r;

    if (item == NULL && fdstore_inherited(broker->store, &items) == 0)
        return false;
    r = item == NULL      ? -ENOENT
        : item->ambiguous ? -EEXIST
                          : ledger_open(item->fd, uuids, count, &broker->ledger, &version);
    if (r == 0) {
        item->fd = -1;
        return true;
    }
    if (r == -EPROTONOSUPPORT)
        recover_degraded(&broker->recovery, LOG_LEVEL_ERROR,
            "the ledger of the broker before has version %u, this broker reads %u: it starts "
            "without, clients keep what they have mapped and lose their leases",
            version, LEDGER_VERSION);
    else
        recover_degraded(&broker->recovery, LOG_LEVEL_ERROR,
            "the ledger of the broker before can't be read (%s): this one starts without, clients "
            "keep what they have mapped and lose their leases",
            r == -ENOENT    ? "it is missing"
            : r == -EEXIST  ? "there are two"
            : r == -EBADMSG ? "no header of it is whole"
                            : strerror(-r));
    items_drop_all(broker);
    return false;
}

/* ------------------------------------------------------------------ fds without a record */

static bool item_meant(
    const struct fdstore *store, const struct ledger_record *record, struct fdstore_item **ret)
{
    if (record->core.type != CORE_RECORD_CHUNK || record->core.gone || !record->chunk_kept ||
        record->core.chunk.device == LEDGER_NO_DEVICE)
        return false;
    *ret = fdstore_find(store, FDSTORE_CHUNK, record->core.number);
    return *ret != NULL && !(*ret)->ambiguous;
}

/* What a record means is marked; the rest was being made, or its record can't be read. */
static int strays_drop(struct broker *broker)
{
    struct ledger_cursor *cursor = calloc(1, sizeof(*cursor));
    struct recovery *found = &broker->recovery;
    struct fdstore_item *items, *item;
    size_t count = fdstore_inherited(broker->store, &items);
    struct ledger_record record;
    int r;

    if (cursor == NULL)
        return -ENOMEM;
    while ((r = ledger_next(broker->ledger, cursor, &record)) > 0) {
        if (r == LEDGER_DAMAGED)
            found->damaged++;
        else if (item_meant(broker->store, &record, &item))
            item->meant = true;
    }
    free(cursor);
    for (size_t i = 0; r == 0 && i < count; i++) {
        if (items[i].fd < 0 || items[i].meant || items[i].kind != FDSTORE_CHUNK)
            continue;
        fdstore_forget(broker->store, items[i].kind, items[i].number);
        found->strays++;
    }
    /* Until they are let go their memory is in use by others: no reason to lose anybody's. */
    if (r == 0 && found->strays > 0 && fdstore_barrier(broker->store) < 0)
        log_warning("the service manager doesn't let go of what no record names");
    return r;
}

/* Those of the store come all at once at the next start; an imported handle may cost one more. */
static void room_check(struct fdstore *store)
{
    size_t max = fdstore_max(store), fits;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    fits = (size_t) (sub_saturate(limit.rlim_cur, FDS_BESIDE) / 2);
    if (fits >= max)
        return;
    log_warning("of the %zu fds that the store takes this broker uses %zu, since it may have %llu "
                "open files (RLIMIT_NOFILE); %llu are needed: raise LimitNOFILE=, or lower "
                "FileDescriptorStoreMax= and FDSTORE= (gmbd-keeper: --fds)",
        max, fits, (unsigned long long) limit.rlim_cur,
        2 * (unsigned long long) max + (unsigned long long) FDS_BESIDE);
    fdstore_bound(store, fits);
}

int recover_begin(struct broker *broker, char error[FDSTORE_ERROR_BYTES])
{
    bool there;
    int r = fdstore_open(&broker->store, error);

    if (r == 0 && error[0] != '\0')
        recover_degraded(
            &broker->recovery, LOG_LEVEL_WARNING, "%s; a restart will lose every lease", error);
    if (r < 0 || broker->store == NULL)
        return r;
    room_check(broker->store);
    there = ledger_take(broker);
    r = there ? strays_drop(broker) : ledger_make(broker);
    if (r < 0)
        store_give_up(broker, "the service manager's fd store can't be used", r);
    else if (there)
        broker->recovery.epoch = ledger_epoch(broker->ledger);
    return 0;
}

/* ------------------------------------------------------------------ records */

struct restoring {
    struct broker *broker;
    struct recovery *found;
    uint32_t generation; /* highest that was seen */
    size_t dead_room;
};

static bool doubtful(const struct restoring *restoring)
{
    return restoring->found->damaged > 0 || restoring->found->refused > 0;
}

/* It can't be used: its place is empty from now on, so that nobody stumbles again. */
static void record_drop(struct restoring *restoring, const struct ledger_record *record)
{
    int r = 0;

    if (record->core.type != CORE_RECORD_MAX && record->core.type != CORE_RECORD_ACCOUNT)
        r = ledger_erase(restoring->broker->ledger, record->core.type, record->core.number);
    if (r < 0)
        log_warning("a record of the ledger can't be erased: %s", strerror(-r));
}

static core_id record_id(const struct ledger_record *record)
{
    return (uint64_t) record->core.generation << 32 | ((uint64_t) record->core.number + 1);
}

static int dead_add(struct restoring *restoring, core_id id)
{
    struct recovery *found = restoring->found;

    if (found->dead == restoring->dead_room) {
        size_t room = restoring->dead_room * 2 + 16;
        core_id *ids = reallocarray(found->dead_ids, room, sizeof(*ids));

        if (ids == NULL)
            return -ENOMEM;
        found->dead_ids = ids;
        restoring->dead_room = room;
    }
    found->dead_ids[found->dead++] = id;
    return 0;
}

/* The process is looked for by pid and start time. */
static int client_restore(struct restoring *restoring, const struct ledger_record *record)
{
    _cleanup_identity_ struct identity identity = IDENTITY_NONE;
    struct broker *broker = restoring->broker;
    struct core_tenant_view tenant;
    struct client *client;
    int r;

    if (record->core.gone)
        return 0;
    if (record->core.client.steward)
        return segments_steward_restore(broker, record->core.client.tenant, record_id(record));
    r = identity_find(
        record->client.pid, record->client.start_ticks, record->client.uid, &identity);
    if (r < 0 && r != -ESRCH)
        return r; /* not being able to look is no death */
    if (r < 0 || !core_tenant_get(broker->core, record->core.client.tenant, &tenant))
        return dead_add(restoring, record_id(record));
    r = client_new_take(
        broker, record_id(record), tenant.name, record->client.program, &identity, &client);
    if (r < 0)
        return r;
    client->tenant_index = record->core.client.tenant;
    client->host = record->client.host;
    memcpy(client->token, record->client.token, sizeof(client->token));
    restoring->found->clients++;
    return 0;
}

static void lease_restore(struct restoring *restoring, const struct ledger_record *record)
{
    struct client *client = client_find(restoring->broker, record->core.lease.client);

    if (record->core.gone || client == NULL)
        return;
    if (record->lease.label[0] != '\0')
        client_label_set(client, record_id(record), record->lease.label);
    restoring->found->leases++;
}

/* The chunk's memory is the executor's again. */
static bool chunk_adopt(struct restoring *restoring, const struct ledger_record *record)
{
    struct broker *broker = restoring->broker;
    struct gpu_error error = {0};
    struct fdstore_item *item;
    int r;

    if (!item_meant(broker->store, record, &item) || record->core.generation == 0 ||
        record->core.number >= LIMIT_CHUNKS_TOTAL)
        return false;
    r = executor_adopt(broker->executor, record->core.chunk.device, record->core.number,
        record->core.generation, record->core.chunk.bytes, item->fd, &error);
    if (r == 0) {
        fdstore_close(item);
        return true;
    }
    log_warning("chunk %u can't be taken over: %s", record->core.number,
        error.text[0] != '\0' ? error.text : strerror(-r));
    fdstore_forget(broker->store, item->kind, item->number);
    return false;
}

/* Of a lease whose client is dead: nobody holds what the broker has no handle of. */
static bool chunk_dead(const struct broker *broker, const struct core_record *record)
{
    struct core_lease_view lease;

    return !record->gone && record->chunk.state == CORE_CHUNK_LEASED &&
           core_lease_get(broker->core, record->chunk.lease, &lease) && lease.holders == 1 &&
           client_find(broker, lease.client) == NULL;
}

static int chunk_restore(struct restoring *restoring, const struct ledger_record *record)
{
    struct broker *broker = restoring->broker;
    bool handle = !record->core.gone && chunk_adopt(restoring, record);
    int r;

    if (!handle && chunk_dead(broker, &record->core)) {
        record_drop(restoring, record);
        return 0;
    }
    r = core_restore(broker->core, &record->core, handle, doubtful(restoring));
    if (r == 0 && !record->core.gone) {
        restoring->found->chunks += handle;
        restoring->found->stuck += !handle && record->core.chunk.state == CORE_CHUNK_LEASED;
    } else if (r < 0 && handle) {
        executor_release(broker->executor, record->core.chunk.device, record->core.number,
            record->core.generation);
    }
    return r;
}

static bool on_gone_device(const struct core_record *record)
{
    if (record->type == CORE_RECORD_ACCOUNT)
        return record->account.device == LEDGER_NO_DEVICE;
    if (record->gone)
        return false;
    return (record->type == CORE_RECORD_LEASE && record->lease.device == LEDGER_NO_DEVICE) ||
           (record->type == CORE_RECORD_CHUNK && record->chunk.device == LEDGER_NO_DEVICE);
}

static int record_restore(struct restoring *restoring, const struct ledger_record *record)
{
    int r;

    restoring->generation = MAX(restoring->generation, record->core.generation);
    if (on_gone_device(&record->core)) {
        restoring->found->gone++;
        record_drop(restoring, record);
        return 0;
    }
    if (record->core.type == CORE_RECORD_CHUNK)
        r = chunk_restore(restoring, record);
    else
        r = core_restore(restoring->broker->core, &record->core, false, false);
    if (r == 0 && record->core.type == CORE_RECORD_CLIENT)
        r = client_restore(restoring, record);
    else if (r == 0 && record->core.type == CORE_RECORD_LEASE)
        lease_restore(restoring, record);
    if (r == -ESTALE) { /* its lease had ended, and it wasn't erased any more */
        record_drop(restoring, record);
        return 0;
    }
    if (r != -EINVAL && r != -EEXIST)
        return r;
    log_warning("record %u of kind %u of the ledger contradicts the others and is dropped",
        record->core.number, (unsigned) record->core.type);
    restoring->found->refused++;
    record_drop(restoring, record);
    return 0;
}

int recover_records(struct broker *broker)
{
    struct restoring restoring = {.broker = broker, .found = &broker->recovery};
    struct ledger_cursor *cursor;
    struct ledger_record record;
    int r, next = LEDGER_END;

    if (broker->ledger == NULL || broker->recovery.epoch == 0)
        return 0;
    cursor = calloc(1, sizeof(*cursor));
    r = cursor == NULL ? -ENOMEM : 0;
    while (r == 0 && (next = ledger_next(broker->ledger, cursor, &record)) > 0) {
        if (next == LEDGER_DAMAGED)
            record_drop(&restoring, &record);
        else
            r = record_restore(&restoring, &record);
    }
    free(cursor);
    if (r == 0)
        r = next;
    if (r == 0)
        r = core_restore_end(broker->core, doubtful(&restoring),
            add_saturate(restoring.generation, GENERATION_MARGIN));
    if (r == 0)
        persist_step(broker);
    return r;
}

/* ------------------------------------------------------------------ the end */

static void found_log(struct recovery *found)
{
    bool ledger = found->damaged + found->refused + found->stuck + found->gone > 0;

    log_notice("start %u with this ledger: %u client%s, %u lease%s, %u chunk%s, %u segment%s taken "
               "over; %u client%s died meanwhile",
        found->epoch, found->clients, PLURAL_S(found->clients), found->leases,
        PLURAL_S(found->leases), found->chunks, PLURAL_S(found->chunks), found->segments,
        PLURAL_S(found->segments), found->dead, PLURAL_S(found->dead));
    /* The longest last: `degraded` has room for so much. */
    if (found->lost_arenas > 0)
        recover_degraded(found, LOG_LEVEL_WARNING,
            "%u arena%s of the broker before can't be gone on with", found->lost_arenas,
            PLURAL_S(found->lost_arenas));
    if (found->lost_pages > 0)
        recover_degraded(found, LOG_LEVEL_WARNING,
            "%u page%s of arenas lay in the host tier and are lost", found->lost_pages,
            PLURAL_S(found->lost_pages));
    if (found->segments_harmed > 0)
        recover_degraded(found, LOG_LEVEL_WARNING, "%u segment%s can't be served any more%s%.150s",
            found->segments_harmed, PLURAL_S(found->segments_harmed), ledger ? "" : ": ",
            ledger ? "" : found->segment_harmed);
    if (ledger)
        recover_degraded(found, LOG_LEVEL_WARNING,
            "the ledger doesn't add up: %u damaged and %u contradicting records, %u of devices "
            "that are gone; %u chunks have no memory here and stay with whoever maps them",
            found->damaged, found->refused, found->gone, found->stuck);
    if (found->strays > 0)
        log_info("%u file descriptors that no record names were let go", found->strays);
}

void recover_end(struct broker *broker)
{
    struct recovery *found = &broker->recovery;

    for (uint32_t i = 0; i < found->dead; i++) {
        struct core_event event = {.type = CORE_EVENT_CLIENT_DEAD, .client = found->dead_ids[i]};

        broker_step(broker, &event);
    }
    free(TAKE_PTR(found->dead_ids));
    if (found->epoch == 0)
        return;
    arenas_recover(broker);
    segments_recover(broker);
    /* What belongs to nothing that is there. */
    items_drop_all(broker);
    found_log(found);
    if (found->clients > 0)
        found->absent = absent_new(broker);
}

void recover_clear(struct broker *broker)
{
    free(TAKE_PTR(broker->recovery.dead_ids));
    broker->recovery.absent = absent_free(broker->recovery.absent);
}
