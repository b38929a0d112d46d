/* See store.h. */
#include "daemon/keeper/store.h"

#include <errno.h>
#include <string.h>

#include "daemon/keeper/pass.h"

/* Left for the names of what the keeper itself adds: sockets, and at a handover its own. */
#define NAMES_SPARE_BYTES 4096

void store_init(struct store *store, size_t max)
{
    *store = (struct store){.max = max};
}

void store_clear(struct store *store)
{
    for (size_t i = 0; i < store->count; i++) {
        close_fd(&store->fds[i].fd);
        free(store->fds[i].name);
    }
    free(store->fds);
    *store = (struct store){.max = store->max};
}

bool store_name_valid(const char *name)
{
    size_t length = strlen(name);

    if (length == 0 || length > STORE_NAME_BYTES)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (name[i] < ' ' || name[i] > '~' || name[i] == ':')
            return false;
    }
    return true;
}

static int store_make_room(struct store *store)
{
    size_t room = store->room == 0 ? 64 : store->room * 2;
    struct stored_fd *fds;

    if (store->count >= store->max)
        return -ENFILE;
    if (store->count < store->room)
        return 0;
    fds = reallocarray(store->fds, room, sizeof(*fds));
    if (fds == NULL)
        return -ENOMEM;
    store->fds = fds;
    store->room = room;
    return 0;
}

int store_consume_fd(struct store *store, const char *name, int fd)
{
    _cleanup_close_ int owned = fd;
    char *copy;
    int r;

    if (!store_name_valid(name))
        return -EINVAL;
    if (store->names_bytes + strlen(name) + 1 > PASS_NAMES_BYTES - NAMES_SPARE_BYTES)
        return -E2BIG;
    r = store_make_room(store);
    if (r < 0)
        return r;
    copy = strdup(name);
    if (copy == NULL)
        return -ENOMEM;
    store->names_bytes += strlen(name) + 1;
    store->fds[store->count++] = (struct stored_fd){.fd = TAKE_FD(owned), .name = copy};
    return 0;
}

size_t store_remove(struct store *store, const char *name)
{
    size_t kept = 0, removed;

    for (size_t i = 0; i < store->count; i++) {
        if (strcmp(store->fds[i].name, name) != 0) {
            store->fds[kept++] = store->fds[i];
            continue;
        }
        close_fd(&store->fds[i].fd);
        free(store->fds[i].name);
        store->names_bytes -= strlen(name) + 1;
    }
    removed = store->count - kept;
    store->count = kept;
    return removed;
}
