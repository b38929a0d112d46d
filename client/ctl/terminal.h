/* What may be shown on a terminal, how wide it is there, and whether in colour. */
#pragma once

#include "base/macro.h"

/*
 * A copy of `text` for the terminal, to be freed: what the locale can't show, controls and marks
 * that change the direction of writing become `?`. Labels and names come from other processes,
 * which would otherwise write to the operator's terminal. NULL without memory.
 */
char *terminal_text(const char *text);

/* Columns of such a text. */
size_t terminal_width(const char *text);

/* Whether standard output is a terminal that wants colours: NO_COLOR and TERM=dumb don't. */
bool terminal_colour(void);
