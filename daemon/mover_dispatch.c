/*
 * Jobs go out urgent ones first, a few at a time. A suspect (a job that some mover died or failed
 * on) goes out alone and before all others: if the mover fails again, it is known on what.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "daemon/mover_control_private.h"

/* A chunk that can't be exported for want of fds or memory is tried again after this, so often. */
#define EXPORT_PAUSE_NS (20 * NSEC_PER_MSEC)
#define EXPORT_TRIES 500

bool dispatch_has_work(const struct mover_control *control)
{
    return control->queued > 0 || control->in_flight > 0 ||
           !list_empty(&control->holdings.forgetting);
}

void dispatch_progress(struct mover_control *control)
{
    uint64_t rate = MAX(control->options.bytes_per_second, UINT64_C(1));
    uint64_t copying_ns = (uint64_t) ((double) control->flight_bytes / (double) rate * 1e9);

    control->deadline_ns =
        control->in_flight == 0
            ? CLOCK_NEVER
            : add_saturate(
                  add_saturate(control_now(control), control->options.progress_ns), copying_ns);
}

/* ------------------------------------------------------------------ queues */

static void queue_put(
    struct mover_control *control, struct list *queue, struct mover_record *record)
{
    list_append(queue, &record->link);
    control->queued++;
}

static void queue_take(struct mover_control *control, struct mover_record *record)
{
    list_remove(&record->link);
    control->queued--;
}

static void flight_take(struct mover_control *control, struct mover_record *record)
{
    list_remove(&record->link);
    control->in_flight--;
    control->flight_bytes -= mover_record_bytes(record);
}

/* A mover died or the driver failed on it: once more, alone, or never again. */
static void record_retry(struct mover_control *control, struct mover_record *record)
{
    if (++record->attempts >= MOVER_ATTEMPTS) {
        control_finish(control, record, -EIO);
        return;
    }
    control->stats.jobs_repeated++;
    queue_put(control, &control->suspects, record);
}

void dispatch_recall(struct mover_control *control)
{
    list_for_each_safe(record, &control->flight, struct mover_record, link)
    {
        flight_take(control, record);
        if (record->prepare)
            ahead_failed(control, control->last_text);
        if (mover_record_own(record)) {
            mover_record_free(record);
            continue;
        }
        mover_record_set_text(record, control->last_text);
        record_retry(control, record);
    }
}

void dispatch_give_up(struct mover_control *control, int error, const char *text)
{
    struct list *const queues[] = {&control->suspects, &control->urgent, &control->normal};

    for (size_t i = 0; i < ARRAY_SIZE(queues); i++) {
        list_for_each_safe(record, queues[i], struct mover_record, link)
        {
            queue_take(control, record);
            mover_record_set_text(record, text);
            control_finish(control, record, error);
        }
    }
}

void dispatch_cancel(struct mover_control *control)
{
    list_for_each_safe(record, &control->flight, struct mover_record, link)
    {
        flight_take(control, record);
        if (mover_record_own(record))
            mover_record_free(record);
        else
            control_finish(control, record, -ECANCELED);
    }
    dispatch_give_up(control, -ECANCELED, "the broker ends");
}

/* ------------------------------------------------------------------ sending */

static const char *connection_error(int r)
{
    if (r == -ECONNRESET || r == -EPIPE)
        return NULL;
    return r == -EBADMSG ? "it broke the protocol" : strerror(-r);
}

static bool export_transient(int error)
{
    return error == -EMFILE || error == -ENFILE || error == -ENOMEM || error == -EAGAIN;
}

/* Collects the fds that the mover needs; 0 or -errno, and nothing is marked as sent yet. */
static int fds_collect(struct mover_control *control, const struct mover_record *record,
    bool with_fd[MOVER_JOB_CHUNKS], struct fdset *fds)
{
    for (size_t i = 0; i < record->job.chunk_count; i++) {
        const struct mover_chunk *chunk = &record->chunks[i];
        const struct mover_held *held =
            mover_holdings_find(&control->holdings, chunk->number, chunk->generation);
        int fd, r;

        if (held != NULL && held->awaited)
            return -ESTALE;
        /* The mover reads in order: what it was told to forget it doesn't have when it reads this.
         */
        with_fd[i] = held == NULL || held->told > 0 || record->all_fds;
        if (!with_fd[i])
            continue;
        r = control->handler.chunk_export(
            control->handler.data, chunk->number, chunk->generation, &fd);
        if (r == 0)
            r = fdset_consume(fds, fd);
        if (r < 0)
            return r;
    }
    return 0;
}

static int holdings_add(struct mover_control *control, const struct mover_record *record)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < record->job.chunk_count; i++)
        r = mover_holdings_add(&control->holdings, record->chunks[i].number,
            record->chunks[i].generation, record->chunks[i].bytes);
    return r;
}

