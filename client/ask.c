/* A request that isn't answered in time is left to the seat, which takes back what still comes. */
#include "client/ask.h"

#include "base/clock.h"
#include "client/request.h"
#include "client/wait.h"

int request_ask(struct gmb_session *session, struct request *request, struct outcome *outcome)
{
    return request_ask_for(session, request, 0, outcome);
}

int request_ask_for(
    struct gmb_session *session, struct request *request, uint64_t wait_ns, struct outcome *outcome)
{
    int r;

    request->deadline_ns =
        add_saturate(clock_now(&clock_monotonic), add_saturate(wait_ns, session->timeout_ns));
    (void) pthread_mutex_lock(&session->lock);
    r = request_submit(session, request, outcome);
    (void) pthread_mutex_unlock(&session->lock);
    if (r < 0) {
        request_free(request);
        return r;
    }
    r = request_await(session, request, outcome);
    if (r < 0 || request->outcome.code == 0)
        return r;
    *outcome = request->outcome;
    request_free(request);
    return outcome->code;
}
