/*
 * How a call of libgmb ended, and where its thread finds that afterwards.
 *
 * Inside the library a function that can fail fills a `struct outcome` and returns its code: 0 or a
 * negative GMB_E_*. An outcome is a value: a request's travels from the thread that read the answer
 * to the one that made the call, and only that one publishes it.
 */
#pragma once

#include "base/error.h"
#include "base/limits.h"
#include "client/gmb.h"
#include "proto/gmb.pb-c.h"

struct outcome {
    int code; /* 0 or GMB_E_* */
    enum gmb_limit limit;
    char text[LIMIT_TEXT_BYTES + 1];
};

#define OUTCOME_OK ((struct outcome){.code = 0})

/* Fills `outcome` and returns `code`. Text that doesn't fit is cut. */
int outcome_set(struct outcome *outcome, int code, const char *format, ...) _printf_(3, 4);

/* The same for a negative errno, whose meaning is added behind the text. */
int outcome_set_errno(struct outcome *outcome, int error, const char *format, ...) _printf_(3, 4);

/* The same for an Error of the broker's; PROTOCOL when its status is no failure that we know. */
int outcome_from_error(struct outcome *outcome, const Gmb__Error *error);

/* Makes a failure the calling thread's last one; success changes nothing. Returns the code. */
int outcome_publish(const struct outcome *outcome);
