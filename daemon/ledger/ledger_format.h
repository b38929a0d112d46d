/*
 * Bytes of the ledger, version 2. Native byte order: it never leaves the machine. A change of
 * anything here, or of a number that a field holds, is another version.
 */
#pragma once

#include <assert.h>

#include "base/limits.h"
#include "base/macro.h"
#include "daemon/ledger/ledger.h"

#define LEDGER_MAGIC UINT64_C(0x524744454c424d47) /* "GMBLEDGR" */
#define LEDGER_PAGE 4096
#define LEDGER_HEADERS 2

struct ledger_header {
    uint64_t magic;
    uint32_t version;
    uint32_t epoch;
    uint32_t stale; /* a write failed: some records are older than they should be */
    uint32_t device_count;
    struct uuid devices[LIMIT_DEVICES];
    uint64_t checksum;
};
static_assert(sizeof(struct ledger_header) <= LEDGER_PAGE, "a header is one write");

/* Each begins with its own number and ends with a checksum; one of zeros was never written. */
struct disk_tenant {
    uint32_t number, used; /* 1 */
    char name[LIMIT_NAME_BYTES + 1];
    char zero[47];
    uint64_t checksum;
};

struct disk_account {
    uint32_t number, used; /* 1 */
    uint32_t device, tenant;
    uint64_t suspects_bytes, others_bytes;
    uint32_t draining, zero[5];
    uint64_t checksum;
};

struct disk_client {
    uint32_t number, generation;
    uint8_t gone, steward;
    uint16_t tenant;
    int32_t pid;
    uint32_t uid;
    uint32_t host_number; /* the lower half of its id … */
    uint64_t start_ticks;
    uint8_t token[LEDGER_TOKEN_BYTES];
    char program[LIMIT_NAME_BYTES + 1];
    char zero[3];
    uint32_t host_generation; /* … and the upper one */
    uint64_t checksum;
};

struct disk_lease {
    uint32_t number, generation;
    uint16_t gone, tenant;
    uint32_t device;
    uint64_t client, chunk_bytes, page_bytes;
    uint32_t count, max;
    uint8_t element, format, kept;
    char label[LIMIT_NAME_BYTES + 1];
    uint8_t open, kind; /* enum core_lease_kind */
    char zero[2];
    uint64_t checksum;
};

/* HOLDER, SEAT */
struct disk_holder {
    uint32_t number, generation;
    uint32_t gone, open;
    uint64_t lease, client, zero2[3];
    uint64_t checksum;
};

struct disk_chunk {
    uint32_t number, generation;
    uint32_t gone, device, tenant, state, index, kept;
    uint64_t lease, bytes;
    uint32_t forsaken, zero;
    uint64_t checksum;
};

union disk_record {
    uint8_t bytes[128];
    struct disk_tenant tenant;
    struct disk_account account;
    struct disk_client client;
    struct disk_lease lease;
    struct disk_holder holder;
    struct disk_chunk chunk;
};
static_assert(sizeof(union disk_record) == 128, "no record is larger");
static_assert(sizeof(struct disk_tenant) == 128 && sizeof(struct disk_account) == 64 &&
                  sizeof(struct disk_client) == 128 && sizeof(struct disk_lease) == 128 &&
                  sizeof(struct disk_holder) == 64 && sizeof(struct disk_chunk) == 64,
    "a record divides a page");

/* Where records of a type lie. */
struct ledger_region {
    off_t offset;
    uint32_t record_bytes, count;
};
extern const struct ledger_region ledger_regions[CORE_RECORD_MAX];
#define LEDGER_ACCOUNTS_PER_DEVICE (LIMIT_TENANTS + 1)
/* Tenants stand there a second time: without its name nothing of a tenant could be gone on with. */
extern const off_t ledger_tenant_copies;
extern const off_t ledger_file_bytes;

/* Over a record but its checksum; of a type and number, so that it holds in one place alone. */
uint64_t ledger_checksum(const void *record, size_t bytes, uint32_t type, uint32_t number);

/* pwrite(2) of the whole, or -errno. In a file of its own: a test ends the process there. */
int ledger_pwrite(int fd, const void *bytes, size_t size, off_t offset) _must_check_;
