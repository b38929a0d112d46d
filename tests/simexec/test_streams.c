/* Streams and events run asynchronously and in the order that the driver promises. */
#include "tests/simexec/rig.h"

#include <pthread.h>

START_TEST(test_query_is_not_ready_while_a_host_function_blocks)
{
    struct rig_gate gate;
    CUstream stream;

    rig_begin();
    stream = rig_stream(CU_STREAM_DEFAULT);
    assert_ok(cuStreamQuery(stream));
    rig_gate_close(&gate, stream);
    assert_cuda(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    rig_gate_open(&gate);
    assert_ok(cuStreamSynchronize(stream));
    assert_ok(cuStreamQuery(stream));
}
END_TEST

struct trail {
    unsigned length;
    unsigned places[64];
};

struct step {
    struct trail *trail;
    unsigned number;
};

static void step_take(void *data)
{
    struct step *step = data;

    step->trail->places[step->trail->length++] = step->number;
}

START_TEST(test_work_of_one_stream_runs_in_order)
{
    struct trail trail = {0};
    struct step steps[ARRAY_SIZE(trail.places)];
    CUstream stream;

    rig_begin();
    stream = rig_stream(CU_STREAM_NON_BLOCKING);
    for (unsigned i = 0; i < ARRAY_SIZE(steps); i++) {
        steps[i] = (struct step){.trail = &trail, .number = i};
        assert_ok(cuLaunchHostFunc(stream, step_take, &steps[i]));
    }
    assert_ok(cuStreamSynchronize(stream));
    ck_assert_uint_eq(trail.length, ARRAY_SIZE(steps));
    for (unsigned i = 0; i < ARRAY_SIZE(steps); i++)
        ck_assert_uint_eq(trail.places[i], i);
}
END_TEST

START_TEST(test_streams_do_not_wait_for_each_other)
{
    struct rig_gate gate;
    CUstream held, other;
    bool done = false;

    rig_begin();
    held = rig_stream(CU_STREAM_DEFAULT);
    other = rig_stream(CU_STREAM_DEFAULT);
    rig_gate_close(&gate, held);
    assert_ok(cuLaunchHostFunc(other, rig_set, &done));
    assert_ok(cuStreamSynchronize(other));
    ck_assert(rig_is_set(&done));
    assert_cuda(CUDA_ERROR_NOT_READY, cuStreamQuery(held));
    rig_gate_open(&gate);
    assert_ok(cuStreamSynchronize(held));
}
END_TEST

START_TEST(test_legacy_stream_waits_for_blocking_streams)
{
    struct rig_gate gate;
    CUstream held;
    bool done = false;

    rig_begin();
    held = rig_stream(CU_STREAM_DEFAULT);
    rig_gate_close(&gate, held);
    assert_ok(cuLaunchHostFunc(NULL, rig_set, &done));
    assert_cuda(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
    assert_cuda(CUDA_ERROR_NOT_READY, cuStreamQuery(CU_STREAM_LEGACY));
    ck_assert(!rig_is_set(&done));
    rig_gate_open(&gate);
    assert_ok(cuStreamSynchronize(CU_STREAM_LEGACY));
    ck_assert(rig_is_set(&done));
}
END_TEST

START_TEST(test_blocking_streams_wait_for_the_legacy_stream)
{
    struct rig_gate gate;
    CUstream blocking;
    bool done = false, thread_done = false;

    rig_begin();
    blocking = rig_stream(CU_STREAM_DEFAULT);
    rig_gate_close(&gate, CU_STREAM_LEGACY);
    assert_ok(cuLaunchHostFunc(blocking, rig_set, &done));
    assert_ok(cuLaunchHostFunc(CU_STREAM_PER_THREAD, rig_set, &thread_done));
    assert_cuda(CUDA_ERROR_NOT_READY, cuStreamQuery(blocking));
    assert_cuda(CUDA_ERROR_NOT_READY, cuStreamQuery(CU_STREAM_PER_THREAD));
    ck_assert(!rig_is_set(&done) && !rig_is_set(&thread_done));
    rig_gate_open(&gate);
    assert_ok(cuStreamSynchronize(blocking));
    assert_ok(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    ck_assert(rig_is_set(&done) && rig_is_set(&thread_done));
}
END_TEST

START_TEST(test_non_blocking_streams_ignore_the_legacy_stream)
{
    struct rig_gate legacy_gate, gate;
    CUstream stream;
    bool done = false;

    rig_begin();
    stream = rig_stream(CU_STREAM_NON_BLOCKING);
    rig_gate_close(&legacy_gate, NULL);
    assert_ok(cuLaunchHostFunc(stream, rig_set, &done));
    assert_ok(cuStreamSynchronize(stream));
    ck_assert(rig_is_set(&done));
    rig_gate_open(&legacy_gate);
    assert_ok(cuStreamSynchronize(NULL));

    rig_gate_close(&gate, stream);
    done = false;
    assert_ok(cuLaunchHostFunc(NULL, rig_set, &done));
    assert_ok(cuStreamSynchronize(NULL));
    ck_assert(rig_is_set(&done));
    rig_gate_open(&gate);
    assert_ok(cuStreamSynchronize(stream));
}
END_TEST

START_TEST(test_destroy_returns_at_once_and_work_gets_done)
{
    struct rig_gate gate;
    CUstream stream;
    CUevent event;
    bool done = false;

    rig_begin();
    stream = rig_stream(CU_STREAM_NON_BLOCKING);
    assert_ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    rig_gate_close(&gate, stream);
    assert_ok(cuLaunchHostFunc(stream, rig_set, &done));
    assert_ok(cuEventRecord(event, stream));
    assert_ok(cuStreamDestroy_v2(stream));
    ck_assert(!rig_is_set(&done));
    rig_gate_open(&gate);
    assert_ok(cuEventSynchronize(event));
    ck_assert(rig_is_set(&done));
}
END_TEST

START_TEST(test_stale_and_foreign_handles_are_refused)
{
    CUstream stream, again;
    CUevent event;

    rig_begin();
    stream = rig_stream(CU_STREAM_DEFAULT);
    assert_ok(cuEventCreate(&event, CU_EVENT_DEFAULT));
    assert_cuda(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery((CUstream) event));
    assert_cuda(CUDA_ERROR_INVALID_HANDLE, cuEventQuery((CUevent) stream));
    assert_cuda(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(NULL));
    assert_ok(cuStreamDestroy_v2(stream));
    assert_cuda(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2(stream));
    again = rig_stream(CU_STREAM_DEFAULT);
    ck_assert_ptr_ne(again, stream);
    assert_cuda(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream));
    assert_cuda(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2(NULL));
    assert_ok(cuEventDestroy_v2(event));
    assert_cuda(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy_v2(event));
}
END_TEST

START_TEST(test_unknown_flags_are_refused)
{
    CUstream stream;
    CUevent event;

    rig_begin();
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(&stream, 2));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(NULL, 0));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&event, 8));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&event, CU_EVENT_INTERPROCESS));
    assert_ok(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuStreamWaitEvent(NULL, event, 2));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuLaunchHostFunc(NULL, NULL, NULL));
}
END_TEST

