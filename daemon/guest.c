/* See guest.h. */
#include "daemon/guest.h"

#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <stdio.h>
#include <string.h>

#include "daemon/broker.h"
#include "daemon/message.h"
#include "daemon/persist.h"

/* Of the same process: a copy. */
static int identity_dup(const struct identity *from, struct identity *ret)
{
    _cleanup_identity_ struct identity copy = *from;

    copy.pidfd = fcntl(from->pidfd, F_DUPFD_CLOEXEC, 3);
    copy.groups = NULL;
    copy.group_count = 0;
    copy.cgroup = strdup(from->cgroup);
    copy.unit = strdup(from->unit);
    if (copy.pidfd < 0)
        return -errno;
    if (copy.cgroup == NULL || copy.unit == NULL)
        return -ENOMEM;
    *ret = copy;
    copy = IDENTITY_NONE;
    return 0;
}

static int guest_make(struct session *session, core_id id, const char *group, uint32_t tenant)
{
    _cleanup_identity_ struct identity identity = IDENTITY_NONE;
    const struct client *client = session->client;
    int r = identity_dup(&client->identity, &identity);

    if (r == 0)
        r = client_new_take(
            session->broker, id, group, client->program, &identity, &session->guest);
    if (r < 0)
        return r;
    session->guest->tenant_index = tenant;
    session->guest->session = session;
    session->guest->host = client->id;
    persist_client(session->broker, session->guest);
    return 0;
}

bool guest_belongs(const struct session *session)
{
    const char *group = config_group(session->broker->config, session->client->tenant);

    return group != NULL && strcmp(group, session->guest->tenant) == 0;
}

void guest_detach(struct broker *broker, struct client *client, struct client *guest)
{
    core_id id = guest != NULL ? guest->id : 0;

    /* The session is gone: what the first step grants isn't answered there. */
    if (client != NULL)
        client->session = NULL;
    if (guest != NULL)
        broker_detach(broker, guest, false);
    if (client != NULL)
        broker_detach(broker, client, id != 0 && client_find(broker, id) != NULL);
}

struct client *guest_get(struct session *session, uint64_t request)
{
    struct broker *broker = session->broker;
    const char *group = config_group(broker->config, session->client->tenant);
    struct core_event event = {.type = CORE_EVENT_CLIENT_ADD, .client_add.tenant = group};
    const struct core_action *answer;
    uint32_t tenant;

    if (group == NULL) {
        message_refuse(session, request, GMB_STATUS_DENIED, GMB_LIMIT_PERMISSION, 0, 0,
            "the tenant is in no share group");
        return NULL;
    }
    if (session->guest != NULL && strcmp(session->guest->tenant, group) == 0)
        return session->guest;
    if (session->guest != NULL) {
        message_refuse_plainly(session, request, GMB_STATUS_CONFLICT,
            "the tenant's share group was changed: connect anew");
        return NULL;
    }
    answer = broker_ask(broker, &event);
    if (answer == NULL || answer->type != CORE_ACTION_CLIENT_ADDED ||
        !core_tenant_find(broker->core, group, &tenant)) {
        if (answer != NULL && answer->type == CORE_ACTION_REFUSE)
            message_refuse(session, request, answer->refuse.status, answer->refuse.limit,
                answer->refuse.requested_bytes, answer->refuse.available_bytes,
                answer->refuse.text);
        return NULL;
    }
    if (guest_make(session, answer->client, group, tenant) < 0) {
        struct core_event dead = {.type = CORE_EVENT_CLIENT_DEAD, .client = answer->client};

        broker_step(broker, &dead);
        message_refuse_plainly(session, request, GMB_STATUS_INTERNAL,
            "the broker has no memory or file descriptor for it");
        return NULL;
    }
    return session->guest;
}

struct search {
    core_id host;
    struct client *found;
};

static void client_look(const void *node, VISIT visit, void *data)
{
    struct client *client = *(struct client *const *) node;
    struct search *search = data;

    if (visit != preorder && visit != leaf)
        return;
    if (client->host == search->host)
        search->found = client;
}

void guest_come_back(struct session *session)
{
    struct broker *broker = session->broker;
    struct search search = {session->client->id, NULL};
    struct core_event event = {.type = CORE_EVENT_CLIENT_ATTACH};

    twalk_r(broker->clients, client_look, &search);
    if (search.found == NULL)
        return;
    session->guest = search.found;
    session->guest->session = session;
    event.client = session->guest->id;
    broker_step(broker, &event);
}
