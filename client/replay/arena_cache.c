/*
 * What the next turn of a conversation does: the pages of a request that has ended are pinned,
 * wherever they are, and hold what was written. Then they go. In the order of their times, since
 * requests think equally long.
 */
#include <stdio.h>

#include "base/clock.h"
#include "client/replay/arena_request.h"

/* The first whose time has come, taken off the list; NULL when there is nothing more to do. */
static struct arena_request *next_due(struct arena_worker *worker)
{
    struct arena_request *request = NULL;

    (void) pthread_mutex_lock(&worker->lock);
    for (;;) {
        uint64_t due_ns = UINT64_MAX, now_ns = clock_now(&clock_monotonic);
        bool finish = worker->last_arrived && worker->unfinished == 0;
        struct timespec until;

        request = list_first(&worker->cached, struct arena_request, link);
        if (request != NULL)
            due_ns = finish || atomic_load(&worker->stopping) ? 0 : request->reread_ns;
        if (due_ns <= now_ns)
            break;
        if (request == NULL && finish && list_empty(&worker->ended))
            break;
        due_ns = MIN(due_ns, now_ns + NSEC_PER_SEC);
        until = (struct timespec){
            .tv_sec = (time_t) (due_ns / NSEC_PER_SEC), .tv_nsec = (long) (due_ns % NSEC_PER_SEC)};
        (void) pthread_cond_timedwait(&worker->cache_changed, &worker->lock, &until);
    }
    if (request != NULL)
        list_remove(&request->link);
    (void) pthread_mutex_unlock(&worker->lock);
    return request;
}

static void read_again(struct arena_request *request)
{
    struct arena_worker *worker = request->worker;
    struct pages *pages = &request->pages;
    enum pages_outcome outcome = pages_pin(pages, worker->params->wait_ns);

    switch (outcome) {
    case PAGES_OK:
        if (pages_check(pages))
            atomic_fetch_add(&worker->stats->reread, pages->count);
        break;
    case PAGES_LOST:
        atomic_fetch_add(&worker->stats->dropped, pages->count);
        break;
    case PAGES_SHORT:
        arena_fail(worker, "pages didn't come back in time");
        break;
    case PAGES_REFUSED:
    case PAGES_FAILED:
        break;
    }
}

void *arena_cache_main(void *user)
{
    struct arena_worker *worker = user;
    struct arena_request *request;
    struct gpu_error error;

    if (device_enter(worker->device, &error) < 0)
        arena_fail(worker, "cannot use the device: %s", error.text);
    while ((request = next_due(worker)) != NULL) {
        if (!atomic_load(&worker->stopping))
            read_again(request);
        pages_drop(&request->pages);
        (void) arena_request_free(request);
    }
    return NULL;
}
