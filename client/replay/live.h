/* The line that is shown while a run goes on: on a terminal one that is written over each second,
 * elsewhere a new one every ten seconds. */
#pragma once

#include "client/replay/run.h"

/* How often live_show() is to be called. */
#define LIVE_INTERVAL_MS 1000

void live_show(const struct run *run);
/* Ends the line, so that what follows starts on its own. */
void live_end(void);
