/* See worker.h and worker_main.c. One byte asks, eight answer. */
#include "tests/integration/worker.h"

#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static bool answer_read(const struct worker *worker, uint64_t *ret)
{
    struct pollfd poll_fd = {.fd = worker->from, .events = POLLIN};

    return poll(&poll_fd, 1, HARNESS_DEADLINE_MS) == 1 &&
           read(worker->from, ret, sizeof(*ret)) == sizeof(*ret);
}

/* The child's ends become 3 and 4, wherever they are. */
static bool fds_place(int orders, int answers)
{
    int high = fcntl(answers, F_DUPFD, 5);

    return high >= 0 && dup2(orders, 4) == 4 && dup2(4, 3) == 3 && dup2(high, 4) == 4;
}

void worker_start(struct worker *worker, const struct harness *harness, uint64_t page_bytes,
    uint64_t chunk_bytes, uint32_t count)
{
    const char *path = getenv("WORKER");
    char numbers[3][24];
    int to[2], from[2];
    uint64_t answer;

    ck_assert_int_eq(pipe2(to, O_CLOEXEC), 0);
    ck_assert_int_eq(pipe2(from, O_CLOEXEC), 0);
    worker->pid = fork();
    ck_assert_int_ge(worker->pid, 0);
    if (worker->pid == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void) snprintf(numbers[0], sizeof(numbers[0]), "%llu", (unsigned long long) page_bytes);
        (void) snprintf(numbers[1], sizeof(numbers[1]), "%llu", (unsigned long long) chunk_bytes);
        (void) snprintf(numbers[2], sizeof(numbers[2]), "%u", count);
        if (path != NULL && fds_place(to[0], from[1]))
            (void) execl(
                path, path, harness->client_socket, numbers[0], numbers[1], numbers[2], NULL);
        _exit(127);
    }
    (void) close(to[0]);
    (void) close(from[1]);
    worker->to = to[1];
    worker->from = from[0];
    ck_assert(answer_read(worker, &answer));
}

bool worker_check(struct worker *worker)
{
    uint64_t answer;

    return write(worker->to, "c", 1) == 1 && answer_read(worker, &answer);
}

uint64_t worker_evicted(struct worker *worker)
{
    uint64_t answer = 0;

    ck_assert_int_eq(write(worker->to, "e", 1), 1);
    ck_assert(answer_read(worker, &answer));
    return answer;
}

void worker_end(struct worker *worker, int signal)
{
    int status;

    (void) close(worker->to);
    if (signal != 0)
        ck_assert_int_eq(kill(worker->pid, signal), 0);
    ck_assert_int_eq(waitpid(worker->pid, &status, 0), worker->pid);
    ck_assert(signal != 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
    (void) close(worker->from);
}
