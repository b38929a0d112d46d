/*
 * Reading the ledger. The bytes may be anything: what doesn't carry its own number and the right
 * checksum is damaged, and a field out of its range with them is taken for the same. Holes are
 * skipped, so that a ledger costs what was written to it.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "daemon/ledger/ledger_private.h"

static uint32_t core_device(const struct ledger *ledger, uint32_t number)
{
    return number < LIMIT_DEVICES ? ledger->core_index[number] : LEDGER_NO_DEVICE;
}

/* A name of at most LIMIT_NAME_BYTES with its end. */
static bool name_copy(char ret[LIMIT_NAME_BYTES + 1], const char from[LIMIT_NAME_BYTES + 1])
{
    memcpy(ret, from, LIMIT_NAME_BYTES + 1);
    return memchr(ret, '\0', LIMIT_NAME_BYTES + 1) != NULL;
}

static bool client_decode(const struct disk_client *disk, struct ledger_record *ret)
{
    ret->core.generation = disk->generation;
    ret->core.gone = disk->gone != 0;
    ret->core.client.tenant = disk->tenant;
    ret->core.client.steward = disk->steward != 0;
    ret->client.host = (uint64_t) disk->host_generation << 32 | disk->host_number;
    ret->client.pid = disk->pid;
    ret->client.uid = disk->uid;
    ret->client.start_ticks = disk->start_ticks;
    memcpy(ret->client.token, disk->token, sizeof(disk->token));
    return name_copy(ret->client.program, disk->program);
}

static bool lease_decode(
    const struct ledger *ledger, const struct disk_lease *disk, struct ledger_record *ret)
{
    ret->core.generation = disk->generation;
    ret->core.gone = disk->gone != 0;
    ret->core.lease.client = disk->client;
    ret->core.lease.tenant = disk->tenant;
    ret->core.lease.open = disk->open != 0;
    ret->core.lease.device = core_device(ledger, disk->device);
    ret->core.lease.count = disk->count;
    ret->core.lease.max = disk->max;
    ret->core.lease.kind = (enum core_lease_kind) disk->kind;
    ret->core.lease.chunk_bytes = disk->chunk_bytes;
    ret->lease.page_bytes = disk->page_bytes;
    ret->lease.element = disk->element;
    ret->lease.format = disk->format;
    ret->lease.kept = disk->kept != 0;
    return name_copy(ret->lease.label, disk->label);
}

static bool chunk_decode(
    const struct ledger *ledger, const struct disk_chunk *disk, struct core_record *ret)
{
    ret->generation = disk->generation;
    ret->gone = disk->gone != 0;
    ret->chunk.device = core_device(ledger, disk->device);
    ret->chunk.tenant = disk->tenant;
    ret->chunk.forsaken = disk->forsaken != 0;
    ret->chunk.state = (enum core_record_state) disk->state;
    ret->chunk.index = disk->index;
    ret->chunk.lease = disk->lease;
    ret->chunk.bytes = disk->bytes;
    return ret->gone || (disk->state >= CORE_CHUNK_CLEAN && disk->state <= CORE_CHUNK_RELEASING);
}

static void account_decode(
    const struct ledger *ledger, const struct disk_account *disk, struct core_record *ret)
{
    ret->number = disk->tenant;
    ret->account.device = core_device(ledger, disk->device);
    ret->account.suspects_bytes = disk->suspects_bytes;
    ret->account.others_bytes = disk->others_bytes;
    ret->account.draining = disk->draining != 0;
}

/* False for what no writer writes. */
static bool record_decode(const struct ledger *ledger, enum core_record_type type, uint32_t number,
    const union disk_record *disk, struct ledger_record *ret)
{
    size_t bytes = ledger_regions[type].record_bytes;
    uint64_t checksum;

    *ret = (struct ledger_record){.core = {.type = type, .number = number}};
    memcpy(&checksum, disk->bytes + bytes - sizeof(checksum), sizeof(checksum));
    if (disk->tenant.number != number ||
        checksum != ledger_checksum(disk, bytes, (uint32_t) type, number))
        return false;
    switch (type) {
    case CORE_RECORD_TENANT:
        return name_copy(ret->core.tenant.name, disk->tenant.name);
    case CORE_RECORD_ACCOUNT:
        account_decode(ledger, &disk->account, &ret->core);
        return true;
    case CORE_RECORD_CLIENT:
        return client_decode(&disk->client, ret);
    case CORE_RECORD_LEASE:
        return lease_decode(ledger, &disk->lease, ret);
    case CORE_RECORD_HOLDER:
    case CORE_RECORD_SEAT:
        ret->core.generation = disk->holder.generation;
        ret->core.gone = disk->holder.gone != 0;
        ret->core.holder.lease = disk->holder.lease;
        ret->core.holder.client = disk->holder.client;
        ret->core.holder.open = disk->holder.open != 0;
        return true;
    case CORE_RECORD_CHUNK:
        ret->chunk_kept = disk->chunk.kept != 0;
        return chunk_decode(ledger, &disk->chunk, &ret->core);
    case CORE_RECORD_MAX:
        break;
    }
    return false;
}

