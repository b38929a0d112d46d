/*
 * A reader is told once it knows the lease: behind the last of its grants, and when a session that
 * was away has resumed. So no list of who was told is kept; the text of the segment's own record,
 * which outlives the broker, says what is to be told. One frame for each reader, queued and bounded
 * as its other answers are.
 */
#include "daemon/segment_tell.h"

#include <stdio.h>

#include "daemon/broker.h"
#include "daemon/grant.h"
#include "daemon/message.h"
#include "daemon/segment_request.h"

static void tell(struct session *session, const struct segment *segment)
{
    Gmb__BrokerMessage message = GMB__BROKER_MESSAGE__INIT;
    char text[LIMIT_TEXT_BYTES];
    Gmb__SegmentQuarantined body;

    gmb__segment_quarantined__init(&body);
    (void) snprintf(text, sizeof(text), "%s", segment->text);
    body.lease = segment->lease;
    body.text = text;
    message.body_case = GMB__BROKER_MESSAGE__BODY_SEGMENT_QUARANTINED;
    message.segment_quarantined = &body;
    message_send(session, &message);
}

void segment_readers_tell(struct segment *segment)
{
    const struct broker *broker = segment->space->broker;

    list_for_each(session, &broker->sessions, struct session, link)
    {
        if (session->state == SESSION_ACTIVE &&
            core_holder_find(
                broker->core, segment->lease, segment_holder(session, segment->lease)) &&
            !grant_pending(session, segment->lease))
            tell(session, segment);
    }
}

void segment_reader_tell(struct session *session, core_id lease)
{
    const struct segment *segment = segment_held(session, lease);

    if (segment != NULL && segment->text[0] != '\0' && session->state == SESSION_ACTIVE)
        tell(session, segment);
}
