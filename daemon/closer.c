/*
 * One thread, and a pipe that carries what is to be closed: it needs no memory, so giving can't
 * fail for want of it. What lingers in close(2) sleeps interruptibly, so a timer sends the thread a
 * signal while it closes: each fd costs it 100 us at worst, and the many fds of one peer don't pile
 * up behind one.
 */
#include "daemon/closer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

#define LINGER_NSEC 100000
/* Room for every session's socket at once, and for those that were just accepted. */
#define PIPE_BYTES (2u * LIMIT_CLIENTS * (unsigned) sizeof(struct given))
#define CLOSE_BATCH 64
/* Unmapped at once: whoever wants to map something meanwhile waits for it, about a millisecond. */
#define UNMAP_BYTES ((size_t) 16 << 20)
/* Ignored by default: nothing happens should it go astray. */
#define WAKE_SIGNAL SIGURG

/* An fd, or, where `memory` isn't NULL, a mapping of so many bytes. */
struct given {
    void *memory;
    uint64_t value;
};
static_assert(sizeof(struct given) <= PIPE_BUF, "one is written whole or not at all");

struct closer {
    int ends[2];
    pthread_t thread;
    bool started;
    size_t waiting; /* atomic: given and not closed yet */
};

static void wake(int signal)
{
    (void) signal;
}

static void timer_arm(const timer_t *timer, long nsec)
{
    struct itimerspec interval = {{0, nsec}, {0, nsec}};

    if (timer != NULL)
        (void) timer_settime(*timer, 0, &interval, NULL);
}

static void given_close(const struct given *given)
{
    char *at = given->memory;
    int fd = (int) given->value;

    if (at == NULL) {
        close_fd(&fd);
        return;
    }
    for (size_t left = given->value; left > 0;) {
        size_t bytes = MIN(left, UNMAP_BYTES);

        (void) munmap(at, bytes);
        at += bytes;
        left -= bytes;
    }
}

static void *closer_main(void *data)
{
    struct closer *closer = data;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = WAKE_SIGNAL};
    timer_t timer;
    bool timed;
    struct given given[CLOSE_BATCH];
    ssize_t n;

    event._sigev_un._tid = (pid_t) syscall(SYS_gettid);
    timed = timer_create(CLOCK_MONOTONIC, &event, &timer) == 0;
    while ((n = read(closer->ends[0], given, sizeof(given))) != 0) {
        if (n < 0)
            continue; /* a late signal */
        timer_arm(timed ? &timer : NULL, LINGER_NSEC);
        for (size_t i = 0; i < (size_t) n / sizeof(given[0]); i++) {
            given_close(&given[i]);
            (void) __atomic_sub_fetch(&closer->waiting, 1, __ATOMIC_RELAXED);
        }
        timer_arm(timed ? &timer : NULL, 0);
    }
    if (timed)
        (void) timer_delete(timer);
    return NULL;
}

int closer_new(struct closer **ret)
{
    struct closer *closer = calloc(1, sizeof(*closer));
    struct sigaction action = {.sa_handler = wake}; /* no SA_RESTART: it is to interrupt */
    int r = 0;

    if (closer == NULL)
        return -ENOMEM;
    closer->ends[0] = closer->ends[1] = -1;
    if (sigaction(WAKE_SIGNAL, &action, NULL) < 0 || pipe2(closer->ends, O_CLOEXEC) < 0 ||
        fcntl(closer->ends[1], F_SETFL, O_NONBLOCK) < 0)
        r = -errno;
    /* What a user may have in pipes can be used up; it then holds as many as it holds. */
    (void) fcntl(closer->ends[1], F_SETPIPE_SZ, PIPE_BYTES);
    if (r == 0)
        r = -pthread_create(&closer->thread, NULL, closer_main, closer);
    closer->started = r == 0;
    if (r < 0) {
        (void) closer_free(closer);
        return r;
    }
    *ret = closer;
    return 0;
}

struct closer *closer_free(struct closer *closer)
{
    if (closer == NULL)
        return NULL;
    close_fd(&closer->ends[1]);
    if (closer->started)
        (void) pthread_join(closer->thread, NULL);
    close_fd(&closer->ends[0]);
    free(closer);
    return NULL;
}

static void give(struct closer *closer, const struct given *given)
{
    if (closer != NULL) {
        (void) __atomic_add_fetch(&closer->waiting, 1, __ATOMIC_RELAXED);
        if (write(closer->ends[1], given, sizeof(*given)) == (ssize_t) sizeof(*given))
            return;
        (void) __atomic_sub_fetch(&closer->waiting, 1, __ATOMIC_RELAXED);
    }
    given_close(given);
}

void closer_give(struct closer *closer, int fd)
{
    if (fd < 0)
        return;
    (void) shutdown(fd, SHUT_RDWR);
    give(closer, &(struct given){.value = (uint64_t) fd});
}

void closer_unmap(struct closer *closer, void *memory, size_t bytes)
{
    if (memory != NULL && bytes > 0)
        give(closer, &(struct given){.memory = memory, .value = bytes});
}

bool closer_full(const struct closer *closer)
{
    return __atomic_load_n(&closer->waiting, __ATOMIC_RELAXED) >= LIMIT_CLOSING;
}
