/*
 * News replace each other: there is room for one state of each device and one advice, so that a
 * program that is slow to dispatch hears the latest, once.
 *
 * A state is handed on as the status page has it, except for what the event itself says: that may
 * be newer or older than the page by the millisecond between two changes of it, and the event that
 * is the last one must not be forgotten over that.
 */
#include "client/news.h"

#include <string.h>

#include "client/status.h"
#include "client/wait.h"

int news_prepare(struct gmb_session *session, struct outcome *outcome)
{
    session->subscription.news =
        calloc(MAX(session->device_count, 1u), sizeof(*session->subscription.news));
    if (session->subscription.news == NULL)
        return outcome_set(outcome, GMB_E_INTERNAL, "no host memory for news of the devices");
    return 0;
}

/* -1: none of ours. */
static int device_index(const struct gmb_session *session, const ProtobufCBinaryData *bytes)
{
    struct uuid uuid;

    if (uuid_from_bytes(bytes->data, bytes->len, &uuid) < 0)
        return -1;
    for (unsigned i = 0; i < session->device_count; i++) {
        if (uuid_equal(&session->devices[i].uuid, &uuid))
            return (int) i;
    }
    return -1;
}

int news_pressure_take(
    struct gmb_session *session, const Gmb__Pressure *message, struct outcome *why)
{
    int index = device_index(session, &message->device);

    if (index < 0 || message->level > GMB_PRESSURE_CRITICAL ||
        message->device_level > GMB_PRESSURE_CRITICAL)
        return outcome_set(why, GMB_E_PROTOCOL, "the broker told of pressure %u on %s",
            message->level, index < 0 ? "a device that it never named" : "a device");
    session->subscription.news[index] = (struct pressure_news){
        .come = true,
        .level = message->level,
        .device_level = message->device_level,
        .headroom_bytes = message->headroom_bytes,
        .some_total_us = message->some_total_us,
        .full_total_us = message->full_total_us,
    };
    if (news_wait(session))
        session_notify(session);
    return 0;
}

/* Whether the figures of a step that we know are what such a step may ask for. */
static bool step_valid(const Gmb__AdviceStep *step)
{
    switch ((int) step->action) {
    case GMB_DEGRADE_REDUCE_BATCH:
        return step->factor > 0 && step->factor < 1;
    case GMB_DEGRADE_QUANTIZE_KV:
        return step->value == GMB_KV_INT8 || step->value == GMB_KV_FP8;
    case GMB_DEGRADE_SHRINK_CONTEXT:
        return step->value > 0;
    case GMB_DEGRADE_DROP_PREFIX_CACHE:
        return step->factor > 0 && step->factor <= 1;
    case GMB_DEGRADE_REJECT_BELOW_PRIORITY:
    case GMB_DEGRADE_PAUSE_NEW:
        return true;
    default:
        return false;
    }
}

static bool step_is_new(const struct gmb_advice *advice, const struct gmb_advice_step *steps,
    const Gmb__AdviceStep *step)
{
    for (uint32_t i = 0; i < advice->step_count; i++) {
        if (steps[i].action == (uint32_t) step->action)
            return false;
    }
    return true;
}

int news_advice_take(struct gmb_session *session, const Gmb__Advice *message, struct outcome *why)
{
    struct gmb_advice_step steps[LIMIT_ADVICE_STEPS];
    struct gmb_advice advice = {.id = message->advice, .rung = message->rung};

    if (message->advice == 0 || message->n_steps > LIMIT_ADVICE_STEPS)
        return outcome_set(why, GMB_E_PROTOCOL, "the broker sent an advice of %zu steps without %s",
            message->n_steps, message->advice == 0 ? "a number" : "an end");
    for (size_t i = 0; i < message->n_steps; i++) {
        const Gmb__AdviceStep *step = message->steps[i];

        if (step->action > GMB__DEGRADE_ACTION__DEGRADE_PAUSE_NEW)
            continue; /* of a later version: nobody here could act on it */
        if (!step_valid(step) || !step_is_new(&advice, steps, step))
            return outcome_set(why, GMB_E_PROTOCOL,
                "the broker sent an advice whose step %zu makes no sense", i + 1);
        steps[advice.step_count++] = (struct gmb_advice_step){
            .action = step->action, .factor = step->factor, .value = step->value};
    }
    session->subscription.last = advice;
    memcpy(session->subscription.steps, steps, advice.step_count * sizeof(steps[0]));
    session->subscription.advised = true;
    if (news_wait(session))
        session_notify(session);
    return 0;
}

