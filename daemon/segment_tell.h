/* Who has a segment that is in quarantine, or was until its name was taken from it, hears of it. */
#pragma once

#include "daemon/segment.h"

/* To every reader that has all of it: it has just been found. */
void segment_readers_tell(struct segment *segment);
/* To this one, if there is something to be told of that lease: it has all of it now, or again. */
void segment_reader_tell(struct session *session, core_id lease);
