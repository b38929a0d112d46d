/* The status page: what is read of it, whatever the broker does to it meanwhile. */
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "tests/client/script.h"
#include "tests/unit/unit.h"

static struct script script;
static struct script_status status;

static void begin(void)
{
    script_begin(&script);
    script_connect_status(&script, &status);
}

static void finish(void)
{
    script_end(&script);
    script_status_end(&status);
}

static uint64_t level_bits(uint64_t level)
{
    return level << STATUS_LEVEL_SHIFT;
}

START_TEST(level_is_the_one_in_the_page)
{
    static const struct status_copy copy;

    begin();
    /* Nothing was ever written. */
    ck_assert_int_eq(gmb_pressure_get(script.session, 0), GMB_PRESSURE_NONE);
    for (uint64_t level = 0; level <= 3; level++) {
        status_publish(&status, level_bits(level), &copy);
        ck_assert_int_eq(gmb_pressure_get(script.session, 0), (int) level);
    }
    /* What there isn't is the worst that there is. */
    status_publish(&status, level_bits(4), &copy);
    ck_assert_int_eq(gmb_pressure_get(script.session, 0), GMB_PRESSURE_CRITICAL);
    status_publish(&status, level_bits(15), &copy);
    ck_assert_int_eq(gmb_pressure_get(script.session, 0), GMB_PRESSURE_CRITICAL);
    ck_assert_int_eq(gmb_pressure_get(script.session, 1), GMB_E_INVALID);
    ck_assert_int_eq(gmb_pressure_get(script.session, UINT32_MAX), GMB_E_INVALID);
    finish();
}
END_TEST

START_TEST(figures_are_those_of_the_copy_in_force)
{
    struct gmb_pressure read = {.size = sizeof(read)}, small = {.size = sizeof(small) - 1};
    const struct status_copy copy = {
        .used = 1,
        .min = 2,
        .low = 3,
        .high = 4,
        .max = 5,
        .headroom = 6,
        .reachable = 7,
        .advice = 8,
        .some_total_us = 9,
        .full_total_us = 10,
        .some_avg10 = 11,
        .some_avg60 = 12,
        .full_avg10 = 13,
        .full_avg60 = 14,
        .wait_estimate_ns = 15,
        .reject_below = 16,
        .waiting = 17,
        .updated_ns = 18,
    };

    begin();
    ck_assert_int_eq(gmb_pressure_read(script.session, 0, &read), GMB_E_UNSUPPORTED);
    status_publish(&status,
        level_bits(1) | UINT64_C(2) << STATUS_DEVICE_LEVEL_SHIFT |
            UINT64_C(3) << STATUS_RUNG_SHIFT | STATUS_FLAG_PAUSE_NEW | STATUS_FLAG_FAILED,
        &copy);
    ck_assert_int_eq(gmb_pressure_read(script.session, 0, &small), GMB_E_INVALID);
    ck_assert_int_eq(gmb_pressure_read(script.session, 0, NULL), GMB_E_INVALID);
    ck_assert_int_eq(gmb_pressure_read(script.session, 0, &read), 0);
    ck_assert_uint_eq(read.level, 1);
    ck_assert_uint_eq(read.device_level, 2);
    ck_assert_uint_eq(read.rung, 3);
    ck_assert_uint_eq(read.flags, GMB_PRESSURE_PAUSE_NEW | GMB_PRESSURE_FAILED);
    ck_assert_uint_eq(read.used_bytes, 1);
    ck_assert_uint_eq(read.min_bytes, 2);
    ck_assert_uint_eq(read.low_bytes, 3);
    ck_assert_uint_eq(read.high_bytes, 4);
    ck_assert_uint_eq(read.max_bytes, 5);
    ck_assert_uint_eq(read.headroom_bytes, 6);
    ck_assert_uint_eq(read.reachable_bytes, 7);
    ck_assert_uint_eq(read.advice, 8);
    ck_assert_uint_eq(read.some_stall_us, 9);
    ck_assert_uint_eq(read.full_stall_us, 10);
    ck_assert_uint_eq(read.some_avg10, 11);
    ck_assert_uint_eq(read.some_avg60, 12);
    ck_assert_uint_eq(read.full_avg10, 13);
    ck_assert_uint_eq(read.full_avg60, 14);
    ck_assert_uint_eq(read.wait_estimate_ns, 15);
    ck_assert_uint_eq(read.reject_below, 16);
    ck_assert_uint_eq(read.waiting, 17);
    ck_assert_uint_eq(read.updated_ns, 18);
    finish();
}
END_TEST

