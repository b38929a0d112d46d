/*
 *   NONE ──start──▶ STARTING ──MoverReady──▶ READY
 *    ▲                  │                      │
 *    └─────reaped─── ENDING ◀──────────────────┘  killed, dead, or told to end
 *
 * A process is believed to be gone when it is reaped, and not before: until then its mappings may
 * hold memory. Starts in a row without an answer in between wait longer and longer.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "daemon/mover_control_private.h"
#include "daemon/tier_file.h"

/* Kept for one that found no memory for its context, and for one that found that too little:
 * contexts of real devices take 100 to 600 MiB. */
#define STARVED_BYTES (UINT64_C(512) << 20)
#define STARVED_MOST (UINT64_C(1) << 30)
/* A mover that was told to end has nothing to finish. */
#define END_NS NSEC_PER_SEC
/* Slabs given back to the kernel before others get their turn on the loop. */
#define TRIM_SLABS 2
/* While something is expected of it: one that is stopped makes no progress, and needs not be given
 * the time that a slow one gets. */
#define LOOK_NS NSEC_PER_SEC
/* One that dies without work is replaced without hurry, and costs those with work nothing. */
#define KEEP_PAUSE_NS NSEC_PER_SEC

static void text_set(struct mover_control *control, const char *what, const char *why)
{
    (void) snprintf(control->last_text, sizeof(control->last_text), "%s: %s", what, why);
}

/* One more failure in a row: the next start waits, twice as long as the last time. */
static void backoff_add(struct mover_control *control)
{
    unsigned shift = MIN(control->failures, 20u);
    uint64_t wait = MIN(control->options.backoff_ns << shift, control->options.backoff_max_ns);

    /* The first one may be anybody's bad luck. */
    control->start_at_ns = control->failures == 0 ? 0 : add_saturate(control_now(control), wait);
    control->failures++;
}

/* A successor of the broker waits until no mover has it any more. */
static int fd_add(struct fdset *fds, int borrowed)
{
    int fd = -1, r = tier_lend(borrowed, &fd);

    return r < 0 ? r : fdset_consume(fds, fd);
}

static int hello_send(struct mover_control *control)
{
    _cleanup_fdset_ struct fdset fds = FDSET_EMPTY;
    Gmb__MoverMessage message;
    Gmb__MoverHello hello;
    uint64_t disk_bytes = tier_disk_bytes(control->tier);
    int r = fd_add(&fds, tier_fd(control->tier));

    if (r == 0 && disk_bytes > 0)
        r = fd_add(&fds, tier_disk_fd(control->tier));
    if (r < 0)
        return r;
    gmb__mover_message__init(&message);
    gmb__mover_hello__init(&hello);
    hello.device.data = control->uuid;
    hello.device.len = sizeof(control->uuid);
    hello.tier_bytes = tier_bytes(control->tier);
    hello.slab_bytes = tier_slab_bytes(control->tier);
    hello.disk_bytes = disk_bytes;
    message.body_case = GMB__MOVER_MESSAGE__BODY_HELLO;
    message.hello = &hello;
    return conn_send_consume(control->conn, &message.base, &fds);
}

static int process_start(struct mover_control *control)
{
    const struct mover_start start = {
        .name = "gmbd-mover",
        .variable = "GMB_MOVER",
        .program = control->options.program,
        .driver = control->options.driver,
        .user = control->options.user,
    };
    int socket, r = mover_process_start(&start, &control->process, &socket);

    if (r < 0)
        return r;
    control->stats.starts++;
    control->dismissed = control->dismissed && control->queued == 0;
    ahead_forget(control);
    control->state = MOVER_STATE_STARTING;
    control->deadline_ns = add_saturate(control_now(control), control->options.hello_ns);
    r = conn_new_consume(socket, &control->conn);
    if (r == 0)
        r = control_watch(control) ? hello_send(control) : -ENOMEM;
    if (r < 0)
        life_fail(control, strerror(-r)); /* the process is there: it is reaped as any other */
    return 0;
}

/* Too many starts have failed for the jobs to wait for another. */
static void start_failed(struct mover_control *control)
{
    backoff_add(control);
    if (++control->failed_starts >= MOVER_ATTEMPTS)
        dispatch_give_up(control, -EAGAIN, control->last_text);
}

/* When a mover is to be started; CLOCK_NEVER while none is wanted. */
static uint64_t start_due(const struct mover_control *control)
{
    if (control->queued > 0)
        return control->start_at_ns;
    return control->keep ? MAX(control->start_at_ns, control->keep_at_ns) : CLOCK_NEVER;
}

void life_start_if_due(struct mover_control *control)
{
    int r;

    if (control->state != MOVER_STATE_NONE || control_now(control) < start_due(control))
        return;
    control->trim_at_ns = CLOCK_NEVER;
    r = process_start(control);
    if (r < 0) {
        text_set(control, "the mover cannot be started", strerror(-r));
        log_error("%s", control->last_text);
        start_failed(control);
    }
}

void life_ready(struct mover_control *control, uint64_t context_bytes)
{
    control->state = MOVER_STATE_READY;
    control->failed_starts = control->starved = 0;
    control->deadline_ns = CLOCK_NEVER;
    control->stats.context_bytes = context_bytes;
    log_info("mover %d is ready", (int) control->process.pid);
}

uint64_t life_memory_wanted(const struct mover_control *control)
{
    uint64_t bytes = control->stats.context_bytes, found;

    if (control->state == MOVER_STATE_READY || (!control->keep && control->queued == 0))
        return 0;
    if (control->starved == 0)
        return bytes;
    /* What the last one took is unknown or was too little: more with each start that failed. */
    found = STARVED_BYTES << MIN(control->starved - 1, 16u);
    found = MIN(found, STARVED_MOST);
    return MAX(bytes, found);
}

