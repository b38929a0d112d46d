/* See pass.h. */
#include "daemon/keeper/pass.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

void pass_clear(struct pass *pass)
{
    free(pass->fds);
    free(pass->names);
    *pass = (struct pass){0};
}

static int pass_make_room(struct pass *pass)
{
    size_t room = pass->room == 0 ? 64 : pass->room * 2;
    int *fds;

    if (pass->names == NULL) {
        pass->names = malloc(PASS_NAMES_BYTES);
        if (pass->names == NULL)
            return -ENOMEM;
        pass->names[0] = '\0';
    }
    if (pass->count < pass->room)
        return 0;
    fds = reallocarray(pass->fds, room, sizeof(*fds));
    if (fds == NULL)
        return -ENOMEM;
    pass->fds = fds;
    pass->room = room;
    return 0;
}

int pass_add(struct pass *pass, const char *name, int fd)
{
    size_t separator = pass->count > 0;
    size_t length = strlen(name);
    int r = pass_make_room(pass);

    if (r < 0)
        return r;
    if (pass->names_bytes + separator + length >= PASS_NAMES_BYTES)
        return -E2BIG;
    if (separator)
        pass->names[pass->names_bytes++] = ':';
    memcpy(&pass->names[pass->names_bytes], name, length + 1);
    pass->names_bytes += length;
    pass->fds[pass->count++] = fd;
    return 0;
}

static int environment_set(const struct pass *pass, pid_t pid)
{
    char number[32];

    (void) snprintf(number, sizeof(number), "%zu", pass->count);
    if (setenv("LISTEN_FDS", number, 1) < 0)
        return -errno;
    (void) snprintf(number, sizeof(number), "%d", (int) pid);
    if (setenv("LISTEN_PID", number, 1) < 0)
        return -errno;
    return setenv("LISTEN_FDNAMES", pass->count > 0 ? pass->names : "", 1) < 0 ? -errno : 0;
}

int pass_apply(struct pass *pass, pid_t pid)
{
    int above = PASS_FIRST_FD + (int) pass->count;

    /* Out of the way first: a place may be taken by another of the list. */
    for (size_t i = 0; i < pass->count; i++) {
        int fd = fcntl(pass->fds[i], F_DUPFD_CLOEXEC, above);

        if (fd < 0)
            return -errno;
        (void) close(pass->fds[i]);
        pass->fds[i] = fd;
    }
    for (size_t i = 0; i < pass->count; i++) {
        int place = PASS_FIRST_FD + (int) i;

        if (dup2(pass->fds[i], place) < 0)
            return -errno;
        (void) close(pass->fds[i]);
        pass->fds[i] = place;
    }
    return environment_set(pass, pid);
}
