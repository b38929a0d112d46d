/* Writes log lines. See log.h. */
#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LINE_MAX_BYTES 1024

static const struct {
    const char *name;
    const char *prefix; /* sd-daemon(3) */
} levels[] = {
    [LOG_LEVEL_ERROR] = {"error", "<3>"},
    [LOG_LEVEL_WARNING] = {"warning", "<4>"},
    [LOG_LEVEL_NOTICE] = {"notice", "<5>"},
    [LOG_LEVEL_INFO] = {"info", "<6>"},
    [LOG_LEVEL_DEBUG] = {"debug", "<7>"},
};
static_assert(ARRAY_SIZE(levels) == LOG_LEVEL_MAX, "every level has a name");

static enum log_level max_level = LOG_LEVEL_INFO;

void log_set_level(enum log_level level)
{
    __atomic_store_n(&max_level, level, __ATOMIC_RELAXED);
}

int log_level_parse(const char *name, enum log_level *ret_level)
{
    for (unsigned i = 0; i < LOG_LEVEL_MAX; i++) {
        if (strcmp(name, levels[i].name) == 0) {
            *ret_level = (enum log_level) i;
            return 0;
        }
    }
    return -EINVAL;
}

/* Control characters from a peer (a tenant's name, say) must not forge lines or drive a terminal.
 */
static void line_sanitize(char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char) text[i] < 0x20 || text[i] == 0x7f)
            text[i] = '?';
    }
}

void log_write(enum log_level level, const char *format, ...)
{
    struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};
    char line[LINE_MAX_BYTES];
    va_list args;
    int prefix, length, saved = errno;
    size_t end;

    if (level > __atomic_load_n(&max_level, __ATOMIC_RELAXED))
        return;
    if (getenv("JOURNAL_STREAM") != NULL)
        prefix = snprintf(line, sizeof(line), "%s", levels[level].prefix);
    else
        prefix = snprintf(line, sizeof(line), "%s: ", levels[level].name);
    va_start(args, format);
    errno = saved; /* for %m */
    length = vsnprintf(line + prefix, sizeof(line) - (size_t) prefix - 1, format, args);
    va_end(args);
    if (length < 0)
        return;
    end = MIN((size_t) (prefix + length), sizeof(line) - 2);
    line_sanitize(line + prefix, end - (size_t) prefix);
    line[end] = '\n';
    /* Who reads it may stand still; a line is lost then, not the time of whoever waits for us. */
    if (poll(&room, 1, 0) > 0 && write(STDERR_FILENO, line, end + 1) < 0) {
        /* Nowhere to say so. */
    }
    errno = saved;
}
