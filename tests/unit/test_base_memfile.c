/* Memory whose size nobody can change. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memfile.h"
#include "tests/unit/unit.h"

START_TEST(a_new_one_has_its_size_and_keeps_it)
{
    _cleanup_close_ int fd = memfile_new("test", 12345);
    struct stat status;
    char byte = 1;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
    ck_assert_int_eq(fstat(fd, &status), 0);
    ck_assert_int_eq(status.st_size, 12345);
    ck_assert_int_eq(pread(fd, &byte, 1, 12344), 1);
    ck_assert_int_eq(byte, 0);
    ck_assert_int_eq(ftruncate(fd, 12344), -1);
    ck_assert_int_eq(errno, EPERM);
    ck_assert_int_eq(ftruncate(fd, 12346), -1);
    ck_assert_int_eq(errno, EPERM);
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    ck_assert_int_eq(errno, EPERM);
}
END_TEST

START_TEST(no_file_is_larger_than_an_offset_tells)
{
    ck_assert_int_eq(memfile_new("test", (uint64_t) INT64_MAX + 1), -EFBIG);
}
END_TEST

START_TEST(one_is_large_enough_or_refused)
{
    _cleanup_close_ int fd = memfile_new("test", 4096);

    ck_assert_int_eq(memfile_check(fd, 0), 0);
    ck_assert_int_eq(memfile_check(fd, 4096), 0);
    ck_assert_int_eq(memfile_check(fd, 4097), -EINVAL);
}
END_TEST

START_TEST(what_somebody_could_make_shorter_is_refused)
{
    _cleanup_close_ int open_one = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    _cleanup_close_ int file = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    int ends[2];

    ck_assert_int_eq(ftruncate(open_one, 4096), 0);
    ck_assert_int_eq(memfile_check(open_one, 4096), -EINVAL);
    ck_assert_int_eq(fcntl(open_one, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    ck_assert_int_eq(memfile_check(open_one, 4096), 0);
    if (file >= 0)
        ck_assert_int_eq(memfile_check(file, 0), -EINVAL);
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    ck_assert_int_eq(memfile_check(ends[0], 0), -EINVAL);
    (void) close(ends[0]);
    (void) close(ends[1]);
    ck_assert_int_eq(memfile_check(-1, 0), -EINVAL);
}
END_TEST

UNIT_MAIN("base memfile", a_new_one_has_its_size_and_keeps_it,
    no_file_is_larger_than_an_offset_tells, one_is_large_enough_or_refused,
    what_somebody_could_make_shorter_is_refused)
