/* See client.h. Two search trees: clients by id in the broker, labels by lease in each client. */
#include "daemon/client.h"

#include <errno.h>
#include <event2/event.h>
#include <search.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "daemon/arena_holder.h"
#include "daemon/broker.h"

/* Both kinds of node begin with their id. */
static int id_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *) a, y = *(const uint64_t *) b;

    return x < y ? -1 : x > y;
}

/* The process is dead: whatever it held is gone, and nobody is asked. */
static void on_death(evutil_socket_t fd, short what, void *data)
{
    struct client *client = data;
    struct broker *broker = client->broker;
    struct core_event event = {.type = CORE_EVENT_CLIENT_DEAD, .client = client->id};

    (void) fd;
    (void) what;
    log_debug("client %llu (pid %d) is dead", (unsigned long long) client->id,
        (int) client->identity.pid);
    (void) event_del(client->death);
    if (client->session != NULL)
        session_doom(client->session, NULL);
    broker_step(broker, &event);
    broker_settle(broker);
}

int client_new_take(struct broker *broker, core_id id, const char *tenant, const char *program,
    struct identity *identity, struct client **ret)
{
    struct client *client = calloc(1, sizeof(*client));

    if (client == NULL)
        return -ENOMEM;
    if (getrandom(client->token + sizeof(id), sizeof(client->token) - sizeof(id), 0) < 0) {
        free(client);
        return -errno;
    }
    client->broker = broker;
    client->id = id;
    client->identity = IDENTITY_NONE;
    list_init(&client->holdings);
    list_init(&client->noted_link);
    (void) snprintf(client->tenant, sizeof(client->tenant), "%s", tenant);
    (void) snprintf(client->program, sizeof(client->program), "%s", program);
    client->death =
        event_new(broker->base, identity->pidfd, EV_READ | EV_PERSIST, on_death, client);
    if (client->death == NULL || event_add(client->death, NULL) < 0 ||
        tsearch(client, &broker->clients, id_compare) == NULL) {
        (void) client_free(client);
        return -ENOMEM;
    }
    client->identity = *identity;
    *identity = IDENTITY_NONE;
    memcpy(client->token, &id, sizeof(id));
    *ret = client;
    return 0;
}

struct client *client_by_token(
    const struct broker *broker, const uint8_t *token, size_t size, const struct identity *identity)
{
    struct client *client;
    core_id id;

    if (size != CLIENT_TOKEN_BYTES)
        return NULL;
    memcpy(&id, token, sizeof(id));
    client = client_find(broker, id);
    if (client == NULL || memcmp(client->token, token, CLIENT_TOKEN_BYTES) != 0 ||
        client->identity.pid != identity->pid ||
        client->identity.start_ticks != identity->start_ticks)
        return NULL;
    return client;
}

struct client *client_free(struct client *client)
{
    if (client == NULL)
        return NULL;
    if (client_find(client->broker, client->id) == client)
        (void) tdelete(client, &client->broker->clients, id_compare);
    list_for_each_safe(holder, &client->holdings, struct arena_holder, client_link)
        arena_leave(holder);
    list_remove(&client->noted_link);
    if (client->death != NULL)
        event_free(client->death);
    tdestroy(client->labels, free);
    identity_clear(&client->identity);
    free(client);
    return NULL;
}

struct client *client_find(const struct broker *broker, core_id id)
{
    void *node = tfind(&id, &broker->clients, id_compare);

    return node != NULL ? *(struct client **) node : NULL;
}

struct session *client_session(const struct client *client)
{
    struct session *session = client->session;

    return session != NULL && session->state == SESSION_ACTIVE ? session : NULL;
}

void client_label_set(struct client *client, core_id lease, const char *text)
{
    void *node = tfind(&lease, &client->labels, id_compare);
    struct label *label = node != NULL ? *(struct label **) node : NULL;
    size_t length = strlen(text);

    if (label != NULL) {
        (void) tdelete(label, &client->labels, id_compare);
        free(label);
    }
    if (length == 0)
        return;
    label = malloc(sizeof(*label) + length + 1);
    if (label == NULL)
        return;
    label->lease = lease;
    memcpy(label->text, text, length + 1);
    if (tsearch(label, &client->labels, id_compare) == NULL)
        free(label);
}

const char *client_label_get(const struct client *client, core_id lease)
{
    void *node = tfind(&lease, &client->labels, id_compare);

    return node != NULL ? (*(struct label **) node)->text : "";
}
