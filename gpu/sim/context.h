/* Contexts, for the calls that manage them. Devices are valid ordinals. Blocking as sim.h says. */
#pragma once

#include "gpu/sim/internal.h"

CUresult sim_primary_retain(CUdevice device, CUcontext *ret) _must_check_;
/* `all`: reset, whatever the count. 201 when it isn't alive and `all` is false. */
CUresult sim_primary_release(CUdevice device, bool all) _must_check_;
void sim_primary_state(CUdevice device, unsigned *ret_flags, bool *ret_active);

/* The new context becomes the thread's current one. */
CUresult sim_context_create(CUdevice device, unsigned flags, CUcontext *ret) _must_check_;
CUresult sim_context_destroy(CUcontext context) _must_check_;

CUresult sim_context_push(CUcontext context) _must_check_;
CUresult sim_context_pop(CUcontext *ret) _must_check_;
/* Replaces the top; NULL unbinds it. */
CUresult sim_context_set(CUcontext context) _must_check_;
/* NULL without one; may be destroyed. */
CUcontext sim_context_top(void);
CUresult sim_context_synchronize(CUcontext context) _must_check_;
