/* See rig.h. */
#include "tests/mover/rig.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/tier_disk.h"
#include "tests/unit/scratch.h"

static int on_export(void *data, uint32_t number, uint32_t generation, int *ret_fd)
{
    struct rig *rig = data;

    rig->exports++;
    return rig->chunk_fd(rig->chunk_data, number, generation, ret_fd);
}

static void on_done(void *data, const struct mover_result *result)
{
    struct rig *rig = data;
    size_t index = (size_t) (uintptr_t) result->job.owner;
    struct rig_result *kept = &rig->results[index];

    ck_assert_msg(!kept->done, "job %zu is answered twice", index);
    kept->done = true;
    kept->error = result->error;
    kept->copy_count = result->job.copy_count;
    (void) snprintf(kept->text, sizeof(kept->text), "%s", result->text);
    if (kept->copy_count > 0) {
        kept->copies = malloc(kept->copy_count * sizeof(*kept->copies));
        ck_assert_ptr_nonnull(kept->copies);
        memcpy(kept->copies, result->job.copies, kept->copy_count * sizeof(*kept->copies));
    }
    rig->done_count++;
}

static void on_forgotten(void *data, uint32_t number, uint32_t generation)
{
    struct rig *rig = data;

    (void) generation;
    rig->last_forgotten = number;
    rig->forgotten_count++;
}

static void on_wanted(void *data, uint64_t bytes)
{
    struct rig *rig = data;

    rig->wanted_bytes = bytes;
    rig->wanted_count++;
}

static int disk_make(const struct rig *rig)
{
    char dir[SCRATCH_PATH_BYTES], reason[TIER_DISK_TEXT];
    int fd;

    if (rig->disk_bytes == 0)
        return -1;
    ck_assert_int_eq(scratch_make(dir), 0);
    ck_assert_msg(tier_disk_open(dir, rig->disk_bytes, &fd, reason) == 0, "%s", reason);
    ck_assert_int_eq(scratch_remove(dir), 0);
    return fd;
}

void rig_control_renew(struct rig *rig, const uint8_t uuid[16])
{
    const struct mover_handler handler = {.data = rig,
        .chunk_export = on_export,
        .job_done = on_done,
        .memory_wanted = on_wanted,
        .chunk_forgotten = on_forgotten};

    rig->control = mover_control_free(rig->control);
    ck_assert_int_eq(mover_control_new(rig->base, &clock_monotonic, rig->tier, uuid, &rig->options,
                         &handler, &rig->control),
        0);
}

void rig_open(
    struct rig *rig, uint64_t tier_bytes_wanted, const uint8_t uuid[16], const char *program)
{
    if (rig->options.driver == NULL) {
        rig->options = mover_options_default;
        rig->options.driver = "sim";
        rig->options.backoff_ns = NSEC_PER_MSEC;
        rig->options.backoff_max_ns = 50 * NSEC_PER_MSEC;
    }
    rig->options.program = program;
    rig->base = event_base_new();
    ck_assert_ptr_nonnull(rig->base);
    ck_assert_int_eq(tier_new_consume(tier_bytes_wanted, TIER_SLAB_BYTES, disk_make(rig),
                         rig->disk_bytes, &rig->tier),
        0);
    rig_control_renew(rig, uuid);
}

void rig_close(struct rig *rig)
{
    rig->control = mover_control_free(rig->control);
    for (size_t i = 0; i < RIG_JOBS; i++)
        free(rig->results[i].copies);
    tier_free(rig->tier);
    event_base_free(rig->base);
    *rig = (struct rig){0};
}

void rig_turn(struct rig *rig)
{
    const struct timeval most = {.tv_usec = 20000};

    (void) event_base_loopexit(rig->base, &most);
    ck_assert_int_ge(event_base_loop(rig->base, EVLOOP_ONCE), 0);
}

void rig_submit(struct rig *rig, size_t index, struct mover_job *job)
{
    uint64_t deadline = clock_now(&clock_monotonic) + RIG_PATIENCE_NS;
    int r;

    ck_assert_uint_lt(index, RIG_JOBS);
    job->owner = (void *) (uintptr_t) index;
    while ((r = mover_submit(rig->control, job)) == -EAGAIN) {
        rig_turn(rig);
        ck_assert_uint_lt(clock_now(&clock_monotonic), deadline);
    }
    ck_assert_int_eq(r, 0);
}

struct mover_stats rig_stats(const struct rig *rig)
{
    struct mover_stats stats;

    mover_stats_get(rig->control, &stats);
    return stats;
}

void rig_wait(struct rig *rig, size_t count)
{
    uint64_t deadline = clock_now(&clock_monotonic) + RIG_PATIENCE_NS;

    while (rig->done_count < count) {
        rig_turn(rig);
        ck_assert_msg(clock_now(&clock_monotonic) < deadline, "%zu of %zu jobs are done",
            rig->done_count, count);
    }
}

void rig_wait_state(struct rig *rig, enum mover_state state)
{
    uint64_t deadline = clock_now(&clock_monotonic) + RIG_PATIENCE_NS;

    while (rig_stats(rig).state != state) {
        rig_turn(rig);
        ck_assert_msg(clock_now(&clock_monotonic) < deadline, "the mover stays %s",
            mover_state_name(rig_stats(rig).state));
    }
}
