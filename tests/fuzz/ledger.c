/*
 * A broker starts on a ledger in which bytes were changed: the first byte of the input says whether
 * checksums are made to fit again, and then come triples of a record, a place in it and bits to
 * flip. The broker starts whatever it finds, and its accounts hold. Where checksums tell of the
 * damage, nothing that the client had is there for others.
 */
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "daemon/ledger/ledger_format.h"
#include "tests/fuzz/double.h"
#include "tests/fuzz/fuzz.h"

#define CHUNK FUZZ_GPU_CHUNK
#define CHUNKS 4 /* three of a lease, one of the tenant's cache */
#define PLACES (1 + CHUNKS)
#define FIRST_FD 3

/* Before libFuzzer or anybody else opens something: the fds that a broker inherits lie there. */
static void __attribute__((constructor)) places_reserve(void)
{
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

    for (int place = FIRST_FD; place < FIRST_FD + PLACES; place++) {
        if (fcntl(place, F_GETFD) < 0)
            (void) dup2(fd, place);
    }
    if (fd >= FIRST_FD + PLACES)
        (void) close(fd);
}

/* ------------------------------------------------------------------ a manager */

/* Takes everything and closes it: a barrier is passed by that. */
static void *manager_serve(void *data)
{
    int fd = (int) (intptr_t) data;

    for (;;) {
        union {
            struct cmsghdr header;
            char bytes[CMSG_SPACE(16 * sizeof(int))];
        } control;
        char text[256];
        struct iovec part = {text, sizeof(text)};
        struct msghdr message = {.msg_iov = &part,
            .msg_iovlen = 1,
            .msg_control = &control,
            .msg_controllen = sizeof(control)};
        const struct cmsghdr *header;

        if (recvmsg(fd, &message, MSG_CMSG_CLOEXEC) < 0)
            continue;
        header = CMSG_FIRSTHDR(&message);
        for (size_t i = 0; header != NULL && CMSG_LEN((i + 1) * sizeof(int)) <= header->cmsg_len;
             i++) {
            int passed;

            memcpy(&passed, CMSG_DATA(header) + i * sizeof(int), sizeof(passed));
            (void) close(passed);
        }
    }
    return NULL;
}

static void manager_start(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    char path[64], pid[16];
    pthread_t thread;
    int length;

    length = snprintf(path, sizeof(path), "@gmbd-fuzz-ledger-%d", (int) getpid());
    memcpy(address.sun_path + 1, path + 1, (size_t) length - 1);
    FUZZ_CHECK(fd >= 0 &&
               bind(fd, (struct sockaddr *) &address,
                   (socklen_t) (offsetof(struct sockaddr_un, sun_path) + (size_t) length)) == 0);
    FUZZ_CHECK(pthread_create(&thread, NULL, manager_serve, (void *) (intptr_t) fd) == 0);
    (void) snprintf(pid, sizeof(pid), "%d", (int) getpid());
    (void) setenv("NOTIFY_SOCKET", path, 1);
    (void) setenv("FDSTORE", "64", 1);
    (void) setenv("LISTEN_PID", pid, 1);
    (void) setenv("LISTEN_FDS", "5", 1);
    (void) setenv("LISTEN_FDNAMES", "ledger:C0:C1:C2:C3", 1);
}

/* ------------------------------------------------------------------ a ledger */

static const struct {
    enum core_record_type type;
    uint32_t number;
} records[] = {
    {CORE_RECORD_TENANT, 0},
    {CORE_RECORD_ACCOUNT, 0},
    {CORE_RECORD_CLIENT, 0},
    {CORE_RECORD_LEASE, 0},
    {CORE_RECORD_CHUNK, 0},
    {CORE_RECORD_CHUNK, 1},
    {CORE_RECORD_CHUNK, 2},
    {CORE_RECORD_CHUNK, 3},
};
#define ID UINT64_C(0x100000001)

static void record_put(struct ledger *ledger, struct ledger_record record)
{
    FUZZ_CHECK(ledger_write(ledger, &record) == 0);
}

/* This process is the client, as a later one of its pid would be seen not to be. */
static void client_put(struct ledger *ledger)
{
    _cleanup_identity_ struct identity self = IDENTITY_NONE;
    int pair[2];

    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    FUZZ_CHECK(identity_read(pair[0], &self) == 0);
    (void) close(pair[0]);
    (void) close(pair[1]);
    record_put(ledger, (struct ledger_record){.core = {.type = CORE_RECORD_CLIENT, .generation = 1},
                           .client = {.pid = self.pid,
                               .start_ticks = self.start_ticks,
                               .uid = self.uid,
                               .program = "fuzz"}});
}