START_TEST(free_is_never_more_than_total_nor_total_than_the_device)
{
    const uint64_t device = 1024 * CHUNK;
    const struct {
        uint64_t headroom, reachable, max, bits, free, total;
    } cases[] = {
        {10 * CHUNK, 20 * CHUNK, UINT64_MAX, 0, 10 * CHUNK, 20 * CHUNK},
        {20 * CHUNK, 20 * CHUNK, UINT64_MAX, 0, 20 * CHUNK, 20 * CHUNK},
        {20 * CHUNK + 1, 20 * CHUNK, UINT64_MAX, 0, 20 * CHUNK, 20 * CHUNK},
        {20 * CHUNK, 20 * CHUNK, 5 * CHUNK, 0, 5 * CHUNK, 5 * CHUNK},
        {0, 20 * CHUNK, UINT64_MAX, 0, 0, 20 * CHUNK},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, 0, device, device},
        {10 * CHUNK, 20 * CHUNK, UINT64_MAX, STATUS_FLAG_FAILED, 0, 20 * CHUNK},
        {10 * CHUNK, 0, UINT64_MAX, 0, 0, 0},
    };
    uint64_t free_bytes = 1, total_bytes = 1;

    begin();
    ck_assert_int_eq(
        gmb_memory_info(script.session, 0, &free_bytes, &total_bytes), GMB_E_UNSUPPORTED);
    ck_assert_uint_eq(free_bytes + total_bytes, 2);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct status_copy copy = {
            .headroom = cases[i].headroom, .reachable = cases[i].reachable, .max = cases[i].max};

        status_publish(&status, cases[i].bits, &copy);
        ck_assert_int_eq(gmb_memory_info(script.session, 0, &free_bytes, &total_bytes), 0);
        ck_assert_uint_eq(free_bytes, cases[i].free);
        ck_assert_uint_eq(total_bytes, cases[i].total);
    }
    ck_assert_int_eq(gmb_memory_info(script.session, 1, &free_bytes, &total_bytes), GMB_E_INVALID);
    finish();
}
END_TEST

START_TEST(without_a_page_all_of_it_is_unsupported)
{
    struct gmb_watch_params params = {.size = sizeof(params), .level = 1};
    struct gmb_pressure read = {.size = sizeof(read)};
    uint64_t one, other;
    int fd;

    script_begin(&script);
    script_connect(&script);
    ck_assert_int_eq(gmb_pressure_get(script.session, 0), GMB_E_UNSUPPORTED);
    ck_assert_int_eq(gmb_pressure_read(script.session, 0, &read), GMB_E_UNSUPPORTED);
    ck_assert_int_eq(gmb_memory_info(script.session, 0, &one, &other), GMB_E_UNSUPPORTED);
    ck_assert_int_eq(gmb_pressure_watch(script.session, &params, &fd, &one), GMB_E_UNSUPPORTED);
    ck_assert_int_eq(gmb_pressure_unwatch(script.session, 1), GMB_E_UNSUPPORTED);
    ck_assert_int_eq(gmb_pressure_subscribe(script.session, NULL, NULL, NULL), GMB_E_UNSUPPORTED);
    ck_assert_int_eq(gmb_advice_ack(script.session, 1, GMB_DEGRADE_PAUSE_NEW, GMB_ADVICE_DONE, 0),
        GMB_E_UNSUPPORTED);
    broker_expect_silence(&script);
    script_end(&script);
}
END_TEST

enum spoil {
    NOT_SEALED,
    NOT_SEALED_AGAINST_SHRINKING,
    NOT_SEALED_AGAINST_WRITERS,
    TOO_FEW_ENTRIES,
    TOO_MANY_ENTRIES,
    OTHER_MAGIC,
    OTHER_ENTRY,
    EMPTY,
    NO_MEMORY_AT_ALL,
    SPOIL_MAX
};

