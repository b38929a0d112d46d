/* Watches, subscriptions and answers to advice, as conversations. */
#include <fcntl.h>
#include <math.h>
#include <semaphore.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "tests/client/script.h"
#include "tests/unit/unit.h"

static struct script script;
static struct script_status status;

static void begin(void)
{
    script_begin(&script);
    script_connect_status(&script, &status);
}

static void finish(void)
{
    script_end(&script);
    script_status_end(&status);
}

/* ---- watches ---- */

static struct gmb_watch_params watch_params;
static int watch_fd;
static uint64_t watch_id;

static int call_watch(struct script *from, struct call *call)
{
    (void) call;
    return gmb_pressure_watch(from->session, &watch_params, &watch_fd, &watch_id);
}

static int call_unwatch(struct script *from, struct call *call)
{
    (void) call;
    return gmb_pressure_unwatch(from->session, watch_id);
}

static void broker_watching(uint64_t id, uint64_t watch)
{
    Gmb__BrokerMessage message = GMB__BROKER_MESSAGE__INIT;
    Gmb__PressureWatching body = GMB__PRESSURE_WATCHING__INIT;

    message.id = id;
    message.body_case = GMB__BROKER_MESSAGE__BODY_PRESSURE_WATCHING;
    message.pressure_watching = &body;
    body.watch = watch;
    broker_send(&script, &message.base, 1);
}

START_TEST(watch_is_asked_for_and_its_eventfd_is_the_callers)
{
    Gmb__ClientMessage *message;
    struct call call = {0};

    begin();
    watch_params = (struct gmb_watch_params){.size = sizeof(watch_params),
        .stall_ns = 150 * NSEC_PER_MSEC,
        .window_ns = NSEC_PER_SEC,
        .full = 1};
    call_start(&script, &call, call_watch);
    message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_PRESSURE_WATCH);
    ck_assert_uint_eq(message->pressure_watch->stall_us, 150000);
    ck_assert_uint_eq(message->pressure_watch->window_us, 1000000);
    ck_assert(message->pressure_watch->full);
    ck_assert(!message->pressure_watch->of_device);
    ck_assert_uint_eq(message->pressure_watch->level, 0);
    ck_assert_mem_eq(message->pressure_watch->device.data, fake_gpu_uuid, sizeof(fake_gpu_uuid));
    broker_watching(message->id, 5);
    message_free(message);
    ck_assert_int_eq(call_join(&call), 0);
    ck_assert_uint_eq(watch_id, 1); /* the library's own number */
    ck_assert_int_eq(eventfd_write(watch_fd, 1), 0);

    call_start(&script, &call, call_unwatch);
    message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_PRESSURE_UNWATCH);
    ck_assert_uint_eq(message->pressure_unwatch->watch, 5);
    broker_done(&script, message->id);
    message_free(message);
    ck_assert_int_eq(call_join(&call), 0);
    ck_assert_int_eq(gmb_pressure_unwatch(script.session, watch_id), GMB_E_NOT_FOUND);
    broker_expect_silence(&script);
    close_fd(&watch_fd);
    finish();
}
END_TEST

START_TEST(watch_by_level_has_the_shortest_window_unless_told)
{
    Gmb__ClientMessage *message;
    struct call call = {0};

    begin();
    watch_params =
        (struct gmb_watch_params){.size = sizeof(watch_params), .level = 3, .of_device = 1};
    call_start(&script, &call, call_watch);
    message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_PRESSURE_WATCH);
    ck_assert_uint_eq(message->pressure_watch->level, 3);
    ck_assert(message->pressure_watch->of_device);
    ck_assert_uint_eq(message->pressure_watch->window_us, 500000);
    broker_error(&script, message->id, GMB_STATUS_EXHAUSTED, GMB_LIMIT_NONE, "too many");
    message_free(message);
    ck_assert_int_eq(call_join(&call), GMB_E_EXHAUSTED);
    finish();
}
END_TEST

