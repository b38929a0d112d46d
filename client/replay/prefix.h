/* `--policy`: a prefix cache over the trace, without broker and workers. */
#pragma once

#include "client/replay/options.h"
#include "client/replay/trace.h"

/* Plays and prints; the exit status. `out` gets the text. */
int prefix_replay(const struct options *options, const struct trace *trace, FILE *out);
