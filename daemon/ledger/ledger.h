/*
 * The ledger: what the broker knows of tenants, accounts, clients, leases and chunks, in a memfd
 * that whoever started the broker keeps for it. The next broker makes its core of it
 * (docs/restart.md).
 *
 * Each record has its place by type and number, lies within one page and carries a checksum over
 * itself and its place. It is written with one pwrite(2), which no signal divides: so a record is
 * the old one or the new one. The file isn't mapped and takes no room in this process.
 *
 * The header stands there twice, and so do tenants, so that no single damage takes many records
 * along. A version that isn't this one's is refused.
 *
 * Devices have a number of the ledger's own, by UUID, so that records stay true when the driver
 * lists them in another order, or no longer.
 *
 * Not thread-safe. Writes go to memory: none waits for a disk or a peer.
 */
#pragma once

#include <sys/types.h>

#include "base/uuid.h"
#include "daemon/core/core.h"

#define LEDGER_VERSION 2
#define LEDGER_TOKEN_BYTES 16
#define LEDGER_NO_DEVICE UINT32_MAX
#define LEDGER_BUFFER_BYTES 16384 /* whole records of each size */

/* What the shell knows of a client. Of a steward: nothing. */
struct ledger_client {
    core_id host; /* whose guest it is; 0: it has a session of its own */
    int32_t pid;
    uint64_t start_ticks; /* field 22 of /proc/PID/stat */
    uint32_t uid;
    uint8_t token[LEDGER_TOKEN_BYTES];
    char program[LIMIT_NAME_BYTES + 1];
};

/* … and of a lease. */
struct ledger_lease {
    uint64_t page_bytes;     /* of an arena … */
    uint8_t element, format; /* … what its pages hold, and how they lie in the host tier … */
    bool kept;               /* … and whether its fds are in the store */
    char label[LIMIT_NAME_BYTES + 1];
};

struct ledger_record {
    /* Devices are the core's indices; LEDGER_NO_DEVICE when read for one that isn't there. */
    struct core_record core;
    struct ledger_client client;
    struct ledger_lease lease;
    bool chunk_kept; /* its fd in the store is this generation's */
};

struct ledger;

/* An empty one for these devices, in the order of the core's indices. -errno. */
int ledger_new(const struct uuid *devices, size_t count, struct ledger **ret) _must_check_;
/*
 * One that a broker left. Takes `fd` on success. -EPROTONOSUPPORT for another version, which is
 * then in `ret_version`; -EBADMSG when no header is whole; -EINVAL for a file that is no ledger,
 * -ENOSPC when it knows too many other devices; other -errno.
 */
int ledger_open(int fd, const struct uuid *devices, size_t count, struct ledger **ret,
    uint32_t *ret_version) _must_check_;
/* Accepts NULL, returns NULL. The memfd is closed; whoever keeps a copy has the records. */
struct ledger *ledger_free(struct ledger *ledger);

/* Borrowed. */
int ledger_fd(const struct ledger *ledger);
/* Number of the core's device in the ledger, which stays the same from start to start. */
uint32_t ledger_device(const struct ledger *ledger, uint32_t device);
/* How often it was opened. */
uint32_t ledger_epoch(const struct ledger *ledger);

/*
 * Writes one record in its place. -errno of pwrite(2): what is there is then older than what is
 * true, and the ledger says so to whoever opens it (ledger_next() begins with LEDGER_DAMAGED).
 */
int ledger_write(struct ledger *ledger, const struct ledger_record *record) _must_check_;
/* Empties the place of a record that can't be used. -errno. */
int ledger_erase(struct ledger *ledger, enum core_record_type type, uint32_t number) _must_check_;

enum ledger_next {
    LEDGER_END,
    LEDGER_RECORD,
    LEDGER_DAMAGED, /* `core.type` and `core.number` say where; CORE_RECORD_MAX: perhaps anywhere */
};

struct ledger_cursor {
    uint32_t type, number;
    bool started;
    off_t buffered; /* offset of what is in `bytes` */
    size_t size;
    uint8_t bytes[LEDGER_BUFFER_BYTES];
};

/* Places that were ever written, in the order of types and numbers. Start with a zeroed cursor.
 * Also -errno of pread(2). */
int ledger_next(const struct ledger *ledger, struct ledger_cursor *cursor,
    struct ledger_record *ret) _must_check_;
