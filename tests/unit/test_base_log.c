/* One call is one line on standard error, whatever a peer put into the text. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/unit/unit.h"

#define LOG_LINE_BYTES 1024 /* as log.c has it */

/*
 * Standard error of the test's own process goes to a file in memory. O_APPEND: a memfd's position
 * is not locked between threads as that of a file, a pipe or a terminal is.
 */
static int capture(void)
{
    int fd = memfd_create("log", MFD_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fcntl(fd, F_SETFL, O_APPEND), 0);
    ck_assert_int_eq(dup2(fd, STDERR_FILENO), STDERR_FILENO);
    ck_assert_int_eq(unsetenv("JOURNAL_STREAM"), 0);
    return fd;
}

static void assert_captured(int fd, const char *expected)
{
    char text[4096] = "";
    ssize_t length = pread(fd, text, sizeof(text) - 1, 0);

    ck_assert_int_ge(length, 0);
    text[length] = '\0';
    ck_assert_str_eq(text, expected);
}

START_TEST(a_line_starts_with_its_level)
{
    int fd = capture();

    log_error("no %s", "device");
    log_info("%d clients", 7);
    assert_captured(fd, "error: no device\ninfo: 7 clients\n");
}
END_TEST

START_TEST(under_systemd_a_line_starts_with_its_priority)
{
    int fd = capture();

    ck_assert_int_eq(setenv("JOURNAL_STREAM", "8:1", 1), 0);
    log_error("a");
    log_warning("b");
    log_notice("c");
    log_info("d");
    assert_captured(fd, "<3>a\n<4>b\n<5>c\n<6>d\n");
}
END_TEST

START_TEST(control_characters_cannot_forge_a_line)
{
    int fd = capture();

    log_warning("tenant %s", "a\nerror: forged\r\x1b[2J\x7f\tb");
    assert_captured(fd, "warning: tenant a?error: forged??[2J??b\n");
}
END_TEST

START_TEST(text_beyond_ascii_stays)
{
    int fd = capture();

    log_info("%s", "größe ✓");
    assert_captured(fd, "info: größe ✓\n");
}
END_TEST

START_TEST(a_long_line_is_cut_and_still_ends)
{
    char text[3 * LOG_LINE_BYTES], line[2 * LOG_LINE_BYTES];
    int fd = capture();
    ssize_t length;

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    log_info("%s", text);
    length = pread(fd, line, sizeof(line), 0);
    ck_assert_int_gt(length, LOG_LINE_BYTES - 8);
    ck_assert_int_le(length, LOG_LINE_BYTES);
    ck_assert_int_eq(line[length - 1], '\n');
    for (ssize_t i = (ssize_t) strlen("info: "); i < length - 1; i++)
        ck_assert_int_eq(line[i], 'x');
}
END_TEST

START_TEST(lines_above_the_level_are_dropped)
{
    int fd = capture();

    log_debug("below the start value");
    log_set_level(LOG_LEVEL_ERROR);
    log_warning("dropped");
    log_error("kept");
    log_set_level(LOG_LEVEL_DEBUG);
    log_debug("kept");
    assert_captured(fd, "error: kept\ndebug: kept\n");
}
END_TEST

START_TEST(errno_survives_and_reaches_the_format)
{
    int fd = capture();

    errno = ENOENT;
    log_error("open: %m");
    ck_assert_int_eq(errno, ENOENT);
    assert_captured(fd, "error: open: No such file or directory\n");
}
END_TEST

START_TEST(a_closed_standard_error_loses_the_line_only)
{
    int fd = capture();

    ck_assert_int_eq(close(STDERR_FILENO), 0);
    errno = EEXIST;
    log_error("nowhere to go");
    ck_assert_int_eq(errno, EEXIST);
    assert_captured(fd, "");
}
END_TEST

#define WRITERS 4
#define WRITER_LINES 200

static void *write_lines(void *name)
{
    for (int i = 0; i < WRITER_LINES; i++) {
        log_set_level(LOG_LEVEL_INFO);
        log_info("%s %d", (const char *) name, i);
    }
    return NULL;
}

/* Reads the lines back: each whole, each writer's in its order. */
static void assert_lines_whole(FILE *file)
{
    int next[WRITERS] = {0}, number, lines = 0;
    char line[64], name, end;

    while (fgets(line, sizeof(line), file) != NULL) {
        ck_assert_msg(sscanf(line, "info: %c %d%c", &name, &number, &end) == 3, "'%s'", line);
        ck_assert_int_eq(end, '\n');
        ck_assert_int_ge(name, 'a');
        ck_assert_int_lt(name, 'a' + WRITERS);
        ck_assert_int_eq(number, next[name - 'a']++);
        lines++;
    }
    ck_assert_int_eq(lines, WRITERS * WRITER_LINES);
}

START_TEST(lines_of_several_threads_stay_whole)
{
    static char names[WRITERS][2] = {"a", "b", "c", "d"};
    pthread_t threads[WRITERS];
    int fd = capture();
    FILE *file;

    for (size_t i = 0; i < WRITERS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, write_lines, names[i]), 0);
    for (size_t i = 0; i < WRITERS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    ck_assert_int_eq(lseek(fd, 0, SEEK_SET), 0);
    file = fdopen(fd, "r");
    ck_assert_ptr_nonnull(file);
    assert_lines_whole(file);
    ck_assert_int_eq(fclose(file), 0);
}
END_TEST

START_TEST(level_names_are_exact)
{
    static const char *const names[] = {"error", "warning", "notice", "info", "debug"};
    static const char *const wrong[] = {"", "Error", "err", "infos", "debug "};
    enum log_level level = LOG_LEVEL_MAX;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        ck_assert_int_eq(log_level_parse(names[i], &level), 0);
        ck_assert_uint_eq(level, i);
    }
    level = LOG_LEVEL_MAX;
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
        ck_assert_int_eq(log_level_parse(wrong[i], &level), -EINVAL);
    ck_assert_int_eq(level, LOG_LEVEL_MAX);
}
END_TEST

START_TEST(a_standard_error_that_nobody_reads_holds_nothing_up)
{
    static const char page[4096];
    int ends[2];

    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    ck_assert_int_eq(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    while (write(ends[1], page, sizeof(page)) > 0)
        continue;
    ck_assert_int_eq(fcntl(ends[1], F_SETFL, 0), 0); /* a write(2) would wait from now on */
    ck_assert_int_eq(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    for (unsigned i = 0; i < 100; i++)
        log_error("line %u", i);
    (void) close(ends[0]);
    (void) close(ends[1]);
}
END_TEST

UNIT_MAIN("base log", a_line_starts_with_its_level, under_systemd_a_line_starts_with_its_priority,
    control_characters_cannot_forge_a_line, text_beyond_ascii_stays,
    a_long_line_is_cut_and_still_ends, lines_above_the_level_are_dropped,
    errno_survives_and_reaches_the_format, a_closed_standard_error_loses_the_line_only,
    a_standard_error_that_nobody_reads_holds_nothing_up, lines_of_several_threads_stay_whole,
    level_names_are_exact)
