/* What drives a mover, against movers that misbehave at every step. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/client/fds.h"
#include "tests/mover/rig.h"
#include "tests/unit/unit.h"

#define CHUNK_BYTES (UINT64_C(1) << 21)
#define PAGE_BYTES UINT64_C(4096)
#define COPIES 3

static struct rig rig;
static char directory[32], count_file[64];
static size_t fds_before;
static int export_error;

/* The fake looks at no chunk: any fd does. */
static int chunk_fd(void *data, uint32_t number, uint32_t generation, int *ret_fd)
{
    (void) data;
    (void) number;
    (void) generation;
    if (export_error < 0)
        return export_error;
    *ret_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return *ret_fd < 0 ? -errno : 0;
}

static void open_with_tier(const char *script, uint64_t tier_bytes)
{
    static const uint8_t uuid[16] = {1};

    fds_before = fds_open();
    strcpy(directory, "/tmp/gmb-fake-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    (void) snprintf(count_file, sizeof(count_file), "%s/count", directory);
    ck_assert_int_eq(setenv("GMB_FAKE_SCRIPT", script, 1), 0);
    ck_assert_int_eq(setenv("GMB_FAKE_COUNT", count_file, 1), 0);
    rig.chunk_fd = chunk_fd;
    rig_open(&rig, tier_bytes, uuid, getenv("GMB_FAKE_MOVER"));
}

static void open_with(const char *script)
{
    open_with_tier(script, UINT64_C(64) << 20);
}

static size_t incarnations(void)
{
    struct stat status;

    return stat(count_file, &status) == 0 ? (size_t) status.st_size : 0;
}

static void close_all(void)
{
    rig_close(&rig);
    ck_assert_uint_eq(fds_open(), fds_before);
    (void) unlink(count_file);
    ck_assert_int_eq(rmdir(directory), 0);
}

static void submit(size_t index, enum mover_kind kind, uint32_t chunk_number)
{
    const struct mover_chunk chunk = {
        .number = chunk_number, .generation = 5, .bytes = CHUNK_BYTES};
    struct mover_copy copies[COPIES];
    struct mover_job job = {.kind = kind,
        .page_bytes = PAGE_BYTES,
        .chunk_count = 1,
        .copy_count = COPIES,
        .chunks = &chunk,
        .copies = copies};

    for (uint64_t i = 0; i < COPIES; i++)
        copies[i] = (struct mover_copy){
            .chunk_offset = i * PAGE_BYTES, .tier_offset = i * PAGE_BYTES, .checksum = 9};
    rig_submit(&rig, index, &job);
}

START_TEST(nothing_is_started_before_there_is_work)
{
    open_with("ok");
    for (unsigned i = 0; i < 5; i++)
        rig_turn(&rig);
    ck_assert_uint_eq(incarnations(), 0);
    ck_assert_int_eq(rig_stats(&rig).state, MOVER_STATE_NONE);
    close_all();
}
END_TEST

START_TEST(answers_are_never_given_from_within_a_submission)
{
    open_with("ok");
    submit(0, MOVER_EVICT, 1);
    ck_assert_uint_eq(rig.done_count, 0);
    rig_wait(&rig, 1);
    ck_assert_int_eq(rig.results[0].error, 0);
    for (uint64_t i = 0; i < COPIES; i++)
        ck_assert_uint_eq(rig.results[0].copies[i].checksum, 1000 + i);
    ck_assert_uint_eq(rig_stats(&rig).evicted_bytes, COPIES * PAGE_BYTES);
    close_all();
}
END_TEST

/* What one bad mover leaves undone the next one does. */
static const struct {
    const char *script;
    uint64_t deaths;
} survived[] = {
    {"dead,ok", 1},
    {"dead-hello,ok", 1},
    {"dead-job,ok", 1},
    {"dead-reply,ok", 1},
    {"mute-hello,ok", 1},
    {"mute,ok", 1},
    {"garbage,ok", 1},
    {"unasked,ok", 1},
    {"twice,ok", 1},
    {"counts,ok", 1},
    {"damaged,ok", 1},
    {"unknown,ok", 1},
    {"dead,dead-hello,dead-job,ok", 3},
};

START_TEST(a_bad_mover_is_replaced_and_its_work_done)
{
    const struct rig fresh = {.options = {0}};

    rig = fresh;
    rig.options = mover_options_default;
    rig.options.driver = "sim";
    rig.options.backoff_ns = NSEC_PER_MSEC;
    rig.options.backoff_max_ns = 10 * NSEC_PER_MSEC;
    rig.options.hello_ns = rig.options.progress_ns = 300 * NSEC_PER_MSEC;
    open_with(survived[_i].script);
    for (size_t i = 0; i < 4; i++)
        submit(i, i % 2 == 0 ? MOVER_EVICT : MOVER_RESTORE, (uint32_t) i);
    rig_wait(&rig, 4);
    for (size_t i = 0; i < 4; i++)
        ck_assert_msg(rig.results[i].error == 0, "job %zu: %d %s", i, rig.results[i].error,
            rig.results[i].text);
    ck_assert_uint_eq(rig_stats(&rig).jobs_done, 4);
    ck_assert_uint_ge(rig_stats(&rig).deaths, survived[_i].deaths);
    close_all();
}
END_TEST

/* However long a slow one may take. */
START_TEST(a_stopped_mover_is_replaced)
{
    const struct rig fresh = {.options = {0}};

    rig = fresh;
    rig.options = mover_options_default;
    rig.options.driver = "sim";
    rig.options.hello_ns = rig.options.progress_ns = 3600 * NSEC_PER_SEC;
    open_with(_i == 0 ? "stopped,ok" : "stopped-hello,ok");
    submit(0, MOVER_EVICT, 1);
    rig_wait(&rig, 1);
    ck_assert_int_eq(rig.results[0].error, 0);
    ck_assert_uint_eq(rig_stats(&rig).deaths, 1);
    close_all();
}
END_TEST

START_TEST(a_job_that_kills_every_mover_fails_alone)
{
    open_with("poison");
    for (size_t i = 0; i < 5; i++)
        submit(i, MOVER_EVICT, i == 2 ? 13 : (uint32_t) i);
    rig_wait(&rig, 5);
    for (size_t i = 0; i < 5; i++)
        ck_assert_int_eq(rig.results[i].error, i == 2 ? -EIO : 0);
    ck_assert_ptr_nonnull(strstr(rig.results[2].text, "77"));
    ck_assert_uint_eq(rig_stats(&rig).deaths, MOVER_ATTEMPTS);
    /* And the next job finds a mover. */
    submit(5, MOVER_EVICT, 1);
    rig_wait(&rig, 6);
    ck_assert_int_eq(rig.results[5].error, 0);
    close_all();
}
END_TEST

START_TEST(a_mover_that_cannot_start_fails_what_waits)
{
    open_with("dead");
    submit(0, MOVER_EVICT, 1);
    submit(1, MOVER_RESTORE, 1);
    rig_wait(&rig, 2);
    ck_assert_int_eq(rig.results[0].error, -EAGAIN);
    ck_assert_int_eq(rig.results[1].error, -EAGAIN);
    ck_assert_uint_eq(incarnations(), MOVER_ATTEMPTS);
    close_all();
}
END_TEST

START_TEST(a_program_that_is_not_there_fails_what_waits)
{
    static const uint8_t uuid[16] = {1};

    rig.chunk_fd = chunk_fd;
    rig_open(&rig, UINT64_C(64) << 20, uuid, "/nonexistent/gmbd-mover");
    submit(0, MOVER_EVICT, 1);
    rig_wait(&rig, 1);
    ck_assert_int_eq(rig.results[0].error, -EAGAIN);
    ck_assert_uint_eq(rig_stats(&rig).starts, 0);
    rig_close(&rig);
}
END_TEST

START_TEST(a_failure_of_the_driver_is_tried_again_and_then_told)
{
    open_with("fails");
    submit(0, MOVER_EVICT, 1);
    rig_wait(&rig, 1);
    ck_assert_int_eq(rig.results[0].error, -EIO);
    ck_assert_uint_eq(rig_stats(&rig).jobs_repeated, MOVER_ATTEMPTS - 1);
    ck_assert_uint_eq(incarnations(), 1);
    close_all();
}
END_TEST

START_TEST(numbers_that_the_mover_refuses_are_not_tried_again)
{
    open_with("refuses");
    submit(0, MOVER_EVICT, 1);
    rig_wait(&rig, 1);
    ck_assert_int_eq(rig.results[0].error, -EINVAL);
    ck_assert_uint_eq(rig_stats(&rig).jobs_repeated, 0);
    close_all();
}
END_TEST

START_TEST(a_chunk_is_sent_once_and_again_when_the_mover_has_lost_it)
{
    open_with("ok");
    for (size_t i = 0; i < 3; i++) {
        submit(i, MOVER_EVICT, 1);
        rig_wait(&rig, i + 1);
    }
    ck_assert_uint_eq(rig.exports, 1);
    close_all();
    open_with("forgets");
    for (size_t i = 0; i < 3; i++) {
        submit(i, MOVER_EVICT, 1);
        rig_wait(&rig, i + 1);
        ck_assert_int_eq(rig.results[i].error, 0);
    }
    ck_assert_uint_eq(rig.exports, 3);
    ck_assert_uint_eq(rig_stats(&rig).deaths, 0);
    close_all();
}
END_TEST

START_TEST(a_chunk_that_is_gone_fails_its_job_alone)
{
    open_with("ok");
    export_error = -ESTALE;
    submit(0, MOVER_EVICT, 1);
    rig_wait(&rig, 1);
    export_error = 0;
    ck_assert_int_eq(rig.results[0].error, -ESTALE);
    submit(1, MOVER_EVICT, 1);
    rig_wait(&rig, 2);
    ck_assert_int_eq(rig.results[1].error, 0);
    close_all();
}
END_TEST

START_TEST(want_of_fds_is_waited_out)
{
    open_with("ok");
    export_error = -EMFILE;
    submit(0, MOVER_EVICT, 1);
    rig_wait_state(&rig, MOVER_STATE_READY);
    rig_turn(&rig);
    ck_assert_uint_eq(rig.done_count, 0);
    export_error = 0;
    rig_wait(&rig, 1);
    ck_assert_int_eq(rig.results[0].error, 0);
    close_all();
}
END_TEST

START_TEST(a_chunk_is_forgotten_by_word_or_by_death)
{
    open_with("ok");
    ck_assert(!mover_forget(rig.control, 1, 5));
    submit(0, MOVER_EVICT, 1);
    rig_wait(&rig, 1);
    ck_assert(!mover_forget(rig.control, 1, 6));
    ck_assert(mover_forget(rig.control, 1, 5));
    ck_assert(mover_forget(rig.control, 1, 5));
    /* Nobody may use it from now on. */
    submit(1, MOVER_EVICT, 1);
    rig_wait(&rig, 2);
    ck_assert_int_eq(rig.results[1].error, -ESTALE);
    rig_wait_until(&rig, rig.forgotten_count != 0);
    ck_assert_uint_eq(rig.last_forgotten, 1);
    ck_assert(!mover_forget(rig.control, 1, 5));
    submit(2, MOVER_EVICT, 2);
    rig_wait(&rig, 3);
    ck_assert(mover_forget(rig.control, 2, 5));
    ck_assert_int_eq(kill(rig_stats(&rig).pid, SIGKILL), 0);
    rig_wait_until(&rig, rig.forgotten_count != 1);
    ck_assert_uint_eq(rig.forgotten_count, 2);
    close_all();
}
END_TEST

START_TEST(a_chunk_that_is_let_go_early_is_released_at_once)
{
    size_t exports;

    open_with("ok");
    mover_let_go(rig.control, 1, 5); /* nobody has it */
    submit(0, MOVER_EVICT, 1);
    submit(1, MOVER_EVICT, 2);
    rig_wait(&rig, 2);
    ck_assert_uint_eq(rig_stats(&rig).held_chunks, 2);
    mover_let_go(rig.control, 1, 5);
    mover_let_go(rig.control, 1, 5);
    mover_let_go(rig.control, 2, 6); /* another generation of it */
    rig_wait_until(&rig, rig_stats(&rig).held_chunks != 2);
    ck_assert_uint_eq(rig.forgotten_count, 0); /* nobody asked */
    ck_assert(!mover_forget(rig.control, 1, 5));
    /* Asked for while it is under way: it is told, once. */
    mover_let_go(rig.control, 2, 5);
    ck_assert(mover_forget(rig.control, 2, 5));
    rig_wait_until(&rig, rig.forgotten_count != 0);
    ck_assert_uint_eq(rig.last_forgotten, 2);
    /* A job may need it after all, before the word is out and after. */
    submit(2, MOVER_EVICT, 3);
    rig_wait(&rig, 3);
    exports = rig.exports;
    mover_let_go(rig.control, 3, 5);
    submit(3, MOVER_RESTORE, 3);
    rig_wait(&rig, 4);
    ck_assert_int_eq(rig.results[3].error, 0);
    ck_assert_uint_eq(rig.exports, exports + 1); /* it had gone */
    ck_assert(mover_forget(rig.control, 3, 5));
    rig_wait_until(&rig, rig.forgotten_count != 1);
    ck_assert_uint_eq(rig.last_forgotten, 3);
    ck_assert_uint_eq(rig_stats(&rig).held_chunks, 0);
    /* One whose mover dies meanwhile is gone with it. */
    submit(4, MOVER_EVICT, 4);
    rig_wait(&rig, 5);
    mover_let_go(rig.control, 4, 5);
    ck_assert_int_eq(kill(rig_stats(&rig).pid, SIGKILL), 0);
    rig_wait_until(&rig, rig_stats(&rig).held_chunks == 0);
    ck_assert(!mover_forget(rig.control, 4, 5));
    ck_assert_uint_eq(rig.forgotten_count, 2);
    close_all();
}
END_TEST

START_TEST(what_a_mover_takes_is_kept_while_it_is_not_there)
{
    open_with("ok,starved,starved,ok");
    submit(0, MOVER_EVICT, 1);
    rig_wait(&rig, 1);
    /* Nobody knew what the first one would take, and nobody has to keep it now. */
    ck_assert_uint_eq(rig.wanted_count, 0);
    mover_keep(rig.control, true);
    ck_assert_int_eq(kill(rig_stats(&rig).pid, SIGKILL), 0);
    rig_wait_until(&rig, rig.wanted_bytes == UINT64_C(5) << 20); /* what it said that it takes */
    /* That isn't enough, it turns out, nor are 512 MiB. */
    rig_wait_until(&rig, rig.wanted_bytes == UINT64_C(1) << 30);
    rig_wait_state(&rig, MOVER_STATE_READY);
    rig_turn(&rig);
    ck_assert_uint_eq(rig.wanted_bytes, 0);
    ck_assert_uint_eq(rig.wanted_count, 4);
    close_all();
}
END_TEST

START_TEST(the_queue_is_bounded_and_empties)
{
    struct mover_chunk chunk = {.number = 1, .bytes = CHUNK_BYTES};
    struct mover_copy copy = {0};
    struct mover_job job = {.kind = MOVER_RESTORE,
        .page_bytes = 16,
        .chunk_count = 1,
        .copy_count = 1,
        .chunks = &chunk,
        .copies = &copy};

    open_with("ok");
    for (size_t i = 0; i < MOVER_QUEUE_JOBS; i++) {
        job.owner = (void *) (uintptr_t) i;
        ck_assert_int_eq(mover_submit(rig.control, &job), 0);
    }
    ck_assert_int_eq(mover_submit(rig.control, &job), -EAGAIN);
    rig_wait(&rig, MOVER_QUEUE_JOBS);
    close_all();
}
END_TEST

START_TEST(numbers_out_of_bounds_are_refused_at_once)
{
    struct mover_chunk chunk = {.number = 1, .bytes = CHUNK_BYTES};
    struct mover_copy copy = {
        .chunk_offset = CHUNK_BYTES - PAGE_BYTES, .tier_offset = TIER_SLAB_BYTES - PAGE_BYTES};
    const struct mover_job good = {.kind = MOVER_RESTORE,
        .page_bytes = PAGE_BYTES,
        .chunk_count = 1,
        .copy_count = 1,
        .chunks = &chunk,
        .copies = &copy};
    struct mover_job job = good;

    open_with("ok");
    ck_assert_int_eq(mover_submit(rig.control, &job), 0);
    rig_wait(&rig, 1);
    copy.chunk_offset += 16;
    ck_assert_int_eq(mover_submit(rig.control, &job), -EINVAL);
    copy.chunk_offset -= 16;
    copy.tier_offset += 16;
    ck_assert_int_eq(mover_submit(rig.control, &job), -EINVAL);
    copy.tier_offset = 8;
    ck_assert_int_eq(mover_submit(rig.control, &job), -EINVAL);
    copy.tier_offset = UINT64_C(64) << 20;
    ck_assert_int_eq(mover_submit(rig.control, &job), -EINVAL);
    copy.tier_offset = 0;
    copy.chunk = 1;
    ck_assert_int_eq(mover_submit(rig.control, &job), -EINVAL);
    copy.chunk = 0;
    for (size_t i = 0; i < 4; i++) {
        job.page_bytes = ((const uint64_t[]){0, 15, UINT64_C(1) << 63, CHUNK_BYTES + 16})[i];
        ck_assert_int_eq(mover_submit(rig.control, &job), -EINVAL);
    }
    job = good;
    job.copy_count = 0;
    ck_assert_int_eq(mover_submit(rig.control, &job), -EINVAL);
    job.copy_count = MOVER_JOB_COPIES + 1;
    ck_assert_int_eq(mover_submit(rig.control, &job), -EINVAL);
    job = good;
    job.format = MOVER_INT8;
    ck_assert_int_eq(mover_submit(rig.control, &job), -EINVAL);
    close_all();
}
END_TEST

START_TEST(an_idle_mover_is_ended_and_its_memory_given_back)
{
    struct tier_account account = {.max_bytes = UINT64_MAX};
    struct tier_space *space;
    uint64_t offset;

    rig.options = mover_options_default;
    rig.options.driver = "sim";
    rig.options.idle_ns = 50 * NSEC_PER_MSEC;
    open_with("ok");
    ck_assert_int_eq(tier_space_new(rig.tier, &account, PAGE_BYTES, &space), 0);
    ck_assert_int_eq(tier_slot_alloc(space, &offset), TIER_OK);
    submit(0, MOVER_EVICT, 1);
    rig_wait(&rig, 1);
    tier_space_free(space);
    ck_assert_uint_eq(tier_stats(rig.tier).touched_bytes, TIER_SLAB_BYTES);
    rig_wait_state(&rig, MOVER_STATE_NONE);
    rig_wait_until(&rig, tier_stats(rig.tier).touched_bytes == 0);
    ck_assert_uint_eq(rig_stats(&rig).deaths, 0);
    submit(1, MOVER_EVICT, 1);
    rig_wait(&rig, 2);
    ck_assert_uint_eq(incarnations(), 2);
    close_all();
}
END_TEST

static void wait_touched(uint64_t slabs)
{
    rig_wait_until(&rig, tier_stats(rig.tier).touched_bytes >= slabs * TIER_SLAB_BYTES);
}

START_TEST(one_that_is_kept_prepares_at_most_half_of_the_tier_and_eight_slabs)
{
    static const struct {
        uint64_t slabs, ready;
    } cases[] = {{2, 1}, {5, 2}, {16, 8}, {40, 8}};

    open_with_tier("ok", cases[_i].slabs * TIER_SLAB_BYTES);
    mover_keep(rig.control, true);
    wait_touched(cases[_i].ready);
    submit(0, MOVER_EVICT, 1); /* what is there already isn't prepared again */
    rig_wait(&rig, 1);
    rig_turn(&rig);
    ck_assert_uint_eq(tier_stats(rig.tier).touched_bytes, cases[_i].ready * TIER_SLAB_BYTES);
    ck_assert_uint_eq(rig_stats(&rig).jobs_done, 1); /* these are nobody's jobs */
    ck_assert_uint_eq(incarnations(), 1);
    close_all();
}
END_TEST

START_TEST(what_is_done_ahead_of_need_may_fail_and_is_then_left)
{
    static const struct {
        const char *script;
        uint64_t deaths;
    } cases[] = {{"ahead-fails", 0}, {"ahead-dies", MOVER_ATTEMPTS}};

    open_with_tier(cases[_i].script, 16 * TIER_SLAB_BYTES);
    mover_keep(rig.control, true);
    wait_touched(_i == 0 ? MOVER_ATTEMPTS : 1);
    rig_wait_until(&rig, rig_stats(&rig).deaths >= cases[_i].deaths);
    rig_wait_state(&rig, MOVER_STATE_READY);
    for (size_t i = 0; i < 3; i++) {
        submit(i, MOVER_EVICT, 1);
        rig_wait(&rig, i + 1);
        ck_assert_int_eq(rig.results[i].error, 0);
    }
    ck_assert_uint_eq(rig_stats(&rig).deaths, cases[_i].deaths);
    ck_assert_uint_eq(rig_stats(&rig).jobs_failed, 0);
    /* What dead ones had is given back before the next. */
    ck_assert_uint_eq(
        tier_stats(rig.tier).touched_bytes, (_i == 0 ? MOVER_ATTEMPTS : 0) * TIER_SLAB_BYTES);
    close_all();
}
END_TEST

START_TEST(what_is_left_at_the_end_is_told_so)
{
    open_with("mute");
    for (size_t i = 0; i < 10; i++)
        submit(i, MOVER_EVICT, (uint32_t) i);
    rig_wait_state(&rig, MOVER_STATE_READY);
    rig.control = mover_control_free(rig.control);
    ck_assert_uint_eq(rig.done_count, 10);
    for (size_t i = 0; i < 10; i++)
        ck_assert_int_eq(rig.results[i].error, -ECANCELED);
    close_all();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {nothing_is_started_before_there_is_work,
        answers_are_never_given_from_within_a_submission, a_job_that_kills_every_mover_fails_alone,
        a_mover_that_cannot_start_fails_what_waits, a_program_that_is_not_there_fails_what_waits,
        a_failure_of_the_driver_is_tried_again_and_then_told,
        numbers_that_the_mover_refuses_are_not_tried_again,
        a_chunk_is_sent_once_and_again_when_the_mover_has_lost_it,
        a_chunk_that_is_gone_fails_its_job_alone, want_of_fds_is_waited_out,
        a_chunk_is_forgotten_by_word_or_by_death, a_chunk_that_is_let_go_early_is_released_at_once,
        what_a_mover_takes_is_kept_while_it_is_not_there, the_queue_is_bounded_and_empties,
        numbers_out_of_bounds_are_refused_at_once, an_idle_mover_is_ended_and_its_memory_given_back,
        what_is_left_at_the_end_is_told_so};
    Suite *suite = suite_create("control");
    TCase *tcase = tcase_create("control");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tcase, 60);
    for (size_t i = 0; i < ARRAY_SIZE(tests); i++)
        tcase_add_test(tcase, tests[i]);
    tcase_add_loop_test(
        tcase, a_bad_mover_is_replaced_and_its_work_done, 0, (int) ARRAY_SIZE(survived));
    tcase_add_loop_test(tcase, a_stopped_mover_is_replaced, 0, 2);
    tcase_add_loop_test(
        tcase, one_that_is_kept_prepares_at_most_half_of_the_tier_and_eight_slabs, 0, 4);
    tcase_add_loop_test(tcase, what_is_done_ahead_of_need_may_fail_and_is_then_left, 0, 2);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
