/*
 * A node for tests: a real gmbd on a simulated device of its own, in a directory of its own, and
 * worker processes that use libgmb. What a test leaves behind fails it.
 */
#pragma once

#include <check.h>
#include <sys/types.h>

#include "base/macro.h"
#include "client/gmb.h"
#include "proto/gmb.pb-c.h"
#include "tests/unit/scratch.h"

#define MIB (UINT64_C(1) << 20)
#define CHUNK_BYTES (2 * MIB)
#define WAIT_NS (UINT64_C(20) * 1000000000)

struct node {
    char directory[SCRATCH_PATH_BYTES];
    char client_socket[96], control_socket[96], config[96];
    pid_t broker;
    size_t open_fds;
};

/* Starts the broker; `tenants` is the configuration behind its [Broker] section. */
void node_start(struct node *node, uint64_t device_bytes, const char *tenants);
/* Rewrites the configuration, for a reload. */
void node_configure(const struct node *node, const char *tenants);
/* Waits until nobody is connected and every byte of the device is free again. */
void node_wait_idle(const struct node *node);
/* The broker dies at once; its memory is then whoever's it was. */
void node_kill_broker(struct node *node);
/* Waits for idleness if the broker lives, ends it, removes everything, counts fds. */
void node_stop(struct node *node);

/* What the broker says; to be freed with frame_message_free(). */
Gmb__ControlReply *node_status(const struct node *node);
uint64_t node_leased(const struct node *node);

struct worker {
    pid_t pid;
    int fd; /* to it */
};

/* Runs `run` in a process of its own, which then exits with 0. */
void worker_start(const struct node *node, struct worker *worker,
    void (*run)(const struct node *node, int fd, uint64_t argument), uint64_t argument);
/* Waits for its end, which must be a good one. */
void worker_end(struct worker *worker);
/* The same after SIGKILL. */
void worker_kill(struct worker *worker);

/* Numbers to and from the other end; the deadline of a test is 20 s. */
void say(int fd, uint64_t number);
uint64_t hear(int fd);

/* For workers, which have no test to fail but an exit status. */
#define WORKER_CHECK(condition)                                                                    \
    do {                                                                                           \
        if (!(condition))                                                                          \
            worker_fail(__FILE__, __LINE__, #condition);                                           \
    } while (0)
_Noreturn void worker_fail(const char *file, int line, const char *condition);

gmb_session *worker_connect(const struct node *node);
/* Memory of a lease through the driver. */
void lease_fill(const gmb_session *session, const gmb_lease *lease, uint64_t offset, uint64_t bytes,
    unsigned char value);
bool lease_holds(const gmb_session *session, const gmb_lease *lease, uint64_t offset,
    uint64_t bytes, unsigned char value);
