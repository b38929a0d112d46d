/* A GPU that is none, and a broker on it: for targets that have to do with the broker alone. */
#pragma once

#include <event2/event.h>

#include "daemon/broker.h"

#define FUZZ_GPU_BYTES (UINT64_C(256) << 20)
#define FUZZ_GPU_CHUNK (UINT64_C(2) << 20)

extern struct gpu fuzz_gpu; /* one device of FUZZ_GPU_BYTES, whose chunks are eventfds */
extern uint64_t fuzz_gpu_used;

/* A broker with this configuration; aborts when it doesn't start. */
struct broker *fuzz_broker_new(struct event_base *base, const char *text);