START_TEST(watch_that_makes_no_sense_is_refused_here)
{
    const struct gmb_watch_params wrong[] = {
        {.size = sizeof(wrong[0])}, /* by nothing */
        {.size = sizeof(wrong[0]), .level = 4},
        {.size = sizeof(wrong[0]), .level = 1, .stall_ns = NSEC_PER_MSEC}, /* by both */
        {.size = sizeof(wrong[0]), .level = 1, .window_ns = 499999999},
        {.size = sizeof(wrong[0]), .stall_ns = NSEC_PER_MSEC},
        {.size = sizeof(wrong[0]), .stall_ns = NSEC_PER_MSEC, .window_ns = UINT64_C(10000000001)},
        {.size = sizeof(wrong[0]), .stall_ns = NSEC_PER_SEC + 1, .window_ns = NSEC_PER_SEC},
        {.size = sizeof(wrong[0]), .stall_ns = 999, .window_ns = NSEC_PER_SEC},
        {.size = sizeof(wrong[0]) - 1, .level = 1},
    };

    begin();
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
        ck_assert_int_eq(
            gmb_pressure_watch(script.session, &wrong[i], &watch_fd, &watch_id), GMB_E_INVALID);
    watch_params = (struct gmb_watch_params){.size = sizeof(watch_params),
        .level = 1,
        .device = "GPU-00000000-0000-0000-0000-000000000000"};
    ck_assert_int_eq(
        gmb_pressure_watch(script.session, &watch_params, &watch_fd, &watch_id), GMB_E_NOT_FOUND);
    broker_expect_silence(&script);
    finish();
}
END_TEST

START_TEST(watch_that_comes_too_late_is_given_back)
{
    Gmb__ClientMessage *message;
    struct call call = {0};
    uint64_t id;

    script_begin(&script);
    script.timeout_ns = 500 * NSEC_PER_MSEC; /* for the greeting, too */
    script_connect_status(&script, &status);
    watch_params = (struct gmb_watch_params){.size = sizeof(watch_params), .level = 1};
    call_start(&script, &call, call_watch);
    id = broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_PRESSURE_WATCH);
    ck_assert_int_eq(call_join(&call), GMB_E_TIMED_OUT);
    broker_watching(id, 9);
    ck_assert_int_eq(gmb_dispatch(script.session, 1000), 0);
    message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_PRESSURE_UNWATCH);
    ck_assert_uint_eq(message->pressure_unwatch->watch, 9);
    broker_done(&script, message->id);
    message_free(message);
    finish();
}
END_TEST

/* ---- subscription ---- */

static struct {
    unsigned pressures, advices, device;
    struct gmb_pressure pressure;
    struct gmb_advice advice;
    struct gmb_advice_step steps[LIMIT_ADVICE_STEPS];
} heard;

static void hear_pressure(void *user, unsigned device, const struct gmb_pressure *pressure)
{
    ck_assert_ptr_eq(user, &heard);
    heard.pressures++;
    heard.device = device;
    heard.pressure = *pressure;
}

static void hear_advice(void *user, const struct gmb_advice *advice)
{
    ck_assert_ptr_eq(user, &heard);
    ck_assert_uint_le(advice->step_count, LIMIT_ADVICE_STEPS);
    heard.advices++;
    heard.advice = *advice;
    if (advice->step_count > 0)
        memcpy(heard.steps, advice->steps, advice->step_count * sizeof(heard.steps[0]));
}

static gmb_pressure_fn pressure_fn;
static gmb_advice_fn advice_fn;

static int call_subscribe(struct script *from, struct call *call)
{
    (void) call;
    return gmb_pressure_subscribe(from->session, pressure_fn, advice_fn, &heard);
}

static void subscribe(gmb_pressure_fn pressure, gmb_advice_fn advice)
{
    Gmb__ClientMessage *message;
    struct call call = {0};

    pressure_fn = pressure;
    advice_fn = advice;
    call_start(&script, &call, call_subscribe);
    message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_PRESSURE_SUBSCRIBE);
    ck_assert_int_eq(message->pressure_subscribe->off, advice == NULL);
    broker_done(&script, message->id);
    message_free(message);
    ck_assert_int_eq(call_join(&call), 0);
}

static void broker_pressure(uint32_t level, uint32_t device_level, uint64_t headroom)
{
    Gmb__BrokerMessage message = GMB__BROKER_MESSAGE__INIT;
    Gmb__Pressure body = GMB__PRESSURE__INIT;

    message.body_case = GMB__BROKER_MESSAGE__BODY_PRESSURE;
    message.pressure = &body;
    body.device.data = (uint8_t *) (uintptr_t) fake_gpu_uuid;
    body.device.len = sizeof(fake_gpu_uuid);
    body.level = level;
    body.device_level = device_level;
    body.headroom_bytes = headroom;
    body.some_total_us = 21;
    body.full_total_us = 22;
    broker_send(&script, &message.base, 0);
}

