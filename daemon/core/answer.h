/* Actions of the step that runs, and the sentences of refusals. */
#pragma once

#include "daemon/core/types.h"

/* Actions that still fit. Whoever may yield many asks first and leaves the rest to the next. */
size_t answer_room(const struct core *core);
/* The next action, zeroed but for its type. There must be room. */
struct core_action *answer_add(struct core *core, enum core_action_type type);

/* GRANT of chunks [first, first + count) of the lease, to who asked. */
void answer_grant(struct core *core, const struct core_event *event, const struct lease *lease,
    uint32_t first, uint32_t count);
void answer_done(struct core *core, const struct core_event *event);
/* REFUSE for an event that never became a request. */
void answer_refuse(struct core *core, const struct core_event *event, enum gmb_status status,
    enum gmb_limit limit, const char *format, ...) _printf_(5, 6);
/* REFUSE for a request, with the sentence that its limit calls for. */
void answer_request_refuse(
    struct core *core, const struct request *request, enum gmb_status status);
