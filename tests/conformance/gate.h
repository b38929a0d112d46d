/* Keeps a stream busy for exactly as long as the test wants: a host function that waits. */
#pragma once

#include <pthread.h>

#include "tests/conformance/conformance.h"

struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool entered;
    bool open;
};

#define GATE_INIT                                                                                  \
    {                                                                                              \
        .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER                    \
    }

static inline void gate_wait(void *at)
{
    struct gate *gate = at;

    (void) pthread_mutex_lock(&gate->mutex);
    gate->entered = true;
    (void) pthread_cond_broadcast(&gate->changed);
    while (!gate->open)
        (void) pthread_cond_wait(&gate->changed, &gate->mutex);
    (void) pthread_mutex_unlock(&gate->mutex);
}

/* The stream is held when this returns. */
static inline void gate_close(struct gate *gate, CUstream stream)
{
    cu_ok(cu->launch_host_func(stream, gate_wait, gate));
    (void) pthread_mutex_lock(&gate->mutex);
    while (!gate->entered)
        (void) pthread_cond_wait(&gate->changed, &gate->mutex);
    (void) pthread_mutex_unlock(&gate->mutex);
}

static inline void gate_open(struct gate *gate)
{
    (void) pthread_mutex_lock(&gate->mutex);
    gate->open = true;
    (void) pthread_cond_broadcast(&gate->changed);
    (void) pthread_mutex_unlock(&gate->mutex);
}
