/*
 * A broker starts on a ledger in which bytes were changed: the first byte of the input says whether
 * checksums are made to fit again, and then come triples of a record, a place in it and bits to
 * flip; one more record stands for what is kept of a segment. The broker starts whatever it finds,
 * and its accounts hold. Where checksums tell of the damage, nothing that the client had is there
 * for others, and a segment that is served is what was sealed.
 */
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/memfile.h"
#include "daemon/ledger/ledger_format.h"
#include "daemon/segment_kept.h"
#include "tests/fuzz/double.h"
#include "tests/fuzz/fuzz.h"

#define CHUNK FUZZ_GPU_CHUNK
#define CHUNKS 6 /* three of a lease, one of the tenant's cache, two of a segment */
#define LEASED 5
#define PLACES (1 + CHUNKS + 1) /* the ledger, and the segment's record */
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
    (void) setenv("LISTEN_FDS", "8", 1);
    (void) setenv("LISTEN_FDNAMES", "ledger:C0:C1:C2:C3:C4:C5:S1", 1);
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
    {CORE_RECORD_CLIENT, 1},
    {CORE_RECORD_LEASE, 1},
    {CORE_RECORD_SEAT, 0},
    {CORE_RECORD_SEAT, 1},
    {CORE_RECORD_CHUNK, 4},
    {CORE_RECORD_CHUNK, 5},
};
#define ID UINT64_C(0x100000001)
#define SEGMENT_ID UINT64_C(0x100000002) /* its steward's, too */
#define PIECES 2

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

/* Its steward and the client hold it. */
static void segment_put(struct ledger *ledger)
{
    record_put(ledger, (struct ledger_record){.core = {.type = CORE_RECORD_CLIENT,
                                                  .number = 1,
                                                  .generation = 1,
                                                  .client = {.steward = true}}});
    record_put(ledger, (struct ledger_record){.core = {.type = CORE_RECORD_LEASE,
                                                  .number = 1,
                                                  .generation = 1,
                                                  .lease = {.count = PIECES,
                                                      .max = PIECES,
                                                      .kind = CORE_LEASE_SEGMENT,
                                                      .chunk_bytes = CHUNK}}});
    for (uint32_t i = 0; i < 2; i++)
        record_put(ledger, (struct ledger_record){.core = {.type = CORE_RECORD_SEAT,
                                                      .number = i,
                                                      .generation = 1,
                                                      .holder = {.lease = SEGMENT_ID,
                                                          .client = i == 0 ? SEGMENT_ID : ID,
                                                          .open = true}}});
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
    segment_put(ledger);
    for (uint32_t i = 0; i < CHUNKS; i++)
        record_put(ledger, (struct ledger_record){.core = {.type = CORE_RECORD_CHUNK,
                                                      .number = i,
                                                      .generation = 1,
                                                      .chunk = {.state = i == 3 ? CORE_CHUNK_CACHED
                                                                                : CORE_CHUNK_LEASED,
                                                          .index = i < 3   ? i
                                                                   : i < 4 ? 0
                                                                           : i - 4,
                                                          .lease = i < 3   ? ID
                                                                   : i < 4 ? 0
                                                                           : SEGMENT_ID,
                                                          .bytes = CHUNK}},
                               .chunk_kept = true});
    return ledger;
}

/* A sealed one, as the broker keeps it. */
struct segment_file {
    struct segment_kept kept;
    uint8_t gap[SEGMENT_KEPT_BEGIN - sizeof(struct segment_kept)];
    uint64_t words[2 * PIECES];
};

static void segment_file_sign(struct segment_file *file)
{
    struct segment_head *head = &file->kept.heads[0];

    head->sums_checksum = segment_words_checksum(file->words, PIECES, 1);
    head->checksum = segment_head_checksum(head);
    file->kept.current = head->checksum;
}

static void segment_file_make(struct segment_file *file)
{
    memset(file, 0, sizeof(*file));
    file->kept.magic = SEGMENT_KEPT_MAGIC;
    file->kept.heads[0] = (struct segment_head){
        .lease = SEGMENT_ID,
        .number = 1,
        .state = SEGMENT_SEALED,
        .size_bytes = PIECES * CHUNK,
        .chunk_bytes = CHUNK,
        .piece_bytes = CHUNK,
        .chunks = PIECES,
        .pieces = PIECES,
        .summed = 1,
        .name = "w",
    };
    segment_file_sign(file);
}

/* Whether it is as good as before. */
static bool segment_flip(struct segment_file *file, bool fits, const uint8_t triple[3])
{
    /* Each field of the heads begins at such a place. */
    size_t at = triple[1] * 4u;
    bool head = at < sizeof(file->kept);

    if (head)
        ((uint8_t *) &file->kept)[at] ^= triple[2];
    else
        ((uint8_t *) file->words)[triple[1] % sizeof(file->words)] ^= triple[2];
    if (fits)
        segment_file_sign(file);
    /* The other head was being written. */
    return triple[2] == 0 || (head && at >= offsetof(struct segment_kept, heads[1]));
}

static void bits_flip(const struct ledger *ledger, bool fits, const uint8_t triple[3])
{
    size_t which = triple[0] % (ARRAY_SIZE(records) + 1);
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

static int segment_fd(const struct segment_file *file)
{
    int fd = memfile_new("segment", sizeof(*file));

    FUZZ_CHECK(fd >= 0 && pwrite(fd, file, sizeof(*file), 0) == (ssize_t) sizeof(*file));
    return fd;
}

static void inherit(const struct ledger *ledger, const struct segment_file *file)
{
    for (int i = 0; i < PLACES; i++) {
        int fd = i == 0            ? dup(ledger_fd(ledger))
                 : i == PLACES - 1 ? segment_fd(file)
                                   : eventfd(0, EFD_CLOEXEC);

        FUZZ_CHECK(fd >= 0 && dup2(fd, FIRST_FD + i) >= 0);
        if (fd != FIRST_FD + i)
            (void) close(fd);
    }
}

/* Whatever is served has all of its memory, and the sums that it was sealed with. */
static bool segment_whole(const struct broker *broker)
{
    list_for_each(segment, &broker->segments->all, struct segment, all_link)
    {
        struct core_lease_view lease;

        if (segment->state == SEGMENT_SEALED &&
            (!core_lease_get(broker->core, segment->lease, &lease) || lease.chunks != PIECES ||
                segment->sums == NULL || segment->sums[0] != 0 || segment->sums[1] != 0))
            return false;
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct segment_file file;
    bool whole = true;
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
    segment_file_make(&file);
    for (size_t at = 1; at + 3 <= size; at += 3) {
        if (data[at] % (ARRAY_SIZE(records) + 1) == ARRAY_SIZE(records)) {
            whole = segment_flip(&file, fits, data + at) && whole;
        } else {
            bits_flip(ledger, fits, data + at);
            whole = false;
        }
    }
    inherit(ledger, &file);
    base = event_base_new();
    FUZZ_CHECK(base != NULL);
    broker = fuzz_broker_new(base, "[Broker]\nHostTier=0\n[Tenant a]\nUser=*\n");
    FUZZ_CHECK(core_check(broker->core) == NULL);
    FUZZ_CHECK(core_device_get(broker->core, 0, &view));
    FUZZ_CHECK(size > 3 || view.leased == LEASED * CHUNK);
    FUZZ_CHECK(!whole || (broker->recovery.segments == 1 && broker->recovery.segments_harmed == 0));
    FUZZ_CHECK(fits || segment_whole(broker));
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
