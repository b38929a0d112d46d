/*
 * One request, one answer: a lease of a chunk that the tenant gave back before (so that it is
 * ready), and an echo, in short blocks by turns, so that each finds its server as warm as the other
 * and what disturbs the machine disturbs both. Both are timed from before the send to after the
 * receipt; closing the fd and giving the lease back aren't.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "tests/bench/bench.h"
#include "tests/integration/raw.h"

#define PAIRS 20000
#define WARM_UP 1000
#define BLOCK 50 /* of each kind before the other; divides both of the above */
/* What a lease's request and its Grant weigh. */
#define REQUEST_BYTES 30
#define ANSWER_BYTES 60

static const char configuration[] = "[Broker]\nRecycleIdle=1h\nObserveInterval=1h\n"
                                    "[Tenant bench]\nUser=*\n";

/* Answers each datagram with one of ANSWER_BYTES and an fd, until the peer is gone. */
static void echo_serve(int fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    char bytes[ANSWER_BYTES] = {0};
    struct iovec part = {bytes, sizeof(bytes)};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    int passed = open("/dev/null", O_RDONLY | O_CLOEXEC);

    while (recv(fd, bytes, sizeof(bytes), 0) > 0) {
        header.msg_control = &control;
        header.msg_controllen = sizeof(control);
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&control.header), &passed, sizeof(int));
        if (sendmsg(fd, &header, MSG_NOSIGNAL) < 0)
            break;
    }
}

/* The time that a request and its answer with one fd take on `fd`; the fd is closed after. */
static uint64_t exchange(int fd, const void *request, size_t size, char *answer, size_t *ret_size)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {answer, 256};
    struct msghdr header = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof(control),
    };
    uint64_t start_ns = clock_now(&clock_monotonic), end_ns;
    ssize_t n;
    int passed;

    if (send(fd, request, size, MSG_NOSIGNAL) < 0)
        return 0;
    n = recvmsg(fd, &header, MSG_CMSG_CLOEXEC);
    end_ns = clock_now(&clock_monotonic);
    if (n <= 0 || header.msg_controllen < CMSG_LEN(sizeof(int)))
        return 0;
    memcpy(&passed, CMSG_DATA(&control.header), sizeof(int));
    (void) close(passed);
    *ret_size = (size_t) n;
    return end_ns - start_ns;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *) a, y = *(const uint64_t *) b;

    return x < y ? -1 : x > y;
}

/* Gives the granted lease back and waits for Done. */
static int give_back(int fd, const char *grant, size_t size)
{
    Gmb__BrokerMessage *message;
    Gmb__ClientMessage request;
    Gmb__LeaseRelease body;
    struct frame frame;
    char done[64];

    if (frame_decode_broker((const uint8_t *) grant, size, &message) < 0)
        return -EBADMSG;
    gmb__client_message__init(&request);
    gmb__lease_release__init(&body);
    body.lease = message->grant->lease;
    request.id = 3;
    request.body_case = GMB__CLIENT_MESSAGE__BODY_LEASE_RELEASE;
    request.lease_release = &body;
    frame_message_free(&message->base);
    if (frame_encode(&frame, &request.base) < 0 ||
        send(fd, frame.bytes, frame.size, MSG_NOSIGNAL) < 0 || recv(fd, done, sizeof(done), 0) <= 0)
        return -EIO;
    return 0;
}

static int measure(int broker, int echo, uint64_t *lease_ns, uint64_t *echo_ns)
{
    /* id 2, LeaseRequest {bytes 2 MiB, chunk_bytes 2 MiB, label "bench"} */
    static const uint8_t request[] = {
        8, 2, 26, 17, 16, 128, 128, 128, 1, 24, 128, 128, 128, 1, 42, 5, 'b', 'e', 'n', 'c', 'h'};
    char answer[256], padding[REQUEST_BYTES] = {0};
    size_t size;

    for (unsigned i = 0; i < WARM_UP + PAIRS; i += BLOCK) {
        for (unsigned k = 0; k < BLOCK; k++) {
            uint64_t took_ns = exchange(broker, request, sizeof(request), answer, &size);

            if (took_ns == 0 || give_back(broker, answer, size) < 0)
                return -EIO;
            if (i >= WARM_UP)
                lease_ns[i - WARM_UP + k] = took_ns;
        }
        for (unsigned k = 0; k < BLOCK; k++) {
            uint64_t took_ns = exchange(echo, padding, sizeof(padding), answer, &size);

            /* The other half of the pair, untimed as the giving back is. */
            if (took_ns == 0 || exchange(echo, padding, sizeof(padding), answer, &size) == 0)
                return -EIO;
            if (i >= WARM_UP)
                echo_ns[i - WARM_UP + k] = took_ns;
        }
    }
    return 0;
}

/*
 * Where the scheduler puts the two sides decides a round trip's time threefold, and differently for
 * the two servers. So both servers share one processor and this process has another.
 */
static void pin(pid_t pid, unsigned nth)
{
    cpu_set_t allowed, chosen;

    if (sched_getaffinity(0, sizeof(allowed), &allowed) < 0)
        return;
    CPU_ZERO(&chosen);
    for (unsigned cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed))
            continue;
        CPU_ZERO(&chosen); /* with fewer processors than asked for, the last one */
        CPU_SET(cpu, &chosen);
        if (seen++ == nth)
            break;
    }
    (void) sched_setaffinity(pid, sizeof(chosen), &chosen);
}

int bench_lease_roundtrip(struct bench_row *rows, size_t max)
{
    static uint64_t lease_ns[PAIRS], echo_ns[PAIRS];
    struct harness harness;
    cpu_set_t everywhere;
    struct raw raw;
    int pair[2], fd, r;
    pid_t pid;

    if (max < 1)
        return -ENOSPC;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0) {
        (void) close(pair[1]);
        echo_serve(pair[0]);
        _exit(0);
    }
    (void) close(pair[0]);
    harness_start(&harness, configuration);
    raw_connect(&raw, &harness);
    fd = conn_fd(raw.conn);
    (void) fcntl(fd, F_SETFL, 0); /* blocking from here on: no poll(2) on the way */
    (void) sched_getaffinity(0, sizeof(everywhere), &everywhere);
    pin(pid, 1);
    pin(harness.pid, 1);
    pin(0, 0);
    r = measure(fd, pair[1], lease_ns, echo_ns);
    (void) sched_setaffinity(0, sizeof(everywhere), &everywhere);
    raw_close(&raw);
    (void) close(pair[1]);
    (void) waitpid(pid, NULL, 0);
    harness_discard(&harness);
    if (r < 0)
        return r;
    qsort(lease_ns, PAIRS, sizeof(*lease_ns), compare);
    qsort(echo_ns, PAIRS, sizeof(*echo_ns), compare);
    rows[0] = (struct bench_row){
        .name = "lease_roundtrip",
        .value = (double) lease_ns[PAIRS / 2] / 1e3,
        .unit = "us",
        .floor = (double) echo_ns[PAIRS / 2] / 1e3,
        .budget = 1.5,
    };
    rows[0].ratio = rows[0].value / rows[0].floor;
    rows[0].met = rows[0].ratio <= rows[0].budget;
    return 1;
}
