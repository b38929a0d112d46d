/* Copies, memsets, batches and host memory: what is checked when, and what is waited for. */
#include "tests/simexec/rig.h"

#include <string.h>
#include <sys/mman.h>

#define RW CU_MEM_ACCESS_FLAGS_PROT_READWRITE

START_TEST(test_bytes_come_back_as_they_went)
{
    struct rig_memory first, second;
    static unsigned char sent[RIG_BYTES], got[RIG_BYTES];

    rig_begin();
    first = rig_map(RW);
    second = rig_map(RW);
    for (size_t i = 0; i < sizeof(sent); i++)
        sent[i] = (unsigned char) (i * 7 + i / 256);
    assert_ok(cuMemcpyHtoD_v2(first.address, sent, sizeof(sent)));
    assert_ok(cuMemcpyDtoD_v2(second.address, first.address, sizeof(sent)));
    assert_ok(cuMemcpyDtoH_v2(got, second.address, sizeof(got)));
    ck_assert_int_eq(memcmp(sent, got, sizeof(sent)), 0);
}
END_TEST

START_TEST(test_ranges_are_checked_when_the_call_is_made)
{
    static unsigned char host[RIG_BYTES + 1];
    struct rig_memory memory;
    CUdeviceptr end;

    rig_begin();
    memory = rig_map(RW);
    end = memory.address + RIG_BYTES;
    assert_ok(cuMemcpyHtoD_v2(memory.address, host, RIG_BYTES));
    assert_ok(cuMemcpyHtoD_v2(end - 1, host, 1));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(memory.address, host, RIG_BYTES + 1));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(end - 1, host, 2));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(end - 1, host, SIZE_MAX));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(memory.address, NULL, 1));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(NULL, memory.address, 1));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(host, (uintptr_t) host, 1));
    assert_cuda(CUDA_ERROR_INVALID_VALUE,
        cuMemcpyDtoDAsync_v2(memory.address, memory.address + 1, RIG_BYTES, NULL));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(memory.address, 0, RIG_BYTES + 1));
    assert_ok(cuMemcpyHtoD_v2(memory.address, host, 0));
    rig_unmap(&memory);
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(memory.address, host, 1));
    assert_ok(cuCtxSynchronize());
}
END_TEST

START_TEST(test_access_rights_hold_for_copies)
{
    struct rig_memory memory;
    uint64_t word = 5;

    rig_begin();
    memory = rig_map(CU_MEM_ACCESS_FLAGS_PROT_NONE);
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(memory.address, &word, 8));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(&word, memory.address, 8));
    rig_set_access(&memory, CU_MEM_ACCESS_FLAGS_PROT_READ);
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(memory.address, &word, 8));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(memory.address, 1, 1));
    assert_ok(cuMemcpyDtoH_v2(&word, memory.address, 8));
    rig_set_access(&memory, RW);
    assert_ok(cuMemcpyHtoD_v2(memory.address, &word, 8));
}
END_TEST

START_TEST(test_memset_counts_elements)
{
    struct rig_memory memory;

    rig_begin();
    memory = rig_map(RW);
    assert_ok(cuMemsetD32_v2(memory.address, 0x01020304, RIG_BYTES / 4));
    ck_assert_uint_eq(rig_word(memory.address + RIG_BYTES - 8), UINT64_C(0x0102030401020304));
    assert_ok(cuMemsetD8_v2(memory.address + 1, 0xff, 3));
    ck_assert_uint_eq(rig_word(memory.address), UINT64_C(0x01020304ffffff04));
    assert_ok(cuMemsetD32Async(memory.address + 4, 9, 1, CU_STREAM_PER_THREAD));
    assert_ok(cuMemsetD8Async(memory.address, 0, 4, CU_STREAM_PER_THREAD));
    assert_ok(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    ck_assert_uint_eq(rig_word(memory.address), UINT64_C(0x0000000900000000));
}
END_TEST

START_TEST(test_memset_of_words_is_aligned_and_does_not_wrap)
{
    struct rig_memory memory;

    rig_begin();
    memory = rig_map(RW);
    for (unsigned i = 1; i < 4; i++)
        assert_cuda(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(memory.address + i, 0, 1));
    assert_ok(cuMemsetD32_v2(memory.address + 4, 0, 1));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(memory.address, 0, RIG_BYTES / 4 + 1));
    /* 2^62 words are 2^64 bytes. */
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(memory.address, 0, (size_t) 1 << 62));
    assert_ok(cuMemsetD32_v2(memory.address, 0, 0));
}
END_TEST

