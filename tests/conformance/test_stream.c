/* Streams, events, host functions: specification 5.5. */
#include "tests/conformance/gate.h"

static CUstream stream_new(unsigned flags)
{
    CUstream stream;

    cu_ok(cu->stream_create(&stream, flags));
    return stream;
}

static CUevent event_new(unsigned flags)
{
    CUevent event;

    cu_ok(cu->event_create(&event, flags));
    return event;
}

static void count_up(void *at)
{
    (void) __atomic_add_fetch((int *) at, 1, __ATOMIC_SEQ_CST);
}

START_TEST(stream_create_refuses_unknown_flags)
{
    CUstream stream;

    setup_context();
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->stream_create(&stream, 0x100));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->stream_create(NULL, 0));
}
END_TEST

START_TEST(stream_query_says_whether_work_is_left)
{
    struct gate gate = GATE_INIT;
    CUstream stream;

    setup_context();
    stream = stream_new(CU_STREAM_NON_BLOCKING);
    cu_ok(cu->stream_query(stream));
    gate_close(&gate, stream);
    cu_expect(CUDA_ERROR_NOT_READY, cu->stream_query(stream));
    gate_open(&gate);
    cu_ok(cu->stream_synchronize(stream));
    cu_ok(cu->stream_query(stream));
    cu_ok(cu->stream_destroy(stream));
}
END_TEST

START_TEST(host_function_runs_in_stream_order)
{
    struct gate gate = GATE_INIT;
    CUstream stream;
    int count = 0;

    setup_context();
    stream = stream_new(CU_STREAM_NON_BLOCKING);
    gate_close(&gate, stream);
    cu_ok(cu->launch_host_func(stream, count_up, &count));
    ck_assert_int_eq(__atomic_load_n(&count, __ATOMIC_SEQ_CST), 0);
    gate_open(&gate);
    cu_ok(cu->stream_synchronize(stream));
    ck_assert_int_eq(__atomic_load_n(&count, __ATOMIC_SEQ_CST), 1);
    cu_ok(cu->stream_destroy(stream));
}
END_TEST

static void alloc_call(void *at)
{
    CUdeviceptr address;

    *(CUresult *) at = cu->mem_alloc(&address, 4096);
}

/* It "must not" call the driver, which may refuse with 800 or do worse. */
START_TEST(host_function_that_calls_the_driver_is_refused)
{
    CUresult seen = CUDA_SUCCESS;
    CUstream stream;

    setup_context();
    if (!on_simulator)
        return; /* it may hang there */
    stream = stream_new(CU_STREAM_NON_BLOCKING);
    cu_ok(cu->launch_host_func(stream, alloc_call, &seen));
    cu_ok(cu->stream_synchronize(stream));
    ck_assert_int_eq(seen, CUDA_ERROR_NOT_PERMITTED);
}
END_TEST

START_TEST(streams_do_not_wait_for_each_other)
{
    struct gate gate = GATE_INIT;
    CUstream held, idle;
    int count = 0;

    setup_context();
    held = stream_new(CU_STREAM_NON_BLOCKING);
    idle = stream_new(CU_STREAM_NON_BLOCKING);
    gate_close(&gate, held);
    cu_ok(cu->launch_host_func(idle, count_up, &count));
    cu_ok(cu->stream_synchronize(idle));
    ck_assert_int_eq(count, 1);
    cu_expect(CUDA_ERROR_NOT_READY, cu->stream_query(held));
    gate_open(&gate);
    cu_ok(cu->stream_synchronize(held));
}
END_TEST

START_TEST(stream_destroy_returns_at_once_and_work_ends_still)
{
    struct gate gate = GATE_INIT;
    CUstream stream;
    int count = 0;

    setup_context();
    stream = stream_new(CU_STREAM_NON_BLOCKING);
    gate_close(&gate, stream);
    cu_ok(cu->launch_host_func(stream, count_up, &count));
    cu_ok(cu->stream_destroy(stream));
    ck_assert_int_eq(__atomic_load_n(&count, __ATOMIC_SEQ_CST), 0);
    gate_open(&gate);
    ck_assert(poll_until(5, __atomic_load_n(&count, __ATOMIC_SEQ_CST) == 1));
}
END_TEST

START_TEST(null_stream_waits_for_blocking_streams_alone)
{
    struct gate blocking_gate = GATE_INIT, other_gate = GATE_INIT;
    CUstream blocking, other;
    CUevent behind;

    setup_context();
    blocking = stream_new(CU_STREAM_DEFAULT);
    other = stream_new(CU_STREAM_NON_BLOCKING);
    behind = event_new(CU_EVENT_DISABLE_TIMING);
    gate_close(&other_gate, other);
    cu_ok(cu->event_record(behind, NULL));
    cu_ok(cu->event_synchronize(behind));
    gate_close(&blocking_gate, blocking);
    cu_ok(cu->event_record(behind, NULL));
    cu_expect(CUDA_ERROR_NOT_READY, cu->event_query(behind));
    gate_open(&blocking_gate);
    cu_ok(cu->event_synchronize(behind));
    gate_open(&other_gate);
    cu_ok(cu->ctx_synchronize());
}
END_TEST