/* ------------------------------------------------------------------ walking */

/* Moves the cursor to the first record at or behind it that isn't in a hole. False at the end. */
static int cursor_skip(const struct ledger *ledger, struct ledger_cursor *cursor, off_t *ret_at)
{
    while (cursor->type < CORE_RECORD_MAX) {
        const struct ledger_region *region = &ledger_regions[cursor->type];
        off_t at = region->offset + (off_t) cursor->number * region->record_bytes;
        off_t data = at;

        if (at < cursor->buffered || at >= cursor->buffered + (off_t) cursor->size)
            data = lseek(ledger->fd, at, SEEK_DATA);
        if (data < 0 && errno != ENXIO)
            return -errno;
        if (data > at)
            cursor->number =
                (uint32_t) MIN((data - region->offset) / region->record_bytes, region->count);
        if (data >= 0 && cursor->number < region->count) {
            *ret_at = region->offset + (off_t) cursor->number * region->record_bytes;
            return 1;
        }
        cursor->type++;
        cursor->number = 0;
    }
    return 0;
}

/* The record at `at`; NULL and -errno when it can't be read. */
static int cursor_read(
    const struct ledger *ledger, struct ledger_cursor *cursor, off_t at, union disk_record *ret)
{
    size_t bytes = ledger_regions[cursor->type].record_bytes;

    if (at < cursor->buffered || at + (off_t) bytes > cursor->buffered + (off_t) cursor->size) {
        ssize_t n = pread(ledger->fd, cursor->bytes, sizeof(cursor->bytes), at);

        if (n < 0)
            return -errno;
        if ((size_t) n < bytes)
            return -EIO;
        cursor->buffered = at;
        cursor->size = (size_t) n;
    }
    memset(ret, 0, sizeof(*ret));
    memcpy(ret, cursor->bytes + (at - cursor->buffered), bytes);
    return 0;
}

/* The copy of one whose place is damaged. */
static bool tenant_copy(const struct ledger *ledger, uint32_t number, struct ledger_record *ret)
{
    union disk_record disk = {.bytes = {0}};
    size_t bytes = ledger_regions[CORE_RECORD_TENANT].record_bytes;
    off_t at = ledger_tenant_copies + (off_t) number * (off_t) bytes;

    return pread(ledger->fd, &disk, bytes, at) == (ssize_t) bytes &&
           record_decode(ledger, CORE_RECORD_TENANT, number, &disk, ret);
}

static bool record_empty(const union disk_record *disk)
{
    static const union disk_record zero;

    return memcmp(disk, &zero, sizeof(zero)) == 0;
}

int ledger_next(
    const struct ledger *ledger, struct ledger_cursor *cursor, struct ledger_record *ret)
{
    if (!cursor->started) {
        cursor->started = true;
        if (ledger->header.stale != 0) {
            *ret = (struct ledger_record){.core.type = CORE_RECORD_MAX};
            return LEDGER_DAMAGED;
        }
    }
    for (;;) {
        union disk_record disk;
        enum core_record_type type;
        uint32_t number;
        off_t at = 0;
        int r = cursor_skip(ledger, cursor, &at);

        if (r <= 0)
            return r == 0 ? LEDGER_END : r;
        r = cursor_read(ledger, cursor, at, &disk);
        if (r < 0)
            return r;
        type = (enum core_record_type) cursor->type;
        number = cursor->number++;
        if (record_empty(&disk))
            continue;
        if (record_decode(ledger, type, number, &disk, ret) ||
            (type == CORE_RECORD_TENANT && tenant_copy(ledger, number, ret)))
            return LEDGER_RECORD;
        *ret = (struct ledger_record){.core = {.type = type, .number = number}};
        return LEDGER_DAMAGED;
    }
}