START_TEST(test_copies_with_pinned_memory_are_asynchronous)
{
    struct rig_gate gate;
    struct rig_memory memory;
    CUstream stream;
    uint64_t *pinned;

    rig_begin();
    memory = rig_map(RW);
    stream = rig_stream(CU_STREAM_NON_BLOCKING);
    assert_ok(cuMemHostAlloc((void **) &pinned, 16, 0));
    pinned[0] = 1;
    rig_gate_close(&gate, stream);
    assert_ok(cuMemcpyHtoDAsync_v2(memory.address, pinned, 8, stream));
    assert_ok(cuMemcpyDtoHAsync_v2(&pinned[1], memory.address, 8, stream));
    assert_cuda(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    /* Read when the stream gets there, not now. */
    pinned[0] = 2;
    ck_assert_uint_eq(pinned[1], 0);
    rig_gate_open(&gate);
    assert_ok(cuStreamSynchronize(stream));
    ck_assert_uint_eq(pinned[1], 2);
}
END_TEST

START_TEST(test_pageable_memory_may_be_reused_when_the_call_returns)
{
    struct rig_memory memory;
    uint64_t word = 1, back = 0;
    CUstream stream;

    rig_begin();
    memory = rig_map(RW);
    stream = rig_stream(CU_STREAM_NON_BLOCKING);
    assert_ok(cuMemcpyHtoDAsync_v2(memory.address, &word, 8, stream));
    word = 2;
    assert_ok(cuMemcpyDtoHAsync_v2(&back, memory.address, 8, stream));
    ck_assert_uint_eq(back, 1);
}
END_TEST

START_TEST(test_copy_within_the_device_is_never_waited_for)
{
    struct rig_gate gate;
    struct rig_memory memory;

    rig_begin();
    memory = rig_map(RW);
    assert_ok(cuMemsetD8_v2(memory.address, 1, 8));
    rig_gate_close(&gate, NULL);
    assert_ok(cuMemcpyDtoD_v2(memory.address + 8, memory.address, 8));
    assert_ok(cuMemsetD8_v2(memory.address, 2, 8));
    assert_cuda(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
    rig_gate_open(&gate);
    ck_assert_uint_eq(rig_word(memory.address + 8), UINT64_C(0x0101010101010101));
    ck_assert_uint_eq(rig_word(memory.address), UINT64_C(0x0202020202020202));
}
END_TEST

START_TEST(test_unmap_under_a_queued_copy_is_a_sticky_fault)
{
    struct rig_gate gate;
    struct rig_memory memory;
    CUstream stream;

    rig_begin();
    memory = rig_map(RW);
    stream = rig_stream(CU_STREAM_NON_BLOCKING);
    rig_gate_close(&gate, stream);
    assert_ok(cuMemsetD8Async(memory.address, 1, RIG_BYTES, stream));
    rig_unmap(&memory);
    rig_gate_open(&gate);
    assert_cuda(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    assert_cuda(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}
END_TEST

START_TEST(test_synchronous_calls_need_a_context)
{
    struct rig_memory memory;
    CUstream stream;
    uint64_t word = 0;
    void *host;

    rig_begin();
    memory = rig_map(RW);
    stream = rig_stream(CU_STREAM_DEFAULT);
    assert_ok(cuCtxSetCurrent(NULL));
    assert_cuda(CUDA_ERROR_INVALID_CONTEXT, cuMemcpyHtoD_v2(memory.address, &word, 8));
    assert_cuda(CUDA_ERROR_INVALID_CONTEXT, cuMemsetD8_v2(memory.address, 0, 8));
    assert_cuda(CUDA_ERROR_INVALID_CONTEXT, cuMemHostAlloc(&host, 8, 0));
    assert_cuda(CUDA_ERROR_INVALID_CONTEXT, cuMemHostRegister_v2(&word, 8, 0));
    assert_ok(cuMemsetD8Async(memory.address, 0, 8, stream));
    assert_ok(cuStreamSynchronize(stream));
}
END_TEST

/* ---- batches ---- */

struct batch {
    CUdeviceptr targets[3];
    CUdeviceptr sources[3];
    size_t sizes[3];
    CUmemcpyAttributes attributes[3];
    size_t starts[3];
};

/* Three copies of a word each from `host` to device memory, all with the same attributes. */
static struct batch batch_of_words(CUdeviceptr target, const uint64_t host[3])
{
    struct batch batch = {.starts = {0, 1, 2}};

    for (size_t i = 0; i < 3; i++) {
        batch.targets[i] = target + 8 * i;
        batch.sources[i] = (uintptr_t) &host[i];
        batch.sizes[i] = 8;
        batch.attributes[i].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    }
    return batch;
}

static CUresult batch_put(struct batch *batch, size_t count, size_t attributes, CUstream stream)
{
    return cuMemcpyBatchAsync_v2(batch->targets, batch->sources, batch->sizes, count,
        batch->attributes, batch->starts, attributes, stream);
}

START_TEST(test_batch_copies_all)
{
    const uint64_t words[3] = {11, 12, 13};
    struct rig_memory memory;
    struct batch batch;
    CUstream stream;

    rig_begin();
    memory = rig_map(RW);
    stream = rig_stream(CU_STREAM_DEFAULT);
    batch = batch_of_words(memory.address, words);
    assert_ok(batch_put(&batch, 3, 1, stream));
    assert_ok(cuStreamSynchronize(stream));
    for (size_t i = 0; i < 3; i++)
        ck_assert_uint_eq(rig_word(memory.address + 8 * i), words[i]);
    assert_ok(batch_put(&batch, 3, 3, CU_STREAM_PER_THREAD));
}
END_TEST

START_TEST(test_batch_refuses_the_legacy_stream_and_bad_attributes)
{
    const uint64_t words[3] = {0};
    struct rig_memory memory;
    struct batch batch, bad;
    CUstream stream;

    rig_begin();
    memory = rig_map(RW);
    stream = rig_stream(CU_STREAM_DEFAULT);
    batch = batch_of_words(memory.address, words);
    assert_cuda(CUDA_ERROR_INVALID_VALUE, batch_put(&batch, 3, 1, NULL));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, batch_put(&batch, 3, 1, CU_STREAM_LEGACY));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, batch_put(&batch, 0, 1, stream));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, batch_put(&batch, 3, 0, stream));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, batch_put(&batch, 2, 3, stream));
    bad = batch;
    bad.starts[0] = 1;
    assert_cuda(CUDA_ERROR_INVALID_VALUE, batch_put(&bad, 3, 1, stream));
    bad = batch;
    bad.starts[2] = 1;
    assert_cuda(CUDA_ERROR_INVALID_VALUE, batch_put(&bad, 3, 3, stream));
    bad = batch;
    bad.starts[1] = 3;
    assert_cuda(CUDA_ERROR_INVALID_VALUE, batch_put(&bad, 3, 2, stream));
    bad = batch;
    bad.attributes[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
    assert_ok(batch_put(&bad, 3, 1, stream));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, batch_put(&bad, 3, 2, stream));
    bad.attributes[1].srcAccessOrder = 4;
    assert_cuda(CUDA_ERROR_INVALID_VALUE, batch_put(&bad, 3, 2, stream));
}
END_TEST

