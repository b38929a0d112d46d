/*
 * Runs between keeper and broker and spoils what the next broker finds. The file that GMBD_TAMPER
 * names says what, once:
 *
 *     flip OFFSET       one byte of the ledger, by its bits 0x5a
 *     version N         in both headers of the ledger
 *     lose NAME         that fd is nowhere any more, as if the store had never got it
 *     garble NAME:AT    one byte of that fd's file, by its bits 0x5a
 *     extra NAME        one more fd under a name that was never given
 *     twice NAME        that fd under the same name once more
 *     become NAME KIND  that fd is another file, here and in the store: see made()
 *     cut NAME:BYTES    that fd's file is so long
 *     hollow NAME:BYTES the same, and then as long as it was, of zeros
 *     devices LIST      those alone are there, by number
 *     env NAME VALUE    in the environment
 *     misname N         there are N more names than fds, or fewer
 *     nofile N          so many fds may be open beside those that are passed
 *
 * one in each line. Then it becomes the broker, GMBD.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "daemon/ledger/ledger_format.h"

#define NAMES_MAX 256

static char *names[NAMES_MAX];
static int count, misnamed;

static _Noreturn void fail(const char *what)
{
    (void) fprintf(stderr, "tamper: %s: %s\n", what, strerror(errno));
    exit(126);
}

static void names_read(void)
{
    const char *value = getenv("LISTEN_FDNAMES");
    char *text = strdup(value != NULL ? value : ""), *each;

    while ((each = strsep(&text, ":")) != NULL) {
        if (count == NAMES_MAX)
            fail("too many names");
        names[count++] = each;
    }
}

static void names_write(void)
{
    static char text[NAMES_MAX * 16];
    char number[16];
    size_t at = 0;

    for (int i = 0; i < count + misnamed; i++)
        at += (size_t) snprintf(text + at, sizeof(text) - at, "%s%s", i > 0 ? ":" : "",
            i < count ? names[i] : "another");
    (void) snprintf(number, sizeof(number), "%d", count);
    if (setenv("LISTEN_FDNAMES", text, 1) < 0 || setenv("LISTEN_FDS", number, 1) < 0)
        fail("environment");
}

/* Its place among the fds. */
static int find(const char *name)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0)
            return i;
    }
    errno = ENOENT;
    fail(name);
}

static void bytes_write(off_t at, const void *bytes, size_t size)
{
    if (pwrite(SD_LISTEN_FDS_START + find("ledger"), bytes, size, at) != (ssize_t) size)
        fail("ledger");
}

static void flip(const char *name, off_t at)
{
    int fd = SD_LISTEN_FDS_START + find(name);
    uint8_t byte;

    if (pread(fd, &byte, 1, at) != 1)
        fail(name);
    byte ^= 0x5a;
    if (pwrite(fd, &byte, 1, at) != 1)
        fail(name);
}

static void garble(char *argument)
{
    const char *name = strsep(&argument, ":");

    flip(name, (off_t) strtoll(argument, NULL, 10));
}

static void cut(char *argument, bool hollow)
{
    const char *name = strsep(&argument, ":");
    int fd = SD_LISTEN_FDS_START + find(name);
    struct stat status;

    if (fstat(fd, &status) < 0 || ftruncate(fd, (off_t) strtoll(argument, NULL, 10)) < 0 ||
        (hollow && ftruncate(fd, status.st_size) < 0))
        fail(name);
}

static void nofile(rlim_t beside)
{
    rlim_t all = (rlim_t) count + beside;
    struct rlimit limit = {all, all};

    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        fail("nofile");
}

static void version_write(uint32_t version)
{
    for (off_t i = 0; i < LEDGER_HEADERS; i++)
        bytes_write(i * LEDGER_PAGE + (off_t) offsetof(struct ledger_header, version), &version,
            sizeof(version));
}

/* The keeper hears this process, which is its child as the broker will be. */
static void lose(const char *name)
{
    int place = find(name), last = --count;

    (void) sd_notifyf(0, "FDSTOREREMOVE=1\nFDNAME=%s", name);
    (void) sd_notify_barrier(0, 10000000);
    if (place != last && dup2(SD_LISTEN_FDS_START + last, SD_LISTEN_FDS_START + place) < 0)
        fail(name);
    (void) close(SD_LISTEN_FDS_START + last);
    names[place] = names[last];
}

