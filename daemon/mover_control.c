/* The control's interface and its events. See mover_control_private.h. */
#include "daemon/mover_control.h"

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <string.h>
#include <sys/time.h>

#include "base/log.h"
#include "daemon/mover_control_private.h"

/* A connection that the kernel refuses fds for is tried again after this. */
#define STARVED_NS (5 * NSEC_PER_MSEC)
/* How long mover_control_free() waits for a mover to end by itself. */
#define FREE_MS 1000

const struct mover_options mover_options_default = {
    .driver = "cuda",
    .user = "nobody",
    .hello_ns = 60 * NSEC_PER_SEC,
    .progress_ns = 20 * NSEC_PER_SEC,
    .bytes_per_second = UINT64_C(64) << 20,
    .backoff_ns = 20 * NSEC_PER_MSEC,
    .backoff_max_ns = 10 * NSEC_PER_SEC,
    .idle_ns = 60 * NSEC_PER_SEC,
};

static const char *const state_names[] = {
    [MOVER_STATE_NONE] = "none",
    [MOVER_STATE_STARTING] = "starting",
    [MOVER_STATE_READY] = "ready",
    [MOVER_STATE_ENDING] = "ending",
};
static_assert(ARRAY_SIZE(state_names) == MOVER_STATE_MAX, "one name for each state");

const char *mover_state_name(enum mover_state state)
{
    return (unsigned) state < MOVER_STATE_MAX ? state_names[state] : "unknown";
}

uint64_t control_now(const struct mover_control *control)
{
    return clock_now(control->clock);
}

void control_finish(struct mover_control *control, struct mover_record *record, int error)
{
    record->error = error;
    if (error < 0)
        control->stats.jobs_failed++;
    else
        control->stats.jobs_done++;
    list_append(&control->done, &record->link);
}

/* ------------------------------------------------------------------ settling */

/* Tells the owner what is over. Its handlers may submit and forget: that makes no list shorter. */
static void owners_tell(struct mover_control *control)
{
    struct mover_record *record;
    struct mover_held *held;

    while ((record = list_first(&control->done, struct mover_record, link)) != NULL) {
        const struct mover_result result = {
            .job = record->job, .error = record->error, .text = record->text};

        list_remove(&record->link);
        control->handler.job_done(control->handler.data, &result);
        mover_record_free(record);
    }
    while ((held = list_first(&control->gone, struct mover_held, link)) != NULL) {
        list_remove(&held->link);
        control->handler.chunk_forgotten(control->handler.data, held->number, held->generation);
        free(held);
    }
}

static void memory_tell(struct mover_control *control)
{
    uint64_t bytes = life_memory_wanted(control);

    if (bytes == control->wanted_bytes)
        return;
    control->wanted_bytes = bytes;
    control->handler.memory_wanted(control->handler.data, bytes);
}

static void timer_set(struct mover_control *control, uint64_t at_ns)
{
    uint64_t wait_ns = sub_saturate(at_ns, control_now(control));
    /* Rounded up: a timer that fires early would fire again at once, and again. */
    struct timeval wait = {
        .tv_sec = (time_t) (wait_ns / NSEC_PER_SEC),
        .tv_usec = (suseconds_t) (wait_ns % NSEC_PER_SEC / NSEC_PER_USEC),
    };

    if (at_ns == CLOCK_NEVER) {
        (void) event_del(control->timer);
        return;
    }
    if (++wait.tv_usec == 1000000) {
        wait.tv_usec = 0;
        wait.tv_sec++;
    }
    (void) event_add(control->timer, &wait);
}

static void write_watch(struct mover_control *control)
{
    if (control->write_event == NULL)
        return;
    if (conn_wants_write(control->conn))
        (void) event_add(control->write_event, NULL);
    else
        (void) event_del(control->write_event);
}

static void control_settle(struct mover_control *control)
{
    uint64_t next;

    /* What is told may bring new work, and what is sent may fail at once. */
    do {
        owners_tell(control);
        life_start_if_due(control);
        dispatch_send(control);
        next = life_tick(control);
    } while (!list_empty(&control->done) || !list_empty(&control->gone));
    memory_tell(control);
    if (control->conn != NULL && conn_starved(control->conn))
        next = MIN(next, control_now(control) + STARVED_NS);
    write_watch(control);
    timer_set(control, next);
}

/* ------------------------------------------------------------------ events */

static void on_read(evutil_socket_t fd, short what, void *data)
{
    struct mover_control *control = data;

    (void) fd;
    (void) what;
    dispatch_receive(control);
    control_settle(control);
}

static void connection_flush(struct mover_control *control)
{
    int r = control->conn != NULL ? conn_flush(control->conn) : 0;

    if (r < 0)
        life_fail(control, strerror(-r));
}

static void on_write(evutil_socket_t fd, short what, void *data)
{
    struct mover_control *control = data;

    (void) fd;
    (void) what;
    connection_flush(control);
    control_settle(control);
}

static void on_exit_of_mover(evutil_socket_t fd, short what, void *data)
{
    struct mover_control *control = data;

    (void) fd;
    (void) what;
    life_reap(control);
    control_settle(control);
}

