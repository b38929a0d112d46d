/* A chunk stays charged exactly as long as somebody, anywhere, holds it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "tests/simdriver/rig.h"

START_TEST(a_device_is_full_at_its_last_byte_and_not_before)
{
    struct ledger *ledger = rig_open();
    struct ledger_chunk_info page = {.bytes = 4096};
    struct ledger_id most;

    ck_assert_uint_eq(rig_free(ledger), 8 * MIB);
    most = rig_create(ledger, 8 * MIB - 4096);
    ck_assert_uint_eq(rig_free(ledger), 4096);
    page.bytes = 4097;
    ck_assert_int_eq(ledger_chunk_create(ledger, &page), -ENOMEM);
    page.bytes = 4096;
    ck_assert_int_eq(ledger_chunk_create(ledger, &page), 0);
    ck_assert_uint_eq(rig_free(ledger), 0);
    ck_assert_int_eq(ledger_chunk_create(ledger, &page), -ENOMEM);
    ledger_chunk_drop(ledger, most, false);
    ck_assert_uint_eq(rig_free(ledger), 8 * MIB - 4096);
    ledger_close(ledger);
}
END_TEST

START_TEST(an_absurd_size_is_refused_and_charges_nothing)
{
    struct ledger *ledger = rig_open();
    struct ledger_chunk_info info = {.bytes = UINT64_MAX};

    ck_assert_int_eq(ledger_chunk_create(ledger, &info), -ENOMEM);
    info.bytes = 0;
    ck_assert_int_eq(ledger_chunk_create(ledger, &info), -EINVAL);
    info = (struct ledger_chunk_info){.device = 1, .bytes = 4096};
    ck_assert_int_eq(ledger_chunk_create(ledger, &info), -ENODEV);
    ck_assert_uint_eq(rig_free(ledger), 8 * MIB);
    ledger_close(ledger);
}
END_TEST

START_TEST(an_exported_fd_holds_until_its_last_duplicate_is_closed)
{
    struct ledger *ledger = rig_open();
    struct ledger_id id = rig_create(ledger, MIB);
    int first = ledger_chunk_open(ledger, id, true);
    int second = ledger_chunk_open(ledger, id, true);
    int copy = dup(first);

    ledger_chunk_drop(ledger, id, true);
    ck_assert_uint_eq(rig_free(ledger), 7 * MIB);
    (void) close(first);
    ck_assert_uint_eq(rig_free(ledger), 7 * MIB);
    (void) close(second);
    ck_assert_uint_eq(rig_free(ledger), 7 * MIB);
    (void) close(copy);
    ck_assert_uint_eq(rig_free(ledger), 8 * MIB);
    ledger_close(ledger);
}
END_TEST

START_TEST(an_fd_in_an_unread_socket_holds)
{
    struct ledger *ledger = rig_open();
    struct ledger_id id = rig_create(ledger, MIB);
    int fd = ledger_chunk_open(ledger, id, true), ends[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    fd_send(ends[0], fd);
    (void) close(fd);
    ledger_chunk_drop(ledger, id, true);
    ck_assert_uint_eq(rig_free(ledger), 7 * MIB);
    (void) close(ends[0]);
    ck_assert_uint_eq(rig_free(ledger), 7 * MIB);
    (void) close(ends[1]);
    ck_assert_uint_eq(rig_free(ledger), 8 * MIB);
    ledger_close(ledger);
}
END_TEST

START_TEST(a_mapping_alone_holds)
{
    struct ledger *ledger = rig_open();
    struct ledger_id id = rig_create(ledger, MIB);
    int fd = ledger_chunk_open(ledger, id, true);
    void *at = mmap(NULL, MIB, PROT_READ, MAP_SHARED, fd, 0);

    ck_assert_ptr_ne(at, MAP_FAILED);
    (void) close(fd);
    ledger_chunk_drop(ledger, id, true);
    ck_assert_uint_eq(rig_free(ledger), 7 * MIB);
    ck_assert_int_eq(munmap(at, MIB), 0);
    ck_assert_uint_eq(rig_free(ledger), 8 * MIB);
    ledger_close(ledger);
}
END_TEST

static int run_park(const struct child *child, void *data)
{
    int fd = fd_receive(*(int *) data);

    child_ready(child, fd >= 0);
    child_wait(child);
    return 0;
}

START_TEST(an_fd_in_a_process_that_knows_no_driver_holds)
{
    struct child parked;
    struct ledger *ledger;
    struct ledger_id id;
    int ends[2], fd;

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    parked = child_start(run_park, &ends[1]);
    ledger = rig_open();
    id = rig_create(ledger, MIB);
    fd = ledger_chunk_open(ledger, id, true);
    fd_send(ends[0], fd);
    (void) close(fd);
    ck_assert_int_eq(child_await(&parked), 1);
    ledger_chunk_drop(ledger, id, true);
    ck_assert_uint_eq(rig_free(ledger), 7 * MIB);
    ck_assert_int_eq(kill(parked.pid, SIGSTOP), 0);
    ck_assert_uint_eq(rig_free(ledger), 7 * MIB);
    child_kill(&parked);
    ck_assert_uint_eq(rig_free(ledger), 8 * MIB);
    (void) close(ends[0]);
    (void) close(ends[1]);
    ledger_close(ledger);
}
END_TEST

/* Owns 1 MiB that nobody else has and 2 MiB of which the test gets an fd. */
static int run_owner(const struct child *child, void *data)
{
    struct ledger *ledger = rig_open();
    struct ledger_id shared;

    (void) rig_create(ledger, MIB);
    shared = rig_create(ledger, 2 * MIB);
    fd_send(*(int *) data, ledger_chunk_open(ledger, shared, true));
    child_ready(child, 1);
    child_wait(child);
    return 0;
}

