/* See ledger.h. Header, places and writing; reading is in ledger_read.c. */
#include "daemon/ledger/ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/memfile.h"
#include "daemon/ledger/ledger_private.h"

#define PAGES(bytes) (((bytes) + LEDGER_PAGE - 1) / LEDGER_PAGE * LEDGER_PAGE)
#define TENANTS_AT ((off_t) LEDGER_HEADERS * LEDGER_PAGE)
#define ACCOUNTS_AT (TENANTS_AT + PAGES((off_t) LIMIT_TENANTS * 128))
#define ACCOUNTS ((uint32_t) LIMIT_DEVICES * LEDGER_ACCOUNTS_PER_DEVICE)
#define CLIENTS_AT (ACCOUNTS_AT + PAGES((off_t) ACCOUNTS * 64))
/* A tenant has a client more, its steward. */
#define CLIENTS (LIMIT_CLIENTS + LIMIT_TENANTS)
#define LEASES_AT (CLIENTS_AT + PAGES((off_t) CLIENTS * 128))
#define LEASES ((uint32_t) LIMIT_CHUNKS_TOTAL + LIMIT_REQUESTS_TOTAL)
#define HOLDERS_AT (LEASES_AT + PAGES((off_t) LEASES * 128))
#define HOLDERS (LEASES * LIMIT_LEASE_HOLDERS)
#define SEATS_AT (HOLDERS_AT + PAGES((off_t) HOLDERS * 64))
#define CHUNKS_AT (SEATS_AT + PAGES((off_t) LIMIT_SEATS * 64))

/* Most of it is a hole: what was never written takes no memory. */
const struct ledger_region ledger_regions[CORE_RECORD_MAX] = {
    [CORE_RECORD_TENANT] = {TENANTS_AT, 128, LIMIT_TENANTS},
    [CORE_RECORD_ACCOUNT] = {ACCOUNTS_AT, 64, ACCOUNTS},
    [CORE_RECORD_CLIENT] = {CLIENTS_AT, 128, CLIENTS},
    [CORE_RECORD_LEASE] = {LEASES_AT, 128, LEASES},
    [CORE_RECORD_HOLDER] = {HOLDERS_AT, 64, HOLDERS},
    [CORE_RECORD_SEAT] = {SEATS_AT, 64, LIMIT_SEATS},
    [CORE_RECORD_CHUNK] = {CHUNKS_AT, 64, LIMIT_CHUNKS_TOTAL},
};
#define TENANT_COPIES_AT (CHUNKS_AT + PAGES((off_t) LIMIT_CHUNKS_TOTAL * 64))
const off_t ledger_tenant_copies = TENANT_COPIES_AT;
const off_t ledger_file_bytes = TENANT_COPIES_AT + PAGES((off_t) LIMIT_TENANTS * 128);

uint64_t ledger_checksum(const void *record, size_t bytes, uint32_t type, uint32_t number)
{
    uint64_t seed = ((uint64_t) type + 1) << 32 | number;

    return XXH3_64bits_withSeed(record, bytes - sizeof(uint64_t), seed);
}

/* ------------------------------------------------------------------ header */

static uint64_t header_checksum(const struct ledger_header *header)
{
    return XXH3_64bits(header, offsetof(struct ledger_header, checksum));
}

static int header_write(struct ledger *ledger)
{
    ledger->header.checksum = header_checksum(&ledger->header);
    for (off_t i = 0; i < LEDGER_HEADERS; i++) {
        int r = ledger_pwrite(ledger->fd, &ledger->header, sizeof(ledger->header), i * LEDGER_PAGE);

        if (r < 0)
            return r;
    }
    return 0;
}

/* The newest header that is whole. */
static int header_read(int fd, struct ledger_header *ret, uint32_t *ret_version)
{
    bool whole = false;

    for (off_t i = 0; i < LEDGER_HEADERS; i++) {
        struct ledger_header header;

        if (pread(fd, &header, sizeof(header), i * LEDGER_PAGE) != sizeof(header))
            return -EINVAL;
        if (header.magic != LEDGER_MAGIC)
            continue;
        /* Where the checksum lies is for the version to say. */
        if (header.version != LEDGER_VERSION) {
            *ret_version = header.version;
            continue;
        }
        if (header.checksum != header_checksum(&header) || header.device_count > LIMIT_DEVICES ||
            (whole && ret->epoch >= header.epoch))
            continue;
        *ret = header;
        whole = true;
    }
    if (whole)
        return 0;
    return *ret_version != LEDGER_VERSION ? -EPROTONOSUPPORT : -EBADMSG;
}

