/*
 * A session over a real socket pair against a broker whose GPU is a double: the input is a run of
 * frames, each with a byte for its length and one for the fds that come with it. Whatever is sent,
 * the core's accounts hold and no fd is left when the session is over.
 */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "daemon/broker.h"
#include "daemon/segment.h"
#include "tests/fuzz/fuzz.h"

#define DEVICE_BYTES (UINT64_C(256) << 20)

static uint64_t fake_used;

static int fake_memory(struct gpu *gpu, const struct gpu_device *device, struct gpu_memory *ret,
    struct gpu_error *error)
{
    (void) gpu;
    (void) error;
    ret->total_bytes = device->total_bytes;
    ret->free_bytes = device->total_bytes - __atomic_load_n(&fake_used, __ATOMIC_RELAXED);
    return 0;
}

static int fake_create(struct gpu *gpu, const struct gpu_device *device, uint64_t bytes,
    struct gpu_chunk *ret, struct gpu_error *error)
{
    (void) gpu;
    (void) error;
    (void) __atomic_add_fetch(&fake_used, bytes, __ATOMIC_RELAXED);
    *ret = (struct gpu_chunk){.device = device, .handle = 1, .bytes = bytes};
    return 0;
}

static int fake_export(struct gpu *gpu, const struct gpu_chunk *chunk, struct gpu_shareable *ret,
    struct gpu_error *error)
{
    (void) gpu;
    (void) chunk;
    (void) error;
    *ret = (struct gpu_shareable){.fd = eventfd(0, EFD_CLOEXEC)};
    return ret->fd < 0 ? -errno : 0;
}

static int fake_release(struct gpu *gpu, struct gpu_chunk *chunk, struct gpu_error *error)
{
    (void) gpu;
    (void) error;
    (void) __atomic_sub_fetch(&fake_used, chunk->bytes, __ATOMIC_RELAXED);
    *chunk = (struct gpu_chunk){0};
    return 0;
}

static const struct gpu_ops fake_ops = {
    .memory_info = fake_memory,
    .chunk_create = fake_create,
    .chunk_export = fake_export,
    .chunk_release = fake_release,
};
static const struct gpu_device fake_device = {
    .uuid = "GPU-00000000-0000-0000-0000-000000000001",
    .name = "double",
    .total_bytes = DEVICE_BYTES,
    .granularity_bytes = 2 << 20,
    .vmm = true,
    .posix_fd = true,
};
static const struct gpu_device *const fake_devices[] = {&fake_device};
static struct gpu fake_gpu = {
    .ops = &fake_ops,
    .driver = GPU_DRIVER_SIM,
    .device_count = 1,
    .devices = fake_devices,
};

static struct event_base *base;
static struct broker *broker;

static void broker_make(void)
{
    /* Without a host tier no mover is started, which would need a program and a device. */
    static const char text[] = "[Broker]\nHostTier=0\n[ShareGroup g]\nMemoryMax=32M\n"
                               "[Tenant a]\nUser=*\nMemoryMax=64M\nShareGroup=g\n"
                               "DegradeLow=reduce-batch 0.5\nDegradeCritical=pause-new\n";
    struct config_device devices[LIMIT_DEVICES];
    char error[CONFIG_ERROR_BYTES];
    struct config *config;
    size_t count = broker_config_devices(&fake_gpu, devices);

    log_set_level(LOG_LEVEL_ERROR);
    base = event_base_new();
    FUZZ_CHECK(base != NULL);
    FUZZ_CHECK(
        config_load_text("fuzz", text, sizeof(text) - 1, devices, count, &config, error) == 0);
    FUZZ_CHECK(broker_new(base, &clock_monotonic, &fake_gpu, config, &broker, error) == 0);
}

static void turn(void)
{
    (void) event_base_loop(base, EVLOOP_NONBLOCK);
}

static void frame_send(int fd, const uint8_t *bytes, size_t size, unsigned fd_count)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * 3)];
    } control = {0};
    struct iovec part = {(void *) (uintptr_t) bytes, size};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};

    if (fd_count > 0) {
        int fds[3] = {fd, fd, fd};

        header.msg_control = &control;
        header.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
        memcpy(CMSG_DATA(&control.header), fds, sizeof(int) * fd_count);
    }
    (void) sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static int lowest_fd(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    (void) close(fd);
    return fd;
}

/* Says its Hello first if the input asks for it, so that the fuzzer needn't find one. */
static void input_play(int fd, const uint8_t *data, size_t size)
{
    static const uint8_t hello[] = {8, 1, 18, 2, 8, 1};

    if (size > 0 && (*data & 1) != 0)
        frame_send(fd, hello, sizeof(hello), 0);
    for (size_t at = 1; at + 2 <= size;) {
        size_t length = MIN((size_t) data[at], size - at - 2);

        frame_send(fd, data + at + 2, length, data[at + 1] < 0xf0 ? 0 : data[at + 1] % 4u);
        at += 2 + length;
        turn();
    }
}

/* What is sealed outlives its session. */
static void segments_remove(void)
{
    list_for_each(segment, &broker->segments->all, struct segment, all_link)
    {
        if (segment->state != SEGMENT_REMOVED)
            segment_remove(segment);
    }
    broker_settle(broker);
    FUZZ_CHECK(list_empty(&broker->segments->all));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct identity identity = IDENTITY_NONE;
    struct core_event dead = {.type = CORE_EVENT_CLIENT_DEAD};
    struct core_client_view view;
    struct session *session;
    uint64_t deadline;
    int fds[2], mark;

    if (broker == NULL)
        broker_make();
    mark = lowest_fd();
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    FUZZ_CHECK(identity_read(fds[0], &identity) == 0);
    FUZZ_CHECK(session_new_consume(broker, fds[0], &identity, &session) == 0);
    input_play(fds[1], data, size);
    (void) close(fds[1]);
    for (int i = 0; i < 1000 && !list_empty(&broker->sessions); i++)
        turn();
    FUZZ_CHECK(list_empty(&broker->sessions));
    /* This process doesn't die, so its death is made up. */
    while (core_client_next(broker->core, 0, &view)) {
        dead.client = view.id;
        broker_step(broker, &dead);
        broker_settle(broker);
    }
    segments_remove();
    FUZZ_CHECK(broker->clients == NULL);
    FUZZ_CHECK(core_check(broker->core) == NULL);
    /* Another thread closes the session's socket. */
    deadline = clock_now(&clock_monotonic) + 10 * NSEC_PER_SEC;
    while (lowest_fd() != mark)
        FUZZ_CHECK(clock_now(&clock_monotonic) < deadline);
    return 0;
}
