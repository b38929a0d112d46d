/* See segment_recover.h. */
#include "daemon/segment_recover.h"

#include <errno.h>

#include "daemon/broker.h"
#include "daemon/segment.h"

int segments_steward_restore(struct broker *broker, uint32_t tenant, core_id steward)
{
    struct segment_space *space = segment_space_get(broker, tenant);

    if (space == NULL)
        return -ENOMEM;
    space->steward = steward;
    return 0;
}

/* Its steward's part; of its readers each lets go when it resumes, or dies. */
static void lease_abandon(struct broker *broker, const struct core_lease_view *lease)
{
    struct segment_space *space = broker->segments->spaces[lease->tenant];
    struct core_event event = {
        .type = CORE_EVENT_LEASE_RELEASE,
        .lease_release.lease = lease->id,
    };

    if (space != NULL && core_holder_find(broker->core, lease->id, space->steward))
        (void) segment_steward_ask(space, &event, NULL);
}

void segments_recover(struct broker *broker)
{
    struct core_lease_view lease = {0};

    while (core_lease_next(broker->core, lease.id, &lease)) {
        if (lease.kind == CORE_LEASE_SEGMENT &&
            segment_of_lease(broker, lease.tenant, lease.id) == NULL)
            lease_abandon(broker, &lease);
    }
    for (uint32_t i = 0; i < LIMIT_TENANTS; i++)
        segments_note(broker, i);
}
