/* A request that isn't answered in time is left to the seat, which takes back what still comes. */
#include "client/ask.h"

#include "base/clock.h"
#include "client/request.h"
#include "client/wait.h"

int request_ask(struct gmb_session *session, struct request *request, struct outcome *outcome)
{
    uint64_t deadline_ns = add_saturate(clock_now(&clock_monotonic), session->timeout_ns);
    bool answered;
    int r;

    (void) pthread_mutex_lock(&session->lock);
    r = request_submit(session, request, outcome);
    if (r < 0) {
        (void) pthread_mutex_unlock(&session->lock);
        request_free(request);
        return r;
    }
    while (!request->answered && clock_now(&clock_monotonic) < deadline_ns)
        session_step(session, deadline_ns);
    answered = request->answered;
    if (!answered)
        request_abandon(session, request);
    (void) pthread_mutex_unlock(&session->lock);
    if (!answered)
        return outcome_set(
            outcome, GMB_E_TIMED_OUT, "the broker doesn't answer: it is stopped or overloaded");
    if (request->outcome.code == 0)
        return 0;
    *outcome = request->outcome;
    request_free(request);
    return outcome->code;
}
