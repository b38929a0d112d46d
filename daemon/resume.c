/*
 * See resume.h. Each Resume is applied as it comes: what it says of a lease is true whether or not
 * the next one comes too. Leases that none of them named end with the last.
 *
 * The core is asked by events, as a client asks, under ids of the broker's own that nobody waits
 * for.
 */
#include "daemon/resume.h"

#include <errno.h>
#include <search.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "daemon/arena_message.h"
#include "daemon/arena_resume.h"
#include "daemon/broker.h"
#include "daemon/device.h"
#include "daemon/guest.h"
#include "daemon/message.h"
#include "daemon/persist.h"
#include "daemon/revoke.h"
#include "daemon/segment_request.h"
#include "daemon/segment_tell.h"
#include "proto/frame.h"

/* A lease that the client has. */
struct named {
    core_id lease; /* first: the key */
    uint32_t next; /* of an arena: indices below are told */
};

static int named_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *) a, y = *(const uint64_t *) b;

    return x < y ? -1 : x > y;
}

static struct named *named_find(const struct session *session, core_id lease)
{
    void *node = tfind(&lease, &session->named, named_compare);

    return node != NULL ? *(struct named **) node : NULL;
}

/* NULL without memory. */
static struct named *named_add(struct session *session, core_id lease)
{
    struct named *named = malloc(sizeof(*named));

    if (named == NULL)
        return NULL;
    *named = (struct named){.lease = lease};
    if (tsearch(named, &session->named, named_compare) == NULL) {
        free(named);
        return NULL;
    }
    return named;
}

void resume_forget(struct session *session)
{
    tdestroy(session->named, free);
    session->named = NULL;
}

/* ------------------------------------------------------------------ hello */

/* The connection before is still there, or was until this very moment. */
static void old_session_end(struct client *client)
{
    struct session *old = client->session;
    struct client *guest;

    if (old == NULL)
        return;
    session_doom(old, NULL);
    pressure_leave(old);
    guest = TAKE_PTR(old->guest);
    old->client = NULL;
    guest_detach(client->broker, client, guest);
}

/* What it says that it hasn't mapped can't be taken back while the mover is at work there. True
 * after an answer. */
static bool pages_move(struct session *session, const struct client *client, uint64_t id)
{
    list_for_each(holder, &client->holdings, struct arena_holder, client_link)
    {
        if (!arena_leaving_busy(holder->arena, client->id))
            continue;
        message_refuse_plainly(session, id, GMB_STATUS_EXHAUSTED,
            "pages of an arena are still being moved: come again in a moment");
        session_doom(session, NULL);
        return true;
    }
    return false;
}

bool resume_hello(struct session *session, const Gmb__ClientMessage *message)
{
    const Gmb__Hello *hello = message->hello;
    struct broker *broker = session->broker;
    struct core_event event = {.type = CORE_EVENT_CLIENT_ATTACH};
    _cleanup_fdset_ struct fdset page = FDSET_EMPTY;
    struct pressure_tenant *record;
    struct client *client =
        client_by_token(broker, hello->token.data, hello->token.len, &session->identity);
    int r;

    if (client == NULL)
        return false;
    event.client = client->id;
    old_session_end(client);
    /* One that held nothing ended with its connection. */
    if (client_find(broker, event.client) == NULL)
        return false;
    if (pages_move(session, client, message->id))
        return true;
    r = message_page_open(broker, client->tenant_index, &record, &page);
    if (r < 0) {
        message_refuse_plainly(session, message->id, GMB_STATUS_EXHAUSTED,
            "the broker has no file descriptor left for the status page");
        session_doom(session, NULL);
        return true;
    }
    session->client = client;
    identity_clear(&session->identity);
    (void) snprintf(client->program, sizeof(client->program), "%s", hello->program);
    broker_step(broker, &event);
    pressure_join(session, record);
    session_resume(session);
    guest_come_back(session);
    log_debug("client %llu of tenant %s (pid %d) is back", (unsigned long long) client->id,
        client->tenant, (int) client->identity.pid);
    message_welcome(session, message->id, true, &page);
    return true;
}

