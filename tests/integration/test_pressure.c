/* Pressure as clients hear of it: a real broker, clients that speak the protocol by hand. */
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "proto/status_page.h"
#include "tests/integration/raw_pressure.h"
#include "tests/unit/unit.h"

#define CHUNK HARNESS_CHUNK

/* The lease that the next grant names, of one frame. */
static uint64_t grant_await(struct raw *raw)
{
    Gmb__BrokerMessage *message = pressure_next(raw, GMB__BROKER_MESSAGE__BODY_GRANT);
    uint64_t lease = message->grant->lease;

    frame_message_free(&message->base);
    fdset_close(&raw->fds);
    return lease;
}

/* Events may come before the grant that they are about, or behind it. */
static Gmb__BrokerMessage *grant_and_advice(struct raw *raw, uint64_t *ret_lease)
{
    Gmb__BrokerMessage *advice = NULL;

    *ret_lease = 0;
    while (advice == NULL || *ret_lease == 0) {
        Gmb__BrokerMessage *message = raw_receive(raw);

        ck_assert_ptr_nonnull(message);
        if (message->body_case == GMB__BROKER_MESSAGE__BODY_GRANT)
            *ret_lease = message->grant->lease;
        if (message->body_case == GMB__BROKER_MESSAGE__BODY_ADVICE && advice == NULL)
            advice = message;
        else
            frame_message_free(&message->base);
    }
    fdset_close(&raw->fds);
    return advice;
}

/* Events may come before the answer. */
static void release_await(struct raw *raw, uint64_t lease)
{
    (void) raw_release(raw, lease);
    frame_message_free(&pressure_next(raw, GMB__BROKER_MESSAGE__BODY_DONE)->base);
}

/* ------------------------------------------------------------------ the page */

/* Connects and maps the page that comes with Welcome. */
static const struct status_page *page_connect(struct raw *raw, const struct harness *harness)
{
    Gmb__BrokerMessage *answer;
    void *at;

    raw_dial(raw, harness);
    (void) raw_hello(raw, 1);
    answer = raw_receive(raw);
    ck_assert_ptr_nonnull(answer);
    ck_assert_int_eq(answer->body_case, GMB__BROKER_MESSAGE__BODY_WELCOME);
    ck_assert_uint_eq(raw->fds.count, 1);
    at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, raw->fds.fds[0], 0);
    ck_assert_ptr_ne(at, MAP_FAILED);
    ck_assert_ptr_eq(
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, raw->fds.fds[0], 0), MAP_FAILED);
    frame_message_free(&answer->base);
    fdset_close(&raw->fds);
    return at;
}

static unsigned page_level(const struct status_page *page)
{
    return (unsigned) (__atomic_load_n(&page->entries[0].head, __ATOMIC_ACQUIRE) >>
                       STATUS_LEVEL_SHIFT) &
           15;
}

static struct status_copy page_copy(const struct status_page *page)
{
    const struct status_entry *entry = &page->entries[0];
    uint64_t words[sizeof(struct status_copy) / sizeof(uint64_t)] = {0}, head;
    struct status_copy copy;

    do {
        const uint64_t *from;

        head = __atomic_load_n(&entry->head, __ATOMIC_ACQUIRE);
        from = (const uint64_t *) (const void *) &entry->copies[head & 1];
        for (size_t i = 0; i < ARRAY_SIZE(words); i++)
            words[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);
    } while (__atomic_load_n(&entry->head, __ATOMIC_RELAXED) != head);
    memcpy(&copy, words, sizeof(copy));
    return copy;
}