/* The record is in no list; whatever happens it is in one afterwards, or finished. */
static void record_send(struct mover_control *control, struct mover_record *record)
{
    _cleanup_fdset_ struct fdset fds = FDSET_EMPTY;
    bool with_fd[MOVER_JOB_CHUNKS] = {false};
    bool own = mover_record_own(record);
    int r = own ? 0 : fds_collect(control, record, with_fd, &fds);

    if (r == 0 && !own)
        r = holdings_add(control, record);
    if (export_transient(r) && ++record->export_tries < EXPORT_TRIES) {
        mover_record_set_text(record, strerror(-r));
        control->hold_until_ns = control_now(control) + EXPORT_PAUSE_NS;
        queue_put(control, &control->suspects, record);
        return;
    }
    if (r < 0) {
        mover_record_set_text(record, strerror(-r));
        control_finish(control, record, r == -ESTALE || r == -EBUSY ? -ESTALE : -EIO);
        return;
    }
    record->id = ++control->last_id;
    list_append(&control->flight, &record->link);
    control->in_flight++;
    control->flight_bytes += mover_record_bytes(record);
    if (control->in_flight == 1)
        dispatch_progress(control);
    ahead_note(control, record);
    r = mover_record_send(record, control->conn, with_fd, &fds);
    if (r < 0)
        life_fail(control, connection_error(r));
}

/* The next job that may go out now; NULL: none. */
static struct mover_record *record_next(const struct mover_control *control)
{
    const struct mover_record *flying = list_first(&control->flight, struct mover_record, link);
    struct mover_record *record = list_first(&control->suspects, struct mover_record, link);

    if (record != NULL)
        return control->in_flight == 0 && control_now(control) >= control->hold_until_ns ? record
                                                                                         : NULL;
    if (control->in_flight >= FLIGHT_JOBS || (flying != NULL && flying->attempts > 0) ||
        control->flight_bytes >= 2 * MOVER_JOB_BYTES)
        return NULL;
    record = list_first(&control->urgent, struct mover_record, link);
    return record != NULL ? record : list_first(&control->normal, struct mover_record, link);
}

/* Tells the mover of chunks to forget, as many as one message names. */
static void forget_send(struct mover_control *control)
{
    struct mover_record *record;
    size_t count = 0;

    list_for_each(held, &control->holdings.forgetting, struct mover_held, link)
    {
        if (++count == MOVER_JOB_CHUNKS)
            break;
    }
    if (count == 0 || mover_record_new_forget(count, &record) < 0)
        return;
    for (size_t i = 0; i < count; i++) {
        struct mover_held *held =
            list_first(&control->holdings.forgetting, struct mover_held, link);

        list_remove(&held->link);
        held->told++;
        record->chunks[i] = (struct mover_chunk){
            .number = held->number, .generation = held->generation, .bytes = held->bytes};
    }
    record_send(control, record);
}

void dispatch_send(struct mover_control *control)
{
    struct mover_record *record;

    while (control->state == MOVER_STATE_READY && !list_empty(&control->holdings.forgetting))
        forget_send(control);
    while (control->state == MOVER_STATE_READY && (record = record_next(control)) != NULL) {
        queue_take(control, record);
        record_send(control, record);
    }
    record = ahead_next(control);
    if (record != NULL)
        record_send(control, record);
}

/* ------------------------------------------------------------------ answers */

static struct mover_record *flight_find(const struct mover_control *control, uint64_t id)
{
    list_for_each(record, &control->flight, struct mover_record, link)
    {
        if (record->id == id)
            return record;
    }
    return NULL;
}

static void forget_done(struct mover_control *control, const struct mover_record *record)
{
    for (size_t i = 0; i < record->job.chunk_count; i++) {
        struct mover_held *held = mover_holdings_find(
            &control->holdings, record->chunks[i].number, record->chunks[i].generation);

        if (held == NULL)
            continue;
        held->told--;
        if (held->forgetting && held->told == 0)
            mover_holdings_remove(&control->holdings, held, &control->gone);
    }
}

static void stats_count(struct mover_control *control, const struct mover_record *record)
{
    struct mover_stats *stats = &control->stats;
    uint64_t bytes = mover_record_bytes(record);

    switch (record->job.kind) {
    case MOVER_EVICT:
        stats->evicted_bytes += bytes;
        break;
    case MOVER_RESTORE:
        for (size_t i = 0; i < record->job.copy_count; i++) {
            if (record->copies[i].damaged) {
                stats->damaged_pages++;
                bytes -= record->job.page_bytes;
            }
        }
        stats->restored_bytes += bytes;
        break;
    case MOVER_SCRUB:
        stats->scrubbed_bytes += bytes;
        break;
    case MOVER_CHECKSUM:
        stats->summed_bytes += bytes;
        break;
    case MOVER_KIND_MAX:
        break;
    }
}

