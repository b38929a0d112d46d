/* What the mover says to the broker. Each sends or queues; the -errno of conn_send_consume(). */
#pragma once

#include "daemon/mover/engine.h"
#include "proto/conn.h"

int answer_ready(struct conn *conn, uint64_t context_bytes) _must_check_;
/* A job that wasn't run, or a FORGET that is done. `text` may be NULL. */
int answer_plain(
    struct conn *conn, uint64_t id, Gmb__MoverResult result, const char *text) _must_check_;
/* A job that was. */
int answer_task(struct conn *conn, const struct task *task) _must_check_;