static void on_time(evutil_socket_t fd, short what, void *data)
{
    struct mover_control *control = data;

    (void) fd;
    (void) what;
    if (control->conn != NULL && conn_starved(control->conn))
        connection_flush(control);
    control_settle(control);
}

bool control_watch(struct mover_control *control)
{
    int fd = conn_fd(control->conn);

    control->read_event = event_new(control->base, fd, EV_READ | EV_PERSIST, on_read, control);
    control->write_event = event_new(control->base, fd, EV_WRITE | EV_PERSIST, on_write, control);
    control->exit_event = event_new(
        control->base, control->process.pidfd, EV_READ | EV_PERSIST, on_exit_of_mover, control);
    return control->read_event != NULL && control->write_event != NULL &&
           control->exit_event != NULL && event_add(control->read_event, NULL) == 0 &&
           event_add(control->exit_event, NULL) == 0;
}

static void event_drop(struct event **event)
{
    if (*event != NULL)
        event_free(*event);
    *event = NULL;
}

void control_unwatch(struct mover_control *control)
{
    event_drop(&control->read_event);
    event_drop(&control->write_event);
}

void control_unwatch_process(struct mover_control *control)
{
    event_drop(&control->exit_event);
    mover_process_forget(&control->process);
}

/* ------------------------------------------------------------------ interface */

/* Lets the loop settle it: handlers are never called from within a call of the owner's. */
static void settle_soon(struct mover_control *control)
{
    event_active(control->timer, EV_TIMEOUT, 0);
}

int mover_control_new(struct event_base *base, const struct clock *clock, struct tier *tier,
    const uint8_t uuid[16], const struct mover_options *options,
    const struct mover_handler *handler, struct mover_control **ret)
{
    struct mover_control *control = calloc(1, sizeof(*control));

    if (control == NULL)
        return -ENOMEM;
    control->base = base;
    control->clock = clock;
    control->tier = tier;
    memcpy(control->uuid, uuid, sizeof(control->uuid));
    control->options = options != NULL ? *options : mover_options_default;
    if (control->options.user == NULL)
        control->options.user = mover_options_default.user;
    control->handler = *handler;
    control->process = MOVER_PROCESS_NONE;
    control->deadline_ns = control->idle_at_ns = CLOCK_NEVER;
    control->look_ns = CLOCK_NEVER;
    /* What a broker before has left in the tier and nobody needs. */
    control->trim_at_ns = tier_stats(tier).touched_bytes > 0 ? control_now(control) : CLOCK_NEVER;
    mover_holdings_init(&control->holdings);
    list_init(&control->gone);
    list_init(&control->urgent);
    list_init(&control->normal);
    list_init(&control->suspects);
    list_init(&control->flight);
    list_init(&control->done);
    control->timer = evtimer_new(base, on_time, control);
    if (control->timer == NULL || ahead_init(control) < 0) {
        event_drop(&control->timer);
        free(control);
        return -ENOMEM;
    }
    if (control->trim_at_ns != CLOCK_NEVER)
        settle_soon(control);
    *ret = control;
    return 0;
}

struct mover_control *mover_control_free(struct mover_control *control)
{
    if (control == NULL)
        return NULL;
    control_unwatch(control);
    event_drop(&control->exit_event);
    event_drop(&control->timer);
    control->conn = conn_free(control->conn);
    mover_process_end(&control->process, FREE_MS);
    mover_holdings_clear(&control->holdings, &control->gone);
    dispatch_cancel(control);
    owners_tell(control);
    ahead_clear(control);
    free(control);
    return NULL;
}

int mover_submit(struct mover_control *control, const struct mover_job *job)
{
    struct mover_record *record;
    int r;

    if (control->queued + control->in_flight >= MOVER_QUEUE_JOBS)
        return -EAGAIN;
    r = mover_record_new(job, control->tier, &record);
    if (r < 0)
        return r;
    list_append(job->urgent ? &control->urgent : &control->normal, &record->link);
    control->queued++;
    settle_soon(control);
    return 0;
}

static void held_forget(struct mover_control *control, struct mover_held *held)
{
    if (held->forgetting)
        return;
    held->forgetting = true;
    list_append(&control->holdings.forgetting, &held->link);
    settle_soon(control);
}

bool mover_forget(struct mover_control *control, uint32_t number, uint32_t generation)
{
    struct mover_held *held = mover_holdings_find(&control->holdings, number, generation);

    if (held == NULL)
        return false;
    held->awaited = true;
    held_forget(control, held);
    return true;
}

void mover_let_go(struct mover_control *control, uint32_t number, uint32_t generation)
{
    struct mover_held *held = mover_holdings_find(&control->holdings, number, generation);

    if (held != NULL)
        held_forget(control, held);
}

void mover_keep(struct mover_control *control, bool keep)
{
    if (control->keep == keep)
        return;
    control->keep = keep;
    control->dismissed = !keep;
    settle_soon(control);
}

void mover_stats_get(const struct mover_control *control, struct mover_stats *ret)
{
    *ret = control->stats;
    ret->state = control->state;
    ret->pid = control->process.pid;
    ret->queued = control->queued;
    ret->in_flight = control->in_flight;
    ret->held_chunks = control->holdings.count;
}
