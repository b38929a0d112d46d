/*
 * Closes what a peer had a hand in, away from the loop.
 *
 * close(2) of a socket drops the messages that nobody read, and with the last reference to a file
 * that travels in one comes the file's own end: a TCP socket with SO_LINGER holds the closing
 * thread for as long as its sender set. So the loop gives such fds away.
 *
 * The same holds for memory that a peer has a part in: whoever unmaps a file of memory last frees
 * its pages, and an arena's table has up to a gigabyte of them.
 *
 * closer_give(), closer_unmap() and closer_full() belong to the loop's thread and never block.
 */
#pragma once

#include "base/limits.h"
#include "base/macro.h"

struct closer;

/* Starts the thread. -errno. */
int closer_new(struct closer **ret) _must_check_;
/* Closes what was given and joins the thread: waits some 100 us for each at worst. NULL ok. */
struct closer *closer_free(struct closer *closer);

/*
 * Takes `fd` over. Its peer, if it is a socket, sees the end at once; -1 is ignored. `closer` may
 * be NULL: then it is closed here.
 */
void closer_give(struct closer *closer, int fd);
/* Takes over what mmap(2) has returned: unmaps it. `closer` may be NULL: then at once. */
void closer_unmap(struct closer *closer, void *memory, size_t bytes);
/* Whether LIMIT_CLOSING of them wait: time to take no more in. */
bool closer_full(const struct closer *closer);