/* ------------------------------------------------------------------ what it has */

static void event_do(struct session *session, struct core_event *event)
{
    if (event->client == 0)
        event->client = session->client->id;
    event->request = FRAME_BROKER_ID | ++session->broker->fills;
    broker_step(session->broker, event);
}

/* NULL when it is no arena that the broker has gone on with. */
static struct arena_holder *holder_find(const struct session *session, core_id lease)
{
    const struct arena *arena = arena_find(session->broker, lease);

    return arena != NULL ? arena_holder_find(arena, session->client->id) : NULL;
}

/* `held`: the client has it mapped, and the broker can't go on with it. */
static void lease_end(struct session *session, core_id lease, bool held)
{
    struct core_event event = {
        .type = CORE_EVENT_LEASE_RELEASE,
        .lease_release = {.lease = lease, .held = held},
        .client = segment_holder(session, lease),
    };
    struct arena_holder *holder = holder_find(session, lease);

    event_do(session, &event);
    client_label_set(session->client, lease, "");
    segments_note(session->broker, client_find(session->broker, event.client)->tenant_index);
    if (holder != NULL)
        arena_leave(holder);
}

/* False when the broker can't go on with it. One that is still being written goes on, too. */
static bool segment_resumes(
    struct session *session, const struct core_lease_view *lease, const Gmb__HeldLease *held)
{
    return segment_of_lease(session->broker, lease->tenant, lease->id) != NULL &&
           held->chunks == lease->chunks && held->n_runs == 0;
}

/* The same. */
static bool workspace_held(
    struct session *session, const struct core_lease_view *lease, const Gmb__HeldLease *held)
{
    struct core_event event = {
        .type = CORE_EVENT_LEASE_SHRINK,
        .lease_shrink = {.lease = lease->id, .keep_chunks = held->chunks},
    };

    if (held->chunks == 0 || held->chunks > lease->chunks)
        return false;
    if (held->chunks < lease->chunks)
        event_do(session, &event);
    return true;
}

/* Runs of an arena; false for runs that make no sense. */
static bool arena_held_runs(
    struct arena_holder *holder, struct named *named, const Gmb__HeldLease *held)
{
    uint32_t max = holder->arena->table.layout.max_chunks;

    if (held->n_runs % 2 != 0)
        return false;
    for (size_t i = 0; i < held->n_runs; i += 2) {
        uint32_t first = held->runs[i], count = held->runs[i + 1];

        if (first < named->next || count == 0 || first >= max || count > max - first ||
            !arena_resume(holder, named->next, first, first + count))
            return false;
        named->next = first + count;
    }
    return true;
}

/* False: it is lost. */
static bool lease_held(struct session *session, const Gmb__HeldLease *held)
{
    struct named *named = named_find(session, held->lease);
    struct arena_holder *holder = holder_find(session, held->lease);
    struct core_lease_view lease;

    if (!core_lease_get(session->broker->core, held->lease, &lease) ||
        !core_holder_find(session->broker->core, held->lease, segment_holder(session, held->lease)))
        return false;
    if (named == NULL && (holder != NULL || lease.kind != CORE_LEASE_ARENA)) {
        named = named_add(session, held->lease);
        if (named != NULL &&
            (holder != NULL                        ? arena_held_runs(holder, named, held)
                : lease.kind == CORE_LEASE_SEGMENT ? segment_resumes(session, &lease, held)
                                                   : workspace_held(session, &lease, held)))
            return true;
    } else if (named != NULL && holder != NULL && arena_held_runs(holder, named, held)) {
        return true;
    }
    lease_end(session, held->lease, true);
    return false;
}

