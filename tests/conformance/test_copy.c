/* Copies, fills, host memory: specification 5.4 and 5.6. */
#include "tests/conformance/gate.h"

#include <string.h>
#include <sys/mman.h>

#define BYTES 65536u

static CUdeviceptr buffer_new(void)
{
    CUdeviceptr address;

    cu_ok(cu->mem_alloc(&address, BYTES));
    return address;
}

static CUstream stream_new(void)
{
    CUstream stream;

    cu_ok(cu->stream_create(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

START_TEST(copies_round_trip)
{
    unsigned char sent[1000], received[1000] = {0};
    CUdeviceptr a, b;

    setup_context();
    a = buffer_new();
    b = buffer_new();
    for (size_t i = 0; i < sizeof(sent); i++)
        sent[i] = (unsigned char) (i * 7);
    cu_ok(cu->memcpy_htod(a + 1, sent, sizeof(sent)));
    cu_ok(cu->memcpy_dtod(b + 3, a + 1, sizeof(sent)));
    cu_ok(cu->memcpy_dtoh(received, b + 3, sizeof(received)));
    ck_assert_mem_eq(sent, received, sizeof(sent));
}
END_TEST

START_TEST(async_copies_follow_their_stream)
{
    struct gate gate = GATE_INIT;
    CUdeviceptr source, target;
    unsigned char *host;
    CUstream stream;
    void *at;

    setup_context();
    source = buffer_new();
    target = buffer_new();
    stream = stream_new();
    cu_ok(cu->memset_d8(source, 0x31, BYTES));
    cu_ok(cu->memset_d8(target, 0x30, BYTES));
    cu_ok(cu->mem_host_alloc(&at, BYTES, 0));
    host = at;
    memset(host, 0, BYTES);
    cu_ok(cu->ctx_synchronize());
    gate_close(&gate, stream);
    cu_ok(cu->memcpy_dtod_async(target, source, BYTES, stream));
    cu_ok(cu->memcpy_dtoh_async(host, target, BYTES, stream));
    ck_assert_uint_eq(host[0], 0);
    gate_open(&gate);
    cu_ok(cu->stream_synchronize(stream));
    ck_assert_uint_eq(host[0], 0x31);
    ck_assert_uint_eq(host[BYTES - 1], 0x31);
    cu_ok(cu->mem_free_host(at));
}
END_TEST

START_TEST(copy_beyond_an_allocation_is_refused)
{
    unsigned char bytes[16] = {0};

    setup_context();
    cu_observe("5.4 copy to an unknown address", CUDA_ERROR_INVALID_VALUE,
        cu->memcpy_htod(0x1234500, bytes, sizeof(bytes)));
    cu_observe("5.4 copy from an unknown address", CUDA_ERROR_INVALID_VALUE,
        cu->memcpy_dtoh(bytes, 0x1234500, sizeof(bytes)));
}
END_TEST

START_TEST(copy_of_nothing_succeeds)
{
    unsigned char byte = 1;
    CUdeviceptr address;

    setup_context();
    address = buffer_new();
    cu_ok(cu->memcpy_htod(address, &byte, 0));
    cu_ok(cu->memset_d8(address, 0, 0));
}
END_TEST

START_TEST(memset_counts_elements_and_d32_needs_alignment)
{
    unsigned int words[4] = {0};
    CUdeviceptr address;

    setup_context();
    address = buffer_new();
    cu_ok(cu->memset_d8(address, 0xff, 16));
    cu_ok(cu->memset_d32(address, 0x01020304, 2));
    cu_ok(cu->memcpy_dtoh(words, address, sizeof(words)));
    ck_assert_uint_eq(words[0], 0x01020304);
    ck_assert_uint_eq(words[1], 0x01020304);
    ck_assert_uint_eq(words[2], 0xffffffff);
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->memset_d32(address + 2, 0, 1));
}
END_TEST

START_TEST(a_large_fill_of_zeros_ends_where_it_ends)
{
    const size_t bytes = 4 << 20, first = 100, count = (3 << 20) + 50;
    CUdeviceptr address;

    setup_context();
    cu_ok(cu->mem_alloc(&address, bytes));
    cu_ok(cu->memset_d8(address, 0x77, bytes));
    cu_ok(cu->memset_d8(address + first, 0, count));
    ck_assert_uint_eq(byte_read(address + first - 1), 0x77);
    ck_assert_uint_eq(byte_read(address + first), 0);
    ck_assert_uint_eq(byte_read(address + (2 << 20)), 0);
    ck_assert_uint_eq(byte_read(address + first + count - 1), 0);
    ck_assert_uint_eq(byte_read(address + first + count), 0x77);
    cu_ok(cu->mem_free(address));
}
END_TEST

START_TEST(async_memsets_follow_their_stream)
{
    unsigned char bytes[8];
    struct gate gate = GATE_INIT;
    CUdeviceptr address;
    CUstream stream;

    setup_context();
    address = buffer_new();
    stream = stream_new();
    cu_ok(cu->memset_d8(address, 0, 8));
    cu_ok(cu->ctx_synchronize());
    gate_close(&gate, stream);
    cu_ok(cu->memset_d32_async(address, 0x41414141, 1, stream));
    cu_ok(cu->memset_d8_async(address + 4, 0x42, 4, stream));
    cu_expect(CUDA_ERROR_NOT_READY, cu->stream_query(stream));
    gate_open(&gate);
    cu_ok(cu->stream_synchronize(stream));
    cu_ok(cu->memcpy_dtoh(bytes, address, sizeof(bytes)));
    ck_assert_mem_eq(bytes, "AAAABBBB", 8);
}
END_TEST

struct batch {
    CUdeviceptr targets[2];
    CUdeviceptr sources[2];
    size_t sizes[2];
    CUmemcpyAttributes attributes[2];
    size_t starts[2];
};

/* A batch that is right: two copies, one attribute for both. */
static struct batch batch_new(void)
{
    struct batch batch = {
        .sizes = {100, 200},
        .attributes = {{.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM},
            {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM}},
        .starts = {0, 1},
    };

    for (size_t i = 0; i < 2; i++) {
        batch.targets[i] = buffer_new();
        batch.sources[i] = buffer_new();
        cu_ok(cu->memset_d8(batch.sources[i], (unsigned char) (0x51 + i), BYTES));
    }
    /* The fills are in the NULL stream, which the streams of these tests don't wait for. */
    cu_ok(cu->ctx_synchronize());
    return batch;
}

static CUresult batch_submit(struct batch *batch, size_t attributes, CUstream stream)
{
    size_t failed;

    if (cu->memcpy_batch_async != NULL)
        return cu->memcpy_batch_async(batch->targets, batch->sources, batch->sizes, 2,
            batch->attributes, batch->starts, attributes, stream);
    return cu->memcpy_batch_async_v1(batch->targets, batch->sources, batch->sizes, 2,
        batch->attributes, batch->starts, attributes, &failed, stream);
}

static bool batch_missing(void)
{
    return cu->memcpy_batch_async == NULL && cu->memcpy_batch_async_v1 == NULL;
}

START_TEST(batch_copies_all_entries)
{
    struct batch batch;
    CUstream stream;

    setup_context();
    if (batch_missing())
        return;
    batch = batch_new();
    stream = stream_new();
    cu_ok(batch_submit(&batch, 1, stream));
    cu_ok(batch_submit(&batch, 2, stream));
    cu_ok(cu->stream_synchronize(stream));
    ck_assert_uint_eq(byte_read(batch.targets[0] + 99), 0x51);
    ck_assert_uint_eq(byte_read(batch.targets[1] + 199), 0x52);
}
END_TEST

START_TEST(batch_refuses_the_legacy_stream_and_wrong_attributes)
{
    struct batch batch, wrong;
    CUstream stream;

    setup_context();
    if (batch_missing())
        return;
    batch = batch_new();
    stream = stream_new();
    cu_expect(CUDA_ERROR_INVALID_VALUE, batch_submit(&batch, 1, NULL));
    wrong = batch;
    wrong.attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
    cu_expect(CUDA_ERROR_INVALID_VALUE, batch_submit(&wrong, 1, stream));
    wrong = batch;
    wrong.starts[0] = 1;
    cu_expect(CUDA_ERROR_INVALID_VALUE, batch_submit(&wrong, 1, stream));
    wrong = batch;
    wrong.starts[1] = 0;
    cu_expect(CUDA_ERROR_INVALID_VALUE, batch_submit(&wrong, 2, stream));
    wrong = batch;
    wrong.starts[1] = 2;
    cu_expect(CUDA_ERROR_INVALID_VALUE, batch_submit(&wrong, 2, stream));
    cu_expect(CUDA_ERROR_INVALID_VALUE, batch_submit(&batch, 3, stream));
    cu_ok(batch_submit(&batch, 1, stream));
    cu_ok(cu->stream_synchronize(stream));
}
END_TEST

START_TEST(host_memory_is_registered_once)
{
    void *memory;

    setup_context();
    memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(memory, MAP_FAILED);
    cu_ok(cu->mem_host_register(memory, BYTES, CU_MEMHOSTREGISTER_PORTABLE));
    cu_expect(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
        cu->mem_host_register(memory, BYTES, CU_MEMHOSTREGISTER_PORTABLE));
    cu_ok(cu->mem_host_unregister(memory));
    cu_expect(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cu->mem_host_unregister(memory));
    (void) munmap(memory, BYTES);
}
END_TEST

START_TEST(host_memory_is_freed_once)
{
    void *memory;

    setup_context();
    cu_ok(cu->mem_host_alloc(&memory, BYTES, CU_MEMHOSTALLOC_PORTABLE));
    memset(memory, 1, BYTES);
    cu_ok(cu->mem_free_host(memory));
    if (on_simulator)
        cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_free_host(memory));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_host_alloc(&memory, BYTES, 0x100));
}
END_TEST

CONFORMANCE_MAIN("copy", copies_round_trip, async_copies_follow_their_stream,
    copy_beyond_an_allocation_is_refused, copy_of_nothing_succeeds,
    memset_counts_elements_and_d32_needs_alignment, a_large_fill_of_zeros_ends_where_it_ends,
    async_memsets_follow_their_stream, batch_copies_all_entries,
    batch_refuses_the_legacy_stream_and_wrong_attributes, host_memory_is_registered_once,
    host_memory_is_freed_once)