START_TEST(the_page_is_true_from_the_first_welcome_on)
{
    const struct status_page *page;
    struct harness harness;
    struct status_copy copy;
    struct raw raw;
    uint64_t lease, deadline;

    harness_start(&harness, PRESSURE_SETUP "MemoryMin=8M\nMemoryHigh=38M\n");
    page = page_connect(&raw, &harness);
    ck_assert_uint_eq(page->header.magic, STATUS_MAGIC);
    ck_assert_uint_eq(page->header.entries, 1);
    ck_assert((page->entries[0].head & STATUS_FLAG_LIVE) != 0);
    copy = page_copy(page);
    ck_assert_uint_eq(copy.used, 0);
    ck_assert_uint_eq(copy.min, 8 * PRESSURE_MIB);
    ck_assert_uint_eq(copy.high, 38 * PRESSURE_MIB);
    ck_assert_uint_eq(copy.max, 40 * PRESSURE_MIB);
    ck_assert_uint_eq(copy.headroom, 40 * PRESSURE_MIB);
    ck_assert_uint_eq(copy.reachable, 40 * PRESSURE_MIB);
    ck_assert_uint_gt(copy.updated_ns, 0);
    lease = raw_expect_lease(&raw, raw_lease(&raw, 36 * PRESSURE_MIB, CHUNK, 0), 18);
    ck_assert_uint_eq(page_level(page), 2);
    /* Figures follow within a millisecond; the level came with them. */
    copy = page_copy(page);
    ck_assert_uint_eq(copy.used, 36 * PRESSURE_MIB);
    ck_assert_uint_eq(copy.headroom, 4 * PRESSURE_MIB);
    raw_expect_done(&raw, raw_release(&raw, lease));
    deadline = harness_now_ms() + HARNESS_DEADLINE_MS;
    while (page_level(page) != 0 || page_copy(page).used != 0) {
        ck_assert_uint_lt(harness_now_ms(), deadline);
        harness_breathe();
    }
    raw_close(&raw);
    harness_stop(&harness);
    /* The broker is gone, and what it said last stays whole. */
    ck_assert_uint_eq(page_copy(page).used, 0);
}
END_TEST

START_TEST(a_page_outlives_a_broker_that_is_killed)
{
    const struct status_page *page;
    struct harness harness;
    struct status_copy copy;
    struct raw raw;

    harness_start(&harness, PRESSURE_SETUP);
    page = page_connect(&raw, &harness);
    (void) raw_expect_lease(&raw, raw_lease(&raw, 36 * PRESSURE_MIB, CHUNK, 0), 18);
    harness_kill(&harness);
    copy = page_copy(page);
    ck_assert_uint_eq(copy.used, 36 * PRESSURE_MIB);
    ck_assert_uint_eq(page_level(page), 2);
    raw_close(&raw);
    harness_restart(&harness);
    harness_stop(&harness);
}
END_TEST

/* ------------------------------------------------------------------ events and advice */

START_TEST(who_subscribes_hears_the_present_state_and_every_level)
{
    struct harness harness;
    struct raw raw, other;
    Gmb__BrokerMessage *message;
    uint64_t id, lease;

    harness_start(&harness, PRESSURE_SETUP);
    raw_connect(&raw, &harness);
    raw_connect(&other, &harness);
    id = pressure_subscribe(&raw, false);
    raw_expect_done(&raw, id);
    message = pressure_next(&raw, GMB__BROKER_MESSAGE__BODY_PRESSURE);
    ck_assert_uint_eq(message->id, 0);
    ck_assert_uint_eq(message->pressure->device.len, 16);
    ck_assert_uint_eq(message->pressure->level, 0);
    ck_assert_uint_eq(message->pressure->headroom_bytes, 40 * PRESSURE_MIB);
    frame_message_free(&message->base);
    /* Another client of the tenant fills it; who did not subscribe hears nothing. */
    lease = raw_expect_lease(&other, raw_lease(&other, 40 * PRESSURE_MIB, CHUNK, 0), 20);
    pressure_await(&raw, 3);
    raw_expect_done(&other, raw_release(&other, lease));
    pressure_await(&raw, 0);
    id = pressure_subscribe(&raw, true);
    while ((message = raw_receive(&raw))->id != id)
        frame_message_free(&message->base);
    frame_message_free(&message->base);
    /* From now on it hears nothing: the next that comes is the answer to what it asks. */
    lease = raw_expect_lease(&other, raw_lease(&other, 40 * PRESSURE_MIB, CHUNK, 0), 20);
    raw_expect_done(&raw, pressure_subscribe(&raw, true));
    raw_expect_done(&other, raw_release(&other, lease));
    raw_close(&raw);
    raw_close(&other);
    harness_stop(&harness);
}
END_TEST

