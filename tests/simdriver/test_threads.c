/* The driver called from several threads at once: worth a run under TSan. */
#include <pthread.h>

#include "tests/simdriver/driver.h"

enum { THREADS = 4, ROUNDS = 60 };

static CUcontext context;

/* Create, export, import, map, use, unmap, release, and ask all the while. */
static void *run_vmm(void *data)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, .flags = 3};
    CUdeviceptr range;

    assert_ok(cuCtxSetCurrent(context));
    assert_ok(cuMemAddressReserve(&range, 2 * DRIVER_GRANULE, 0, 0, 0));
    for (unsigned i = 0; i < ROUNDS; i++) {
        CUmemGenericAllocationHandle handle = driver_chunk(), again;
        int fd = driver_export(handle);
        unsigned word = 0;

        assert_ok(cuMemImportFromShareableHandle(
            &again, (void *) (uintptr_t) fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        (void) close(fd);
        assert_ok(cuMemMap(range, DRIVER_GRANULE, 0, handle, 0));
        assert_ok(cuMemMap(range + DRIVER_GRANULE, DRIVER_GRANULE, 0, again, 0));
        assert_ok(cuMemRelease(handle));
        assert_ok(cuMemSetAccess(range, 2 * DRIVER_GRANULE, &access, 1));
        assert_ok(cuMemsetD32_v2(range, i + 1, 64));
        assert_ok(cuMemcpyDtoH_v2(&word, range + DRIVER_GRANULE, sizeof(word)));
        ck_assert_uint_eq(word, i + 1);
        ck_assert_uint_ge(driver_used(), DRIVER_GRANULE);
        assert_ok(cuMemUnmap(range, 2 * DRIVER_GRANULE));
        assert_ok(cuMemRelease(again));
    }
    assert_ok(cuMemAddressFree(range, 2 * DRIVER_GRANULE));
    return NULL;
}

static void *run_legacy(void *data)
{
    assert_ok(cuCtxPushCurrent_v2(context));
    for (unsigned i = 0; i < ROUNDS; i++) {
        CUdeviceptr small, large, base;
        size_t bytes;

        assert_ok(cuMemAlloc_v2(&small, 1000 + i));
        assert_ok(cuMemAlloc_v2(&large, 3 * MIB));
        assert_ok(cuMemGetAddressRange_v2(&base, &bytes, small + 999));
        ck_assert_uint_eq(base, small);
        ck_assert_uint_eq(bytes, 1000 + i);
        assert_ok(cuMemFree_v2(small));
        assert_ok(cuMemFree_v2(large));
    }
    return NULL;
}

static void *run_contexts(void *data)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        CUcontext own, same;
        CUdeviceptr address;

        assert_ok(cuDevicePrimaryCtxRetain(&same, 0));
        ck_assert_ptr_eq(same, context);
        assert_ok(cuCtxCreate_v2(&own, 0, 0));
        assert_ok(cuMemAlloc_v2(&address, MIB));
        assert_ok(cuCtxDestroy_v2(own));
        assert_cuda(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(own));
        assert_ok(cuDevicePrimaryCtxRelease_v2(0));
    }
    return NULL;
}

START_TEST(threads_share_one_driver_and_leave_nothing)
{
    void *(*const runs[])(void *) = {run_vmm, run_legacy, run_contexts};
    pthread_t threads[ARRAY_SIZE(runs)][THREADS];

    driver_begin();
    context = driver_context();
    for (unsigned i = 0; i < ARRAY_SIZE(runs); i++) {
        for (unsigned j = 0; j < THREADS; j++)
            ck_assert_int_eq(pthread_create(&threads[i][j], NULL, runs[i], NULL), 0);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(runs); i++) {
        for (unsigned j = 0; j < THREADS; j++)
            ck_assert_int_eq(pthread_join(threads[i][j], NULL), 0);
    }
    ck_assert_uint_eq(driver_used(), 0);
}
END_TEST

static void *run_init(void *data)
{
    assert_ok(cuInit(0));
    return NULL;
}

START_TEST(threads_may_all_initialise)
{
    pthread_t threads[THREADS];

    driver_environment();
    for (unsigned i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, run_init, NULL), 0);
    for (unsigned i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    (void) driver_chunk();
}
END_TEST

RIG_MAIN("threads", threads_share_one_driver_and_leave_nothing, threads_may_all_initialise)
