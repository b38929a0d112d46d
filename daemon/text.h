/* Sentences on their way to a peer. Pure. */
#pragma once

#include "base/macro.h"

/*
 * Copies `text`, cut to `room` - 1 bytes, with `?` for every byte that is no printable ASCII: a
 * cut through a character, or bytes of unknown origin, would make the frame invalid as UTF-8.
 */
static inline void text_copy(char *out, size_t room, const char *text)
{
    size_t i;

    for (i = 0; i + 1 < room && text[i] != '\0'; i++)
        out[i] = text[i] >= 0x20 && text[i] < 0x7f ? text[i] : '?';
    out[i] = '\0';
}
