/* Names, texts and the total map from errno to status. See error.h for the rule. */
#include "base/error.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>

static const struct {
    const char *name;
    const char *text;
} statuses[] = {
    [GMB_STATUS_OK] = {"ok", "success"},
    [GMB_STATUS_EXHAUSTED] = {"exhausted",
        "a limit is reached; try again when memory is given back"},
    [GMB_STATUS_OVER_LIMIT] = {"over-limit", "the request is larger than the limit ever allows"},
    [GMB_STATUS_TIMED_OUT] = {"timed-out", "the deadline passed before memory became free"},
    [GMB_STATUS_CANCELLED] = {"cancelled", "the request was cancelled"},
    [GMB_STATUS_INVALID] = {"invalid", "the request is not valid"},
    [GMB_STATUS_NOT_FOUND] = {"not-found", "there is no such object"},
    [GMB_STATUS_DENIED] = {"denied", "the caller has no permission for this"},
    [GMB_STATUS_CONFLICT] = {"conflict", "somebody else changed the object meanwhile"},
    [GMB_STATUS_UNSUPPORTED] = {"unsupported", "the other side does not support this"},
    [GMB_STATUS_DISCONNECTED] = {"disconnected", "there is no connection to the broker"},
    [GMB_STATUS_FORKED] = {"forked", "the session belongs to the parent process"},
    [GMB_STATUS_GPU] = {"gpu", "the GPU driver reported an error"},
    [GMB_STATUS_PROTOCOL] = {"protocol", "the other side broke the protocol"},
    [GMB_STATUS_INTERNAL] = {"internal", "an internal error"},
};
static_assert(ARRAY_SIZE(statuses) == GMB_STATUS_MAX, "every status has a name");

static const char *const limits[] = {
    [GMB_LIMIT_NONE] = "none",
    [GMB_LIMIT_DEVICE] = "device",
    [GMB_LIMIT_DRIVER] = "driver",
    [GMB_LIMIT_GUARANTEED] = "guaranteed",
    [GMB_LIMIT_MEMORY_MAX] = "MemoryMax",
    [GMB_LIMIT_MEMORY_HIGH] = "MemoryHigh",
    [GMB_LIMIT_CLIENTS_MAX] = "ClientsMax",
    [GMB_LIMIT_LEASES_MAX] = "LeasesMax",
    [GMB_LIMIT_REQUESTS] = "requests",
    [GMB_LIMIT_CHUNKS] = "chunks",
    [GMB_LIMIT_DRAINING] = "draining",
    [GMB_LIMIT_PERMISSION] = "permission",
    [GMB_LIMIT_HOLDERS] = "holders",
    [GMB_LIMIT_UNSEALED] = "unsealed",
};
static_assert(ARRAY_SIZE(limits) == GMB_LIMIT_MAX, "every limit has a name");

const char *status_name(enum gmb_status status)
{
    return (unsigned) status < GMB_STATUS_MAX ? statuses[status].name : "unknown";
}

const char *status_text(enum gmb_status status)
{
    return (unsigned) status < GMB_STATUS_MAX ? statuses[status].text : "unknown status";
}

const char *limit_name(enum gmb_limit limit)
{
    return (unsigned) limit < GMB_LIMIT_MAX ? limits[limit] : "unknown";
}

enum gmb_status status_from_errno(int error)
{
    /* -INT_MIN has no value; as it is, it falls through to INTERNAL. */
    switch (error < 0 && error != INT_MIN ? -error : error) {
    case 0:
        return GMB_STATUS_OK;
    case EPERM:
    case EACCES:
        return GMB_STATUS_DENIED;
    case ENOENT:
    case ESRCH:
    case ENODEV:
        return GMB_STATUS_NOT_FOUND;
    case EINVAL:
    case ERANGE:
    case EOVERFLOW:
        return GMB_STATUS_INVALID;
    case ETIMEDOUT:
        return GMB_STATUS_TIMED_OUT;
    case ECANCELED:
        return GMB_STATUS_CANCELLED;
    case ESTALE:
        return GMB_STATUS_CONFLICT;
    case EOPNOTSUPP:
    case ENOSYS:
        return GMB_STATUS_UNSUPPORTED;
    case ECONNREFUSED:
    case ECONNRESET:
    case ENOTCONN:
    case EPIPE:
        return GMB_STATUS_DISCONNECTED;
    case EPROTO:
    case EBADMSG:
    case EMSGSIZE:
        return GMB_STATUS_PROTOCOL;
    case EIO:
        return GMB_STATUS_GPU;
    default:
        return GMB_STATUS_INTERNAL;
    }
}
