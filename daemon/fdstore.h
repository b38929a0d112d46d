/*
 * Fds that outlive the broker: whoever started it keeps them, systemd's fd store or gmbd-keeper,
 * and gives them to the next broker (sd_notify(3), sd_listen_fds(3)).
 *
 * There is a store where NOTIFY_SOCKET and FDSTORE are set: FDSTORE is how many fds it takes, set
 * by systemd from version 254 on, by the unit below that, and by the keeper. A full store says
 * nothing, so what lies there is counted here.
 *
 * fdstore_put(), fdstore_remove() and fdstore_barrier() send to that other process and may block on
 * it; they belong to the executor's threads, and to the start. They may be called from several.
 */
#pragma once

#include "base/limits.h"
#include "base/macro.h"

#define FDSTORE_NAME_BYTES 16
#define FDSTORE_ERROR_BYTES 256

/* Names end in a number in base 36: all of them travel in one string of the environment. */
enum fdstore_kind {
    FDSTORE_LEDGER,  /* `ledger`, without a number */
    FDSTORE_CHUNK,   /* number of the chunk */
    FDSTORE_TABLE,   /* number of the arena (arena_kept_name()): page table … */
    FDSTORE_EVENT,   /* … (with the holder's) what that one waits at … */
    FDSTORE_PAGES,   /* … and records of pages of an arena */
    FDSTORE_TIER,    /* number of the device in the ledger: host tier … */
    FDSTORE_DISK,    /* … and the file behind it */
    FDSTORE_SEGMENT, /* number of the segment: what is to be known of it */
    FDSTORE_KIND_MAX
};

/* Writes the name and returns it. */
const char *fdstore_name(char name[FDSTORE_NAME_BYTES], enum fdstore_kind kind, uint32_t number);
/* False for a name that isn't one of these. */
bool fdstore_name_parse(const char *name, enum fdstore_kind *ret_kind, uint32_t *ret_number);

struct fdstore;

/* An fd of an earlier broker. */
struct fdstore_item {
    enum fdstore_kind kind;
    uint32_t number;
    int fd;         /* owned by the store until it is taken; -1: it was */
    bool stored;    /* the service manager has it still */
    bool meant;     /* the caller's mark */
    bool ambiguous; /* another one has the same name: which is whose can't be told */
};

/*
 * `*ret` is NULL where there is no store: `error` is empty then, or says why what there is isn't
 * this process's. -EINVAL for a FDSTORE that is no number, -ENOMEM, with a sentence. Fds that were
 * inherited under names that mean nothing here are left alone: whoever wants those asks before.
 */
int fdstore_open(struct fdstore **ret, char error[FDSTORE_ERROR_BYTES]) _must_check_;
/* Closes inherited fds that were not taken. What is stored stays there. NULL ok, returns NULL. */
struct fdstore *fdstore_free(struct fdstore *store);

/* It takes no more than so many. */
void fdstore_bound(struct fdstore *store, size_t max);
/* How many fds it takes, and has; 0 for NULL. */
size_t fdstore_max(const struct fdstore *store);
size_t fdstore_count(struct fdstore *store);

/* Inherited fds, by kind and number. */
size_t fdstore_inherited(const struct fdstore *store, struct fdstore_item **ret_items);
/* NULL when there is none, or it was taken. */
struct fdstore_item *fdstore_find(
    const struct fdstore *store, enum fdstore_kind kind, uint32_t number);
/* Closes an inherited fd here; that in the store stays. */
void fdstore_close(struct fdstore_item *item);
/* What was inherited under that name, however many fds, is neither here any more, unless it was
 * taken, nor in the store: the name may be put again. Nothing where there was none. For start. */
void fdstore_forget(struct fdstore *store, enum fdstore_kind kind, uint32_t number);

/*
 * Gives a copy of the fd to the store, under a name that nothing there has. -ENOSPC when it is full
 * (or the names are more than can be passed on), other -errno when it can't be told; nothing is
 * stored then. 0 means that it was sent: it is there once fdstore_barrier() is 0.
 */
int fdstore_put(
    struct fdstore *store, enum fdstore_kind kind, uint32_t number, int fd) _must_check_;
/* Lets go of what was put under that name. When it can't be told, nothing is put any more. */
int fdstore_remove(struct fdstore *store, enum fdstore_kind kind, uint32_t number);
/* Waits until all that was sent before is done. -ETIMEDOUT after some seconds. */
int fdstore_barrier(struct fdstore *store);
