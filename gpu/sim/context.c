/*
 * Contexts: one primary for each device, others by cuCtxCreate, and a stack of them per thread.
 *
 * A context object is never given back, so that a stale CUcontext is recognised: it is destroyed,
 * or none of ours. A primary context keeps its object when it comes to life again. `lifecycle`
 * orders births and deaths; `lock` guards the list and the fields, for look-ups.
 */
#include "gpu/sim/context.h"

#include <pthread.h>

struct CUctx_st {
    CUcontext next;
    CUdevice device;
    unsigned flags;
    unsigned references; /* a primary's retains */
    bool primary, alive;
};

struct stack {
    CUcontext *contexts;
    size_t count, capacity;
};

static pthread_mutex_t lifecycle = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext contexts;
static CUcontext primaries[SIM_DEVICES_MAX];
static struct sim_context_hooks hooks;

static pthread_once_t stack_once = PTHREAD_ONCE_INIT;
static pthread_key_t stack_key;

void sim_context_set_hooks(const struct sim_context_hooks *new_hooks)
{
    pthread_mutex_lock(&lock);
    hooks = *new_hooks;
    pthread_mutex_unlock(&lock);
}

static struct sim_context_hooks hooks_get(void)
{
    struct sim_context_hooks copy;

    pthread_mutex_lock(&lock);
    copy = hooks;
    pthread_mutex_unlock(&lock);
    return copy;
}

static void stack_free(void *at)
{
    struct stack *stack = at;

    free(stack->contexts);
    free(stack);
}

static void stack_key_make(void)
{
    if (pthread_key_create(&stack_key, stack_free) != 0)
        abort();
}

/* The calling thread's stack; NULL without host memory. */
static struct stack *stack_get(void)
{
    struct stack *stack;

    pthread_once(&stack_once, stack_key_make);
    stack = pthread_getspecific(stack_key);
    if (stack == NULL) {
        stack = calloc(1, sizeof(*stack));
        if (stack != NULL && pthread_setspecific(stack_key, stack) != 0) {
            free(stack);
            stack = NULL;
        }
    }
    return stack;
}

static CUcontext stack_top(void)
{
    struct stack *stack = stack_get();

    return stack != NULL && stack->count > 0 ? stack->contexts[stack->count - 1] : NULL;
}

