/* The node as a whole: configuration, contexts, processes, permissions, late memory. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "tests/simdriver/rig.h"

START_TEST(the_first_process_decides_until_the_node_is_idle)
{
    struct ledger *first = rig_open(), *second;
    struct sim_hardware hardware;
    struct ledger_id id;
    int fd;

    rig.hardware.devices = 2;
    rig.hardware.capacity[0] = rig.hardware.capacity[1] = 16 * MIB;
    second = rig_open();
    ledger_hardware(second, &hardware);
    ck_assert_uint_eq(hardware.devices, 1);
    ck_assert_uint_eq(rig_free(second), RIG_CAPACITY);
    id = rig_create(second, MIB);
    fd = ledger_chunk_open(second, id, true);
    ledger_close(first);
    ledger_close(second);
    /* Nobody lives, but memory is parked. */
    second = rig_open();
    ck_assert_uint_eq(rig_free(second), RIG_CAPACITY - MIB);
    (void) close(fd);
    ledger_close(second);
    second = rig_open();
    ledger_hardware(second, &hardware);
    ck_assert_uint_eq(hardware.devices, 2);
    ck_assert_uint_eq(rig_free(second), 16 * MIB);
    ledger_close(second);
}
END_TEST

START_TEST(each_context_costs_its_overhead_and_needs_room_for_it)
{
    struct ledger *ledger;
    struct ledger_id id;

    rig.hardware.context_overhead = 3 * MIB;
    ledger = rig_open();
    ck_assert_int_eq(ledger_context_begin(ledger, 0), 0);
    ck_assert_uint_eq(rig_free(ledger), 5 * MIB);
    ck_assert_int_eq(ledger_context_begin(ledger, 0), 0);
    ck_assert_uint_eq(rig_free(ledger), 2 * MIB);
    ck_assert_int_eq(ledger_context_begin(ledger, 0), -ENOMEM);
    ledger_context_end(ledger, 0);
    id = rig_create(ledger, 2 * MIB);
    ck_assert_int_eq(ledger_context_begin(ledger, 0), 0);
    ledger_context_end(ledger, 0);
    ledger_chunk_drop(ledger, id, false);
    id = rig_create(ledger, 2 * MIB + 4096);
    ck_assert_int_eq(ledger_context_begin(ledger, 0), -ENOMEM);
    ledger_close(ledger);
}
END_TEST

static int run_context(const struct child *child, void *data)
{
    struct ledger *ledger = rig_open();

    (void) rig_create(ledger, MIB);
    child_ready(child, ledger_context_begin(ledger, 0));
    child_wait(child);
    return 0;
}

START_TEST(the_process_list_shows_the_living_with_a_context)
{
    struct ledger_process found[2] = {0};
    struct ledger *ledger;
    struct child child;

    rig.hardware.context_overhead = 4096;
    child = child_start(run_context, NULL);
    ck_assert_int_eq(child_await(&child), 0);
    ledger = rig_open();
    (void) rig_create(ledger, MIB); /* without a context: not listed */
    ck_assert_int_eq(ledger_processes(ledger, 0, NULL, 0), 1);
    ck_assert_int_eq(ledger_processes(ledger, 0, found, 2), 1);
    ck_assert_int_eq(found[0].pid, child.pid);
    ck_assert_uint_eq(found[0].used, MIB + 4096);
    ck_assert_uint_eq(rig_free(ledger), RIG_CAPACITY - 2 * MIB - 4096);
    child_kill(&child);
    ck_assert_int_eq(ledger_processes(ledger, 0, found, 2), 0);
    ck_assert_uint_eq(rig_free(ledger), RIG_CAPACITY - MIB);
    ledger_close(ledger);
}
END_TEST

START_TEST(devices_are_charged_apart)
{
    struct ledger_chunk_info info = {.device = 1, .bytes = MIB};
    struct ledger_memory memory;
    struct ledger *ledger;

    rig.hardware.devices = 2;
    rig.hardware.capacity[1] = 2 * MIB;
    ledger = rig_open();
    ck_assert_int_eq(ledger_chunk_create(ledger, &info), 0);
    ck_assert_uint_eq(rig_free(ledger), RIG_CAPACITY);
    ck_assert_int_eq(ledger_memory(ledger, 1, &memory), 0);
    ck_assert_uint_eq(memory.total, 2 * MIB);
    ck_assert_uint_eq(memory.free, MIB);
    ledger_close(ledger);
}
END_TEST

START_TEST(freed_memory_comes_back_after_the_delay)
{
    struct ledger_id id;
    struct ledger *ledger;
    uint64_t freed;

    rig.hardware.free_delay_ns = NSEC_PER_SEC;
    ledger = rig_open();
    id = rig_create(ledger, RIG_CAPACITY);
    freed = clock_now(&clock_monotonic);
    ledger_chunk_drop(ledger, id, false);
    while (rig_free(ledger) == 0) {
        ck_assert_uint_lt(clock_now(&clock_monotonic), freed + 20 * NSEC_PER_SEC);
    }
    ck_assert_uint_ge(clock_now(&clock_monotonic), freed + NSEC_PER_SEC);
    ck_assert_uint_eq(rig_free(ledger), RIG_CAPACITY);
    ledger_close(ledger);
}
END_TEST

