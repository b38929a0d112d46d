/*
 * The last failure of a thread is one value in thread-local storage: nothing to allocate, nothing
 * to free when the thread ends.
 */
#include "client/outcome.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

_Static_assert(GMB_E_EXHAUSTED == -GMB_STATUS_EXHAUSTED, "one numbering");
_Static_assert(GMB_E_OVER_LIMIT == -GMB_STATUS_OVER_LIMIT, "one numbering");
_Static_assert(GMB_E_TIMED_OUT == -GMB_STATUS_TIMED_OUT, "one numbering");
_Static_assert(GMB_E_CANCELLED == -GMB_STATUS_CANCELLED, "one numbering");
_Static_assert(GMB_E_INVALID == -GMB_STATUS_INVALID, "one numbering");
_Static_assert(GMB_E_NOT_FOUND == -GMB_STATUS_NOT_FOUND, "one numbering");
_Static_assert(GMB_E_DENIED == -GMB_STATUS_DENIED, "one numbering");
_Static_assert(GMB_E_CONFLICT == -GMB_STATUS_CONFLICT, "one numbering");
_Static_assert(GMB_E_UNSUPPORTED == -GMB_STATUS_UNSUPPORTED, "one numbering");
_Static_assert(GMB_E_DISCONNECTED == -GMB_STATUS_DISCONNECTED, "one numbering");
_Static_assert(GMB_E_FORKED == -GMB_STATUS_FORKED, "one numbering");
_Static_assert(GMB_E_GPU == -GMB_STATUS_GPU, "one numbering");
_Static_assert(GMB_E_PROTOCOL == -GMB_STATUS_PROTOCOL, "one numbering");
_Static_assert(GMB_E_INTERNAL == -GMB_STATUS_INTERNAL, "one numbering");

static __thread struct outcome last;

static int _printf_(3, 0) outcome_fill(
    struct outcome *outcome, int code, const char *format, va_list args, const char *suffix)
{
    int length = vsnprintf(outcome->text, sizeof(outcome->text), format, args);

    outcome->code = code;
    outcome->limit = GMB_LIMIT_NONE;
    if (suffix != NULL && length >= 0 && (size_t) length < sizeof(outcome->text))
        (void) snprintf(
            outcome->text + length, sizeof(outcome->text) - (size_t) length, ": %s", suffix);
    return code;
}

int outcome_set(struct outcome *outcome, int code, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void) outcome_fill(outcome, code, format, args, NULL);
    va_end(args);
    return code;
}

int outcome_set_errno(struct outcome *outcome, int error, const char *format, ...)
{
    int code = -(int) status_from_errno(error);
    char buffer[128];
    va_list args;

    va_start(args, format);
    (void) outcome_fill(outcome, code, format, args,
        strerror_r(error < 0 ? -error : error, buffer, sizeof(buffer)));
    va_end(args);
    return code;
}

int outcome_from_error(struct outcome *outcome, const Gmb__Error *error)
{
    int code = -(int) error->status;

    if (error->status == GMB_STATUS_OK || error->status >= GMB_STATUS_MAX)
        return outcome_set(outcome, GMB_E_PROTOCOL,
            "the broker answered with the unknown status %u%s%s", error->status,
            error->text[0] != '\0' ? ": " : "", error->text);
    outcome_set(outcome, code, "%s",
        error->text[0] != '\0' ? error->text : status_text((enum gmb_status) - code));
    if (error->limit < GMB_LIMIT_MAX)
        outcome->limit = (enum gmb_limit) error->limit;
    return code;
}

int outcome_publish(const struct outcome *outcome)
{
    if (outcome->code != 0)
        last = *outcome;
    return outcome->code;
}

_public_ const char *gmb_strerror(int error)
{
    return error > 0 || error <= -GMB_STATUS_MAX ? status_text(GMB_STATUS_MAX)
                                                 : status_text((enum gmb_status) - error);
}

_public_ const char *gmb_error_text(void)
{
    return last.text;
}

_public_ const char *gmb_error_limit(void)
{
    return limit_name(last.limit);
}