START_TEST(what_a_killed_owner_held_is_free_except_what_others_hold)
{
    struct child owner;
    struct ledger *ledger;
    int ends[2], fd;

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    owner = child_start(run_owner, &ends[1]);
    ck_assert_int_eq(child_await(&owner), 1);
    fd = fd_receive(ends[0]);
    ledger = rig_open();
    ck_assert_uint_eq(rig_free(ledger), 5 * MIB);
    ck_assert_int_eq(kill(owner.pid, SIGSTOP), 0);
    ck_assert_uint_eq(rig_free(ledger), 5 * MIB); /* slow isn't dead */
    child_kill(&owner);
    ck_assert_uint_eq(rig_free(ledger), 6 * MIB);
    (void) close(fd);
    ck_assert_uint_eq(rig_free(ledger), 8 * MIB);
    (void) close(ends[0]);
    (void) close(ends[1]);
    ledger_close(ledger);
}
END_TEST

START_TEST(create_finds_the_room_that_a_dead_process_left)
{
    struct child owner;
    struct ledger *ledger;
    int ends[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    owner = child_start(run_owner, &ends[1]);
    ck_assert_int_eq(child_await(&owner), 1);
    (void) close(fd_receive(ends[0]));
    ledger = rig_open();
    child_kill(&owner);
    /* Nobody has asked for free memory since. */
    (void) rig_create(ledger, 8 * MIB);
    (void) close(ends[0]);
    (void) close(ends[1]);
    ledger_close(ledger);
}
END_TEST

START_TEST(an_importer_adopts_what_its_owner_left)
{
    struct ledger_chunk_info info;
    struct child owner;
    struct ledger *ledger;
    int ends[2], fd;

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    owner = child_start(run_owner, &ends[1]);
    ck_assert_int_eq(child_await(&owner), 1);
    fd = fd_receive(ends[0]);
    ledger = rig_open();
    ck_assert_int_eq(ledger_chunk_identify(ledger, fd, &info), 0);
    ck_assert_uint_eq(info.bytes, 2 * MIB);
    ck_assert(!ledger_chunk_adopt(ledger, info.id)); /* the owner lives */
    child_kill(&owner);
    ck_assert(ledger_chunk_adopt(ledger, info.id));
    ck_assert(!ledger_chunk_adopt(ledger, info.id));
    (void) close(fd);
    ck_assert_uint_eq(rig_free(ledger), 6 * MIB); /* held without an fd */
    ledger_chunk_drop(ledger, info.id, true);
    ck_assert_uint_eq(rig_free(ledger), 8 * MIB);
    (void) close(ends[0]);
    (void) close(ends[1]);
    ledger_close(ledger);
}
END_TEST

START_TEST(a_slot_used_again_is_another_chunk)
{
    struct ledger *ledger = rig_open();
    struct ledger_id first = rig_create(ledger, MIB), second;

    ledger_chunk_drop(ledger, first, false);
    second = rig_create(ledger, 2 * MIB);
    ck_assert_uint_eq(second.slot, first.slot);
    ck_assert_uint_ne(second.generation, first.generation);
    ck_assert_int_eq(ledger_chunk_open(ledger, first, true), -ESTALE);
    ledger_chunk_drop(ledger, first, false); /* not ours any more: ignored */
    ck_assert_uint_eq(rig_free(ledger), 6 * MIB);
    ledger_close(ledger);
}
END_TEST

START_TEST(an_fd_that_is_no_chunk_of_this_node_is_not_taken_for_one)
{
    struct ledger *ledger = rig_open();
    struct ledger_id id = rig_create(ledger, MIB);
    struct ledger_chunk_info info;
    char path[PATH_MAX];
    int fd, pipes[2];

    /* As long and named as the chunk, on the same file system. */
    (void) snprintf(path, sizeof(path), "%s/%u", rig.dir, id.slot);
    fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, MIB), 0);
    ck_assert_int_eq(ledger_chunk_identify(ledger, fd, &info), -EBADMSG);
    (void) close(fd);
    ck_assert_int_eq(pipe(pipes), 0);
    ck_assert_int_eq(ledger_chunk_identify(ledger, pipes[0], &info), -EBADMSG);
    ck_assert_int_eq(ledger_chunk_identify(ledger, -1, &info), -EBADMSG);
    fd = ledger_chunk_open(ledger, id, true);
    ck_assert_int_eq(ledger_chunk_identify(ledger, fd, &info), 0);
    ck_assert_uint_eq(info.id.slot, id.slot);
    ck_assert_uint_eq(info.id.generation, id.generation);
    ledger_close(ledger);
}
END_TEST

