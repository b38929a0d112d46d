/* Ownership helpers and the arithmetic that every account stands on. */
#include "base/macro.h"

#include <fcntl.h>

#include "tests/unit/unit.h"

static bool fd_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static int open_null(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    return fd;
}

START_TEST(cleanup_closes_what_the_scope_owns)
{
    int seen;

    {
        _cleanup_close_ int fd = open_null();

        seen = fd;
        ck_assert(fd_open(seen));
    }
    ck_assert(!fd_open(seen));
}
END_TEST

START_TEST(a_taken_fd_survives_the_scope)
{
    int seen;

    {
        _cleanup_close_ int fd = open_null();

        seen = TAKE_FD(fd);
        ck_assert_int_eq(fd, -1);
    }
    ck_assert(fd_open(seen));
    close_fd(&seen);
    ck_assert_int_eq(seen, -1);
    close_fd(&seen);
}
END_TEST

START_TEST(a_taken_pointer_leaves_null)
{
    _cleanup_free_ char *owner = malloc(1);
    _cleanup_free_ char *next = NULL;
    char *before = owner;

    ck_assert_ptr_nonnull(owner);
    next = TAKE_PTR(owner);
    ck_assert_ptr_eq(next, before);
    ck_assert_ptr_null(owner);
}
END_TEST

START_TEST(free_ptr_leaves_null)
{
    char *text = malloc(1);

    free_ptr(&text);
    ck_assert_ptr_null(text);
    free_ptr(&text);
}
END_TEST

START_TEST(container_of_finds_the_whole)
{
    struct {
        int before;
        int member;
    } whole;

    ck_assert_ptr_eq(container_of(&whole.member, __typeof__(whole), member), &whole);
}
END_TEST

START_TEST(min_and_max_evaluate_once)
{
    int a = 1, b = 5;

    ck_assert_int_eq(MIN(a++, b), 1);
    ck_assert_int_eq(a, 2);
    ck_assert_int_eq(MAX(a, b++), 5);
    ck_assert_int_eq(b, 6);
    ck_assert_int_eq(MIN(-1, -2), -2);
    ck_assert_int_eq(MAX(-1, -2), -1);
}
END_TEST

/* A shortfall must never read as 17 exabytes free. */
START_TEST(subtraction_stops_at_zero)
{
    ck_assert_uint_eq(sub_saturate(5, 4), 1);
    ck_assert_uint_eq(sub_saturate(5, 5), 0);
    ck_assert_uint_eq(sub_saturate(5, 6), 0);
    ck_assert_uint_eq(sub_saturate(0, UINT64_MAX), 0);
    ck_assert_uint_eq(sub_saturate(UINT64_MAX, 0), UINT64_MAX);
}
END_TEST

START_TEST(addition_stops_at_the_largest_value)
{
    ck_assert_uint_eq(add_saturate(UINT64_MAX - 1, 0), UINT64_MAX - 1);
    ck_assert_uint_eq(add_saturate(UINT64_MAX - 1, 1), UINT64_MAX);
    ck_assert_uint_eq(add_saturate(UINT64_MAX - 1, 2), UINT64_MAX);
    ck_assert_uint_eq(add_saturate(UINT64_MAX, UINT64_MAX), UINT64_MAX);
}
END_TEST

START_TEST(round_up_refuses_what_does_not_fit)
{
    uint64_t value = 7;

    ck_assert(round_up(0, 4096, &value));
    ck_assert_uint_eq(value, 0);
    ck_assert(round_up(1, 4096, &value));
    ck_assert_uint_eq(value, 4096);
    ck_assert(round_up(4096, 4096, &value));
    ck_assert_uint_eq(value, 4096);
    ck_assert(round_up(4097, 4096, &value));
    ck_assert_uint_eq(value, 8192);
    ck_assert(round_up(10, 3, &value));
    ck_assert_uint_eq(value, 12);
    ck_assert(round_up(UINT64_MAX - 4095, 4096, &value));
    ck_assert_uint_eq(value, UINT64_MAX - 4095);
    value = 7;
    ck_assert(!round_up(UINT64_MAX - 4094, 4096, &value));
    ck_assert(!round_up(UINT64_MAX, 4096, &value));
    ck_assert_uint_eq(value, 7);
}
END_TEST

UNIT_MAIN("base macro", cleanup_closes_what_the_scope_owns, a_taken_fd_survives_the_scope,
    a_taken_pointer_leaves_null, free_ptr_leaves_null, container_of_finds_the_whole,
    min_and_max_evaluate_once, subtraction_stops_at_zero, addition_stops_at_the_largest_value,
    round_up_refuses_what_does_not_fit)
