/*
 * A set owns each fd from the moment it is handed over until it is taken or the set is closed;
 * taken places hold -1 and keep their index, so that fd i still belongs to item i of the message.
 */
#include "proto/fdset.h"

#include <errno.h>

int fdset_consume(struct fdset *set, int fd)
{
    if (set->count >= LIMIT_FRAME_FDS) {
        close_fd(&fd);
        return -EMSGSIZE;
    }
    set->fds[set->count++] = fd;
    return 0;
}

int fdset_take(struct fdset *set, size_t index)
{
    if (index >= set->count)
        return -1;
    return TAKE_FD(set->fds[index]);
}

void fdset_close(struct fdset *set)
{
    for (size_t i = 0; i < set->count; i++)
        close_fd(&set->fds[i]);
    set->count = 0;
}

void fdset_move(struct fdset *to, struct fdset *from)
{
    fdset_close(to);
    for (size_t i = 0; i < from->count; i++)
        to->fds[i] = TAKE_FD(from->fds[i]);
    to->count = from->count;
    from->count = 0;
}
