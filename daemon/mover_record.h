/* A job that was submitted, from its copy to its answer: checked, encoded, and what the mover said
 * about it taken in. No I/O. */
#pragma once

#include "daemon/mover_control.h"
#include "proto/conn.h"

struct mover_record {
    struct list link; /* in one of the control's lists */
    uint64_t id;
    struct mover_job job;       /* its arrays are this record's */
    struct mover_chunk *chunks; /* the same arrays, writable */
    struct mover_copy *copies;
    unsigned attempts; /* that ended in a death or a failure */
    unsigned export_tries;
    bool forget;          /* our own: drops chunks; has no owner */
    bool prepare;         /* … and so does this: page-locks a slab ahead of need */
    bool all_fds;         /* the mover lost chunks: send every fd */
    uint64_t slab_offset; /* PREPARE */
    int error;            /* of the result */
    char text[LIMIT_TEXT_BYTES + 1];
};

/* -EINVAL: numbers out of bounds; -ENOMEM. */
int mover_record_new(
    const struct mover_job *job, const struct tier *tier, struct mover_record **ret) _must_check_;
/* A FORGET of `count` chunks, to be filled in. */
int mover_record_new_forget(size_t count, struct mover_record **ret) _must_check_;
/* A PREPARE of the slab. -ENOMEM. */
int mover_record_new_prepare(uint64_t slab_offset, struct mover_record **ret) _must_check_;
/* Whether it is nobody's job but the control's own. */
bool mover_record_own(const struct mover_record *record);
/* Must be in no list. Accepts NULL, returns NULL. */
struct mover_record *mover_record_free(struct mover_record *record);

/* Bytes that the job moves, on the device's side. */
uint64_t mover_record_bytes(const struct mover_record *record);

/* Sends the job; `with_fd` says of each chunk whether its fd is the next in `fds` (consumed). */
int mover_record_send(const struct mover_record *record, struct conn *conn,
    const bool with_fd[MOVER_JOB_CHUNKS], struct fdset *fds) _must_check_;

/* Takes the results of an OK answer in; -EBADMSG when they don't fit the job. */
int mover_record_apply(struct mover_record *record, const Gmb__MoverDone *done) _must_check_;
void mover_record_set_text(struct mover_record *record, const char *text);
