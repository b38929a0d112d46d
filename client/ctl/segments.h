/* `gmbctl segments`: the list, and what is done to what it names. */
#pragma once

#include "client/ctl/command.h"

/* As command_run(). After --verify it waits until all of them have been looked at; REFUSED when
 * one of them was found changed. */
int segments_run(const struct options *options, struct conn *conn, const struct view *view,
    struct outcome *outcome);
