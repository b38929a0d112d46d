/* A scenario's text: lines of words, KEY=VALUE among them, `#` begins a comment. */
#pragma once

#include "base/macro.h"

/* Calls `run` for each line that has words, then checks that something was expected. Returns what
 * main() returns; whatever is wrong ends the process with the line's number. */
int lines_run(int argc, char **argv, void (*run)(void));

void fail(const char *format, ...) _printf_(1, 2) __attribute__((noreturn));

/* Words of the line. */
size_t word_count(void);
const char *word(size_t index);
bool is(size_t index, const char *text);
/* The value of KEY=VALUE among the words from `first` on; NULL when it isn't there. */
const char *value_of(size_t first, const char *key);
/* The same as a number or a size, `otherwise` when it isn't there. */
uint64_t value_number(size_t first, const char *key, uint64_t otherwise);
uint64_t value_size(size_t first, const char *key, uint64_t otherwise);

uint64_t size_of(const char *text);
uint64_t number_of(const char *text);