static struct ledger *ledger_make(void)
{
    struct config_device devices[LIMIT_DEVICES];
    struct ledger *ledger;

    FUZZ_CHECK(broker_config_devices(&fuzz_gpu, devices) == 1);
    FUZZ_CHECK(ledger_new(&devices[0].uuid, 1, &ledger) == 0);
    record_put(
        ledger, (struct ledger_record){.core = {.type = CORE_RECORD_TENANT, .tenant = {"a"}}});
    record_put(ledger, (struct ledger_record){.core = {.type = CORE_RECORD_ACCOUNT}});
    client_put(ledger);
    record_put(ledger,
        (struct ledger_record){.core = {.type = CORE_RECORD_LEASE,
                                   .generation = 1,
                                   .lease = {.client = ID, .count = 3, .chunk_bytes = CHUNK}}});
    for (uint32_t i = 0; i < CHUNKS; i++)
        record_put(ledger, (struct ledger_record){
                               .core = {.type = CORE_RECORD_CHUNK,
                                   .number = i,
                                   .generation = 1,
                                   .chunk = {.state = i < 3 ? CORE_CHUNK_LEASED : CORE_CHUNK_CACHED,
                                       .index = i < 3 ? i : 0,
                                       .lease = i < 3 ? ID : 0,
                                       .bytes = CHUNK}},
                               .chunk_kept = true});
    return ledger;
}

static void bits_flip(const struct ledger *ledger, bool fits, const uint8_t triple[3])
{
    size_t which = triple[0] % ARRAY_SIZE(records);
    const struct ledger_region *region = &ledger_regions[records[which].type];
    off_t at = region->offset + (off_t) records[which].number * region->record_bytes;
    size_t bytes = region->record_bytes;
    union disk_record disk = {.bytes = {0}};
    uint64_t checksum;

    FUZZ_CHECK(pread(ledger_fd(ledger), &disk, bytes, at) == (ssize_t) bytes);
    disk.bytes[triple[1] % bytes] ^= triple[2];
    if (fits) {
        checksum =
            ledger_checksum(&disk, bytes, (uint32_t) records[which].type, records[which].number);
        memcpy(disk.bytes + bytes - sizeof(checksum), &checksum, sizeof(checksum));
    }
    FUZZ_CHECK(pwrite(ledger_fd(ledger), &disk, bytes, at) == (ssize_t) bytes);
    /* A tenant's copy isn't what helps here. */
    if (fits && records[which].type == CORE_RECORD_TENANT)
        FUZZ_CHECK(
            pwrite(ledger_fd(ledger), &disk, bytes, ledger_tenant_copies) == (ssize_t) bytes);
}

/* ------------------------------------------------------------------ */

static void inherit(const struct ledger *ledger)
{
    for (int i = 0; i < PLACES; i++) {
        int fd = i == 0 ? dup(ledger_fd(ledger)) : eventfd(0, EFD_CLOEXEC);

        FUZZ_CHECK(fd >= 0 && dup2(fd, FIRST_FD + i) >= 0);
        if (fd != FIRST_FD + i)
            (void) close(fd);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct core_device_view view;
    struct event_base *base;
    struct ledger *ledger;
    struct broker *broker;
    bool fits = size > 0 && (data[0] & 1) != 0;

    if (getenv("FDSTORE") == NULL) {
        log_set_level(LOG_LEVEL_ERROR);
        manager_start();
    }
    fuzz_gpu_used = CHUNKS * CHUNK;
    ledger = ledger_make();
    for (size_t at = 1; at + 3 <= size; at += 3)
        bits_flip(ledger, fits, data + at);
    inherit(ledger);
    base = event_base_new();
    FUZZ_CHECK(base != NULL);
    broker = fuzz_broker_new(base, "[Tenant a]\nUser=*\n");
    FUZZ_CHECK(core_check(broker->core) == NULL);
    FUZZ_CHECK(core_device_get(broker->core, 0, &view));
    FUZZ_CHECK(size > 3 || view.leased == 3 * CHUNK);
    FUZZ_CHECK(fits || view.cached + view.clean <= CHUNK);
    FUZZ_CHECK(
        view.leased + view.cached + view.clean + view.releasing + view.orphaned + view.free <=
            FUZZ_GPU_BYTES ||
        fits);
    for (int i = 0; i < 4; i++)
        (void) event_base_loop(base, EVLOOP_NONBLOCK);
    FUZZ_CHECK(core_check(broker->core) == NULL);
    (void) broker_free(broker);
    event_base_free(base);
    (void) ledger_free(ledger);
    places_reserve();
    return 0;
}
