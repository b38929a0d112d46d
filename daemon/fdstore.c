/*
 * See fdstore.h. Whoever starts a broker can't start it with more than 128 KiB of names, so a name
 * is a letter and few digits, and bytes are counted like fds.
 */
#include "daemon/fdstore.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

/* What Linux takes as one string of an environment, less room for other names and its own. */
#define NAMES_BYTES_MAX (120u * 1024u)
#define BARRIER_USEC UINT64_C(5000000)

/* In upper case: sockets are passed on in the same way, and nobody names one so. */
static const char letters[] = {
    [FDSTORE_CHUNK] = 'C',
    [FDSTORE_TABLE] = 'T',
    [FDSTORE_EVENT] = 'E',
    [FDSTORE_PAGES] = 'P',
    [FDSTORE_TIER] = 'H',
    [FDSTORE_DISK] = 'D',
    [FDSTORE_SEGMENT] = 'S',
};
_Static_assert(ARRAY_SIZE(letters) == FDSTORE_KIND_MAX, "every kind has a letter");
#define LEDGER_NAME "ledger"

struct fdstore {
    size_t max;
    pthread_mutex_t mutex;
    size_t count, names_bytes; /* under the mutex, and so is: */
    bool broken;               /* something couldn't be removed: its name is taken */
    struct fdstore_item *items;
    size_t item_count;
};

const char *fdstore_name(char name[FDSTORE_NAME_BYTES], enum fdstore_kind kind, uint32_t number)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    char reversed[8];
    size_t count = 0, at = 0;

    if (kind == FDSTORE_LEDGER) {
        memcpy(name, LEDGER_NAME, sizeof(LEDGER_NAME));
        return name;
    }
    do {
        reversed[count++] = digits[number % 36];
        number /= 36;
    } while (number > 0);
    name[at++] = letters[kind];
    while (count > 0)
        name[at++] = reversed[--count];
    name[at] = '\0';
    return name;
}

bool fdstore_name_parse(const char *name, enum fdstore_kind *ret_kind, uint32_t *ret_number)
{
    char again[FDSTORE_NAME_BYTES];
    uint64_t number = 0;

    if (strcmp(name, LEDGER_NAME) == 0) {
        *ret_kind = FDSTORE_LEDGER;
        *ret_number = 0;
        return true;
    }
    for (const char *at = name + 1; name[0] != '\0' && *at != '\0'; at++) {
        if (*at >= '0' && *at <= '9')
            number = number * 36 + (uint64_t) (*at - '0');
        else if (*at >= 'a' && *at <= 'z')
            number = number * 36 + (uint64_t) (*at - 'a') + 10;
        else
            return false;
        if (number > UINT32_MAX)
            return false;
    }
    for (unsigned kind = FDSTORE_CHUNK; kind < FDSTORE_KIND_MAX; kind++) {
        if (strcmp(fdstore_name(again, (enum fdstore_kind) kind, (uint32_t) number), name) != 0)
            continue;
        *ret_kind = (enum fdstore_kind) kind;
        *ret_number = (uint32_t) number;
        return true;
    }
    return false;
}

/* ------------------------------------------------------------------ what was inherited */

