/* Granules in one flat space of addresses; each is nothing, reserved, mapped or accessible. */
#include "tests/client/fake_gpu.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "gpu/loader.h"

#define BASE UINT64_C(0x700000000000)
#define GRANULES 262144u

enum granule { NOTHING, RESERVED, MAPPED, ACCESSIBLE };

const unsigned char fake_gpu_uuid[16] = {
    0xab, 0xcd, 0xef, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0x01, 0x23, 0x45, 0x67, 0x89};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned char granules[GRANULES];
static unsigned handles, contexts, calls[FAKE_GPU_CALL_MAX], failing[FAKE_GPU_CALL_MAX];

static const struct gpu_device device = {
    .uuid = "GPU-abcdef01-2345-6789-abcd-ef0123456789",
    .name = "Book keeper",
    .granularity_bytes = FAKE_GPU_GRANULARITY,
    .vmm = true,
    .posix_fd = true,
};
static const struct gpu_device *const devices[] = {&device};

/* Counts the call; true when it is to fail. */
static bool called(enum fake_gpu_call call, struct gpu_error *error)
{
    calls[call]++;
    if (failing[call] == 0 || --failing[call] > 0)
        return false;
    if (error != NULL)
        (void) snprintf(error->text, sizeof(error->text), "call %d is told to fail", (int) call);
    return true;
}

/* -EINVAL unless the whole span is in state `from`; then it is in state `to`. */
static int span_change(
    uint64_t address, uint64_t bytes, enum granule from, enum granule from2, enum granule to)
{
    uint64_t first = (address - BASE) / FAKE_GPU_GRANULARITY, count = bytes / FAKE_GPU_GRANULARITY;

    if (address < BASE || bytes == 0 || (address | bytes) % FAKE_GPU_GRANULARITY != 0 ||
        first + count > GRANULES)
        return -EINVAL;
    for (uint64_t i = first; i < first + count; i++) {
        if (granules[i] != from && granules[i] != from2)
            return -EINVAL;
    }
    memset(granules + first, (int) to, count);
    return 0;
}

static int import(struct gpu *gpu, const struct gpu_device *on,
    const struct gpu_shareable *shareable, uint64_t bytes, struct gpu_chunk *ret,
    struct gpu_error *error)
{
    int r = -EINVAL;

    (void) pthread_mutex_lock(&lock);
    if (!called(FAKE_GPU_IMPORT, error) && fcntl(shareable->fd, F_GETFD) >= 0) {
        handles++;
        *ret = (struct gpu_chunk){on, handles, bytes};
        r = 0;
    }
    (void) pthread_mutex_unlock(&lock);
    return r;
}

static int release(struct gpu *gpu, struct gpu_chunk *chunk, struct gpu_error *error)
{
    int r = -EINVAL;

    (void) pthread_mutex_lock(&lock);
    /* A handle that can't be released is gone with the process: not counted as kept. */
    handles--;
    if (!called(FAKE_GPU_RELEASE, error)) {
        *chunk = (struct gpu_chunk){0};
        r = 0;
    }
    (void) pthread_mutex_unlock(&lock);
    return r;
}

static int retain(struct gpu *gpu, const struct gpu_device *on, struct CUctx_st **ret_context,
    struct gpu_error *error)
{
    int r = -EIO;

    (void) pthread_mutex_lock(&lock);
    if (!called(FAKE_GPU_RETAIN, error)) {
        *ret_context = (struct CUctx_st *) (uintptr_t) 0x1000;
        contexts++;
        r = 0;
    }
    (void) pthread_mutex_unlock(&lock);
    return r;
}

static int context_release(struct gpu *gpu, const struct gpu_device *on, struct gpu_error *error)
{
    (void) pthread_mutex_lock(&lock);
    contexts--;
    (void) pthread_mutex_unlock(&lock);
    return 0;
}

static int synchronize(struct gpu *gpu, struct CUctx_st *context, struct gpu_error *error)
{
    bool fails;

    (void) pthread_mutex_lock(&lock);
    fails = called(FAKE_GPU_SYNCHRONIZE, error);
    (void) pthread_mutex_unlock(&lock);
    return fails ? -EIO : 0;
}

static int reserve(
    struct gpu *gpu, uint64_t bytes, uint64_t align, uint64_t *ret_address, struct gpu_error *error)
{
    uint64_t count = bytes / FAKE_GPU_GRANULARITY, run = 0;
    int r = -ENOMEM;

    (void) pthread_mutex_lock(&lock);
    for (uint64_t i = 0; i < GRANULES && r != 0 && count > 0; i++) {
        run = granules[i] == NOTHING ? run + 1 : 0;
        if (run < count)
            continue;
        if (called(FAKE_GPU_RESERVE, error))
            break;
        *ret_address = BASE + (i + 1 - count) * FAKE_GPU_GRANULARITY;
        r = span_change(*ret_address, bytes, NOTHING, NOTHING, RESERVED);
    }
    (void) pthread_mutex_unlock(&lock);
    return r;
}

static int range_free(struct gpu *gpu, uint64_t address, uint64_t bytes, struct gpu_error *error)
{
    int r;

    (void) pthread_mutex_lock(&lock);
    r = span_change(address, bytes, RESERVED, RESERVED, NOTHING);
    (void) pthread_mutex_unlock(&lock);
    return r;
}

static int map(struct gpu *gpu, const struct gpu_chunk *chunk, uint64_t address,
    uint64_t *ret_address, struct gpu_error *error)
{
    int r = -EINVAL;

    (void) pthread_mutex_lock(&lock);
    if (!called(FAKE_GPU_MAP, error))
        r = span_change(address, chunk->bytes, RESERVED, RESERVED, MAPPED);
    (void) pthread_mutex_unlock(&lock);
    return r;
}

