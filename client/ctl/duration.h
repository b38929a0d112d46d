/* Spans of time as people read them. */
#pragma once

#include <stdint.h>

#define DURATION_TEXT_MAX 32

/* The two largest units, cut: `3d 4h`, `5min 2s`, `12s`, `340ms`. Returns `buffer`. */
char *duration_format(char buffer[DURATION_TEXT_MAX], uint64_t ns);
