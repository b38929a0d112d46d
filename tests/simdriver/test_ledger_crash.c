/* The ledger after processes that were killed, raced or lied. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

#include "base/clock.h"
#include "gpu/sim/ledger_file.h"
#include "tests/simdriver/rig.h"

/* Leaves the ledger in the middle of a change, with the lock held and everything in disorder. */
static int run_disorder(const struct child *child, void *data)
{
    struct ledger *ledger = rig_open();
    struct ledger_chunk *chunk;
    struct ledger_id id = rig_create(ledger, MIB);

    if (ledger_lock(ledger) < 0)
        return 1;
    ledger_change(ledger);
    chunk = &ledger->file->chunks[id.slot];
    chunk->next = 77;
    chunk->prev = 78;
    ledger->file->procs[ledger->self].owned = 12345;
    ledger->file->devices[0].charged = 3;
    ledger->file->devices[0].unowned = id.slot;
    ledger->file->free = UINT32_MAX - 1;
    child_ready(child, 1);
    child_wait(child);
    return 0;
}

START_TEST(a_kill_inside_the_lock_leaves_no_lock_and_no_error)
{
    struct child child = child_start(run_disorder, NULL);
    struct ledger *ledger;
    struct ledger_id id;

    ck_assert_int_eq(child_await(&child), 1);
    child_kill(&child);
    ledger = rig_open();
    ck_assert_uint_eq(rig_free(ledger), RIG_CAPACITY);
    id = rig_create(ledger, RIG_CAPACITY);
    ledger_chunk_drop(ledger, id, true);
    ck_assert_uint_eq(rig_free(ledger), RIG_CAPACITY);
    ledger_close(ledger);
}
END_TEST

START_TEST(a_recount_keeps_what_is_held)
{
    struct ledger *ledger = rig_open();
    struct ledger_id kept = rig_create(ledger, MIB), left = rig_create(ledger, 2 * MIB);
    int fd = ledger_chunk_open(ledger, left, true);
    struct child child;

    ledger_chunk_drop(ledger, left, true);
    child = child_start(run_disorder, NULL);
    ck_assert_int_eq(child_await(&child), 1);
    child_kill(&child);
    ck_assert_uint_eq(rig_free(ledger), RIG_CAPACITY - 3 * MIB);
    (void) close(fd);
    ck_assert_uint_eq(rig_free(ledger), RIG_CAPACITY - MIB);
    ledger_chunk_drop(ledger, kept, false);
    ck_assert_uint_eq(rig_free(ledger), RIG_CAPACITY);
    ledger_close(ledger);
}
END_TEST

/* Creates, exports, queues and drops until it is killed. */
static int run_churn(const struct child *child, void *data)
{
    struct ledger *ledger = rig_open();

    child_ready(child, 1);
    for (;;) {
        struct ledger_id a = rig_create(ledger, MIB), b = rig_create(ledger, 4096);
        int fd = ledger_chunk_open(ledger, a, true);

        ledger_chunk_drop(ledger, a, true);
        if (ledger_context_begin(ledger, 0) < 0)
            return 2;
        ledger_chunk_drop(ledger, b, false);
        (void) close(fd);
        ledger_context_end(ledger, 0);
    }
    return 0;
}

START_TEST(a_kill_at_any_instant_loses_nothing)
{
    uint64_t random = 88172645463325252u;
    struct ledger *ledger;

    rig.hardware.context_overhead = 8192;
    for (unsigned i = 0; i < 100; i++) {
        struct child child = child_start(run_churn, NULL);
        uint64_t until;

        ck_assert_int_eq(child_await(&child), 1);
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        /* The instant is what varies: the child runs on. */
        until = clock_now(&clock_monotonic) + random % (2 * NSEC_PER_MSEC);
        while (clock_now(&clock_monotonic) < until) {
        }
        child_kill(&child);
    }
    ledger = rig_open();
    ck_assert_uint_eq(rig_free(ledger), RIG_CAPACITY);
    (void) rig_create(ledger, RIG_CAPACITY);
    ledger_close(ledger);
}
END_TEST

/* Takes the last chunk when told; the exit code says whether it got it. */
static int run_racer(const struct child *child, void *data)
{
    struct ledger_chunk_info info = {.bytes = MIB};
    struct ledger *ledger = rig_open();
    int r;

    child_ready(child, 1);
    child_wait(child);
    r = ledger_chunk_create(ledger, &info);
    child_ready(child, r);
    child_wait(child);
    ledger_close(ledger);
    return 0;
}

START_TEST(of_processes_that_race_for_the_last_bytes_exactly_one_wins)
{
    for (unsigned round = 0; round < 20; round++) {
        struct child racers[4];
        unsigned won = 0, refused = 0;
        struct ledger *ledger;

        for (unsigned i = 0; i < ARRAY_SIZE(racers); i++) {
            racers[i] = child_start(run_racer, NULL);
            ck_assert_int_eq(child_await(&racers[i]), 1);
        }
        ledger = rig_open();
        (void) rig_create(ledger, RIG_CAPACITY - 2 * MIB + 4096);
        for (unsigned i = 0; i < ARRAY_SIZE(racers); i++)
            child_go(&racers[i]);
        for (unsigned i = 0; i < ARRAY_SIZE(racers); i++) {
            int r = child_await(&racers[i]);

            won += r == 0;
            refused += r == -ENOMEM;
        }
        ck_assert_uint_eq(won, 1);
        ck_assert_uint_eq(refused, ARRAY_SIZE(racers) - 1);
        for (unsigned i = 0; i < ARRAY_SIZE(racers); i++)
            ck_assert_int_eq(child_finish(&racers[i]), 0);
        ledger_close(ledger);
    }
}
END_TEST