void news_advice_overtake(struct gmb_session *session)
{
    if (session->subscription.last.step_count == 0)
        return;
    session->subscription.last = (struct gmb_advice){0};
    session->subscription.advised = true;
    if (news_wait(session))
        session_notify(session);
}

static struct pressure_news *news_first(const struct gmb_session *session)
{
    for (unsigned i = 0; i < session->device_count; i++) {
        if (session->subscription.news[i].come)
            return &session->subscription.news[i];
    }
    return NULL;
}

bool news_wait(const struct gmb_session *session)
{
    const struct subscription *subscription = &session->subscription;

    if (session->leaving)
        return false;
    return (subscription->advice != NULL && subscription->advised) ||
           (subscription->pressure != NULL && news_first(session) != NULL);
}

static void run_begin(struct gmb_session *session)
{
    session->subscription.running = true;
    session->subscription.runner = pthread_self();
    (void) pthread_mutex_unlock(&session->lock);
}

static void run_end(struct gmb_session *session)
{
    (void) pthread_mutex_lock(&session->lock);
    session->subscription.running = false;
    (void) pthread_cond_broadcast(&session->changed);
}

static void pressure_call(struct gmb_session *session, struct pressure_news *at)
{
    const gmb_pressure_fn call = session->subscription.pressure;
    unsigned device = (unsigned) (at - session->subscription.news);
    void *user = session->subscription.user;
    struct gmb_pressure pressure = {.size = sizeof(pressure)};
    struct outcome ignored = OUTCOME_OK;
    struct pressure_news news = *at;

    at->come = false;
    run_begin(session);
    (void) status_pressure_read(session, device, &pressure, &ignored);
    pressure.level = news.level;
    pressure.device_level = news.device_level;
    pressure.headroom_bytes = news.headroom_bytes;
    pressure.some_stall_us = news.some_total_us;
    pressure.full_stall_us = news.full_total_us;
    call(user, device, &pressure);
    run_end(session);
}

static void advice_call(struct gmb_session *session)
{
    const gmb_advice_fn call = session->subscription.advice;
    void *user = session->subscription.user;
    struct gmb_advice advice = session->subscription.last;
    struct gmb_advice_step steps[LIMIT_ADVICE_STEPS];

    memcpy(steps, session->subscription.steps, sizeof(steps));
    advice.steps = steps;
    session->subscription.advised = false;
    run_begin(session);
    call(user, &advice);
    run_end(session);
}

int news_run(struct gmb_session *session)
{
    int count = 0;

    for (; news_wait(session); count++) {
        struct pressure_news *news = news_first(session);

        if (session->subscription.advice != NULL && session->subscription.advised)
            advice_call(session);
        else
            pressure_call(session, news);
    }
    return count;
}

void news_forget(struct gmb_session *session)
{
    session->subscription.advised = false;
    session->subscription.last = (struct gmb_advice){0};
    for (unsigned i = 0; i < session->device_count; i++)
        session->subscription.news[i].come = false;
}

void news_quiet(struct gmb_session *session)
{
    while (session->subscription.running &&
           !pthread_equal(session->subscription.runner, pthread_self()))
        (void) pthread_cond_wait(&session->changed, &session->lock);
}