/* Numbers of the devices in the ledger: those that it doesn't know get new ones. */
static int devices_map(struct ledger *ledger, const struct uuid *devices, size_t count)
{
    struct ledger_header *header = &ledger->header;

    for (uint32_t i = 0; i < LIMIT_DEVICES; i++)
        ledger->core_index[i] = LEDGER_NO_DEVICE;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t number = 0;

        while (number < header->device_count &&
               (ledger->core_index[number] != LEDGER_NO_DEVICE ||
                   !uuid_equal(&header->devices[number], &devices[i])))
            number++;
        if (number == LIMIT_DEVICES)
            return -ENOSPC;
        if (number == header->device_count)
            header->devices[header->device_count++] = devices[i];
        ledger->disk_index[i] = number;
        ledger->core_index[number] = i;
    }
    return 0;
}

/* ------------------------------------------------------------------ life */

static struct ledger *ledger_make(void)
{
    struct ledger *ledger = calloc(1, sizeof(*ledger));

    if (ledger != NULL)
        ledger->fd = -1;
    return ledger;
}

int ledger_new(const struct uuid *devices, size_t count, struct ledger **ret)
{
    struct ledger *ledger = ledger_make();
    int r;

    if (ledger == NULL)
        return -ENOMEM;
    ledger->fd = memfile_new("gmbd-ledger", (uint64_t) ledger_file_bytes);
    if (ledger->fd < 0) {
        r = ledger->fd;
        (void) ledger_free(ledger);
        return r;
    }
    ledger->header =
        (struct ledger_header){.magic = LEDGER_MAGIC, .version = LEDGER_VERSION, .epoch = 1};
    r = devices_map(ledger, devices, count);
    if (r == 0)
        r = header_write(ledger);
    if (r < 0) {
        (void) ledger_free(ledger);
        return r;
    }
    *ret = ledger;
    return 0;
}

int ledger_open(
    int fd, const struct uuid *devices, size_t count, struct ledger **ret, uint32_t *ret_version)
{
    struct ledger *ledger;
    struct stat status;
    int r;

    *ret_version = LEDGER_VERSION;
    if (fstat(fd, &status) < 0)
        return -errno;
    ledger = ledger_make();
    if (ledger == NULL)
        return -ENOMEM;
    r = header_read(fd, &ledger->header, ret_version);
    if (r == 0 && (!S_ISREG(status.st_mode) || status.st_size != ledger_file_bytes))
        r = -EINVAL;
    if (r == 0)
        r = devices_map(ledger, devices, count);
    if (r == 0) {
        ledger->fd = fd;
        ledger->header.epoch++;
        r = header_write(ledger);
    }
    if (r < 0) {
        ledger->fd = -1;
        (void) ledger_free(ledger);
        return r;
    }
    *ret = ledger;
    return 0;
}

struct ledger *ledger_free(struct ledger *ledger)
{
    if (ledger == NULL)
        return NULL;
    close_fd(&ledger->fd);
    free(ledger);
    return NULL;
}

int ledger_fd(const struct ledger *ledger)
{
    return ledger->fd;
}

uint32_t ledger_device(const struct ledger *ledger, uint32_t device)
{
    return ledger->disk_index[device];
}

uint32_t ledger_epoch(const struct ledger *ledger)
{
    return ledger->header.epoch;
}

/* ------------------------------------------------------------------ writing */

static void client_encode(const struct ledger_record *record, struct disk_client *ret)
{
    *ret = (struct disk_client){
        .number = record->core.number,
        .generation = record->core.generation,
        .gone = record->core.gone,
    };
    if (record->core.gone)
        return;
    ret->tenant = (uint16_t) record->core.client.tenant;
    ret->steward = record->core.client.steward;
    ret->host_number = (uint32_t) record->client.host;
    ret->host_generation = (uint32_t) (record->client.host >> 32);
    ret->pid = record->client.pid;
    ret->uid = record->client.uid;
    ret->start_ticks = record->client.start_ticks;
    memcpy(ret->token, record->client.token, sizeof(ret->token));
    (void) snprintf(ret->program, sizeof(ret->program), "%s", record->client.program);
}

static void lease_encode(
    const struct ledger *ledger, const struct ledger_record *record, struct disk_lease *ret)
{
    *ret = (struct disk_lease){
        .number = record->core.number,
        .generation = record->core.generation,
        .gone = record->core.gone,
    };
    if (record->core.gone)
        return;
    ret->tenant = (uint16_t) record->core.lease.tenant;
    ret->open = record->core.lease.open;
    ret->device = ledger->disk_index[record->core.lease.device];
    ret->client = record->core.lease.client;
    ret->chunk_bytes = record->core.lease.chunk_bytes;
    ret->count = record->core.lease.count;
    ret->max = record->core.lease.max;
    ret->kind = (uint8_t) record->core.lease.kind;
    ret->page_bytes = record->lease.page_bytes;
    ret->element = record->lease.element;
    ret->format = record->lease.format;
    ret->kept = record->lease.kept;
    (void) snprintf(ret->label, sizeof(ret->label), "%s", record->lease.label);
}