START_TEST(closing_a_ledger_drops_all_and_leaks_no_fd)
{
    unsigned before = rig_fds();
    struct ledger *ledger = rig_open(), *other = rig_open();

    for (unsigned i = 0; i < 8; i++)
        (void) rig_create(ledger, MIB);
    ck_assert_uint_eq(rig_free(other), 0);
    ledger_close(ledger);
    ck_assert_uint_eq(rig_free(other), 8 * MIB);
    ledger_close(other);
    ck_assert_uint_eq(rig_fds(), before);
}
END_TEST

RIG_MAIN("ledger_hold", a_device_is_full_at_its_last_byte_and_not_before,
    an_absurd_size_is_refused_and_charges_nothing,
    an_exported_fd_holds_until_its_last_duplicate_is_closed, an_fd_in_an_unread_socket_holds,
    a_mapping_alone_holds, an_fd_in_a_process_that_knows_no_driver_holds,
    what_a_killed_owner_held_is_free_except_what_others_hold,
    create_finds_the_room_that_a_dead_process_left, an_importer_adopts_what_its_owner_left,
    a_slot_used_again_is_another_chunk, an_fd_that_is_no_chunk_of_this_node_is_not_taken_for_one,
    closing_a_ledger_drops_all_and_leaks_no_fd)
