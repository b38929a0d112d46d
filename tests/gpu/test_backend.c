/*
 * The VMM backend over a driver that is a table of functions in this file: what neither the real
 * nor the simulated driver does on demand.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "gpu/backend.h"
#include "tests/unit/unit.h"

static struct gpu_error error;
static struct vmm_gpu gpu;
static struct vmm_device device;
static CUdeviceptr freed;
static unsigned listed;

static CUresult fake_error_name(CUresult code, const char **name)
{
    *name = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_count(int *count)
{
    *count = (int) listed;
    return CUDA_SUCCESS;
}

static CUresult fake_device_get(CUdevice *at, int ordinal)
{
    *at = ordinal;
    return CUDA_SUCCESS;
}

static CUresult fake_uuid(CUuuid *uuid, CUdevice at)
{
    for (size_t i = 0; i < sizeof(uuid->bytes); i++)
        uuid->bytes[i] = (char) (i + 0xf5);
    return CUDA_SUCCESS;
}

static CUresult fake_name(char *name, int length, CUdevice at)
{
    strcpy(name, "fake");
    return CUDA_SUCCESS;
}

static CUresult fake_total(size_t *bytes, CUdevice at)
{
    *bytes = 1 << 30;
    return CUDA_SUCCESS;
}

/* A driver that knows attribute 102 and none that came later. */
static CUresult fake_attribute(int *value, CUdevice_attribute attribute, CUdevice at)
{
    *value = 1;
    return attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

static size_t granularity;

static CUresult fake_granularity(
    size_t *ret, const CUmemAllocationProp *properties, CUmemAllocationGranularity_flags option)
{
    *ret = granularity;
    return CUDA_SUCCESS;
}

static CUresult fake_reserve(
    CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr hint, unsigned long long flags)
{
    *address = 0x1000;
    return CUDA_SUCCESS;
}

static CUresult fake_address_free(CUdeviceptr address, size_t size)
{
    freed = address;
    return CUDA_SUCCESS;
}

/* Says that all is well and gives an fd that isn't open. */
static CUresult fake_export(void *shareable, CUmemGenericAllocationHandle handle,
    CUmemAllocationHandleType type, unsigned long long flags)
{
    *(int *) shareable = 1 << 20;
    return CUDA_SUCCESS;
}

static nvmlReturn_t fake_handle_of_mig(const char *uuid, nvmlDevice_t *at)
{
    if (strncmp(uuid, "MIG-", 4) != 0)
        return NVML_ERROR_NOT_FOUND;
    *at = (nvmlDevice_t) &device;
    return NVML_SUCCESS;
}

static nvmlReturn_t fake_handle_of_none(const char *uuid, nvmlDevice_t *at)
{
    return NVML_ERROR_NOT_FOUND;
}

static nvmlReturn_t fake_processes(nvmlDevice_t at, unsigned int *count, nvmlProcessInfo_t *list)
{
    list[0] = (nvmlProcessInfo_t){.pid = 7, .usedGpuMemory = NVML_VALUE_NOT_AVAILABLE};
    list[1] = (nvmlProcessInfo_t){.pid = 8, .usedGpuMemory = 4096};
    *count = 2;
    return NVML_SUCCESS;
}

static void setup(void)
{
    gpu.base.ops = &vmm_ops;
    gpu.cuda = (struct cuda_api){
        .get_error_name = fake_error_name,
        .device_get_count = fake_count,
        .device_get = fake_device_get,
        .device_get_uuid = fake_uuid,
        .device_get_name = fake_name,
        .device_total_mem = fake_total,
        .device_get_attribute = fake_attribute,
        .mem_get_allocation_granularity = fake_granularity,
        .mem_address_reserve = fake_reserve,
        .mem_address_free = fake_address_free,
        .mem_export_to_shareable_handle = fake_export,
    };
    listed = 1;
    granularity = 2 << 20;
}

START_TEST(uuid_is_printed_as_nvml_does)
{
    setup();
    ck_assert_int_eq(vmm_devices_list(&gpu, &error), 0);
    ck_assert_uint_eq(gpu.base.device_count, 1);
    ck_assert_str_eq(gpu.base.devices[0]->uuid, "GPU-f5f6f7f8-f9fa-fbfc-fdfe-ff0001020304");
    ck_assert_str_eq(gpu.base.devices[0]->name, "fake");
}
END_TEST

START_TEST(attribute_that_the_driver_does_not_know_is_a_lack)
{
    setup();
    ck_assert_int_eq(vmm_devices_list(&gpu, &error), 0);
    ck_assert(gpu.base.devices[0]->vmm);
    ck_assert(!gpu.base.devices[0]->posix_fd);
    ck_assert(!gpu.base.devices[0]->rdma);
    ck_assert_int_eq(gpu_device_sharing(gpu.base.devices[0]), GPU_HANDLE_IPC);
    ck_assert_uint_eq(gpu.base.devices[0]->granularity_bytes, 2 << 20);
    /* Without that ability no chunk asks for it. */
    ck_assert_int_eq(
        vmm_chunk_properties(&gpu.devices[0]).requestedHandleTypes, CU_MEM_HANDLE_TYPE_NONE);
    ck_assert_uint_eq(vmm_chunk_properties(&gpu.devices[0]).allocFlags.gpuDirectRDMACapable, 0);
}
END_TEST

START_TEST(absurd_device_counts_and_granularities_are_refused)
{
    setup();
    listed = 0;
    ck_assert_int_eq(vmm_devices_list(&gpu, &error), -ENODEV);
    listed = 65;
    ck_assert_int_eq(vmm_devices_list(&gpu, &error), -ENODEV);
    ck_assert_str_eq(error.text, "the driver lists 65 devices; 1 to 64 are usable");
    listed = 1;
    granularity = 0;
    ck_assert_int_eq(vmm_devices_list(&gpu, &error), -EIO);
}
END_TEST

START_TEST(misaligned_reservation_is_given_back)
{
    uint64_t address = 77;

    setup();
    ck_assert_int_eq(vmm_ops.range_reserve(&gpu.base, 1 << 21, 1 << 21, &address, &error), -EIO);
    ck_assert_uint_eq(freed, 0x1000);
    ck_assert_uint_eq(address, 77);
    ck_assert_int_eq(vmm_ops.range_reserve(&gpu.base, 4096, 4096, &address, &error), 0);
    ck_assert_uint_eq(address, 0x1000);
}
END_TEST

START_TEST(exported_fd_that_is_none_is_an_error)
{
    struct gpu_shareable shareable = {.fd = -7};
    struct gpu_chunk chunk = {.device = &device.base, .handle = 1, .bytes = 1};

    setup();
    ck_assert_int_eq(vmm_ops.chunk_export(&gpu.base, &chunk, &shareable, &error), -EBADF);
    ck_assert_int_eq(shareable.fd, -7);
}
END_TEST

START_TEST(mig_instance_gets_the_prefix_that_nvml_knows)
{
    setup();
    strcpy(device.base.uuid, "GPU-f5f6f7f8-f9fa-fbfc-fdfe-ff0001020304");
    gpu.nvml.device_get_handle_by_uuid = fake_handle_of_mig;
    ck_assert_int_eq(vmm_nvml_join(&gpu, &device, &error), 0);
    ck_assert_str_eq(device.base.uuid, "MIG-f5f6f7f8-f9fa-fbfc-fdfe-ff0001020304");
    ck_assert_ptr_nonnull(device.nvml);

    strcpy(device.base.uuid, "GPU-f5f6f7f8-f9fa-fbfc-fdfe-ff0001020304");
    gpu.nvml.device_get_handle_by_uuid = fake_handle_of_none;
    ck_assert_int_eq(vmm_nvml_join(&gpu, &device, &error), -ENOENT);
    ck_assert_str_eq(device.base.uuid, "GPU-f5f6f7f8-f9fa-fbfc-fdfe-ff0001020304");
}
END_TEST

START_TEST(process_figures_that_are_not_available_are_not_numbers)
{
    struct gpu_process list[2];
    size_t count = 0;

    setup();
    gpu.nvml.handle = &gpu;
    gpu.nvml.device_get_processes = fake_processes;
    ck_assert_int_eq(vmm_ops.processes(&gpu.base, &device.base, 1, list, &count, &error), -E2BIG);
    ck_assert_uint_eq(count, 0);
    ck_assert_int_eq(vmm_ops.processes(&gpu.base, &device.base, 2, list, &count, &error), 0);
    ck_assert_uint_eq(count, 2);
    ck_assert(!list[0].known);
    ck_assert_uint_eq(list[0].bytes, 0);
    ck_assert(list[1].known);
    ck_assert_uint_eq(list[1].bytes, 4096);
}
END_TEST

START_TEST(code_without_a_name_is_told_by_number)
{
    setup();
    ck_assert_int_eq(cuda_result_check(&gpu.cuda, (CUresult) 4711, "cuCall", &error), -EIO);
    ck_assert_str_eq(error.text, "cuCall: unknown error (4711)");
    ck_assert_int_eq(error.code, 4711);
}
END_TEST

UNIT_MAIN("gpu-backend", uuid_is_printed_as_nvml_does,
    attribute_that_the_driver_does_not_know_is_a_lack,
    absurd_device_counts_and_granularities_are_refused, misaligned_reservation_is_given_back,
    exported_fd_that_is_none_is_an_error, mig_instance_gets_the_prefix_that_nvml_knows,
    process_figures_that_are_not_available_are_not_numbers, code_without_a_name_is_told_by_number)
