/* The maps from errno to status and from status to text are total. */
#include "base/error.h"

#include <errno.h>
#include <string.h>

#include "tests/unit/unit.h"

#define ERRNO_MAX 4095 /* the kernel's: what a system call may return negated */

START_TEST(every_errno_has_a_status)
{
    for (int error = -ERRNO_MAX; error <= ERRNO_MAX; error++) {
        enum gmb_status status = status_from_errno(error);

        ck_assert_int_lt(status, GMB_STATUS_MAX);
        ck_assert_msg((status == GMB_STATUS_OK) == (error == 0), "errno %d", error);
        ck_assert_int_eq(status, status_from_errno(-error));
    }
}
END_TEST

START_TEST(known_errnos_keep_their_meaning)
{
    static const struct {
        int error;
        enum gmb_status status;
    } rows[] = {
        {EPERM, GMB_STATUS_DENIED},
        {EACCES, GMB_STATUS_DENIED},
        {ENOENT, GMB_STATUS_NOT_FOUND},
        {ESRCH, GMB_STATUS_NOT_FOUND},
        {EINVAL, GMB_STATUS_INVALID},
        {EOVERFLOW, GMB_STATUS_INVALID},
        {ETIMEDOUT, GMB_STATUS_TIMED_OUT},
        {ECANCELED, GMB_STATUS_CANCELLED},
        {ESTALE, GMB_STATUS_CONFLICT},
        {EOPNOTSUPP, GMB_STATUS_UNSUPPORTED},
        {ECONNRESET, GMB_STATUS_DISCONNECTED},
        {EPIPE, GMB_STATUS_DISCONNECTED},
        {EPROTO, GMB_STATUS_PROTOCOL},
        {EMSGSIZE, GMB_STATUS_PROTOCOL},
        {EIO, GMB_STATUS_GPU},
        {ENOMEM, GMB_STATUS_INTERNAL},
        {ERRNO_MAX, GMB_STATUS_INTERNAL},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        ck_assert_int_eq(status_from_errno(-rows[i].error), rows[i].status);
}
END_TEST

/* An error of the host's must not read as "retry helps": a client would retry for ever. */
START_TEST(no_errno_reads_as_exhausted)
{
    for (int error = -ERRNO_MAX; error <= ERRNO_MAX; error++)
        ck_assert_int_ne(status_from_errno(error), GMB_STATUS_EXHAUSTED);
}
END_TEST

START_TEST(the_smallest_int_has_a_status)
{
    ck_assert_int_eq(status_from_errno(INT32_MIN), GMB_STATUS_INTERNAL);
    ck_assert_int_eq(status_from_errno(INT32_MAX), GMB_STATUS_INTERNAL);
}
END_TEST

START_TEST(every_status_has_its_own_name_and_a_text)
{
    for (int i = 0; i < GMB_STATUS_MAX; i++) {
        ck_assert_str_ne(status_name((enum gmb_status) i), "");
        ck_assert_str_ne(status_text((enum gmb_status) i), "");
        for (int j = 0; j < i; j++) {
            ck_assert_str_ne(status_name((enum gmb_status) i), status_name((enum gmb_status) j));
            ck_assert_str_ne(status_text((enum gmb_status) i), status_text((enum gmb_status) j));
        }
    }
}
END_TEST

START_TEST(every_limit_has_its_own_name)
{
    for (int i = 0; i < GMB_LIMIT_MAX; i++) {
        ck_assert_str_ne(limit_name((enum gmb_limit) i), "");
        for (int j = 0; j < i; j++)
            ck_assert_str_ne(limit_name((enum gmb_limit) i), limit_name((enum gmb_limit) j));
    }
}
END_TEST

/* A peer's number, cast to the enum, must not index past a table. */
START_TEST(numbers_outside_the_enums_are_unknown)
{
    static const int outside[] = {-1, GMB_STATUS_MAX, INT32_MAX, INT32_MIN};

    for (size_t i = 0; i < ARRAY_SIZE(outside); i++) {
        ck_assert_str_eq(status_name((enum gmb_status) outside[i]), "unknown");
        ck_assert_str_eq(status_text((enum gmb_status) outside[i]), "unknown status");
        ck_assert_str_eq(limit_name((enum gmb_limit) outside[i]), "unknown");
    }
    ck_assert_str_eq(limit_name(GMB_LIMIT_MAX), "unknown");
    ck_assert_str_eq(limit_name((enum gmb_limit)(GMB_LIMIT_MAX - 1)), "unsealed");
}
END_TEST

/* These numbers travel on the wire: they never change. */
START_TEST(wire_numbers_are_fixed)
{
    ck_assert_int_eq(GMB_STATUS_EXHAUSTED, 1);
    ck_assert_int_eq(GMB_STATUS_INVALID, 5);
    ck_assert_int_eq(GMB_STATUS_DISCONNECTED, 10);
    ck_assert_int_eq(GMB_STATUS_INTERNAL, 14);
    ck_assert_int_eq(GMB_LIMIT_DEVICE, 1);
    ck_assert_int_eq(GMB_LIMIT_MEMORY_MAX, 4);
    ck_assert_int_eq(GMB_LIMIT_CHUNKS, 9);
}
END_TEST

UNIT_MAIN("base error", every_errno_has_a_status, known_errnos_keep_their_meaning,
    no_errno_reads_as_exhausted, the_smallest_int_has_a_status,
    every_status_has_its_own_name_and_a_text, every_limit_has_its_own_name,
    numbers_outside_the_enums_are_unknown, wire_numbers_are_fixed)
