/*
 * A worker with leases through libgmb whose chunks say whose they are, for tests in which the
 * broker goes away meanwhile. It runs in a process of its own, forked before the harness opens the
 * driver and told afterwards where the broker is.
 *
 * Whatever doesn't come as expected ends the process that calls, and the test by lessee_join().
 */
#pragma once

#include "client/gmb.h"
#include "tests/integration/harness.h"

/* Far beyond what any restart takes. */
#define LESSEE_WAIT_NS (UINT64_C(60) * 1000000000)

struct lessee {
    gmb_session *session;
    int (*set_current)(void *context);
    int (*to_device)(uint64_t address, const void *bytes, size_t size);
    int (*to_host)(void *bytes, uint64_t address, size_t size);
};

/* Connects, if need be again and again; requests wait for a broker that is away. */
void lessee_connect(struct lessee *lessee, const struct harness *harness);
/* A lease of so many chunks of HARNESS_CHUNK, with room for eight. */
gmb_lease *lessee_take(struct lessee *lessee, uint64_t chunks, const char *label);
/* Each chunk says at its start, in the middle and at its end: `mark`, and which one it is. */
void lessee_write(struct lessee *lessee, gmb_lease *lease, uint64_t mark);
void lessee_check(struct lessee *lessee, gmb_lease *lease, uint64_t mark);

void lessee_need(int r, const char *what);
/* What a broker that is away could not be told is told when the library is back with it. */
void lessee_need_or_later(int r, const char *what);

struct lessee_process {
    pid_t pid;
    int go;
};
typedef void lessee_run(struct lessee *lessee, void *data);

/* A process that connects and does `run`, once it is told where the broker is. */
struct lessee_process lessee_fork(lessee_run *run, void *data);
/* One that does the connecting itself. */
typedef void lessee_alone(const struct harness *harness, void *data);
struct lessee_process lessee_fork_alone(lessee_alone *run, void *data);
void lessee_go(struct lessee_process *process, const struct harness *harness);
/* Whether it still runs; the test ends if it has failed. */
bool lessee_runs(struct lessee_process *process);
/* Until it has ended, which must be well. */
void lessee_join(struct lessee_process *process);