static CUresult stack_push(CUcontext context)
{
    struct stack *stack = stack_get();

    if (stack == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (stack->count == stack->capacity) {
        size_t capacity = stack->capacity > 0 ? 2 * stack->capacity : 8;
        CUcontext *grown = reallocarray(stack->contexts, capacity, sizeof(CUcontext));

        if (grown == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        stack->contexts = grown;
        stack->capacity = capacity;
    }
    stack->contexts[stack->count++] = context;
    return CUDA_SUCCESS;
}

/* Is one of ours, dead or alive. The lock is held. */
static bool known(CUcontext context)
{
    for (CUcontext it = contexts; it != NULL; it = it->next) {
        if (it == context)
            return true;
    }
    return false;
}

bool sim_context_valid(CUcontext context)
{
    bool valid;

    pthread_mutex_lock(&lock);
    valid = context != NULL && known(context) && context->alive;
    pthread_mutex_unlock(&lock);
    return valid;
}

CUresult sim_context_current(CUcontext *ret_context)
{
    CUcontext top = stack_top();
    bool alive;

    if (top == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&lock);
    alive = top->alive;
    pthread_mutex_unlock(&lock);
    if (!alive)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *ret_context = top;
    return CUDA_SUCCESS;
}

CUdevice sim_context_device(CUcontext context)
{
    return context->device;
}

bool sim_context_on_device(CUdevice device)
{
    bool found = false;

    pthread_mutex_lock(&lock);
    for (CUcontext it = contexts; it != NULL && !found; it = it->next)
        found = it->alive && it->device == device;
    pthread_mutex_unlock(&lock);
    return found;
}

/* Brings a context to life, a new one when `context` is NULL. `lifecycle` is held. */
static CUresult context_begin(CUcontext context, CUdevice device, unsigned flags, CUcontext *ret)
{
    bool fresh = context == NULL;
    int r;

    if (fresh)
        context = calloc(1, sizeof(*context));
    if (context == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = ledger_context_begin(sim_ledger(), (unsigned) sim_device_index(device));
    if (r < 0) {
        if (fresh)
            free(context);
        return sim_error(r);
    }
    pthread_mutex_lock(&lock);
    context->device = device;
    context->flags = flags;
    context->alive = true;
    if (fresh) {
        context->next = contexts;
        contexts = context;
    }
    pthread_mutex_unlock(&lock);
    *ret = context;
    return CUDA_SUCCESS;
}

/* `lifecycle` is held. */
static void context_end(CUcontext context)
{
    struct sim_context_hooks copy = hooks_get();

    if (copy.destroy != NULL)
        copy.destroy(context);
    sim_ipc_context_end(context);
    sim_legacy_context_end(context);
    pthread_mutex_lock(&lock);
    context->alive = false;
    context->references = 0;
    pthread_mutex_unlock(&lock);
    ledger_context_end(sim_ledger(), (unsigned) sim_device_index(context->device));
}

CUresult sim_primary_retain(CUdevice device, CUcontext *ret)
{
    CUresult result = CUDA_SUCCESS;
    CUcontext context;

    pthread_mutex_lock(&lifecycle);
    context = primaries[device];
    if (context == NULL || !context->alive) {
        unsigned flags = context != NULL ? context->flags : CU_CTX_SCHED_AUTO;

        result = context_begin(context, device, flags, &context);
    }
    if (result == CUDA_SUCCESS) {
        primaries[device] = context;
        context->primary = true;
        context->references++;
        *ret = context;
    }
    pthread_mutex_unlock(&lifecycle);
    return result;
}

CUresult sim_primary_release(CUdevice device, bool all)
{
    CUresult result = CUDA_SUCCESS;
    CUcontext context;

    pthread_mutex_lock(&lifecycle);
    context = primaries[device];
    if (context == NULL || !context->alive)
        result = all ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    else if (all || --context->references == 0)
        context_end(context);
    pthread_mutex_unlock(&lifecycle);
    return result;
}

void sim_primary_state(CUdevice device, unsigned *ret_flags, bool *ret_active)
{
    CUcontext context;

    pthread_mutex_lock(&lifecycle);
    context = primaries[device];
    *ret_flags = context != NULL ? context->flags : CU_CTX_SCHED_AUTO;
    *ret_active = context != NULL && context->alive;
    pthread_mutex_unlock(&lifecycle);
}

CUresult sim_context_create(CUdevice device, unsigned flags, CUcontext *ret)
{
    CUcontext context = NULL;
    CUresult result;

    pthread_mutex_lock(&lifecycle);
    result = context_begin(NULL, device, flags, &context);
    if (result == CUDA_SUCCESS) {
        result = stack_push(context);
        if (result == CUDA_SUCCESS)
            *ret = context;
        else
            context_end(context);
    }
    pthread_mutex_unlock(&lifecycle);
    return result;
}

CUresult sim_context_destroy(CUcontext context)
{
    CUresult result = CUDA_SUCCESS;
    struct stack *stack = stack_get();

    pthread_mutex_lock(&lifecycle);
    if (!sim_context_valid(context) || context->primary)
        result = CUDA_ERROR_INVALID_CONTEXT;
    else
        context_end(context);
    pthread_mutex_unlock(&lifecycle);
    if (result == CUDA_SUCCESS && stack_top() == context)
        stack->count--;
    return result;
}

CUresult sim_context_push(CUcontext context)
{
    return sim_context_valid(context) ? stack_push(context) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult sim_context_pop(CUcontext *ret)
{
    struct stack *stack = stack_get();

    if (stack == NULL || stack->count == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    *ret = stack->contexts[--stack->count];
    return CUDA_SUCCESS;
}

CUresult sim_context_set(CUcontext context)
{
    struct stack *stack = stack_get();

    if (stack == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (context != NULL && !sim_context_valid(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (stack->count > 0)
        stack->count--;
    return context != NULL ? stack_push(context) : CUDA_SUCCESS;
}

CUcontext sim_context_top(void)
{
    return stack_top();
}

CUresult sim_context_synchronize(CUcontext context)
{
    struct sim_context_hooks copy = hooks_get();

    return copy.synchronize != NULL ? copy.synchronize(context) : CUDA_SUCCESS;
}
