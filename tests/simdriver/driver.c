/* See driver.h. */
#include "tests/simdriver/driver.h"

void driver_environment(void)
{
    ck_assert_int_eq(setenv("GMB_SIM_DIR", rig.dir, 1), 0);
}

void driver_begin(void)
{
    driver_environment();
    assert_ok(cuInit(0));
}

CUcontext driver_context(void)
{
    CUcontext context;

    assert_ok(cuDevicePrimaryCtxRetain(&context, 0));
    assert_ok(cuCtxSetCurrent(context));
    return context;
}

CUresult driver_create(CUdevice device, CUmemGenericAllocationHandle *ret)
{
    const CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };

    return cuMemCreate(ret, DRIVER_GRANULE, &properties, 0);
}

CUmemGenericAllocationHandle driver_chunk(void)
{
    CUmemGenericAllocationHandle handle;

    assert_ok(driver_create(0, &handle));
    return handle;
}

int driver_export(CUmemGenericAllocationHandle handle)
{
    int fd;

    assert_ok(
        cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    return fd;
}

uint64_t driver_used(void)
{
    size_t available, total;

    assert_ok(cuMemGetInfo_v2(&available, &total));
    return total - available;
}