static int page_spoilt(enum spoil spoil)
{
    static const int seals[SPOIL_MAX] = {
        [NOT_SEALED] = 0,
        [NOT_SEALED_AGAINST_SHRINKING] = F_SEAL_GROW | F_SEAL_FUTURE_WRITE,
        [NOT_SEALED_AGAINST_WRITERS] = F_SEAL_GROW | F_SEAL_SHRINK,
    };
    int fd;

    if (spoil == NO_MEMORY_AT_ALL)
        return eventfd(0, EFD_CLOEXEC);
    if (spoil == EMPTY) {
        fd = memfd_create("empty", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, STATUS_SEALS), 0);
        status.page = NULL;
        return fd;
    }
    fd = status_make(&status,
        spoil == TOO_FEW_ENTRIES    ? 0
        : spoil == TOO_MANY_ENTRIES ? 2
                                    : 1,
        spoil <= NOT_SEALED_AGAINST_WRITERS ? seals[spoil] : STATUS_SEALS);
    if (spoil == OTHER_MAGIC)
        status.page->header.magic ^= 1;
    if (spoil == OTHER_ENTRY)
        status.page->header.entry_bytes += 64;
    return fd;
}

START_TEST(page_of_another_shape_is_a_breach)
{
    struct call call;

    script_begin(&script);
    call_start(&script, &call, call_connect);
    broker_accept(&script);
    broker_welcome_consume(&script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_HELLO),
        page_spoilt((enum spoil) _i));
    ck_assert_int_eq(call_join(&call), GMB_E_PROTOCOL);
    ck_assert_ptr_nonnull(strstr(call.text, "status page"));
    broker_close(&script);
    script_end(&script);
    if (status.page != NULL)
        script_status_end(&status);
}
END_TEST

/* Every word of a copy says which one it is. */
static struct status_copy copy_of(uint64_t number)
{
    struct status_copy copy;

    memset(&copy, (int) (number & 0xff), sizeof(copy));
    return copy;
}

static _Atomic bool stop;

static void *publish(void *unused)
{
    (void) unused;
    for (uint64_t i = 0; !atomic_load(&stop); i++) {
        struct status_copy copy = copy_of(i);

        status_publish(&status, level_bits(i & 3), &copy);
    }
    return NULL;
}

/* This broker keeps no pause between two changes: a reader then gives up, but never spins nor sees
 * half of two copies. */
START_TEST(reader_beside_a_writer_sees_whole_copies_alone)
{
    struct gmb_pressure read = {.size = sizeof(read)};
    unsigned whole = 0, given_up = 0;
    pthread_t writer;

    begin();
    ck_assert_int_eq(pthread_create(&writer, NULL, publish, NULL), 0);
    while (whole + given_up < 20000) {
        int r = gmb_pressure_read(script.session, 0, &read);
        uint64_t word;

        if (r == GMB_E_UNSUPPORTED && whole == 0)
            continue; /* the writer hasn't begun */
        if (r < 0) {
            ck_assert_int_eq(r, GMB_E_PROTOCOL);
            given_up++;
            continue;
        }
        whole++;
        memset(&word, (int) (read.used_bytes & 0xff), sizeof(word));
        ck_assert_uint_eq(read.used_bytes, word);
        ck_assert_uint_eq(read.max_bytes, word);
        ck_assert_uint_eq(read.full_stall_us, word);
        ck_assert_uint_eq(read.updated_ns, word);
        ck_assert_uint_eq(read.reject_below, (uint32_t) word);
        ck_assert_uint_eq(read.level, (uint32_t) word & 3);
    }
    atomic_store(&stop, true);
    ck_assert_int_eq(pthread_join(writer, NULL), 0);
    ck_assert_uint_gt(whole, 0);
    finish();
}
END_TEST

