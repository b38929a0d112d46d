/* Any call from any thread: specification 2.5. Also a run for TSan. */
#include <pthread.h>
#include <unistd.h>

#include "tests/conformance/conformance.h"

#define THREADS 8
#define ROUNDS 25

/* One chunk's whole life, with bytes of its own. */
static void chunk_live(unsigned char mark)
{
    CUmemGenericAllocationHandle handle = chunk_new(granule), imported;
    CUdeviceptr first, second;
    int fd = chunk_fd(handle);

    cu_ok(cu->mem_import_from_shareable_handle(
        &imported, (void *) (uintptr_t) fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    (void) close(fd);
    first = chunk_map_new(handle, granule);
    second = chunk_map_new(imported, granule);
    cu_ok(cu->mem_release(handle));
    byte_write(first + mark, mark);
    ck_assert_uint_eq(byte_read(second + mark), mark);
    chunk_unmap(first, granule);
    ck_assert_uint_eq(byte_read(second + mark), mark);
    chunk_unmap(second, granule);
    cu_ok(cu->mem_release(imported));
}

static void *chunks_live(void *at)
{
    unsigned char *mark = at;

    cu_ok(cu->ctx_set_current(context));
    for (int i = 0; i < ROUNDS; i++)
        chunk_live(*mark);
    return NULL;
}

START_TEST(chunks_live_and_die_in_many_threads)
{
    unsigned char marks[THREADS];
    pthread_t threads[THREADS];
    uint64_t before;

    setup_context();
    before = device_free_bytes();
    for (size_t i = 0; i < THREADS; i++) {
        marks[i] = (unsigned char) (i + 1);
        ck_assert_int_eq(pthread_create(&threads[i], NULL, chunks_live, &marks[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    expect_free(before);
}
END_TEST

struct racer {
    uint64_t bytes; /* of one chunk */
    unsigned got;
    CUmemGenericAllocationHandle handles[64];
};

static void *device_fill(void *at)
{
    struct racer *racer = at;
    CUmemAllocationProp properties = chunk_properties();

    while (racer->got < ARRAY_SIZE(racer->handles)) {
        CUresult result = cu->mem_create(&racer->handles[racer->got], racer->bytes, &properties, 0);

        if (result == CUDA_ERROR_OUT_OF_MEMORY)
            break;
        cu_ok(result);
        racer->got++;
    }
    return NULL;
}

/* Two that take what is left: together they get all of it and no byte more. */
START_TEST(racing_creates_never_exceed_the_device)
{
    struct racer racers[2] = {0};
    pthread_t threads[2];
    uint64_t before;

    setup_driver();
    if (!on_simulator)
        return; /* filling a device that others use fails them */
    before = device_free_bytes();
    racers[0].bytes = racers[1].bytes = 32 * granule;
    ck_assert_uint_eq(before, 16 * racers[0].bytes);
    for (size_t i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, device_fill, &racers[i]), 0);
    for (size_t i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    ck_assert_uint_eq(racers[0].got + racers[1].got, 16);
    expect_free(0);
    for (size_t i = 0; i < 2; i++) {
        for (unsigned n = 0; n < racers[i].got; n++)
            cu_ok(cu->mem_release(racers[i].handles[n]));
    }
    expect_free(before);
}
END_TEST

CONFORMANCE_MAIN(
    "threads", chunks_live_and_die_in_many_threads, racing_creates_never_exceed_the_device)
