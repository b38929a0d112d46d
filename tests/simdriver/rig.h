/*
 * A simulated node of its own for each test, and processes that act on it and wait to be told.
 *
 * A child runs one function, says `ready` when it has reached the state that the test is about, and
 * then stays there until it is let go or killed. No test sleeps.
 */
#pragma once

#include <sys/types.h>

#include "gpu/sim/ledger.h"
#include "tests/unit/unit.h"

#define MIB (UINT64_C(1) << 20)

#define RIG_CAPACITY (8 * MIB)

/*
 * The test's node: one device of RIG_CAPACITY bytes with 4 KiB granules, empty memory, no
 * overheads. A test may change it before it first opens a ledger.
 */
extern struct sim_config rig;

/* Opened and registered; fails the test otherwise. */
struct ledger *rig_open(void);

/* A test that runs once for each of 0 … count - 1, as libcheck's `_i`. */
struct rig_loop {
    const TTest *test;
    size_t count;
};

/* Runs the tests, each with a node of its own, and leaves nothing behind however they end. */
int rig_main_loops(const char *name, const TTest *const tests[], size_t count,
    const struct rig_loop loops[], size_t loop_count);

static inline int rig_main(const char *name, const TTest *const tests[], size_t count)
{
    return rig_main_loops(name, tests, count, NULL, 0);
}

#define RIG_MAIN(name, ...)                                                                        \
    int main(void)                                                                                 \
    {                                                                                              \
        const TTest *const tests[] = {__VA_ARGS__};                                                \
                                                                                                   \
        return rig_main(name, tests, ARRAY_SIZE(tests));                                           \
    }

struct child {
    pid_t pid;
    int told, tells; /* pipes: to the child, from it */
};

/* In the child `at` is how it talks: child_ready, child_wait. Its return value is the exit code. */
struct child child_start(int (*run)(const struct child *at, void *data), void *data);
/* In the child. */
void child_ready(const struct child *at, int value);
void child_wait(const struct child *at);
/* In the test: waits until the child is ready (or dead: fails) and returns its value. */
int child_await(const struct child *child);
void child_go(const struct child *child);
/* Kills it and reaps it. */
void child_kill(struct child *child);
/* Lets it go, reaps it and returns its exit code. */
int child_finish(struct child *child);

/* Bytes that are free on device 0. */
uint64_t rig_free(struct ledger *ledger);
struct ledger_id rig_create(struct ledger *ledger, uint64_t bytes);
/* Open fds of this process. */
unsigned rig_fds(void);
/* Sends and takes one fd over a socket. */
void fd_send(int socket, int fd);
int fd_receive(int socket);