static void chunk_encode(
    const struct ledger *ledger, const struct ledger_record *whole, struct disk_chunk *ret)
{
    const struct core_record *record = &whole->core;

    *ret = (struct disk_chunk){
        .number = record->number,
        .generation = record->generation,
        .gone = record->gone,
    };
    if (record->gone)
        return;
    ret->device = ledger->disk_index[record->chunk.device];
    ret->tenant = record->chunk.tenant;
    ret->state = (uint32_t) record->chunk.state;
    ret->index = record->chunk.index;
    ret->lease = record->chunk.lease;
    ret->bytes = record->chunk.bytes;
    ret->kept = whole->chunk_kept;
    ret->forsaken = record->chunk.forsaken;
}

static void holder_encode(const struct core_record *record, struct disk_holder *ret)
{
    *ret = (struct disk_holder){
        .number = record->number,
        .generation = record->generation,
        .gone = record->gone,
    };
    if (record->gone)
        return;
    ret->lease = record->holder.lease;
    ret->client = record->holder.client;
    ret->open = record->holder.open;
}

static void account_encode(
    const struct ledger *ledger, const struct core_record *record, struct disk_account *ret)
{
    uint32_t device = ledger->disk_index[record->account.device];
    uint32_t tenant = MIN(record->number, (uint32_t) LIMIT_TENANTS); /* the last is nobody */

    *ret = (struct disk_account){
        .number = device * LEDGER_ACCOUNTS_PER_DEVICE + tenant,
        .used = 1,
        .device = device,
        .tenant = record->number,
        .suspects_bytes = record->account.suspects_bytes,
        .others_bytes = record->account.others_bytes,
        .draining = record->account.draining,
    };
}

/* In its place, and where it has a second one there as well. */
static int bytes_write(
    struct ledger *ledger, enum core_record_type type, const void *bytes, uint32_t number)
{
    const struct ledger_region *region = &ledger_regions[type];
    off_t at = (off_t) number * (off_t) region->record_bytes;
    int r = ledger_pwrite(ledger->fd, bytes, region->record_bytes, region->offset + at);

    if (r == 0 && type == CORE_RECORD_TENANT)
        r = ledger_pwrite(ledger->fd, bytes, region->record_bytes, ledger_tenant_copies + at);
    return r;
}

static int place_write(
    struct ledger *ledger, enum core_record_type type, union disk_record *disk, uint32_t number)
{
    const struct ledger_region *region = &ledger_regions[type];
    size_t bytes = region->record_bytes;
    uint64_t checksum;
    int r;

    if (number >= region->count)
        return -EINVAL;
    checksum = ledger_checksum(disk, bytes, (uint32_t) type, number);
    memcpy(disk->bytes + bytes - sizeof(checksum), &checksum, sizeof(checksum));
    r = bytes_write(ledger, type, disk, number);
    if (r < 0 && ledger->header.stale == 0) {
        ledger->header.stale = 1;
        (void) header_write(ledger); /* its pages are there: this needs no memory */
    }
    return r;
}

int ledger_write(struct ledger *ledger, const struct ledger_record *record)
{
    union disk_record disk = {.bytes = {0}};

    switch (record->core.type) {
    case CORE_RECORD_TENANT:
        disk.tenant.number = record->core.number;
        disk.tenant.used = 1;
        memcpy(disk.tenant.name, record->core.tenant.name, sizeof(disk.tenant.name));
        break;
    case CORE_RECORD_ACCOUNT:
        account_encode(ledger, &record->core, &disk.account);
        break;
    case CORE_RECORD_CLIENT:
        client_encode(record, &disk.client);
        break;
    case CORE_RECORD_LEASE:
        lease_encode(ledger, record, &disk.lease);
        break;
    case CORE_RECORD_HOLDER:
    case CORE_RECORD_SEAT:
        holder_encode(&record->core, &disk.holder);
        break;
    case CORE_RECORD_CHUNK:
        chunk_encode(ledger, record, &disk.chunk);
        break;
    case CORE_RECORD_MAX:
        return -EINVAL;
    }
    /* Every one begins with its number. */
    return place_write(ledger, record->core.type, &disk, disk.tenant.number);
}

int ledger_erase(struct ledger *ledger, enum core_record_type type, uint32_t number)
{
    static const uint8_t zeros[sizeof(union disk_record)];

    return bytes_write(ledger, type, zeros, number);
}