/* Its place is free, or this process's own. */
static void add_consume(char *name, int fd)
{
    int place = SD_LISTEN_FDS_START + count;

    if (fd < 0 || count == NAMES_MAX || dup2(fd, place) < 0)
        fail(name);
    if (fd != place)
        (void) close(fd);
    names[count++] = name;
}

/* A file that nobody stores there. Nothing of these may be waited for. */
static int made(const char *kind)
{
    int fds[2] = {-1, -1}, fd = -1;

    if (strcmp(kind, "fifo") == 0) {
        (void) pipe(fds);
        return fds[0];
    }
    if (strcmp(kind, "socket") == 0) {
        (void) socketpair(AF_UNIX, SOCK_STREAM, 0, fds);
        return fds[0];
    }
    if (strcmp(kind, "folder") == 0)
        return open("/", O_RDONLY | O_DIRECTORY);
    if (strcmp(kind, "null") == 0 || strcmp(kind, "zero") == 0)
        return open(kind[0] == 'n' ? "/dev/null" : "/dev/zero", O_RDWR);
    if (strcmp(kind, "file") == 0)
        return open("/tmp", O_TMPFILE | O_RDWR, 0600);
    fd = memfd_create(kind, MFD_ALLOW_SEALING);
    if (strcmp(kind, "huge") == 0 && ftruncate(fd, (off_t) 1 << 50) < 0)
        fail(kind);
    if (strcmp(kind, "odd") == 0 && ftruncate(fd, 12345) < 0)
        fail(kind);
    return fd;
}

static void become(const char *name, const char *kind)
{
    int place = SD_LISTEN_FDS_START + find(name), fd = made(kind);
    char text[64];

    if (fd < 0 || dup2(fd, place) < 0)
        fail(kind);
    (void) close(fd);
    (void) sd_notifyf(0, "FDSTOREREMOVE=1\nFDNAME=%s", name);
    (void) sd_notify_barrier(0, 10000000);
    (void) snprintf(text, sizeof(text), "FDSTORE=1\nFDNAME=%s\nFDPOLL=0", name);
    (void) sd_pid_notify_with_fds(0, 0, text, &place, 1);
    (void) sd_notify_barrier(0, 10000000);
}

static void spoil(const char *what, char *argument, const char *kind)
{
    if (strcmp(what, "flip") == 0)
        flip("ledger", (off_t) strtoll(argument, NULL, 10));
    else if (strcmp(what, "garble") == 0)
        garble(argument);
    else if (strcmp(what, "cut") == 0 || strcmp(what, "hollow") == 0)
        cut(argument, what[0] == 'h');
    else if (strcmp(what, "version") == 0)
        version_write((uint32_t) strtoul(argument, NULL, 10));
    else if (strcmp(what, "lose") == 0)
        lose(argument);
    else if (strcmp(what, "extra") == 0)
        add_consume(argument, memfd_create("extra", 0));
    else if (strcmp(what, "twice") == 0)
        add_consume(argument, dup(SD_LISTEN_FDS_START + find(argument)));
    else if (strcmp(what, "become") == 0)
        become(argument, kind);
    else if (strcmp(what, "devices") == 0)
        (void) setenv("CUDA_VISIBLE_DEVICES", argument, 1);
    else if (strcmp(what, "env") == 0)
        (void) setenv(argument, kind, 1);
    else if (strcmp(what, "misname") == 0)
        misnamed = (int) strtol(argument, NULL, 10);
    else if (strcmp(what, "nofile") == 0)
        nofile(strtoul(argument, NULL, 10));
}

/* Lines of the file, which is there no more: its fd would stand in the way of others. */
static char *lines_take(const char *path)
{
    static char text[4096];
    FILE *file = path != NULL ? fopen(path, "re") : NULL;

    if (file == NULL)
        return NULL;
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    (void) fclose(file);
    (void) unlink(path);
    return text;
}

int main(int argc, char **argv)
{
    const char *broker = getenv("GMBD");
    char *lines = lines_take(getenv("GMBD_TAMPER")), *line;

    (void) argc;
    if (lines != NULL) {
        names_read();
        while ((line = strsep(&lines, "\n")) != NULL) {
            char *what = strsep(&line, " "), *argument = strsep(&line, " ");

            if (argument != NULL)
                spoil(what, argument, line != NULL ? line : "");
        }
        names_write();
    }
    (void) execv(broker, argv);
    fail(broker);
}
