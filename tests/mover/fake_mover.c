/*
 * A mover that misbehaves to order. $GMB_FAKE_SCRIPT is a list of words, one for each incarnation
 * in turn (the last one for all that follow); $GMB_FAKE_COUNT names a file that counts
 * incarnations by its length.
 *
 *   ok            answers everything: checksum i of a job is its id × 1000 + i
 *   dead          ends at once
 *   dead-hello    ends when it is greeted
 *   starved       ends when it is greeted: the device has no memory for its context
 *   mute-hello    never gets ready
 *   dead-job      ends at the first job
 *   dead-reply    ends after the first answer
 *   mute          never answers a job
 *   stopped       stops at the first job
 *   stopped-hello stops when it is greeted
 *   garbage       answers with what is no frame
 *   unasked       answers a job that nobody gave it
 *   twice         answers each job twice
 *   counts        answers with one checksum too many
 *   damaged       names a damaged copy that isn't there
 *   fails         cannot do any job
 *   refuses       calls every job invalid
 *   unknown       knows none of the chunks that come without an fd, and says so of the first job
 * that
 *                 comes with all
 *   poison        ends at a job whose first chunk is number 13, answers all others
 *   forgets       forgets whatever it is sent
 *   ahead-dies    ends at what is to be done ahead of need
 *   ahead-fails   … or can't do it
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/macro.h"
#include "proto/conn.h"

/* What it says that its context takes. */
#define CONTEXT_BYTES (UINT64_C(5) << 20)

static char word[32];
static struct conn *conn;
static unsigned jobs;

static void word_choose(void)
{
    const char *at = getenv("GMB_FAKE_SCRIPT");
    int fd = open(getenv("GMB_FAKE_COUNT"), O_WRONLY | O_APPEND | O_CREAT, 0666);
    struct stat stat;
    size_t length;

    if (at == NULL || fd < 0 || fstat(fd, &stat) < 0 || write(fd, ".", 1) != 1)
        exit(100);
    (void) close(fd);
    for (off_t i = 0; i < stat.st_size && strchr(at, ',') != NULL; i++)
        at = strchr(at, ',') + 1;
    length = strcspn(at, ",");
    if (length >= sizeof(word))
        exit(100);
    memcpy(word, at, length);
}

static bool is(const char *name)
{
    return strcmp(word, name) == 0;
}

static void message_send(Gmb__MoverMessage *message)
{
    if (conn_send_consume(conn, &message->base, NULL) < 0 || conn_flush(conn) < 0)
        exit(101);
}

static bool is_ahead(const Gmb__MoverJob *job)
{
    return job->kind == GMB__MOVER_JOB_KIND__MOVER_JOB_PREPARE;
}

static void done_send(const Gmb__MoverJob *job, uint64_t id)
{
    Gmb__MoverMessage message;
    Gmb__MoverDone done;
    uint64_t sums[1025];
    uint32_t damaged = (uint32_t) job->n_copies;

    gmb__mover_message__init(&message);
    gmb__mover_done__init(&done);
    message.body_case = GMB__MOVER_MESSAGE__BODY_DONE;
    message.done = &done;
    done.id = id;
    if (is("fails") || (is("ahead-fails") && is_ahead(job)))
        done.result = GMB__MOVER_RESULT__MOVER_RESULT_GPU;
    if (is("refuses"))
        done.result = GMB__MOVER_RESULT__MOVER_RESULT_INVALID;
    for (size_t i = 0; i <= job->n_copies; i++)
        sums[i] = id * 1000 + i;
    if (done.result == GMB__MOVER_RESULT__MOVER_RESULT_OK &&
        job->kind == GMB__MOVER_JOB_KIND__MOVER_JOB_EVICT) {
        done.checksums = sums;
        done.n_checksums = job->n_copies + (is("counts") ? 1 : 0);
    }
    if (is("damaged")) {
        done.damaged = &damaged;
        done.n_damaged = 1;
    }
    message_send(&message);
}

static void unknown_send(uint64_t id)
{
    Gmb__MoverMessage message;
    Gmb__MoverDone done;

    gmb__mover_message__init(&message);
    gmb__mover_done__init(&done);
    message.body_case = GMB__MOVER_MESSAGE__BODY_DONE;
    message.done = &done;
    done.id = id;
    done.result = GMB__MOVER_RESULT__MOVER_RESULT_UNKNOWN_CHUNK;
    message_send(&message);
}

static bool job_lacks_fd(const Gmb__MoverJob *job)
{
    for (size_t i = 0; i < job->n_chunks; i++) {
        if (!job->chunks[i]->with_fd)
            return true;
    }
    return false;
}

static void job_take(const Gmb__MoverJob *job)
{
    jobs++;
    if (is("dead-job") || (is("ahead-dies") && is_ahead(job)) ||
        (is("poison") && job->n_chunks > 0 && job->chunks[0]->number == 13))
        exit(77);
    if (is("mute"))
        return;
    if (is("stopped"))
        (void) raise(SIGSTOP);
    if (is("garbage")) {
        (void) send(conn_fd(conn), "\xff\xff\xff", 3, MSG_NOSIGNAL);
        return;
    }
    if ((is("forgets") && job->kind != GMB__MOVER_JOB_KIND__MOVER_JOB_FORGET &&
            job_lacks_fd(job)) ||
        (is("unknown") && !job_lacks_fd(job))) {
        unknown_send(job->id);
        return;
    }
    done_send(job, is("unasked") ? job->id + 1000 : job->id);
    if (is("twice"))
        done_send(job, job->id);
    if (is("dead-reply"))
        exit(78);
}

static void message_take(const Gmb__MoverMessage *message, const struct fdset *fds)
{
    Gmb__MoverMessage answer;
    Gmb__MoverReady ready;

    if (frame_mover_fds(message) != fds->count)
        exit(102);
    if (message->body_case == GMB__MOVER_MESSAGE__BODY_JOB) {
        job_take(message->job);
        return;
    }
    if (is("dead-hello"))
        exit(76);
    if (is("starved"))
        exit(GMB__MOVER_EXIT__MOVER_EXIT_MEMORY);
    if (is("mute-hello"))
        return;
    if (is("stopped-hello"))
        (void) raise(SIGSTOP);
    gmb__mover_message__init(&answer);
    gmb__mover_ready__init(&ready);
    answer.body_case = GMB__MOVER_MESSAGE__BODY_READY;
    ready.context_bytes = CONTEXT_BYTES;
    answer.ready = &ready;
    message_send(&answer);
}

int main(void)
{
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    word_choose();
    if (is("dead"))
        return 75;
    if (conn_new_consume(3, &conn) < 0)
        return 103;
    for (;;) {
        _cleanup_fdset_ struct fdset fds = FDSET_EMPTY;
        struct pollfd readable = {.fd = conn_fd(conn), .events = POLLIN};
        Gmb__MoverMessage *message;
        const uint8_t *bytes;
        size_t size;

        if (poll(&readable, 1, -1) < 0 || conn_receive(conn, &bytes, &size, &fds) < 0)
            break;
        if (frame_decode_mover(bytes, size, &message) < 0)
            return 104;
        message_take(message, &fds);
        frame_message_free(&message->base);
    }
    conn_free(conn);
    return 0;
}
