/*
 * The status page's writer, stopped between any two of its instructions: whoever reads then sees a
 * whole entry, the one before or the one after. A process that is traced makes the stops.
 */
#include "daemon/status.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "tests/unit/unit.h"

#define ENTRIES 3
#define WRITES 4

static size_t page_bytes(void)
{
    return sizeof(struct status_page) + ENTRIES * sizeof(struct status_entry);
}

static const struct status_page *page_map(const struct status *status)
{
    int fd;
    void *at;

    ck_assert_int_eq(status_fd_dup(status, &fd), 0);
    at = mmap(NULL, page_bytes(), PROT_READ, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(at, MAP_FAILED);
    (void) close(fd);
    return at;
}

/* Every word of a copy is the same number, so that a torn one shows. */
static struct status_copy copy_of(uint64_t number)
{
    uint64_t words[sizeof(struct status_copy) / sizeof(uint64_t)] = {0};
    struct status_copy copy;

    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        words[i] = number;
    memcpy(&copy, words, sizeof(copy));
    return copy;
}

/* The number in force, by the rule of proto/status_page.h; torn ones end the test. */
static uint64_t number_read(const struct status_entry *entry)
{
    uint64_t head = __atomic_load_n(&entry->head, __ATOMIC_ACQUIRE);
    uint64_t words[sizeof(struct status_copy) / sizeof(uint64_t)];

    memcpy(words, &entry->copies[head & 1], sizeof(words));
    ck_assert_uint_eq(__atomic_load_n(&entry->head, __ATOMIC_RELAXED), head);
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        ck_assert_uint_eq(words[i], words[0]);
    ck_assert_uint_eq(head >> STATUS_LEVEL_SHIFT & 15, words[0] & 3);
    return words[0];
}

static void number_write(struct status *status, uint64_t number)
{
    struct status_copy copy = copy_of(number);

    status_write(status, 1, (number & 3) << STATUS_LEVEL_SHIFT, &copy);
}

START_TEST(a_writer_stopped_at_any_instant_leaves_a_whole_entry)
{
    const struct status_page *page;
    struct status *status;
    uint64_t seen = 7;
    unsigned stops = 0, changes = 0;
    int state;
    pid_t pid;

    ck_assert_int_eq(status_new(ENTRIES, &status), 0);
    page = page_map(status);
    number_write(status, seen);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
            _exit(77);
        (void) raise(SIGSTOP);
        for (uint64_t i = 1; i <= WRITES; i++)
            number_write(status, 7 + i);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &state, 0), pid);
    if (WIFEXITED(state))
        unit_skip("nobody may trace here");
    while (WIFSTOPPED(state)) {
        uint64_t number = number_read(&page->entries[1]);

        ck_assert_msg(number == seen || number == seen + 1, "%llu after %llu",
            (unsigned long long) number, (unsigned long long) seen);
        changes += number != seen;
        seen = number;
        stops++;
        ck_assert_int_eq(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
        ck_assert_int_eq(waitpid(pid, &state, 0), pid);
    }
    ck_assert(WIFEXITED(state) && WEXITSTATUS(state) == 0);
    ck_assert_uint_eq(changes, WRITES);
    /* It was stopped between each two of its stores. */
    ck_assert_uint_gt(stops, WRITES * sizeof(struct status_copy) / sizeof(uint64_t));
    (void) munmap((void *) (uintptr_t) page, page_bytes());
    (void) status_free(status);
}
END_TEST

START_TEST(nobody_but_the_writer_can_change_or_resize_it)
{
    struct status *status;
    char path[64];
    void *at;
    int fd, again;

    ck_assert_int_eq(status_new(ENTRIES, &status), 0);
    ck_assert_int_eq(status_fd_dup(status, &fd), 0);
    ck_assert_int_lt(ftruncate(fd, 0), 0);
    ck_assert_int_eq(errno, EPERM);
    ck_assert_int_lt(ftruncate(fd, 1 << 20), 0);
    ck_assert_int_eq(errno, EPERM);
    ck_assert_int_lt(pwrite(fd, "x", 1, 0), 0);
    ck_assert_int_eq(errno, EPERM);
    ck_assert_int_lt(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
    ck_assert_ptr_eq(
        mmap(NULL, page_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    /* Nor by a file description of its own, nor by mapping it first and asking later. */
    (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    again = open(path, O_RDWR | O_CLOEXEC);
    if (again >= 0) {
        ck_assert_int_lt(pwrite(again, "x", 1, 0), 0);
        ck_assert_ptr_eq(mmap(NULL, page_bytes(), PROT_WRITE, MAP_SHARED, again, 0), MAP_FAILED);
        (void) close(again);
    }
    at = mmap(NULL, page_bytes(), PROT_READ, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(at, MAP_FAILED);
    ck_assert_int_lt(mprotect(at, page_bytes(), PROT_READ | PROT_WRITE), 0);
    ck_assert_int_lt(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
    (void) munmap(at, page_bytes());
    (void) close(fd);
    (void) status_free(status);
}
END_TEST

START_TEST(an_entry_is_live_from_its_first_write_on)
{
    const struct status_page *page;
    struct status *status;

    ck_assert_int_eq(status_new(ENTRIES, &status), 0);
    page = page_map(status);
    ck_assert_uint_eq(page->header.magic, STATUS_MAGIC);
    ck_assert_uint_eq(page->header.entries, ENTRIES);
    ck_assert_uint_eq(page->header.entry_bytes, sizeof(struct status_entry));
    ck_assert_uint_eq(page->entries[1].head, 0);
    number_write(status, 2);
    ck_assert_uint_eq(number_read(&page->entries[1]), 2);
    ck_assert((page->entries[1].head & STATUS_FLAG_LIVE) != 0);
    ck_assert_uint_eq(page->entries[0].head, 0);
    ck_assert_uint_eq(page->entries[2].head, 0);
    /* What was mapped stays as it is when the writer is gone. */
    (void) status_free(status);
    ck_assert_uint_eq(number_read(&page->entries[1]), 2);
    (void) munmap((void *) (uintptr_t) page, page_bytes());
}
END_TEST

UNIT_MAIN("daemon_status", a_writer_stopped_at_any_instant_leaves_a_whole_entry,
    nobody_but_the_writer_can_change_or_resize_it, an_entry_is_live_from_its_first_write_on)
