/* The commands: ask, then show. */
#pragma once

#include "client/ctl/control.h"
#include "client/ctl/options.h"
#include "client/ctl/view.h"

/*
 * Runs the command of `options` on the connection. 0, or a GMB_E_* code with `outcome` filled: the
 * broker's, or INTERNAL when the answer can't be shown.
 */
int command_run(const struct options *options, struct conn *conn, const struct view *view,
    struct outcome *outcome);

/* What a script is told. */
enum exit_status command_exit_status(int code);