static void call_cuda(void *data)
{
    CUresult *results = data;

    results[0] = cuStreamQuery(NULL);
    results[1] = cuCtxSynchronize();
}

START_TEST(test_host_function_may_not_call_cuda)
{
    CUresult results[2] = {CUDA_SUCCESS, CUDA_SUCCESS};

    rig_begin();
    assert_ok(cuLaunchHostFunc(NULL, call_cuda, results));
    assert_ok(cuStreamSynchronize(NULL));
    ck_assert_int_eq(results[0], CUDA_ERROR_NOT_PERMITTED);
    ck_assert_int_eq(results[1], CUDA_ERROR_NOT_PERMITTED);
}
END_TEST

START_TEST(test_context_synchronize_waits_for_every_stream)
{
    bool done[16] = {false};

    rig_begin();
    for (size_t i = 0; i < ARRAY_SIZE(done); i++)
        assert_ok(cuLaunchHostFunc(
            rig_stream(i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT), rig_set, &done[i]));
    assert_ok(cuCtxSynchronize());
    for (size_t i = 0; i < ARRAY_SIZE(done); i++)
        ck_assert(rig_is_set(&done[i]));
}
END_TEST

START_TEST(test_event_never_recorded_is_complete)
{
    CUevent event;

    rig_begin();
    assert_ok(cuEventCreate(&event, CU_EVENT_DEFAULT));
    assert_ok(cuEventQuery(event));
    assert_ok(cuEventSynchronize(event));
    assert_ok(cuStreamWaitEvent(NULL, event, 0));
    assert_ok(cuStreamQuery(NULL));
}
END_TEST

