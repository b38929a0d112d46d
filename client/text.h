/* Text of somebody else's, made fit to travel. */
#pragma once

#include "base/macro.h"

/*
 * Copies what fits of `text` (NULL: nothing) into `ret`, at most `size` − 1 bytes and whole
 * characters. Bytes that no text may hold on the wire (controls, broken UTF-8) become `?`.
 */
void text_clean(char *ret, size_t size, const char *text);
