/*
 * A real gmbd on a simulated GPU of its own, in a folder of its own, for one test.
 *
 * harness_start() waits until the broker says READY, and notes how many fds it has open and how
 * much device memory is free. harness_settle() proves that both have come back to that: whatever a
 * test does, the broker has to be as it was. Failures end the test with the broker's log.
 *
 * One broker for each test process (libcheck forks). Everything that waits has a deadline.
 */
#pragma once

#include <sys/types.h>

#include "base/macro.h"
#include "gpu/gpu.h"
#include "proto/conn.h"
#include "tests/unit/scratch.h"

#define HARNESS_DEADLINE_MS 20000
#define HARNESS_MEMORY (UINT64_C(1) << 30)
#define HARNESS_CHUNK (UINT64_C(2) << 20)
/* What a mover has of its device: all of its lanes in one allocation. */
#define HARNESS_MOVER_BYTES HARNESS_CHUNK

struct harness {
    char dir[SCRATCH_PATH_BYTES];
    char client_socket[96], control_socket[96], config[96], log[96];
    pid_t pid;     /* of the broker; 0: none runs */
    pid_t keeper;  /* that it runs under; 0: none */
    int notify_fd; /* what the broker tells its service manager */
    struct gpu *gpu;
    size_t base_fds;
    uint64_t base_free_bytes;
};

/*
 * Starts a broker with one device of HARNESS_MEMORY and the configuration `text`; NULL: everybody
 * belongs to the tenant `test`, and chunks that were given back are released after 20 ms.
 */
void harness_start(struct harness *harness, const char *text);
/* Takes extra environment: `NAME=value` strings, ended by NULL. HARNESS_NOFILE is how many fds the
 * broker may have. */
void harness_start_with(struct harness *harness, const char *text, const char *const *environment);
/* The same under gmbd-keeper, so that a killed broker's successor has what it had. Its environment
 * is the broker's; GMBD_UNDER_KEEPER is another program to run as the broker, HARNESS_FDS how many
 * fds the keeper holds, HARNESS_WATCHDOG how many seconds it lets a broker say nothing. */
void harness_start_kept(struct harness *harness, const char *text, const char *const *environment);
/* Puts a keeper in the place of this one that has seen no broker die: so it starts the next one
 * without a pause. Broker and fds stay. */
void harness_keeper_renew(struct harness *harness);
/* Kills the broker with this signal, unless 0, and waits for its successor. */
void harness_succeed(struct harness *harness, int signal);
/* Finds the broker that the keeper runs now, where nobody knows how many were in between. */
void harness_find(struct harness *harness);
/* Settles, ends the broker with SIGTERM, which must succeed, and removes the folder. */
void harness_stop(struct harness *harness);

/* Ends the broker without looking at what it leaves, and removes the folder: for measurements. */
void harness_discard(struct harness *harness);

/* Whether the broker's fds and the device's free memory are at their baseline within `ms`; says in
 * `reason` what is not. */
bool harness_settled(struct harness *harness, unsigned ms, char reason[128]);
/* The same, and ends the test if not. */
void harness_settle(struct harness *harness);

/* Writes the configuration file anew; takes effect with a reload. */
void harness_configure(const struct harness *harness, const char *text);
/* Ends the broker at once (SIGKILL) and leaves everything as it lies. */
void harness_kill(struct harness *harness);
/* Starts a broker again in the same folder. The baseline stays the first one's. */
void harness_restart(struct harness *harness);

/* A connected socket, the caller's. */
int harness_dial(const char *path);

size_t harness_open_fds(pid_t pid);
/* The letter of /proc/PID/stat: 'T' is stopped, 'Z' has ended; '?': there is no such process. */
char harness_process_state(pid_t pid);
uint64_t harness_free_bytes(const struct harness *harness);
/* What the driver says is used of the device with that UUID, by whomever. */
uint64_t harness_used_bytes(const struct harness *harness, const char *uuid);
/* The broker's children that are movers and live, at most `max`; how many. */
size_t harness_movers(const struct harness *harness, pid_t *ret, size_t max);
/* The broker's gmbd-slab for its only device, which may still be starting; 0: none. */
pid_t harness_slab(const struct harness *harness);
/* How many lines of the broker's log, and the keeper's, have `text`; and whether any has. */
size_t harness_log_count(const struct harness *harness, const char *text);
bool harness_logged(const struct harness *harness, const char *text);

/* Milliseconds on the monotonic clock, for deadlines. */
uint64_t harness_now_ms(void);
/* Lets the processor go for a moment, in loops that ask again until a deadline. */
void harness_breathe(void);
/* Waits with the usual deadline, for includers of check.h. */
#define wait_until(condition)                                                                      \
    do {                                                                                           \
        uint64_t deadline_ = harness_now_ms() + HARNESS_DEADLINE_MS;                               \
                                                                                                   \
        while (!(condition)) {                                                                     \
            ck_assert_msg(harness_now_ms() < deadline_, "in time: %s", #condition);                \
            harness_breathe();                                                                     \
        }                                                                                          \
    } while (0)

/* The default configuration, with more behind it: for tests that add tenants. */
#define HARNESS_BROKER                                                                             \
    "[Broker]\nRecycleIdle=20ms\nOrphanGrace=200ms\nObserveInterval=50ms\nVerifyWindow=500ms\n"
#define HARNESS_TENANT "[Tenant test]\nUser=*\n"
