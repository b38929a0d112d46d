/*
 * A session over a real socket pair against a broker whose GPU is a double: the input is a run of
 * frames, each with a byte for its length and one for the fds that come with it. Whatever is sent,
 * the core's accounts hold and no fd is left when the session is over.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/segment.h"
#include "tests/fuzz/double.h"
#include "tests/fuzz/fuzz.h"

static struct event_base *base;
static struct broker *broker;

static void broker_make(void)
{
    /* Without a host tier no mover is started, which would need a program and a device. */
    static const char text[] = "[Broker]\nHostTier=0\n[ShareGroup g]\nMemoryMax=32M\n"
                               "[Tenant a]\nUser=*\nMemoryMax=64M\nShareGroup=g\n"
                               "DegradeLow=reduce-batch 0.5\nDegradeCritical=pause-new\n";

    log_set_level(LOG_LEVEL_ERROR);
    base = event_base_new();
    FUZZ_CHECK(base != NULL);
    broker = fuzz_broker_new(base, text);
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
