/* See absent.h. Guests go first: as long as one holds something, so does its host. */
#include "daemon/absent.h"

#include <event2/event.h>
#include <search.h>
#include <stdlib.h>

#include "base/log.h"
#include "daemon/broker.h"

/* A library that looks for the broker does so each second. */
#define GRACE_SECONDS 10

struct absent {
    struct broker *broker;
    struct event *look;
};

struct look {
    core_id *ids;
    size_t count, room;
    bool guests;
};

static void client_look(const void *node, VISIT visit, void *data)
{
    const struct client *client = *(struct client *const *) node;
    struct look *look = data;

    if ((visit == preorder || visit == leaf) && client->session == NULL &&
        (client->host != 0) == look->guests && look->count < look->room)
        look->ids[look->count++] = client->id;
}

static void guest_look(const void *node, VISIT visit, void *data)
{
    const struct client *client = *(struct client *const *) node;
    struct look *look = data;

    if ((visit == preorder || visit == leaf) && client->host != 0 && look->count < look->room)
        look->ids[look->count++] = client->host;
}

static int id_compare(const void *a, const void *b)
{
    core_id x = *(const core_id *) a, y = *(const core_id *) b;

    return x < y ? -1 : x > y;
}

/* The core lets go of those that hold nothing, and of no other. */
static uint32_t let_go(struct broker *broker, const struct look *look, const struct look *hosts)
{
    uint32_t gone = 0;

    for (size_t i = 0; i < look->count; i++) {
        struct core_event event = {.type = CORE_EVENT_CLIENT_DETACH, .client = look->ids[i]};

        if (bsearch(&look->ids[i], hosts->ids, hosts->count, sizeof(core_id), id_compare) != NULL)
            continue;
        broker_step(broker, &event);
        gone += client_find(broker, look->ids[i]) == NULL;
    }
    return gone;
}

static void on_look(evutil_socket_t fd, short what, void *data)
{
    struct absent *absent = data;
    struct broker *broker = absent->broker;
    struct look look = {.room = LIMIT_CLIENTS, .guests = true};
    struct look hosts = {.room = LIMIT_CLIENTS};
    uint32_t gone;

    (void) fd;
    (void) what;
    look.ids = calloc(look.room, sizeof(core_id));
    hosts.ids = calloc(hosts.room, sizeof(core_id));
    if (look.ids != NULL && hosts.ids != NULL) {
        twalk_r(broker->clients, client_look, &look);
        gone = let_go(broker, &look, &hosts);
        look.count = 0;
        look.guests = false;
        twalk_r(broker->clients, client_look, &look);
        twalk_r(broker->clients, guest_look, &hosts);
        qsort(hosts.ids, hosts.count, sizeof(core_id), id_compare);
        gone += let_go(broker, &look, &hosts);
        if (gone > 0)
            log_info("%u client%s of the broker before held nothing and didn't come back", gone,
                PLURAL_S(gone));
        broker_settle(broker);
    }
    free(look.ids);
    free(hosts.ids);
}

struct absent *absent_new(struct broker *broker)
{
    static const struct timeval grace = {.tv_sec = GRACE_SECONDS};
    struct absent *absent = calloc(1, sizeof(*absent));

    if (absent == NULL)
        return NULL;
    absent->broker = broker;
    absent->look = event_new(broker->base, -1, 0, on_look, absent);
    if (absent->look == NULL || event_add(absent->look, &grace) < 0)
        return absent_free(absent);
    return absent;
}

struct absent *absent_free(struct absent *absent)
{
    if (absent == NULL)
        return NULL;
    if (absent->look != NULL)
        event_free(absent->look);
    free(absent);
    return NULL;
}
