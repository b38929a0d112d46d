/* Strict parsing of the words that traces and options are made of: all of the text or nothing. */
#pragma once

#include "base/macro.h"

/* Cuts white space off both ends, in place, and returns the start. NULL stays NULL. */
char *text_trim(char *text);

/* Decimal digits alone, at most `max`. `*ret` is written on success only, as in all of these. */
bool text_parse_uint(const char *text, uint64_t max, uint64_t *ret);

/* A finite number > 0, as strtod(3) reads it in the C locale, without sign or white space. */
bool text_parse_positive(const char *text, double *ret);

/*
 * `YYYY-MM-DD hh:mm:ss`, `T` allowed between, up to nine decimals, and nothing, `Z` or `±hh:mm`
 * behind. Nanoseconds since 1970-01-01 00:00:00, of the zone if there is one. Years 1970 to 2400.
 */
bool text_parse_time(const char *text, uint64_t *ret_ns);
