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

/* The code of a status from the wire; PROTOCOL for what is no failure we know. */
int outcome_code(uint32_t status);

/* Makes a failure the calling thread's last one; success changes nothing. Returns the code. */
int outcome_publish(const struct outcome *outcome);
