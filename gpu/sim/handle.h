/*
 * Opaque handles (streams, events, modules, functions) of the executing half. A handle is never an
 * address: it is a slot number, the slot's generation and a type, so that a stale, foreign or
 * random one is recognised (400) instead of followed, and none equals CU_STREAM_LEGACY or
 * PER_THREAD.
 *
 * All calls need the lock of stream.h.
 */
#pragma once

#include "base/macro.h"

enum sim_handle_type {
    SIM_HANDLE_STREAM,
    SIM_HANDLE_EVENT,
    SIM_HANDLE_MODULE,
    SIM_HANDLE_FUNCTION,
    SIM_HANDLE_MAX
};

/* A new handle for `object` (not NULL, not owned); NULL when there is no host memory. */
void *sim_handle_add(enum sim_handle_type type, void *object);
/* The object, or NULL when this isn't a live handle of that type. */
void *sim_handle_get(enum sim_handle_type type, const void *handle);
/* As get, and the handle is dead from now on. */
void *sim_handle_remove(enum sim_handle_type type, const void *handle);