/* The mover lost some chunk of the job, as it may: send their fds again, once. */
static int chunks_resend(struct mover_control *control, struct mover_record *record)
{
    if (record->all_fds || mover_record_own(record))
        return -EBADMSG;
    record->all_fds = true;
    flight_take(control, record);
    list_insert_after(record->attempts > 0 ? &control->suspects : &control->urgent, &record->link);
    control->queued++;
    return 0;
}

static int job_succeeded(
    struct mover_control *control, struct mover_record *record, const Gmb__MoverDone *done)
{
    int r = mover_record_apply(record, done);

    if (r < 0)
        return r;
    control->failures = 0;
    control->last_text[0] = '\0';
    flight_take(control, record);
    if (record->forget)
        forget_done(control, record);
    if (record->prepare)
        control->ahead.failures = 0;
    if (mover_record_own(record)) {
        mover_record_free(record);
        return 0;
    }
    stats_count(control, record);
    control_finish(control, record, 0);
    return 0;
}

static int job_failed(
    struct mover_control *control, struct mover_record *record, const Gmb__MoverDone *done)
{
    unsigned shift = MIN(record->attempts, 16u);

    if (record->forget)
        return -EBADMSG;
    if (record->prepare) {
        flight_take(control, record);
        ahead_failed(control, done->text);
        mover_record_free(record);
        return 0;
    }
    log_warning("the mover cannot do a job: %s", done->text);
    (void) snprintf(control->last_text, sizeof(control->last_text), "%s", done->text);
    flight_take(control, record);
    mover_record_set_text(record, done->text);
    control->hold_until_ns =
        add_saturate(control_now(control), control->options.backoff_ns << shift);
    record_retry(control, record);
    return 0;
}

/* Neither the mover nor the driver is at fault: its owner decides what follows. */
static int job_refused(struct mover_control *control, struct mover_record *record,
    const Gmb__MoverDone *done, int error)
{
    if (mover_record_own(record))
        return -EBADMSG;
    flight_take(control, record);
    mover_record_set_text(record, done->text);
    control_finish(control, record, error);
    return 0;
}

static int done_receive(struct mover_control *control, const Gmb__MoverDone *done)
{
    struct mover_record *record = flight_find(control, done->id);

    if (record == NULL || control->state != MOVER_STATE_READY)
        return -EBADMSG;
    switch (done->result) {
    case GMB__MOVER_RESULT__MOVER_RESULT_OK:
        return job_succeeded(control, record, done);
    case GMB__MOVER_RESULT__MOVER_RESULT_UNKNOWN_CHUNK:
        return chunks_resend(control, record);
    case GMB__MOVER_RESULT__MOVER_RESULT_GPU:
        return job_failed(control, record, done);
    case GMB__MOVER_RESULT__MOVER_RESULT_INVALID:
        return job_refused(control, record, done, -EINVAL);
    case GMB__MOVER_RESULT__MOVER_RESULT_DISK:
        return job_refused(control, record, done, -EREMOTEIO);
    case _GMB__MOVER_RESULT_IS_INT_SIZE:
        break;
    }
    return -EBADMSG;
}

static int message_take(struct mover_control *control, const Gmb__MoverMessage *message)
{
    int r;

    if (message->body_case == GMB__MOVER_MESSAGE__BODY_READY &&
        control->state == MOVER_STATE_STARTING) {
        life_ready(control, message->ready->context_bytes);
        return 0;
    }
    if (message->body_case != GMB__MOVER_MESSAGE__BODY_DONE)
        return -EBADMSG;
    r = done_receive(control, message->done);
    dispatch_progress(control);
    return r;
}

void dispatch_receive(struct mover_control *control)
{
    for (unsigned i = 0; control->conn != NULL && i < 2 * FLIGHT_JOBS + 1; i++) {
        _cleanup_fdset_ struct fdset fds = FDSET_EMPTY;
        Gmb__MoverMessage *message = NULL;
        const uint8_t *bytes;
        size_t size;
        int r = conn_receive(control->conn, &bytes, &size, &fds);

        if (r == -EAGAIN)
            return;
        if (r == 0)
            r = frame_decode_mover(bytes, size, &message);
        if (r == 0)
            r = fds.count == 0 ? message_take(control, message) : -EBADMSG;
        if (message != NULL)
            frame_message_free(&message->base);
        if (r < 0)
            life_fail(control, connection_error(r));
    }
}