static void connection_drop(struct mover_control *control)
{
    control_unwatch(control);
    control->conn = conn_free(control->conn);
}

void life_fail(struct mover_control *control, const char *why)
{
    if (control->state != MOVER_STATE_STARTING && control->state != MOVER_STATE_READY)
        return;
    if (why != NULL)
        text_set(control, "the mover failed", why);
    connection_drop(control);
    /* One that hung up is ending: how it ends says why. If it doesn't, the deadline kills it. */
    if (why != NULL)
        mover_process_kill(&control->process);
    control->end_wanted = false;
    control->deadline_ns = add_saturate(control_now(control), END_NS);
    if (control->state == MOVER_STATE_STARTING)
        control->failed_starts++;
    control->state = MOVER_STATE_ENDING;
}

void life_end(struct mover_control *control)
{
    connection_drop(control);
    control->end_wanted = true;
    control->deadline_ns = add_saturate(control_now(control), END_NS);
    control->state = MOVER_STATE_ENDING;
}

/* It ended and nobody wanted it to. */
static void died(struct mover_control *control)
{
    char text[MOVER_PROCESS_TEXT];

    control->stats.deaths++;
    mover_process_describe(&control->process, text);
    if (control->last_text[0] == '\0')
        text_set(control, "the mover", text);
    else
        log_warning("%s", control->last_text);
    log_warning("the mover %s", text);
    dispatch_recall(control);
    if (control->queued > 0 || control->failed_starts > 0)
        backoff_add(control);
    control->keep_at_ns = add_saturate(control_now(control), KEEP_PAUSE_NS);
    if (control->failed_starts >= MOVER_ATTEMPTS)
        dispatch_give_up(control, -EAGAIN, control->last_text);
    control->last_text[0] = '\0';
}

void life_reap(struct mover_control *control)
{
    bool wanted;

    if (control->state == MOVER_STATE_NONE)
        return;
    /* What it said before it ended still counts. */
    dispatch_receive(control);
    if (!mover_process_reap(&control->process))
        return;
    wanted = control->state == MOVER_STATE_ENDING && control->end_wanted;
    connection_drop(control);
    control_unwatch_process(control);
    if (control->state == MOVER_STATE_STARTING)
        control->failed_starts++;
    control->starved += mover_process_starved(&control->process);
    control->state = MOVER_STATE_NONE;
    control->deadline_ns = CLOCK_NEVER;
    mover_holdings_clear(&control->holdings, &control->gone);
    if (wanted)
        log_info("the mover has ended: nothing to do");
    else
        died(control);
    control->trim_at_ns = control->queued == 0 ? control_now(control) : CLOCK_NEVER;
}

/* Gives back to the kernel, slab by slab, what no mover page-locks any more. */
static void tier_shrink(struct mover_control *control, uint64_t now)
{
    if (control->state != MOVER_STATE_NONE || now < control->trim_at_ns)
        return;
    control->trim_at_ns = tier_trim(control->tier, TRIM_SLABS) == TRIM_SLABS ? now : CLOCK_NEVER;
}

static void deadline_passed(struct mover_control *control)
{
    switch (control->state) {
    case MOVER_STATE_STARTING:
        life_fail(control, "it is not ready in time");
        break;
    case MOVER_STATE_READY:
        life_fail(control, "it makes no progress");
        break;
    case MOVER_STATE_ENDING:
        /* Usually the pidfd tells first. */
        mover_process_kill(&control->process);
        control->deadline_ns = add_saturate(control_now(control), END_NS);
        life_reap(control);
        break;
    case MOVER_STATE_NONE:
    case MOVER_STATE_MAX:
        break;
    }
}

/* Whether it is stopped, once in a while. */
static void look(struct mover_control *control, uint64_t now)
{
    bool expected = control->state == MOVER_STATE_STARTING ||
                    (control->state == MOVER_STATE_READY && control->in_flight > 0);

    if (!expected) {
        control->look_ns = CLOCK_NEVER;
        return;
    }
    if (now >= control->look_ns && mover_process_stopped(&control->process))
        life_fail(control, "it is stopped");
    if (now >= control->look_ns || control->look_ns == CLOCK_NEVER)
        control->look_ns = add_saturate(now, LOOK_NS);
}

uint64_t life_tick(struct mover_control *control)
{
    uint64_t now = control_now(control), next = CLOCK_NEVER;
    bool idle = control->state == MOVER_STATE_READY && !dispatch_has_work(control);

    if (now >= control->deadline_ns)
        deadline_passed(control);
    look(control, now);
    if (!idle || control->keep)
        control->idle_at_ns = add_saturate(now, control->options.idle_ns);
    else if (control->dismissed || now >= control->idle_at_ns)
        life_end(control);
    tier_shrink(control, now);
    if (idle && !control->keep && control->state == MOVER_STATE_READY)
        next = control->idle_at_ns;
    if (control->state == MOVER_STATE_NONE)
        next = MIN(next, start_due(control));
    if (control->state == MOVER_STATE_NONE)
        next = MIN(next, control->trim_at_ns);
    if (control->state == MOVER_STATE_READY && control->in_flight == 0 &&
        !list_empty(&control->suspects))
        next = MIN(next, control->hold_until_ns);
    next = MIN(next, control->look_ns);
    return MIN(next, control->deadline_ns);
}
