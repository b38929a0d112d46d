/*
 * Runs code that touches simulated device memory, and survives when it touches what is not there.
 */
#pragma once

#include "base/macro.h"

/*
 * Calls `run(argument)` and returns true; returns false when it faulted (SIGSEGV, SIGBUS) on this
 * thread, wherever it stood. `run` must hold no lock and own nothing, since it may be left at any
 * instruction. Any thread; not recursive.
 */
bool sim_guard(void (*run)(void *argument), void *argument) _must_check_;
