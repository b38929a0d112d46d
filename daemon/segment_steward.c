/* Stewards: the clients of the core's that hold what is to outlive every process. */
#include "daemon/broker.h"
#include "daemon/segment.h"
#include "proto/frame.h"

/* Ids of stewards' requests: a bit below those of other requests of the broker's own. */
#define STEWARD_ID (FRAME_BROKER_ID | UINT64_C(1) << 62)

static bool steward_make(struct segment_space *space)
{
    struct broker *broker = space->broker;
    struct core_event event = {.type = CORE_EVENT_CLIENT_ADD, .client_add.steward = true};
    const struct core_action *answer;
    struct core_tenant_view tenant;

    if (space->steward != 0)
        return true;
    if (!core_tenant_get(broker->core, space->tenant, &tenant))
        return false;
    event.client_add.tenant = tenant.name;
    answer = broker_ask(broker, &event);
    if (answer == NULL || answer->type != CORE_ACTION_CLIENT_ADDED) {
        broker->segments->refusal =
            answer != NULL ? *answer : (struct core_action){.type = CORE_ACTION_REFUSE};
        return false;
    }
    space->steward = answer->client;
    return true;
}

bool segment_steward_ask(
    struct segment_space *space, struct core_event *event, uint64_t *ret_request)
{
    struct segments *segments = space->broker->segments;

    if (!steward_make(space))
        return false;
    segments->refused = false;
    event->client = space->steward;
    event->request = STEWARD_ID | ++space->broker->fills;
    if (ret_request != NULL)
        *ret_request = event->request; /* before the answer, which may come within the step */
    broker_step(space->broker, event);
    return !segments->refused;
}

bool segment_steward_attach(struct segment *segment)
{
    struct core_event attach = {
        .type = CORE_EVENT_LEASE_ATTACH,
        .lease_attach.lease = segment->lease,
    };
    struct core_event share = {
        .type = CORE_EVENT_ARENA_SHARE,
        .arena_share.lease = segment->lease,
        .arena_share.count = segment->chunks,
    };

    return segment_steward_ask(segment->space, &attach, NULL) &&
           segment_steward_ask(segment->space, &share, NULL);
}

bool segment_steward_holds(const struct segment *segment)
{
    const struct segment_space *space = segment->space;

    return segment->lease != 0 && space->steward != 0 &&
           core_holder_find(space->broker->core, segment->lease, space->steward);
}

void segment_steward_release(struct segment *segment)
{
    struct core_event event = {
        .type = CORE_EVENT_LEASE_RELEASE,
        .lease_release.lease = segment->lease,
    };

    if (segment_steward_holds(segment))
        (void) segment_steward_ask(segment->space, &event, NULL);
}

bool segments_answer(struct broker *broker, const struct core_action *action)
{
    struct segments *segments = broker->segments;

    if ((action->request & STEWARD_ID) != STEWARD_ID)
        return false;
    if (action->type == CORE_ACTION_REFUSE) {
        segments->refused = true;
        segments->refusal = *action;
    }
    list_for_each(segment, &segments->all, struct segment, all_link)
    {
        if (segment->fill != action->request)
            continue;
        segment->filled = action->type == CORE_ACTION_GRANT ? 1 : -1;
        segment->refusal = *action;
        segments_note(broker, segment->space->tenant);
    }
    return true;
}