static int set_access(struct gpu *gpu, const struct gpu_device *on, uint64_t address,
    uint64_t bytes, enum gpu_access access, struct gpu_error *error)
{
    int r = -EINVAL;

    (void) pthread_mutex_lock(&lock);
    if (!called(FAKE_GPU_SET_ACCESS, error) && access != GPU_ACCESS_NONE && contexts > 0)
        r = span_change(address, bytes, MAPPED, ACCESSIBLE, ACCESSIBLE);
    (void) pthread_mutex_unlock(&lock);
    return r;
}

static int unmap(struct gpu *gpu, uint64_t address, uint64_t bytes, struct gpu_error *error)
{
    int r = -EINVAL;

    (void) pthread_mutex_lock(&lock);
    if (!called(FAKE_GPU_UNMAP, error))
        r = span_change(address, bytes, MAPPED, ACCESSIBLE, RESERVED);
    (void) pthread_mutex_unlock(&lock);
    return r;
}

static const struct gpu_ops ops = {
    .chunk_import_borrow = import,
    .chunk_release = release,
    .context_retain = retain,
    .context_release = context_release,
    .context_synchronize = synchronize,
    .range_reserve = reserve,
    .range_free = range_free,
    .chunk_map = map,
    .span_set_access = set_access,
    .span_unmap = unmap,
};

/* ---- streams: counters of what was recorded and what has passed ---- */

struct event {
    unsigned stream, number;
};

static atomic_uint recorded[FAKE_GPU_STREAMS], passed[FAKE_GPU_STREAMS], events, pushed;

static CUresult ctx_push(CUcontext context)
{
    pushed++;
    return CUDA_SUCCESS;
}

static CUresult ctx_pop(CUcontext *ret)
{
    *ret = NULL;
    return pushed-- > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult event_create(CUevent *ret, unsigned flags)
{
    struct event *event = calloc(1, sizeof(*event));

    if (event == NULL || pushed == 0 || flags != CU_EVENT_DISABLE_TIMING) {
        free(event);
        return CUDA_ERROR_INVALID_VALUE;
    }
    events++;
    *ret = (CUevent) event;
    return CUDA_SUCCESS;
}

static CUresult event_record(CUevent handle, CUstream stream)
{
    struct event *event = (struct event *) handle;

    event->stream = (unsigned) ((uintptr_t) stream - 0x100);
    if (event->stream >= FAKE_GPU_STREAMS)
        return CUDA_ERROR_INVALID_HANDLE;
    event->number = ++recorded[event->stream];
    return CUDA_SUCCESS;
}

static CUresult event_query(CUevent handle)
{
    const struct event *event = (struct event *) handle;

    return passed[event->stream] >= event->number ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult event_destroy(CUevent handle)
{
    events--;
    free(handle);
    return CUDA_SUCCESS;
}

static const struct cuda_api cuda = {
    .ctx_push_current = ctx_push,
    .ctx_pop_current = ctx_pop,
    .event_create = event_create,
    .event_record = event_record,
    .event_query = event_query,
    .event_destroy = event_destroy,
};

void *fake_gpu_stream(unsigned stream)
{
    return (void *) (uintptr_t) (0x100 + stream);
}

void fake_gpu_stream_pass(unsigned stream)
{
    atomic_store(&passed[stream], atomic_load(&recorded[stream]));
}

unsigned fake_gpu_events(void)
{
    return events;
}

static struct gpu fake = {
    .ops = &ops, .cuda = &cuda, .driver = GPU_DRIVER_SIM, .device_count = 1, .devices = devices};

int gpu_open(enum gpu_driver driver, enum gpu_role role, struct gpu **ret, struct gpu_error *error)
{
    if (called(FAKE_GPU_OPEN, error))
        return -ENODEV;
    *ret = &fake;
    return 0;
}

struct gpu *gpu_close(struct gpu *gpu)
{
    return NULL;
}

const char *gpu_driver_name(enum gpu_driver driver)
{
    return "sim";
}

int gpu_driver_parse(const char *name, enum gpu_driver *ret_driver)
{
    if (strcmp(name, "sim") != 0)
        return -EINVAL;
    *ret_driver = GPU_DRIVER_SIM;
    return 0;
}

const struct gpu_device *gpu_device_find(const struct gpu *gpu, const char *uuid)
{
    return strcmp(uuid, device.uuid) == 0 ? &device : NULL;
}

void fake_gpu_fail(enum fake_gpu_call call, unsigned nth)
{
    failing[call] = nth;
}

unsigned fake_gpu_calls(enum fake_gpu_call call)
{
    unsigned count;

    (void) pthread_mutex_lock(&lock);
    count = calls[call];
    (void) pthread_mutex_unlock(&lock);
    return count;
}

static uint64_t bytes_in(enum granule a, enum granule b)
{
    uint64_t count = 0;

    (void) pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < GRANULES; i++)
        count += granules[i] == a || granules[i] == b;
    (void) pthread_mutex_unlock(&lock);
    return count * FAKE_GPU_GRANULARITY;
}

uint64_t fake_gpu_mapped(void)
{
    return bytes_in(MAPPED, ACCESSIBLE);
}

uint64_t fake_gpu_accessible(void)
{
    return bytes_in(ACCESSIBLE, ACCESSIBLE);
}

bool fake_gpu_idle(void)
{
    return bytes_in(NOTHING, NOTHING) == GRANULES * FAKE_GPU_GRANULARITY && handles == 0 &&
           contexts == 0;
}
