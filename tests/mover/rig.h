/*
 * A mover's control with a loop of its own, a tier, and an owner that writes down what it is told.
 * Chunks are of the test's making: `chunk_fd` gives an fd of each.
 */
#pragma once

#include <check.h>
#include <event2/event.h>

#include "daemon/mover_control.h"

#define RIG_JOBS 512
#define RIG_PATIENCE_NS (60 * NSEC_PER_SEC)

struct rig_result {
    bool done;
    int error;
    char text[300];
    size_t copy_count;
    struct mover_copy *copies; /* owned by the rig */
};

struct rig {
    struct event_base *base;
    struct tier *tier;
    struct mover_control *control;
    struct mover_options options;
    uint64_t disk_bytes; /* of the tier, in a scratch folder; 0: none */
    void *chunk_data;
    int (*chunk_fd)(void *data, uint32_t number, uint32_t generation, int *ret_fd);
    struct rig_result results[RIG_JOBS]; /* by the job's owner */
    size_t done_count, forgotten_count, exports;
    uint32_t last_forgotten;
    uint64_t wanted_bytes; /* for a mover that isn't there, as last told */
    size_t wanted_count;
};

/* Options that let tests be quick; `program` NULL: the real mover. */
void rig_open(struct rig *rig, uint64_t tier_bytes, const uint8_t uuid[16], const char *program);
/* Another control of that tier as it is by now, as a broker that comes after would make it. */
void rig_control_renew(struct rig *rig, const uint8_t uuid[16]);
/* Frees the control and checks that every job was answered. */
void rig_close(struct rig *rig);

/* Submits as job number `index`, waiting for room in the queue. */
void rig_submit(struct rig *rig, size_t index, struct mover_job *job);
/* Runs the loop until `count` jobs are done in all; fails the test when that takes too long. */
void rig_wait(struct rig *rig, size_t count);
/* Runs the loop until the mover is in that state. */
void rig_wait_state(struct rig *rig, enum mover_state state);
/* Runs the loop once, for at most some milliseconds. */
void rig_turn(struct rig *rig);
/* Runs the loop until the condition holds, with the deadline of the others. */
#define rig_wait_until(rig, condition)                                                             \
    do {                                                                                           \
        uint64_t deadline_ = clock_now(&clock_monotonic) + RIG_PATIENCE_NS;                        \
                                                                                                   \
        while (!(condition)) {                                                                     \
            ck_assert_msg(clock_now(&clock_monotonic) < deadline_, "in time: %s", #condition);     \
            rig_turn(rig);                                                                         \
        }                                                                                          \
    } while (0)
struct mover_stats rig_stats(const struct rig *rig);