START_TEST(test_batch_of_the_older_abi_names_the_copy_that_failed)
{
    const uint64_t words[3] = {21, 22, 23};
    struct rig_memory memory;
    struct batch batch;
    CUstream stream;
    size_t failed = 77;

    rig_begin();
    memory = rig_map(RW);
    stream = rig_stream(CU_STREAM_DEFAULT);
    batch = batch_of_words(memory.address, words);
    assert_ok(cuMemcpyBatchAsync(batch.targets, batch.sources, batch.sizes, 3, batch.attributes,
        batch.starts, 1, &failed, stream));
    ck_assert_uint_eq(failed, 77);
    batch.targets[1] = memory.address + RIG_BYTES - 7;
    assert_cuda(
        CUDA_ERROR_INVALID_VALUE, cuMemcpyBatchAsync(batch.targets, batch.sources, batch.sizes, 3,
                                      batch.attributes, batch.starts, 1, &failed, stream));
    ck_assert_uint_eq(failed, 1);
    assert_cuda(
        CUDA_ERROR_INVALID_VALUE, cuMemcpyBatchAsync(batch.targets, batch.sources, batch.sizes, 3,
                                      batch.attributes, batch.starts, 1, &failed, NULL));
    ck_assert_uint_eq(failed, SIZE_MAX);
}
END_TEST

START_TEST(test_batch_takes_ephemeral_sources_during_the_call)
{
    uint64_t words[3] = {31, 32, 33};
    struct rig_gate gate;
    struct rig_memory memory;
    struct batch batch;
    CUstream stream;

    rig_begin();
    memory = rig_map(RW);
    stream = rig_stream(CU_STREAM_NON_BLOCKING);
    batch = batch_of_words(memory.address, words);
    for (size_t i = 0; i < 3; i++)
        batch.attributes[i].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
    rig_gate_close(&gate, stream);
    assert_ok(batch_put(&batch, 3, 1, stream));
    assert_cuda(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    memset(words, 0, sizeof(words));
    rig_gate_open(&gate);
    assert_ok(cuStreamSynchronize(stream));
    ck_assert_uint_eq(rig_word(memory.address + 16), 33);
}
END_TEST

/* ---- host memory ---- */

START_TEST(test_host_memory_is_registered_once)
{
    static unsigned char buffer[64 * 1024];
    void *host;

    rig_begin();
    assert_cuda(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(buffer));
    assert_ok(cuMemHostRegister_v2(buffer + 4096, 4096, CU_MEMHOSTREGISTER_PORTABLE));
    assert_cuda(
        CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(buffer, sizeof(buffer), 0));
    assert_cuda(
        CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(buffer + 8191, 1, 0));
    assert_ok(cuMemHostRegister_v2(buffer + 8192, 1, 0));
    assert_cuda(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(buffer + 4097));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(buffer + 4096));
    assert_ok(cuMemHostUnregister(buffer + 4096));
    assert_cuda(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(buffer + 4096));

    assert_ok(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_PORTABLE));
    assert_cuda(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(host, 4096, 0));
    assert_cuda(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(host));
    assert_ok(cuMemFreeHost(host));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(host));
}
END_TEST