static unsigned file_mode(const char *name)
{
    char path[PATH_MAX];
    struct stat stat_at;

    ck_assert_int_lt(snprintf(path, sizeof(path), "%s/%s", rig.dir, name), (int) sizeof(path));
    ck_assert_int_eq(stat(path, &stat_at), 0);
    return stat_at.st_mode & 07777;
}

/* A directory for everybody, made beforehand. */
static void open_directory(void)
{
    char *parent = strdupa(rig.dir);

    ck_assert_int_eq(mkdir(rig.dir, 0700), 0);
    ck_assert_int_eq(chmod(rig.dir, 01777), 0);
    for (char *end = strrchr(parent, '/'); end > parent + strlen("/dev/shm");
         end = strrchr(parent, '/')) {
        *end = '\0';
        ck_assert_int_eq(chmod(parent, 0711), 0);
    }
}

START_TEST(the_directorys_mode_says_who_takes_part)
{
    struct ledger_id id;
    struct ledger *ledger;
    char name[32];

    (void) umask(077);
    open_directory();
    ledger = rig_open();
    id = rig_create(ledger, MIB);
    (void) snprintf(name, sizeof(name), "dev0/%u", id.slot);
    ck_assert_uint_eq(file_mode("ledger"), 0666);
    ck_assert_uint_eq(file_mode("procs"), 0666);
    ck_assert_uint_eq(file_mode("dev0"), 0777);
    ck_assert_uint_eq(file_mode(name), 0666);
    ledger_close(ledger);
}
END_TEST

/* As another user: a chunk that the test gets an fd of. */
static int run_nobody(const struct child *child, void *data)
{
    struct ledger *ledger;
    struct ledger_id id;

    child_wait(child);
    if (setgid(65534) < 0 || setuid(65534) < 0)
        return 1;
    ledger = rig_open();
    id = rig_create(ledger, MIB);
    fd_send(*(int *) data, ledger_chunk_open(ledger, id, true));
    child_ready(child, (int) (rig_free(ledger) / MIB));
    child_wait(child);
    child_ready(child, (int) (rig_free(ledger) / MIB));
    child_wait(child);
    return 0;
}

START_TEST(another_user_takes_part_where_the_directory_lets_it)
{
    struct ledger_chunk_info info;
    struct child child;
    struct ledger *ledger;
    struct ledger_id id;
    int ends[2], fd;

    unit_need_root();
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    open_directory();
    child = child_start(run_nobody, &ends[1]);
    ledger = rig_open();
    id = rig_create(ledger, 2 * MIB);
    fd = ledger_chunk_open(ledger, id, true);
    ledger_chunk_drop(ledger, id, true);
    child_go(&child);
    ck_assert_int_eq(child_await(&child), 5); /* 8 - 2 - 1 */
    (void) close(fd);
    child_go(&child);
    ck_assert_int_eq(child_await(&child), 7); /* it found what root let go */
    fd = fd_receive(ends[0]);
    ck_assert_int_eq(ledger_chunk_identify(ledger, fd, &info), 0);
    child_kill(&child);
    ck_assert(ledger_chunk_adopt(ledger, info.id));
    (void) close(fd);
    ledger_chunk_drop(ledger, info.id, true);
    ck_assert_uint_eq(rig_free(ledger), RIG_CAPACITY);
    (void) close(ends[0]);
    (void) close(ends[1]);
    ledger_close(ledger);
}
END_TEST

START_TEST(a_directory_of_its_own_is_private)
{
    struct ledger *ledger;

    (void) umask(0);
    ledger = rig_open();
    ck_assert_uint_eq(file_mode("."), 0700);
    ck_assert_uint_eq(file_mode("ledger"), 0600);
    ck_assert_uint_eq(file_mode("dev0"), 0700);
    ledger_close(ledger);
}
END_TEST

START_TEST(garbage_stands_at_each_64k_and_the_rest_is_zero)
{
    struct ledger *ledger;
    struct ledger_id id;
    uint8_t byte;
    int fd;

    rig.hardware.fill = SIM_FILL_GARBAGE;
    ledger = rig_open();
    id = rig_create(ledger, MIB);
    fd = ledger_chunk_open(ledger, id, true);
    for (off_t at = 0; at < (off_t) MIB; at += 4096) {
        ck_assert_int_eq(pread(fd, &byte, 1, at + 4095), 1);
        ck_assert_int_eq(byte != 0, at % 65536 == 0);
    }
    ledger_close(ledger);
}
END_TEST

RIG_MAIN("ledger_node", the_first_process_decides_until_the_node_is_idle,
    each_context_costs_its_overhead_and_needs_room_for_it,
    the_process_list_shows_the_living_with_a_context, devices_are_charged_apart,
    freed_memory_comes_back_after_the_delay, the_directorys_mode_says_who_takes_part,
    another_user_takes_part_where_the_directory_lets_it, a_directory_of_its_own_is_private,
    garbage_stands_at_each_64k_and_the_rest_is_zero)
