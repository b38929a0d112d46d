/* See answer.h. Texts of the driver are plain ASCII and shorter than LIMIT_TEXT_BYTES. */
#include "daemon/mover/answer.h"

static int answer_send(struct conn *conn, Gmb__MoverDone *done)
{
    Gmb__MoverMessage message = GMB__MOVER_MESSAGE__INIT;

    message.body_case = GMB__MOVER_MESSAGE__BODY_DONE;
    message.done = done;
    return conn_send_consume(conn, &message.base, NULL);
}

int answer_ready(struct conn *conn, uint64_t context_bytes)
{
    Gmb__MoverMessage message = GMB__MOVER_MESSAGE__INIT;
    Gmb__MoverReady ready = GMB__MOVER_READY__INIT;

    ready.context_bytes = context_bytes;
    message.body_case = GMB__MOVER_MESSAGE__BODY_READY;
    message.ready = &ready;
    return conn_send_consume(conn, &message.base, NULL);
}

int answer_plain(struct conn *conn, uint64_t id, Gmb__MoverResult result, const char *text)
{
    Gmb__MoverDone done;

    gmb__mover_done__init(&done);
    done.id = id;
    done.result = result;
    if (text != NULL)
        done.text = (char *) (uintptr_t) text;
    return answer_send(conn, &done);
}

int answer_task(struct conn *conn, const struct task *task)
{
    Gmb__MoverDone done;
    const struct job *job = task->job;
    uint64_t sums[JOB_COPIES_MAX];
    uint32_t damaged[JOB_COPIES_MAX];

    if (task->result < 0)
        return answer_plain(conn, job->id,
            task->disk_failed ? GMB__MOVER_RESULT__MOVER_RESULT_DISK
                              : GMB__MOVER_RESULT__MOVER_RESULT_GPU,
            task->error.text);
    gmb__mover_done__init(&done);
    done.id = job->id;
    done.result = GMB__MOVER_RESULT__MOVER_RESULT_OK;
    for (uint32_t i = 0; i < job->copy_count; i++) {
        sums[i] = task->sums[i];
        if (task->sums[i] != job->copies[i].checksum)
            damaged[done.n_damaged++] = i;
    }
    if (job->kind == GMB__MOVER_JOB_KIND__MOVER_JOB_RESTORE) {
        done.damaged = damaged;
    } else {
        done.n_damaged = 0;
        done.n_checksums = job->copy_count;
        done.checksums = sums;
    }
    return answer_send(conn, &done);
}
