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
 *     devices LIST      those alone are there, by number
 *
 * Then it becomes the broker, GMBD.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "daemon/ledger/ledger_format.h"

#define NAMES_MAX 256

static char *names[NAMES_MAX];
static int count;

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

    for (int i = 0; i < count; i++)
        at += (size_t) snprintf(text + at, sizeof(text) - at, "%s%s", i > 0 ? ":" : "", names[i]);
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

static void spoil(const char *what, char *argument)
{
    if (strcmp(what, "flip") == 0)
        flip("ledger", (off_t) strtoll(argument, NULL, 10));
    else if (strcmp(what, "garble") == 0)
        garble(argument);
    else if (strcmp(what, "version") == 0)
        version_write((uint32_t) strtoul(argument, NULL, 10));
    else if (strcmp(what, "lose") == 0)
        lose(argument);
    else if (strcmp(what, "extra") == 0)
        add_consume(argument, memfd_create("extra", 0));
    else if (strcmp(what, "twice") == 0)
        add_consume(argument, dup(SD_LISTEN_FDS_START + find(argument)));
    else if (strcmp(what, "devices") == 0)
        (void) setenv("CUDA_VISIBLE_DEVICES", argument, 1);
}

int main(int argc, char **argv)
{
    const char *path = getenv("GMBD_TAMPER"), *broker = getenv("GMBD");
    char what[16] = "", argument[64] = "";
    FILE *file = path != NULL ? fopen(path, "re") : NULL;

    (void) argc;
    if (file != NULL) {
        int found = fscanf(file, "%15s %63s", what, argument);

        (void) fclose(file);
        (void) unlink(path);
        names_read();
        if (found >= 1)
            spoil(what, argument);
        names_write();
    }
    (void) execv(broker, argv);
    fail(broker);
}