/* The writer ended after so many words of the copy that was to come. */
START_TEST(broker_that_dies_while_it_writes_leaves_the_copy_in_force)
{
    struct status_copy old = copy_of(1), new = copy_of(2);
    struct gmb_pressure read = {.size = sizeof(read)};

    begin();
    status_publish(&status, level_bits(2), &old);
    memcpy(&status.page->entries[0].copies[0], &new, (size_t) _i * sizeof(uint64_t));
    ck_assert_int_eq(gmb_pressure_get(script.session, 0), 2);
    ck_assert_int_eq(gmb_pressure_read(script.session, 0, &read), 0);
    ck_assert_uint_eq(read.level, 2);
    ck_assert_uint_eq(read.used_bytes, old.used);
    ck_assert_uint_eq(read.updated_ns, old.updated_ns);
    finish();
}
END_TEST

START_TEST(figures_of_a_broker_that_has_gone_stay_and_are_called_stale)
{
    const struct status_copy copy = {
        .used = CHUNK, .headroom = CHUNK, .reachable = 2 * CHUNK, .max = UINT64_MAX};
    struct gmb_pressure read = {.size = sizeof(read)};
    uint64_t free_bytes, total_bytes;

    begin();
    status_publish(&status, level_bits(2), &copy);
    ck_assert_int_eq(gmb_pressure_read(script.session, 0, &read), 0);
    ck_assert_uint_eq(read.flags, 0);
    broker_close(&script);
    ck_assert_int_eq(gmb_dispatch(script.session, 1000), GMB_E_DISCONNECTED);
    ck_assert_int_eq(gmb_pressure_get(script.session, 0), 2);
    ck_assert_int_eq(gmb_pressure_read(script.session, 0, &read), 0);
    ck_assert_uint_eq(read.flags, GMB_PRESSURE_STALE);
    ck_assert_uint_eq(read.headroom_bytes, CHUNK);
    ck_assert_int_eq(gmb_memory_info(script.session, 0, &free_bytes, &total_bytes), 0);
    ck_assert_uint_eq(free_bytes, 0);
    ck_assert_uint_eq(total_bytes, 2 * CHUNK);
    finish();
}
END_TEST

START_TEST(child_is_refused_and_its_parent_undisturbed)
{
    static const struct status_copy copy;
    int child_status;
    pid_t pid;

    begin();
    status_publish(&status, level_bits(1), &copy);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        struct gmb_pressure read = {.size = sizeof(read)};
        uint64_t one, other;
        bool good = gmb_pressure_get(script.session, 0) == GMB_E_FORKED &&
                    gmb_pressure_read(script.session, 0, &read) == GMB_E_FORKED &&
                    gmb_memory_info(script.session, 0, &one, &other) == GMB_E_FORKED &&
                    gmb_pressure_unwatch(script.session, 1) == GMB_E_FORKED &&
                    gmb_pressure_subscribe(script.session, NULL, NULL, NULL) == GMB_E_FORKED;

        gmb_disconnect(script.session);
        _exit(good ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(pid, &child_status, 0), pid);
    ck_assert(WIFEXITED(child_status) && WEXITSTATUS(child_status) == 0);
    ck_assert_int_eq(gmb_pressure_get(script.session, 0), 1);
    finish();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("status");
    TCase *tcase = tcase_create("status");

    tcase_add_test(tcase, level_is_the_one_in_the_page);
    tcase_add_test(tcase, figures_are_those_of_the_copy_in_force);
    tcase_add_test(tcase, free_is_never_more_than_total_nor_total_than_the_device);
    tcase_add_test(tcase, without_a_page_all_of_it_is_unsupported);
    tcase_add_loop_test(tcase, page_of_another_shape_is_a_breach, 0, SPOIL_MAX);
    tcase_add_test(tcase, reader_beside_a_writer_sees_whole_copies_alone);
    tcase_add_loop_test(tcase, broker_that_dies_while_it_writes_leaves_the_copy_in_force, 0,
        (int) (sizeof(struct status_copy) / sizeof(uint64_t)) + 1);
    tcase_add_test(tcase, figures_of_a_broker_that_has_gone_stay_and_are_called_stale);
    tcase_add_test(tcase, child_is_refused_and_its_parent_undisturbed);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    return unit_run_suite(suite);
}
