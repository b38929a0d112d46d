/* See request.h. */
#include "daemon/request.h"

#include <errno.h>
#include <search.h>
#include <string.h>

#include "daemon/arena_holder.h"
#include "daemon/segment_request.h"

static int id_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *) a, y = *(const uint64_t *) b;

    return x < y ? -1 : x > y;
}

static void request_free(void *data)
{
    struct request *request = data;

    (void) arena_free(request->arena);
    (void) arena_holder_free(request->holder);
    (void) segment_waiter_free(request->waiter);
    free(request);
}

int request_add(struct session *session, const struct request *like, const char *label)
{
    size_t length = strlen(label);
    struct request *request = malloc(sizeof(*request) + length + 1);
    void *node;

    if (request == NULL)
        return -ENOMEM;
    *request = *like;
    memcpy(request->label, label, length + 1);
    node = tsearch(request, &session->requests, id_compare);
    if (node == NULL || *(struct request **) node != request) {
        free(request);
        return node == NULL ? -ENOMEM : -EEXIST;
    }
    session->request_count++;
    return 0;
}

struct request *request_find(const struct session *session, uint64_t id)
{
    void *node = tfind(&id, &session->requests, id_compare);

    return node != NULL ? *(struct request **) node : NULL;
}

void request_remove(struct session *session, struct request *request)
{
    (void) tdelete(request, &session->requests, id_compare);
    request_free(request);
    session->request_count--;
}

void request_remove_all(struct session *session)
{
    tdestroy(session->requests, request_free);
    session->requests = NULL;
    session->request_count = 0;
}