static void unsaid_take_of(struct session *session, core_id client)
{
    const struct core *core = session->broker->core;
    core_id lease = 0, next;

    while (core_client_lease_next(core, client, lease, &next)) {
        const struct named *named = named_find(session, next);
        struct arena_holder *holder = holder_find(session, next);

        if (named == NULL) {
            lease_end(session, next, false);
            continue;
        }
        lease = next;
        if (holder != NULL)
            (void) arena_resume(holder, named->next, holder->arena->table.layout.max_chunks,
                holder->arena->table.layout.max_chunks);
    }
}

/* Every lease and index of which nothing was said goes back. */
static void unsaid_take(struct session *session)
{
    unsaid_take_of(session, session->client->id);
    if (session->guest != NULL)
        unsaid_take_of(session, session->guest->id);
    resume_forget(session);
}

/* What became of its segments while it was away. */
static void segments_tell(struct session *session, core_id client)
{
    const struct core *core = session->broker->core;
    struct core_lease_view view;
    core_id lease = 0;

    while (core_client_lease_next(core, client, lease, &lease)) {
        if (core_lease_get(core, lease, &view) && view.kind == CORE_LEASE_SEGMENT)
            segment_reader_tell(session, lease);
    }
}

static void resume_end(struct session *session)
{
    session_activate(session);
    device_failures_tell(session);
    list_for_each_safe(holder, &session->client->holdings, struct arena_holder, client_link)
        arena_resume_end(holder);
    segments_tell(session, session->client->id);
    if (session->guest != NULL)
        segments_tell(session, session->guest->id);
    for (size_t i = 0; i < session->broker->device_count; i++)
        revoke_tell(session->broker->hosting[i], session->client);
}

void on_resume(struct session *session, const Gmb__ClientMessage *message)
{
    const Gmb__Resume *body = message->resume;
    Gmb__BrokerMessage answer = GMB__BROKER_MESSAGE__INIT;
    Gmb__Resumed resumed = GMB__RESUMED__INIT;
    uint64_t *lost;

    if (pages_move(session, session->client, message->id))
        return;
    lost = calloc(body->n_held + 1, sizeof(*lost));
    if (lost == NULL) {
        session_doom(session, "the broker has no host memory to hear what it has mapped");
        return;
    }
    for (size_t i = 0; i < body->n_held; i++) {
        if (!lease_held(session, body->held[i]))
            lost[resumed.n_lost++] = body->held[i]->lease;
    }
    if (resumed.n_lost > 0)
        log_warning("client %llu (tenant %s, pid %d): the broker can't go on with %zu of its "
                    "leases; it keeps what it has mapped",
            (unsigned long long) session->client->id, session->client->tenant,
            (int) session->client->identity.pid, resumed.n_lost);
    if (body->last)
        unsaid_take(session);
    resumed.lost = lost;
    answer.id = message->id;
    answer.body_case = GMB__BROKER_MESSAGE__BODY_RESUMED;
    answer.resumed = &resumed;
    message_send(session, &answer);
    free(lost);
    if (body->last && session->state == SESSION_RESUMING)
        resume_end(session);
}

/* ------------------------------------------------------------------ what was done before */

bool resume_done(struct session *session, uint64_t id, core_id lease)
{
    if (!session->resumed ||
        core_holder_find(session->broker->core, lease, segment_holder(session, lease)))
        return false;
    message_done(session, id);
    return true;
}

bool resume_returned(
    struct session *session, uint64_t id, core_id lease, uint32_t first, uint32_t count)
{
    const struct core *core = session->broker->core;
    core_id client = session->client->id;
    struct core_lease_view view;

    if (!session->resumed || !core_holder_find(core, lease, client) ||
        !core_lease_get(core, lease, &view) || count == 0 || first >= view.max_chunks ||
        count > view.max_chunks - first)
        return false;
    for (uint32_t i = first; i < first + count; i++) {
        if (core_holder_has(core, lease, client, i))
            return false;
    }
    message_done(session, id);
    return true;
}