static int item_compare(const void *a, const void *b)
{
    const struct fdstore_item *x = a, *y = b;

    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static void names_free(char **names, int count)
{
    for (int i = 0; i < count; i++)
        free(names[i]);
    free(names);
}

static size_t name_bytes(enum fdstore_kind kind, uint32_t number)
{
    char name[FDSTORE_NAME_BYTES];

    return strlen(fdstore_name(name, kind, number)) + 1;
}

static int inherit(struct fdstore *store)
{
    char **names = NULL;
    int count = sd_listen_fds_with_names(0, &names);

    if (count < 0)
        return count;
    store->items = calloc(MAX((size_t) count, (size_t) 1), sizeof(*store->items));
    if (store->items == NULL) {
        names_free(names, count);
        return -ENOMEM;
    }
    for (int i = 0; i < count; i++) {
        struct fdstore_item *item = &store->items[store->item_count];

        if (!fdstore_name_parse(names[i], &item->kind, &item->number))
            continue;
        item->fd = SD_LISTEN_FDS_START + i;
        item->stored = true;
        store->item_count++;
        store->names_bytes += name_bytes(item->kind, item->number);
    }
    names_free(names, count);
    store->count = store->item_count;
    qsort(store->items, store->item_count, sizeof(*store->items), item_compare);
    for (size_t i = 1; i < store->item_count; i++) {
        if (item_compare(&store->items[i - 1], &store->items[i]) == 0)
            store->items[i - 1].ambiguous = store->items[i].ambiguous = true;
    }
    return 0;
}

/* What it was given for another process, this one may have from its parent. To put anything into
 * that one's store would be to give it a second fd of a name that it has. */
static bool passed_to_another(char error[FDSTORE_ERROR_BYTES])
{
    const char *pid = getenv("LISTEN_PID");

    if (pid == NULL || strtol(pid, NULL, 10) == (long) getpid())
        return false;
    (void) snprintf(error, FDSTORE_ERROR_BYTES,
        "LISTEN_PID=%.20s in the environment is another process: the fds that were passed to it "
        "and its fd store are left alone",
        pid);
    return true;
}

int fdstore_open(struct fdstore **ret, char error[FDSTORE_ERROR_BYTES])
{
    const char *max = getenv("FDSTORE"), *socket = getenv("NOTIFY_SOCKET");
    struct fdstore *store;
    unsigned long value;
    char *end;
    int r;

    *ret = NULL;
    error[0] = '\0';
    if (max == NULL || socket == NULL || socket[0] == '\0' || passed_to_another(error))
        return 0;
    errno = 0;
    value = strtoul(max, &end, 10);
    if (errno != 0 || end == max || *end != '\0' || max[0] == '-') {
        (void) snprintf(error, FDSTORE_ERROR_BYTES,
            "FDSTORE=%.64s in the environment is no number of file descriptors", max);
        return -EINVAL;
    }
    if (value == 0)
        return 0;
    store = calloc(1, sizeof(*store));
    r = store == NULL ? -ENOMEM : 0;
    if (r == 0) {
        store->max = value;
        (void) pthread_mutex_init(&store->mutex, NULL);
        r = inherit(store);
    }
    if (r < 0) {
        (void) snprintf(error, FDSTORE_ERROR_BYTES,
            "inherited file descriptors can't be taken over: %s", strerror(-r));
        (void) fdstore_free(store);
        return r;
    }
    *ret = store;
    return 0;
}

struct fdstore *fdstore_free(struct fdstore *store)
{
    if (store == NULL)
        return NULL;
    for (size_t i = 0; i < store->item_count; i++)
        close_fd(&store->items[i].fd);
    free(store->items);
    (void) pthread_mutex_destroy(&store->mutex);
    free(store);
    return NULL;
}

void fdstore_bound(struct fdstore *store, size_t max)
{
    store->max = MIN(store->max, max);
}

size_t fdstore_max(const struct fdstore *store)
{
    return store != NULL ? store->max : 0;
}

size_t fdstore_count(struct fdstore *store)
{
    size_t count;

    if (store == NULL)
        return 0;
    (void) pthread_mutex_lock(&store->mutex);
    count = store->count;
    (void) pthread_mutex_unlock(&store->mutex);
    return count;
}

size_t fdstore_inherited(const struct fdstore *store, struct fdstore_item **ret_items)
{
    *ret_items = store->items;
    return store->item_count;
}

struct fdstore_item *fdstore_find(
    const struct fdstore *store, enum fdstore_kind kind, uint32_t number)
{
    struct fdstore_item key = {.kind = kind, .number = number}, *item;

    item = bsearch(&key, store->items, store->item_count, sizeof(key), item_compare);
    return item != NULL && item->fd >= 0 ? item : NULL;
}

void fdstore_close(struct fdstore_item *item)
{
    close_fd(&item->fd);
}

/* ------------------------------------------------------------------ to the store */

/* Room for one more of that name. */
static int reserve(struct fdstore *store, size_t bytes)
{
    int r = 0;

    (void) pthread_mutex_lock(&store->mutex);
    if (store->broken)
        r = -ENOTCONN;
    else if (store->count >= store->max || store->names_bytes + bytes > NAMES_BYTES_MAX)
        r = -ENOSPC;
    if (r == 0) {
        store->count++;
        store->names_bytes += bytes;
    }
    (void) pthread_mutex_unlock(&store->mutex);
    return r;
}

static void unreserve(struct fdstore *store, size_t count, size_t bytes, bool broken)
{
    (void) pthread_mutex_lock(&store->mutex);
    store->count = sub_saturate(store->count, count);
    store->names_bytes = sub_saturate(store->names_bytes, count * bytes);
    store->broken |= broken;
    (void) pthread_mutex_unlock(&store->mutex);
}

int fdstore_put(struct fdstore *store, enum fdstore_kind kind, uint32_t number, int fd)
{
    char name[FDSTORE_NAME_BYTES], text[80];
    size_t bytes = name_bytes(kind, number);
    int r = reserve(store, bytes);

    if (r < 0)
        return r;
    /* FDPOLL=0: an fd of the driver's may look hung up to poll(2) and isn't. */
    (void) snprintf(
        text, sizeof(text), "FDSTORE=1\nFDNAME=%s\nFDPOLL=0", fdstore_name(name, kind, number));
    r = sd_pid_notify_with_fds(0, 0, text, &fd, 1);
    if (r > 0)
        return 0;
    unreserve(store, 1, bytes, false);
    return r < 0 ? r : -ENOTCONN;
}

/* All `count` that have the name. */
static int name_remove(struct fdstore *store, enum fdstore_kind kind, uint32_t number, size_t count)
{
    char name[FDSTORE_NAME_BYTES], text[80];
    int r;

    (void) snprintf(
        text, sizeof(text), "FDSTOREREMOVE=1\nFDNAME=%s", fdstore_name(name, kind, number));
    r = sd_notify(0, text);
    unreserve(store, count, name_bytes(kind, number), r <= 0);
    return r > 0 ? 0 : r < 0 ? r : -ENOTCONN;
}

int fdstore_remove(struct fdstore *store, enum fdstore_kind kind, uint32_t number)
{
    return name_remove(store, kind, number, 1);
}

void fdstore_forget(struct fdstore *store, enum fdstore_kind kind, uint32_t number)
{
    const struct fdstore_item key = {.kind = kind, .number = number};
    struct fdstore_item *end = store->items + store->item_count, *item;
    size_t stored = 0;

    item = bsearch(&key, store->items, store->item_count, sizeof(key), item_compare);
    while (item != NULL && item > store->items && item_compare(item - 1, &key) == 0)
        item--;
    for (; item != NULL && item < end && item_compare(item, &key) == 0; item++) {
        stored += item->stored;
        item->stored = false;
        close_fd(&item->fd);
    }
    if (stored > 0)
        (void) name_remove(store, kind, number, stored);
}

int fdstore_barrier(struct fdstore *store)
{
    int r = sd_notify_barrier(0, BARRIER_USEC);

    (void) store;
    return r > 0 ? 0 : r < 0 ? r : -ENOTCONN;
}