START_TEST(test_event_orders_streams)
{
    struct rig_gate gate;
    CUstream first, second;
    CUevent event;
    bool done = false;

    rig_begin();
    first = rig_stream(CU_STREAM_NON_BLOCKING);
    second = rig_stream(CU_STREAM_NON_BLOCKING);
    assert_ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    rig_gate_close(&gate, first);
    assert_ok(cuEventRecord(event, first));
    assert_cuda(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    assert_ok(cuStreamWaitEvent(second, event, 0));
    assert_ok(cuLaunchHostFunc(second, rig_set, &done));
    /* Who waits keeps what the event was. */
    assert_ok(cuEventDestroy_v2(event));
    assert_cuda(CUDA_ERROR_NOT_READY, cuStreamQuery(second));
    ck_assert(!rig_is_set(&done));
    rig_gate_open(&gate);
    assert_ok(cuStreamSynchronize(second));
    ck_assert(rig_is_set(&done));
}
END_TEST

START_TEST(test_elapsed_time_needs_two_timed_complete_recordings)
{
    struct rig_gate gate;
    CUevent start, end, untimed, idle;
    float milliseconds = -1;

    rig_begin();
    assert_ok(cuEventCreate(&start, CU_EVENT_DEFAULT));
    assert_ok(cuEventCreate(&end, CU_EVENT_BLOCKING_SYNC));
    assert_ok(cuEventCreate(&idle, CU_EVENT_DEFAULT));
    assert_ok(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    assert_ok(cuEventRecord(start, NULL));
    assert_ok(cuEventRecord(untimed, NULL));
    rig_gate_close(&gate, NULL);
    assert_ok(cuEventRecord(end, NULL));
    assert_cuda(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime_v2(&milliseconds, start, untimed));
    assert_cuda(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime_v2(&milliseconds, start, idle));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuEventElapsedTime_v2(NULL, start, end));
    assert_cuda(CUDA_ERROR_NOT_READY, cuEventElapsedTime_v2(&milliseconds, start, end));
    rig_gate_open(&gate);
    assert_ok(cuEventSynchronize(end));
    assert_ok(cuEventElapsedTime_v2(&milliseconds, start, end));
    ck_assert(milliseconds >= 0);
}
END_TEST

START_TEST(test_special_streams_need_a_context)
{
    rig_begin();
    assert_ok(cuCtxSetCurrent(NULL));
    assert_cuda(CUDA_ERROR_INVALID_CONTEXT, cuStreamQuery(NULL));
    assert_cuda(CUDA_ERROR_INVALID_CONTEXT, cuStreamSynchronize(CU_STREAM_PER_THREAD));
}
END_TEST

START_TEST(test_other_context_than_the_streams_is_refused)
{
    CUcontext other;
    CUstream stream;
    CUevent event;
    bool done = false;

    rig_begin();
    stream = rig_stream(CU_STREAM_DEFAULT);
    assert_ok(cuCtxCreate_v2(&other, 0, 0));
    assert_ok(cuEventCreate(&event, CU_EVENT_DEFAULT));
    assert_cuda(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, stream));
    assert_cuda(CUDA_ERROR_INVALID_HANDLE, cuLaunchHostFunc(stream, rig_set, &done));
    assert_ok(cuCtxSetCurrent(NULL));
    assert_ok(cuLaunchHostFunc(stream, rig_set, &done));
    assert_ok(cuStreamSynchronize(stream));
    ck_assert(rig_is_set(&done));
}
END_TEST

START_TEST(test_destroying_a_context_finishes_its_work)
{
    CUcontext other;
    CUstream stream;
    bool done = false;

    rig_begin();
    assert_ok(cuCtxCreate_v2(&other, 0, 0));
    stream = rig_stream(CU_STREAM_DEFAULT);
    assert_ok(cuLaunchHostFunc(stream, rig_set, &done));
    assert_ok(cuCtxDestroy_v2(other));
    ck_assert(rig_is_set(&done));
    assert_cuda(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(stream));
}
END_TEST

#define HAMMER_THREADS 8
#define HAMMER_ROUNDS 50

struct hammer {
    CUcontext context;
    CUstream shared;
    unsigned count; /* touched by functions in `shared` alone, which run one at a time */
};

static void hammer_count(void *data)
{
    ((struct hammer *) data)->count++;
}

static void *hammer_main(void *data)
{
    struct hammer *hammer = data;
    CUevent event;

    assert_ok(cuCtxSetCurrent(hammer->context));
    assert_ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (unsigned i = 0; i < HAMMER_ROUNDS; i++) {
        CUstream own = rig_stream(i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);

        assert_ok(cuLaunchHostFunc(hammer->shared, hammer_count, hammer));
        assert_ok(cuEventRecord(event, hammer->shared));
        assert_ok(cuStreamWaitEvent(own, event, 0));
        assert_ok(cuEventRecord(event, CU_STREAM_PER_THREAD));
        assert_ok(cuStreamSynchronize(own));
        assert_ok(cuStreamDestroy_v2(own));
    }
    assert_ok(cuEventDestroy_v2(event));
    return NULL;
}

START_TEST(test_many_threads_share_streams)
{
    struct hammer hammer = {.context = rig_begin()};
    pthread_t threads[HAMMER_THREADS];

    hammer.shared = rig_stream(CU_STREAM_NON_BLOCKING);
    for (size_t i = 0; i < HAMMER_THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, hammer_main, &hammer), 0);
    for (size_t i = 0; i < HAMMER_THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    assert_ok(cuCtxSynchronize());
    ck_assert_uint_eq(hammer.count, HAMMER_THREADS * HAMMER_ROUNDS);
}
END_TEST

RIG_MAIN("simexec-streams", test_query_is_not_ready_while_a_host_function_blocks,
    test_work_of_one_stream_runs_in_order, test_streams_do_not_wait_for_each_other,
    test_legacy_stream_waits_for_blocking_streams, test_blocking_streams_wait_for_the_legacy_stream,
    test_non_blocking_streams_ignore_the_legacy_stream,
    test_destroy_returns_at_once_and_work_gets_done, test_stale_and_foreign_handles_are_refused,
    test_unknown_flags_are_refused, test_host_function_may_not_call_cuda,
    test_context_synchronize_waits_for_every_stream, test_event_never_recorded_is_complete,
    test_event_orders_streams, test_elapsed_time_needs_two_timed_complete_recordings,
    test_special_streams_need_a_context, test_other_context_than_the_streams_is_refused,
    test_destroying_a_context_finishes_its_work, test_many_threads_share_streams)