START_TEST(ctx_synchronize_waits_for_all_streams)
{
    CUstream streams[3];
    int count = 0;

    setup_context();
    for (size_t i = 0; i < ARRAY_SIZE(streams); i++) {
        streams[i] = stream_new(i == 0 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
        for (int n = 0; n < 10; n++)
            cu_ok(cu->launch_host_func(streams[i], count_up, &count));
    }
    cu_ok(cu->ctx_synchronize());
    ck_assert_int_eq(__atomic_load_n(&count, __ATOMIC_SEQ_CST), 30);
}
END_TEST

START_TEST(event_never_recorded_is_done)
{
    CUevent event;

    setup_context();
    event = event_new(CU_EVENT_DEFAULT);
    cu_ok(cu->event_query(event));
    cu_ok(cu->event_synchronize(event));
    cu_ok(cu->event_destroy(event));
}
END_TEST

START_TEST(event_is_done_when_work_before_it_is)
{
    struct gate gate = GATE_INIT;
    CUstream stream;
    CUevent event;

    setup_context();
    stream = stream_new(CU_STREAM_NON_BLOCKING);
    event = event_new(CU_EVENT_DISABLE_TIMING);
    gate_close(&gate, stream);
    cu_ok(cu->event_record(event, stream));
    cu_expect(CUDA_ERROR_NOT_READY, cu->event_query(event));
    gate_open(&gate);
    cu_ok(cu->event_synchronize(event));
    cu_ok(cu->event_query(event));
}
END_TEST

START_TEST(stream_wait_event_orders_two_streams)
{
    struct gate gate = GATE_INIT;
    CUstream first, second;
    CUevent event;
    int count = 0;

    setup_context();
    first = stream_new(CU_STREAM_NON_BLOCKING);
    second = stream_new(CU_STREAM_NON_BLOCKING);
    event = event_new(CU_EVENT_DISABLE_TIMING);
    gate_close(&gate, first);
    cu_ok(cu->event_record(event, first));
    cu_ok(cu->stream_wait_event(second, event, 0));
    cu_ok(cu->launch_host_func(second, count_up, &count));
    cu_expect(CUDA_ERROR_NOT_READY, cu->stream_query(second));
    ck_assert_int_eq(__atomic_load_n(&count, __ATOMIC_SEQ_CST), 0);
    gate_open(&gate);
    cu_ok(cu->stream_synchronize(second));
    ck_assert_int_eq(__atomic_load_n(&count, __ATOMIC_SEQ_CST), 1);
}
END_TEST

START_TEST(event_of_another_context_is_an_invalid_handle)
{
    CUcontext other;
    CUevent event;
    CUstream stream;

    setup_context();
    event = event_new(CU_EVENT_DEFAULT);
    cu_ok(cu->ctx_create(&other, CU_CTX_SCHED_AUTO, device));
    stream = stream_new(CU_STREAM_NON_BLOCKING);
    cu_expect(CUDA_ERROR_INVALID_HANDLE, cu->event_record(event, stream));
    cu_ok(cu->ctx_destroy(other));
}
END_TEST

START_TEST(event_flags_are_checked)
{
    CUevent event;

    setup_context();
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->event_create(&event, CU_EVENT_INTERPROCESS));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->event_create(&event, 0x100));
    event = event_new(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING);
    cu_ok(cu->event_destroy(event));
}
END_TEST

START_TEST(elapsed_time_needs_timed_recorded_complete_events)
{
    CUevent start, end, untimed, unrecorded;
    struct gate gate = GATE_INIT;
    float milliseconds = -1;
    CUstream stream;

    setup_context();
    if (cu->event_elapsed_time == NULL)
        return;
    stream = stream_new(CU_STREAM_NON_BLOCKING);
    start = event_new(CU_EVENT_DEFAULT);
    end = event_new(CU_EVENT_DEFAULT);
    unrecorded = event_new(CU_EVENT_DEFAULT);
    untimed = event_new(CU_EVENT_DISABLE_TIMING);
    cu_ok(cu->event_record(start, stream));
    cu_ok(cu->event_record(untimed, stream));
    gate_close(&gate, stream);
    cu_ok(cu->event_record(end, stream));
    cu_expect(CUDA_ERROR_NOT_READY, cu->event_elapsed_time(&milliseconds, start, end));
    cu_expect(CUDA_ERROR_INVALID_HANDLE, cu->event_elapsed_time(&milliseconds, start, unrecorded));
    cu_expect(CUDA_ERROR_INVALID_HANDLE, cu->event_elapsed_time(&milliseconds, untimed, start));
    gate_open(&gate);
    cu_ok(cu->event_synchronize(end));
    cu_ok(cu->event_elapsed_time(&milliseconds, start, end));
    ck_assert(milliseconds >= 0);
}
END_TEST

CONFORMANCE_MAIN("stream", stream_create_refuses_unknown_flags,
    stream_query_says_whether_work_is_left, host_function_runs_in_stream_order,
    host_function_that_calls_the_driver_is_refused, streams_do_not_wait_for_each_other,
    stream_destroy_returns_at_once_and_work_ends_still,
    null_stream_waits_for_blocking_streams_alone, ctx_synchronize_waits_for_all_streams,
    event_never_recorded_is_done, event_is_done_when_work_before_it_is,
    stream_wait_event_orders_two_streams, event_of_another_context_is_an_invalid_handle,
    event_flags_are_checked, elapsed_time_needs_timed_recorded_complete_events)