struct told {
    int action;
    double factor;
    uint64_t value;
};

static void broker_advice(uint64_t id, uint32_t rung, const struct told *told, size_t count)
{
    Gmb__BrokerMessage message = GMB__BROKER_MESSAGE__INIT;
    Gmb__Advice body = GMB__ADVICE__INIT;
    Gmb__AdviceStep steps[LIMIT_ADVICE_STEPS + 1], *pointers[LIMIT_ADVICE_STEPS + 1];

    message.body_case = GMB__BROKER_MESSAGE__BODY_ADVICE;
    message.advice = &body;
    body.advice = id;
    body.rung = rung;
    body.n_steps = count;
    body.steps = pointers;
    for (size_t i = 0; i < count; i++) {
        gmb__advice_step__init(&steps[i]);
        steps[i].action = (Gmb__DegradeAction) told[i].action;
        steps[i].factor = told[i].factor;
        steps[i].value = told[i].value;
        pointers[i] = &steps[i];
    }
    broker_send(&script, &message.base, 0);
}

START_TEST(state_is_heard_by_whoever_dispatches_and_only_the_last_one)
{
    const struct status_copy copy = {.used = 7, .headroom = 8, .max = UINT64_MAX};

    begin();
    status_publish(&status, 0, &copy);
    subscribe(hear_pressure, hear_advice);
    broker_pressure(1, 2, 100);
    broker_pressure(2, 3, 99);
    /* Somebody else may read them; nobody but the dispatcher calls. */
    ck_assert_int_eq(gmb_dispatch(script.session, 10000), 1);
    ck_assert_uint_eq(heard.pressures, 1);
    ck_assert_uint_eq(heard.device, 0);
    ck_assert_uint_eq(heard.pressure.level, 2);
    ck_assert_uint_eq(heard.pressure.device_level, 3);
    ck_assert_uint_eq(heard.pressure.headroom_bytes, 99);
    ck_assert_uint_eq(heard.pressure.some_stall_us, 21);
    ck_assert_uint_eq(heard.pressure.full_stall_us, 22);
    ck_assert_uint_eq(heard.pressure.used_bytes, 7);
    ck_assert_int_eq(gmb_dispatch(script.session, 0), 0);
    ck_assert_uint_eq(heard.pressures, 1);
    finish();
}
END_TEST

START_TEST(advice_brings_its_steps_and_what_a_later_version_adds_is_left_out)
{
    static const struct told told[] = {
        {GMB_DEGRADE_REDUCE_BATCH, 0.75, 0},
        {GMB_DEGRADE_QUANTIZE_KV, 0, GMB_KV_FP8},
        {7, 0, 1},
        {GMB_DEGRADE_SHRINK_CONTEXT, 0, 8192},
        {GMB_DEGRADE_DROP_PREFIX_CACHE, 1, 0},
        {GMB_DEGRADE_REJECT_BELOW_PRIORITY, 0, 50},
        {GMB_DEGRADE_PAUSE_NEW, 0, 0},
    };

    begin();
    subscribe(NULL, hear_advice);
    broker_pressure(1, 1, 1); /* nobody wants to hear it */
    broker_advice(11, 3, told, ARRAY_SIZE(told));
    ck_assert_int_eq(gmb_dispatch(script.session, 10000), 1);
    ck_assert_uint_eq(heard.advices, 1);
    ck_assert_uint_eq(heard.advice.id, 11);
    ck_assert_uint_eq(heard.advice.rung, 3);
    ck_assert_uint_eq(heard.advice.step_count, 6);
    ck_assert_uint_eq(heard.steps[0].action, GMB_DEGRADE_REDUCE_BATCH);
    ck_assert_double_eq(heard.steps[0].factor, 0.75);
    ck_assert_uint_eq(heard.steps[1].value, GMB_KV_FP8);
    ck_assert_uint_eq(heard.steps[2].action, GMB_DEGRADE_SHRINK_CONTEXT);
    ck_assert_uint_eq(heard.steps[2].value, 8192);
    ck_assert_uint_eq(heard.steps[5].action, GMB_DEGRADE_PAUSE_NEW);

    /* The last of two, which takes everything back. */
    broker_advice(12, 1, told, 1);
    broker_advice(13, 0, told, 0);
    ck_assert_int_eq(gmb_dispatch(script.session, 10000), 1);
    ck_assert_uint_eq(heard.advices, 2);
    ck_assert_uint_eq(heard.advice.id, 13);
    ck_assert_uint_eq(heard.advice.step_count, 0);
    finish();
}
END_TEST