START_TEST(a_hundred_thousand_chunks_need_no_fd)
{
    enum { COUNT = 100000 };
    struct ledger_id *ids = calloc(COUNT, sizeof(*ids));
    struct ledger *ledger;
    unsigned fds;

    rig.hardware.capacity[0] = UINT64_C(1) << 40;
    ledger = rig_open();
    fds = rig_fds();
    for (unsigned i = 0; i < COUNT; i++)
        ids[i] = rig_create(ledger, 2 * MIB);
    ck_assert_uint_eq(rig_fds(), fds);
    ck_assert_uint_eq(rig_free(ledger), (UINT64_C(1) << 40) - COUNT * 2 * MIB);
    for (unsigned i = 0; i < COUNT; i++)
        ledger_chunk_drop(ledger, ids[i], false);
    ck_assert_uint_eq(rig_free(ledger), UINT64_C(1) << 40);
    free(ids);
    ledger_close(ledger);
}
END_TEST

/* Everything that a process calls, on a file full of nonsense. */
static void use_all(struct ledger *ledger)
{
    struct ledger_chunk_info info = {.bytes = MIB};
    struct ledger_process processes[4];
    struct ledger_memory memory;
    struct sim_hardware hardware;

    for (unsigned i = 0; i < 3; i++) {
        int r = ledger_chunk_create(ledger, &info);

        if (r == 0) {
            int fd = ledger_chunk_open(ledger, info.id, true);

            if (fd >= 0) {
                (void) ledger_chunk_adopt(ledger, info.id);
                (void) close(fd);
            }
            ledger_chunk_drop(ledger, info.id, i % 2 == 0);
        }
        ck_assert_int_eq(ledger_memory(ledger, 0, &memory), 0);
        ck_assert_uint_le(memory.free, memory.total);
        r = ledger_processes(ledger, 0, processes, ARRAY_SIZE(processes));
        ck_assert_int_le(r, (int) LEDGER_PROCS_MAX);
        if (ledger_context_begin(ledger, 0) == 0)
            ledger_context_end(ledger, 0);
        ledger_hardware(ledger, &hardware);
        ck_assert_uint_le(hardware.devices, SIM_DEVICES_MAX);
    }
}

START_TEST(an_overwritten_ledger_never_ends_its_readers)
{
    struct ledger *ledger = rig_open();
    struct ledger_file *file = ledger->file;
    uint32_t random = 2463534242u;

    for (unsigned i = 0; i < 16; i++)
        (void) rig_create(ledger, 4096);
    for (unsigned round = 0; round < 2000; round++) {
        /* Words of the head, of the first process and of the chunks in use. */
        uint8_t *areas[] = {(uint8_t *) &file->dirty, (uint8_t *) &file->devices[0],
            (uint8_t *) &file->procs[0], (uint8_t *) &file->chunks[0]};
        const size_t sizes[] = {
            offsetof(struct ledger_file, hardware) - offsetof(struct ledger_file, dirty),
            sizeof(file->devices[0]), 2 * sizeof(file->procs[0]), 20 * sizeof(file->chunks[0])};

        for (unsigned i = 0; i < 4; i++) {
            unsigned area = i % ARRAY_SIZE(areas);
            uint32_t value;

            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            value = random % 3 == 0 ? random : random % 24;
            memcpy(areas[area] + random / 8 % (sizes[area] / 4) * 4, &value, sizeof(value));
        }
        use_all(ledger);
    }
    ledger_close(ledger);
}
END_TEST

START_TEST(another_versions_ledger_is_refused)
{
    struct ledger *ledger = rig_open(), *other;

    ledger->file->version++;
    ck_assert_int_eq(ledger_open(&rig, &other), -EUCLEAN);
    ledger->file->version--;
    ck_assert_int_eq(ftruncate(ledger->fd, 4096), 0);
    ck_assert_int_eq(ledger_open(&rig, &other), -EUCLEAN);
    ck_assert_int_eq(ftruncate(ledger->fd, sizeof(struct ledger_file)), 0);
    ledger_close(ledger);
}
END_TEST

START_TEST(a_ledger_whose_maker_died_is_made_again)
{
    struct ledger *ledger = rig_open();

    ledger_close(ledger);
    ck_assert_int_eq(ledger_open(&rig, &ledger), 0);
    ledger->file->magic = 0;
    ledger_close(ledger);
    ledger = rig_open();
    ck_assert_uint_eq(rig_free(ledger), RIG_CAPACITY);
    ledger_close(ledger);
}
END_TEST

RIG_MAIN("ledger_crash", a_kill_inside_the_lock_leaves_no_lock_and_no_error,
    a_recount_keeps_what_is_held, a_kill_at_any_instant_loses_nothing,
    of_processes_that_race_for_the_last_bytes_exactly_one_wins,
    a_hundred_thousand_chunks_need_no_fd, an_overwritten_ledger_never_ends_its_readers,
    another_versions_ledger_is_refused, a_ledger_whose_maker_died_is_made_again)
