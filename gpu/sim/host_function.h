/* What the entry guard must know: an application's host function may not call CUDA (800). */
#pragma once

#include <stdbool.h>

/* True on a stream's thread while it runs a function of cuLaunchHostFunc. */
bool sim_in_host_function(void);
