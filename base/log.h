/*
 * One line to standard error per call. Under systemd (JOURNAL_STREAM is set) each line starts with
 * its `<N>` priority, as sd-daemon(3) has it; elsewhere with the level's name.
 *
 * Used by the daemon's shell and by programs, never by a library or the core.
 * Thread-safe: one write(2) per line. A full or closed standard error loses the line; it
 * neither blocks nor ends the process.
 */
#pragma once

#include "base/macro.h"

enum log_level {
    LOG_LEVEL_ERROR,
    LOG_LEVEL_WARNING,
    LOG_LEVEL_NOTICE,
    LOG_LEVEL_INFO,
    LOG_LEVEL_DEBUG,
    LOG_LEVEL_MAX
};

/* Lines above `level` are dropped; the start value is INFO. */
void log_set_level(enum log_level level);
/* `error`, `warning`, `notice`, `info`, `debug`; -EINVAL for anything else. */
int log_level_parse(const char *name, enum log_level *ret_level) _must_check_;

void log_write(enum log_level level, const char *format, ...) _printf_(2, 3);

#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_notice(...) log_write(LOG_LEVEL_NOTICE, __VA_ARGS__)
#define log_info(...) log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)