START_TEST(test_host_memory_calls_check_their_arguments)
{
    void *host, *hole;

    rig_begin();
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuMemHostAlloc(&host, 0, 0));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuMemHostAlloc(NULL, 1, 0));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuMemHostAlloc(&host, 1, 8));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(&host, 0, 0));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(NULL, 1, 0));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(&host, 1, 16));
    hole = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(hole, MAP_FAILED);
    ck_assert_int_eq(munmap(hole, 4096), 0);
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(hole, 4096, 0));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(&host, SIZE_MAX, 0));
}
END_TEST

START_TEST(test_device_reaches_pinned_memory_by_its_address)
{
    CUdeviceptr address;
    uint64_t *host;
    uint64_t plain;

    rig_begin();
    assert_ok(cuMemHostAlloc((void **) &host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    assert_ok(cuMemHostGetDevicePointer_v2(&address, host + 1, 0));
    ck_assert_uint_eq(address, (uintptr_t) (host + 1));
    /* Waits, as memsets of host memory do. */
    assert_ok(cuMemsetD8_v2(address, 0xab, 8));
    ck_assert_uint_eq(host[1], UINT64_C(0xabababababababab));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer_v2(&address, &plain, 0));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer_v2(&address, host, 1));
}
END_TEST

START_TEST(test_pinned_memory_is_known_as_host_memory)
{
    CUdeviceptr address, start = 0;
    CUmemorytype type = 0;
    unsigned char *host;
    uint64_t plain = 0;
    size_t size = 0;

    rig_begin();
    assert_ok(cuMemHostAlloc((void **) &host, 5000, 0));
    address = (uintptr_t) host + 4999;
    assert_ok(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    assert_ok(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address));
    assert_ok(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address));
    ck_assert_int_eq(type, CU_MEMORYTYPE_HOST);
    ck_assert_uint_eq(start, (uintptr_t) host);
    ck_assert_uint_eq(size, 5000);
    assert_cuda(CUDA_ERROR_INVALID_VALUE,
        cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 1));
    assert_cuda(CUDA_ERROR_INVALID_VALUE,
        cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t) &plain));
    assert_ok(cuMemFreeHost(host));
    assert_cuda(CUDA_ERROR_INVALID_VALUE,
        cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t) host));
}
END_TEST

START_TEST(test_freeing_pinned_memory_waits_for_its_copies)
{
    struct rig_memory memory;
    CUstream stream;
    void *host;

    rig_begin();
    memory = rig_map(RW);
    stream = rig_stream(CU_STREAM_NON_BLOCKING);
    assert_ok(cuMemHostAlloc(&host, RIG_BYTES, 0));
    for (unsigned i = 0; i < 50; i++)
        assert_ok(cuMemcpyHtoDAsync_v2(memory.address, host, RIG_BYTES, stream));
    assert_ok(cuMemFreeHost(host));
    assert_ok(cuStreamQuery(stream));
}
END_TEST

RIG_MAIN("simexec-copies", test_bytes_come_back_as_they_went,
    test_ranges_are_checked_when_the_call_is_made, test_access_rights_hold_for_copies,
    test_memset_counts_elements, test_memset_of_words_is_aligned_and_does_not_wrap,
    test_copies_with_pinned_memory_are_asynchronous,
    test_pageable_memory_may_be_reused_when_the_call_returns,
    test_copy_within_the_device_is_never_waited_for,
    test_unmap_under_a_queued_copy_is_a_sticky_fault, test_synchronous_calls_need_a_context,
    test_batch_copies_all, test_batch_refuses_the_legacy_stream_and_bad_attributes,
    test_batch_of_the_older_abi_names_the_copy_that_failed,
    test_batch_takes_ephemeral_sources_during_the_call, test_host_memory_is_registered_once,
    test_host_memory_calls_check_their_arguments, test_device_reaches_pinned_memory_by_its_address,
    test_pinned_memory_is_known_as_host_memory, test_freeing_pinned_memory_waits_for_its_copies)