START_TEST(nothing_is_heard_once_the_subscription_has_ended)
{
    static const struct told told = {GMB_DEGRADE_PAUSE_NEW, 0, 0};

    begin();
    subscribe(hear_pressure, hear_advice);
    subscribe(NULL, NULL);
    /* These were on their way. */
    broker_pressure(1, 1, 1);
    broker_advice(1, 1, &told, 1);
    ck_assert_int_eq(gmb_dispatch(script.session, 50), 0);
    ck_assert_uint_eq(heard.pressures + heard.advices, 0);
    ck_assert_int_eq(
        gmb_pressure_subscribe(script.session, hear_pressure, NULL, &heard), GMB_E_INVALID);
    broker_expect_silence(&script);
    /* Nor once there is another subscription: the broker tells the present state anew. */
    subscribe(hear_pressure, hear_advice);
    ck_assert_int_eq(gmb_dispatch(script.session, 0), 0);
    ck_assert_uint_eq(heard.pressures + heard.advices, 0);
    finish();
}
END_TEST

static sem_t inside, go_on;

static void hear_slowly(void *user, const struct gmb_advice *advice)
{
    (void) sem_post(&inside);
    while (sem_wait(&go_on) != 0)
        continue;
    hear_advice(user, advice);
}

/* The callback runs in the library's thread while this one ends the subscription. */
START_TEST(callback_that_runs_has_ended_when_the_subscription_has)
{
    static const struct told told = {GMB_DEGRADE_PAUSE_NEW, 0, 0};
    struct call call = {0};

    begin();
    (void) sem_init(&inside, 0, 0);
    (void) sem_init(&go_on, 0, 0);
    subscribe(NULL, hear_slowly);
    ck_assert_int_eq(gmb_thread_start(script.session), 0);
    broker_advice(1, 1, &told, 1);
    while (sem_wait(&inside) != 0)
        continue;
    pressure_fn = NULL;
    advice_fn = NULL;
    call_start(&script, &call, call_subscribe);
    ck_assert_uint_eq(heard.advices, 0);
    broker_expect_silence(&script);
    (void) sem_post(&go_on);
    broker_done(&script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_PRESSURE_SUBSCRIBE));
    ck_assert_int_eq(call_join(&call), 0);
    ck_assert_uint_eq(heard.advices, 1);
    finish();
}
END_TEST

START_TEST(advice_that_makes_no_sense_ends_the_session)
{
    static const struct {
        uint64_t id;
        size_t count;
        struct told told[2];
    } wrong[] = {
        {0, 1, {{GMB_DEGRADE_PAUSE_NEW, 0, 0}}},
        {1, 1, {{0, 0, 0}}},
        {1, 1, {{GMB_DEGRADE_REDUCE_BATCH, 0, 0}}},
        {1, 1, {{GMB_DEGRADE_REDUCE_BATCH, 1, 0}}},
        {1, 1, {{GMB_DEGRADE_REDUCE_BATCH, NAN, 0}}},
        {1, 1, {{GMB_DEGRADE_QUANTIZE_KV, 0, 0}}},
        {1, 1, {{GMB_DEGRADE_QUANTIZE_KV, 0, 3}}},
        {1, 1, {{GMB_DEGRADE_SHRINK_CONTEXT, 0, 0}}},
        {1, 1, {{GMB_DEGRADE_DROP_PREFIX_CACHE, 1.01, 0}}},
        {1, 1, {{GMB_DEGRADE_DROP_PREFIX_CACHE, -1, 0}}},
        {1, 2, {{GMB_DEGRADE_PAUSE_NEW, 0, 0}, {GMB_DEGRADE_PAUSE_NEW, 0, 0}}},
        {1, LIMIT_ADVICE_STEPS + 1, {{0, 0, 0}}},
    };
    struct told many[LIMIT_ADVICE_STEPS + 1] = {0};

    begin();
    _Static_assert(ARRAY_SIZE(wrong) == 12, "the number of rounds below");
    memcpy(many, wrong[_i].told, sizeof(wrong[_i].told));
    subscribe(hear_pressure, hear_advice);
    broker_advice(wrong[_i].id, 1, many, wrong[_i].count);
    ck_assert_int_eq(gmb_dispatch(script.session, 10000), GMB_E_PROTOCOL);
    ck_assert_uint_eq(heard.advices, 0);
    broker_close(&script);
    finish();
}
END_TEST