START_TEST(advice_comes_with_its_steps_and_claims_stand_beside_the_ledger)
{
    const Gmb__TenantPressure *tenant;
    Gmb__BrokerMessage *message;
    Gmb__ControlReply *reply;
    struct harness harness;
    uint64_t advice, lease;
    struct raw raw;

    harness_start(&harness, PRESSURE_SETUP PRESSURE_LADDER);
    raw_connect(&raw, &harness);
    raw_expect_done(&raw, pressure_subscribe(&raw, false));
    (void) raw_lease(&raw, 40 * PRESSURE_MIB, CHUNK, 0);
    message = grant_and_advice(&raw, &lease);
    advice = message->advice->advice;
    ck_assert_uint_eq(advice, 1);
    ck_assert_uint_eq(message->advice->rung, 3);
    ck_assert_uint_eq(message->advice->n_steps, 3);
    ck_assert_int_eq(message->advice->steps[0]->action, GMB__DEGRADE_ACTION__DEGRADE_REDUCE_BATCH);
    ck_assert_double_eq(message->advice->steps[0]->factor, 0.75);
    ck_assert_int_eq(message->advice->steps[1]->action, GMB__DEGRADE_ACTION__DEGRADE_QUANTIZE_KV);
    ck_assert_uint_eq(message->advice->steps[1]->value, 1);
    ck_assert_uint_eq(message->advice->steps[2]->value, 50);
    frame_message_free(&message->base);
    /* It says that it gave 10 GiB, and gave nothing. */
    (void) pressure_ack(
        &raw, advice, GMB__DEGRADE_ACTION__DEGRADE_REDUCE_BATCH, 0, UINT64_C(10) << 30);
    frame_message_free(&pressure_next(&raw, GMB__BROKER_MESSAGE__BODY_DONE)->base);
    reply = pressure_page(&harness);
    ck_assert_uint_eq(reply->pressure_page->n_devices, 1);
    ck_assert_uint_eq(reply->pressure_page->n_tenants, 1);
    ck_assert(reply->pressure_page->last);
    tenant = reply->pressure_page->tenants[0];
    ck_assert_str_eq(tenant->name, "test");
    ck_assert_uint_eq(tenant->devices[0]->level, 3);
    ck_assert_uint_eq(tenant->rung, 3);
    ck_assert_uint_eq(tenant->advice, advice);
    ck_assert_uint_eq(tenant->n_steps, 3);
    ck_assert_uint_eq(tenant->n_answers, 1);
    ck_assert_uint_eq(tenant->answers[0]->done, 1);
    ck_assert_uint_eq(tenant->answers[0]->freed_bytes, UINT64_C(10) << 30);
    ck_assert_uint_eq(tenant->used_then_bytes, 40 * PRESSURE_MIB);
    ck_assert_uint_eq(tenant->used_now_bytes, 40 * PRESSURE_MIB);
    ck_assert_uint_eq(tenant->subscribers, 1);
    ck_assert(!tenant->ignored);
    frame_message_free(&reply->base);
    release_await(&raw, lease);
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

START_TEST(who_never_answers_is_known_to_ignore_its_advice)
{
    struct harness harness;
    uint64_t deadline, lease;
    struct raw raw;

    harness_start(&harness, PRESSURE_SETUP PRESSURE_LADDER);
    raw_connect(&raw, &harness);
    raw_expect_done(&raw, pressure_subscribe(&raw, false));
    ck_assert(!pressure_ignored(&harness));
    (void) raw_lease(&raw, 40 * PRESSURE_MIB, CHUNK, 0);
    frame_message_free(&grant_and_advice(&raw, &lease)->base);
    deadline = harness_now_ms() + HARNESS_DEADLINE_MS;
    while (!pressure_ignored(&harness))
        ck_assert_uint_lt(harness_now_ms(), deadline);
    /* A late answer is one. */
    (void) pressure_ack(&raw, 1, GMB__DEGRADE_ACTION__DEGRADE_REDUCE_BATCH, 2, 0);
    frame_message_free(&pressure_next(&raw, GMB__BROKER_MESSAGE__BODY_DONE)->base);
    ck_assert(!pressure_ignored(&harness));
    /* With nobody to hear it, it is ignored again. */
    (void) pressure_subscribe(&raw, true);
    frame_message_free(&pressure_next(&raw, GMB__BROKER_MESSAGE__BODY_DONE)->base);
    ck_assert(pressure_ignored(&harness));
    release_await(&raw, lease);
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

/* ------------------------------------------------------------------ watches */

START_TEST(a_watch_rings_when_its_level_is_reached)
{
    struct harness harness;
    struct raw raw;
    uint64_t number, most, lease;
    int fd;

    harness_start(&harness, PRESSURE_SETUP);
    raw_connect(&raw, &harness);
    fd = pressure_watching(&raw, pressure_watch(&raw, 2, 0, 500000), &number);
    most = raw_expect_lease(&raw, raw_lease(&raw, 34 * PRESSURE_MIB, CHUNK, 0), 17); /* low */
    ck_assert(!pressure_rings(fd, 100));
    lease = raw_expect_lease(&raw, raw_lease(&raw, 2 * PRESSURE_MIB, CHUNK, 0), 1);
    ck_assert(pressure_rings(fd, HARNESS_DEADLINE_MS));
    ck_assert_uint_eq(pressure_rung(fd), 1);
    /* It stays at that level: nothing more. */
    ck_assert(!pressure_rings(fd, 700));
    raw_expect_done(&raw, pressure_unwatch(&raw, number));
    raw_expect_error(&raw, pressure_unwatch(&raw, number), GMB_STATUS_NOT_FOUND);
    raw_expect_error(&raw, pressure_unwatch(&raw, 0), GMB_STATUS_NOT_FOUND);
    (void) close(fd);
    /* One that is reached already rings at once. */
    fd = pressure_watching(&raw, pressure_watch(&raw, 1, 0, 500000), &number);
    ck_assert(pressure_rings(fd, HARNESS_DEADLINE_MS));
    (void) close(fd);
    raw_expect_done(&raw, raw_release(&raw, lease));
    raw_expect_done(&raw, raw_release(&raw, most));
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_watch_rings_when_enough_stall_came_within_its_window)
{
    struct harness harness;
    struct raw raw, other;
    uint64_t number, lease;
    int fd;

    harness_start(&harness, PRESSURE_SETUP);
    raw_connect(&raw, &harness);
    raw_connect(&other, &harness);
    lease = raw_expect_lease(&other, raw_lease(&other, 40 * PRESSURE_MIB, CHUNK, 0), 20);
    fd = pressure_watching(&raw, pressure_watch(&raw, 0, 200000, 500000), &number);
    ck_assert(!pressure_rings(fd, 300)); /* nobody waits */
    (void) raw_lease(&raw, 2 * PRESSURE_MIB, CHUNK, UINT64_C(60000000000));
    ck_assert(pressure_rings(fd, HARNESS_DEADLINE_MS));
    (void) pressure_rung(fd);
    /* Again in the next window, since it goes on. */
    ck_assert(pressure_rings(fd, HARNESS_DEADLINE_MS));
    (void) close(fd);
    raw_close(&raw); /* and what it waits for ends */
    raw_expect_done(&other, raw_release(&other, lease));
    raw_close(&other);
    harness_stop(&harness);
}
END_TEST

/* ------------------------------------------------------------------ configuration */

START_TEST(an_unknown_step_refuses_the_whole_change)
{
    struct harness harness;
    Gmb__TenantDevice before, after;

    harness_start(&harness, PRESSURE_SETUP PRESSURE_LADDER);
    raw_tenant(&harness, "test", &before);
    ck_assert_int_eq(raw_set(&harness, "test", "DegradeLow", "reduce-batch 0.5, shrink-contxt 1"),
        GMB_STATUS_INVALID);
    ck_assert_int_eq(raw_set(&harness, "test", "DegradeLow", ""), GMB_STATUS_OK);
    ck_assert_int_eq(
        raw_set(&harness, "test", "DegradeMedium", "pause-new, quantize-kv fp8"), GMB_STATUS_OK);
    /* A file with one is refused altogether, and names its line. */
    harness_configure(&harness, PRESSURE_SETUP "MemoryMin=4M\nDegradeLow=reduce-batch 2\n");
    {
        Gmb__ControlRequest request = GMB__CONTROL_REQUEST__INIT;
        Gmb__Reload reload = GMB__RELOAD__INIT;
        Gmb__ControlReply *reply;

        request.body_case = GMB__CONTROL_REQUEST__BODY_RELOAD;
        request.reload = &reload;
        reply = raw_control(&harness, &request);
        ck_assert_int_eq(reply->body_case, GMB__CONTROL_REPLY__BODY_ERROR);
        ck_assert_msg(
            strstr(reply->error->text, ":13: DegradeLow= is refused: step reduce-batch") != NULL,
            "%s", reply->error->text);
        frame_message_free(&reply->base);
    }
    raw_tenant(&harness, "test", &after);
    ck_assert_uint_eq(after.memory_min, before.memory_min);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_ladder_is_set_while_its_tenant_is_under_pressure)
{
    struct harness harness;
    Gmb__BrokerMessage *message;
    uint64_t lease;
    struct raw raw;

    harness_start(&harness, PRESSURE_SETUP);
    raw_connect(&raw, &harness);
    raw_expect_done(&raw, pressure_subscribe(&raw, false));
    (void) raw_lease(&raw, 40 * PRESSURE_MIB, CHUNK, 0);
    lease = grant_await(&raw);
    ck_assert_int_eq(raw_set(&harness, "test", "DegradeMedium", "pause-new"), GMB_STATUS_OK);
    message = pressure_next(&raw, GMB__BROKER_MESSAGE__BODY_ADVICE);
    ck_assert_uint_eq(message->advice->advice, 1);
    ck_assert_uint_eq(message->advice->n_steps, 1);
    ck_assert_int_eq(message->advice->steps[0]->action, GMB__DEGRADE_ACTION__DEGRADE_PAUSE_NEW);
    frame_message_free(&message->base);
    ck_assert_int_eq(raw_set(&harness, "test", "DegradeMedium", ""), GMB_STATUS_OK);
    message = pressure_next(&raw, GMB__BROKER_MESSAGE__BODY_ADVICE);
    ck_assert_uint_eq(message->advice->advice, 2);
    ck_assert_uint_eq(message->advice->n_steps, 0);
    frame_message_free(&message->base);
    release_await(&raw, lease);
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

UNIT_MAIN("pressure", the_page_is_true_from_the_first_welcome_on,
    a_page_outlives_a_broker_that_is_killed, who_subscribes_hears_the_present_state_and_every_level,
    advice_comes_with_its_steps_and_claims_stand_beside_the_ledger,
    who_never_answers_is_known_to_ignore_its_advice, a_watch_rings_when_its_level_is_reached,
    a_watch_rings_when_enough_stall_came_within_its_window,
    an_unknown_step_refuses_the_whole_change, a_ladder_is_set_while_its_tenant_is_under_pressure)