START_TEST(pressure_past_the_levels_ends_the_session)
{
    begin();
    subscribe(hear_pressure, hear_advice);
    broker_pressure(_i == 0 ? 4 : 0, _i == 0 ? 0 : 4, 0);
    ck_assert_int_eq(gmb_dispatch(script.session, 10000), GMB_E_PROTOCOL);
    ck_assert_uint_eq(heard.pressures, 0);
    broker_close(&script);
    finish();
}
END_TEST

static int call_ack(struct script *from, struct call *call)
{
    (void) call;
    return gmb_advice_ack(
        from->session, 11, GMB_DEGRADE_DROP_PREFIX_CACHE, GMB_ADVICE_PARTLY, 4096);
}

START_TEST(answer_says_which_step_how_and_how_much)
{
    Gmb__ClientMessage *message;
    struct call call = {0};

    begin();
    call_start(&script, &call, call_ack);
    message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_ADVICE_ACK);
    ck_assert_uint_eq(message->advice_ack->advice, 11);
    ck_assert_int_eq(message->advice_ack->action, GMB__DEGRADE_ACTION__DEGRADE_DROP_PREFIX_CACHE);
    ck_assert_int_eq(message->advice_ack->outcome, GMB__ADVICE_ACK__OUTCOME__PARTLY);
    ck_assert_uint_eq(message->advice_ack->freed_bytes, 4096);
    broker_error(&script, message->id, GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE, "not in force");
    message_free(message);
    ck_assert_int_eq(call_join(&call), GMB_E_NOT_FOUND);
    ck_assert_int_eq(
        gmb_advice_ack(script.session, 1, (enum gmb_degrade) 0, GMB_ADVICE_DONE, 0), GMB_E_INVALID);
    ck_assert_int_eq(
        gmb_advice_ack(script.session, 1, (enum gmb_degrade) 7, GMB_ADVICE_DONE, 0), GMB_E_INVALID);
    ck_assert_int_eq(
        gmb_advice_ack(script.session, 1, GMB_DEGRADE_PAUSE_NEW, (enum gmb_advice_outcome) 3, 0),
        GMB_E_INVALID);
    broker_expect_silence(&script);
    finish();
}
END_TEST

/* What the worker does as a rule: it answers from within the callback. */
static void hear_and_answer(void *user, const struct gmb_advice *advice)
{
    hear_advice(user, advice);
    ck_assert_int_eq(gmb_advice_ack(script.session, advice->id,
                         (enum gmb_degrade) advice->steps[0].action, GMB_ADVICE_DONE, 0),
        0);
}

START_TEST(advice_is_answered_from_within_its_callback)
{
    static const struct told told = {GMB_DEGRADE_PAUSE_NEW, 0, 0};
    Gmb__ClientMessage *message;

    begin();
    subscribe(NULL, hear_and_answer);
    ck_assert_int_eq(gmb_thread_start(script.session), 0);
    broker_advice(3, 1, &told, 1);
    message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_ADVICE_ACK);
    ck_assert_uint_eq(message->advice_ack->advice, 3);
    broker_done(&script, message->id);
    message_free(message);
    finish();
    ck_assert_uint_eq(heard.advices, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pressure");
    TCase *tcase = tcase_create("pressure");

    tcase_add_test(tcase, watch_is_asked_for_and_its_eventfd_is_the_callers);
    tcase_add_test(tcase, watch_by_level_has_the_shortest_window_unless_told);
    tcase_add_test(tcase, watch_that_makes_no_sense_is_refused_here);
    tcase_add_test(tcase, watch_that_comes_too_late_is_given_back);
    tcase_add_test(tcase, state_is_heard_by_whoever_dispatches_and_only_the_last_one);
    tcase_add_test(tcase, advice_brings_its_steps_and_what_a_later_version_adds_is_left_out);
    tcase_add_test(tcase, nothing_is_heard_once_the_subscription_has_ended);
    tcase_add_test(tcase, callback_that_runs_has_ended_when_the_subscription_has);
    tcase_add_loop_test(tcase, advice_that_makes_no_sense_ends_the_session, 0, 12);
    tcase_add_loop_test(tcase, pressure_past_the_levels_ends_the_session, 0, 2);
    tcase_add_test(tcase, answer_says_which_step_how_and_how_much);
    tcase_add_test(tcase, advice_is_answered_from_within_its_callback);
    suite_add_tcase(suite, tcase);
    return unit_run_suite(suite);
}
