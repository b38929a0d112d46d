/* What the loader says of libraries that are no driver, an old one, or a good one. */
#include <errno.h>
#include <string.h>

#include "gpu/driver_text.h"
#include "gpu/loader.h"
#include "tests/unit/unit.h"

static void expect_text(const struct gpu_error *error, const char *part)
{
    ck_assert_msg(strstr(error->text, part) != NULL, "`%s` doesn't say `%s`", error->text, part);
}

START_TEST(missing_library_is_no_device)
{
    struct cuda_api api = {.version = 77};
    struct gpu_error error;

    ck_assert_int_eq(cuda_load_path(STUB_DIR "/none.so", &api, &error), -ENODEV);
    expect_text(&error, "none.so cannot be loaded");
    expect_text(&error, "no NVIDIA driver on this machine");
    ck_assert_int_eq(api.version, 77);
}
END_TEST

START_TEST(toolkit_stub_is_no_device)
{
    struct cuda_api api = {.version = 77};
    struct gpu_error error;

    ck_assert_int_eq(cuda_load_path(STUB_DIR "/libstub-toolkit.so", &api, &error), -ENODEV);
    ck_assert_int_eq(error.code, CUDA_ERROR_STUB_LIBRARY);
    expect_text(&error, "stub library, not a driver (error 34)");
    ck_assert_int_eq(api.version, 77);
}
END_TEST

START_TEST(old_driver_is_named_with_what_it_lacks)
{
    struct gpu_error error;
    struct cuda_api api;

    ck_assert_int_eq(cuda_load_path(STUB_DIR "/libstub-old.so", &api, &error), -ENOSYS);
    expect_text(&error, "lacks cuMemGetAllocationGranularity");
    expect_text(&error, "a driver for CUDA 10.2 or later is needed, this one is for 10.1");
}
END_TEST

START_TEST(optional_functions_may_be_absent)
{
    struct gpu_error error;
    struct cuda_api api;

    ck_assert_int_eq(cuda_load_path(STUB_DIR "/libstub-plain.so", &api, &error), 0);
    ck_assert_int_eq(api.version, 11040);
    ck_assert(api.mem_retain_allocation_handle == NULL);
    ck_assert(api.memcpy_batch_async == NULL);
    ck_assert_int_eq(api.init(0), CUDA_SUCCESS);
    ck_assert_int_eq(api.mem_release(1), CUDA_SUCCESS);
    cuda_unload(&api);
    ck_assert_ptr_null(api.handle);
    cuda_unload(&api);
}
END_TEST

START_TEST(errors_may_be_unwanted)
{
    struct cuda_api api;

    ck_assert_int_eq(cuda_load_path(STUB_DIR "/none.so", &api, NULL), -ENODEV);
    ck_assert_int_eq(cuda_load_path(STUB_DIR "/libstub-toolkit.so", &api, NULL), -ENODEV);
    ck_assert_int_eq(cuda_load_path(STUB_DIR "/libstub-old.so", &api, NULL), -ENOSYS);
}
END_TEST

START_TEST(named_simulator_directory_is_the_only_one)
{
    struct gpu_error error;
    struct nvml_api nvml;
    struct cuda_api api;

    ck_assert_int_eq(setenv("GMB_SIM_LIBDIR", STUB_DIR "/nowhere", 1), 0);
    ck_assert_int_eq(cuda_load(GPU_DRIVER_SIM, &api, &error), -ENODEV);
    expect_text(&error, "libcuda-sim.so.1 cannot be loaded");
    expect_text(&error, "neither built nor installed");
    ck_assert_int_eq(nvml_load(GPU_DRIVER_SIM, &nvml, &error), -ENODEV);
    expect_text(&error, "libnvidia-ml-sim.so.1 cannot be loaded");
}
END_TEST

START_TEST(open_without_a_driver_says_why)
{
    struct gpu *gpu = NULL;
    struct gpu_error error;

    ck_assert_int_eq(setenv("GMB_SIM_LIBDIR", STUB_DIR "/nowhere", 1), 0);
    ck_assert_int_eq(gpu_open(GPU_DRIVER_SIM, GPU_ROLE_BROKER, &gpu, &error), -ENODEV);
    ck_assert_ptr_null(gpu);
    expect_text(&error, "libcuda-sim.so.1");
}
END_TEST

START_TEST(results_have_an_errno_and_unknown_ones_are_io_errors)
{
    ck_assert_int_eq(cuda_result_errno(CUDA_SUCCESS), 0);
    ck_assert_int_eq(cuda_result_errno(CUDA_ERROR_INVALID_VALUE), -EINVAL);
    ck_assert_int_eq(cuda_result_errno(CUDA_ERROR_OUT_OF_MEMORY), -ENOMEM);
    ck_assert_int_eq(cuda_result_errno(CUDA_ERROR_STUB_LIBRARY), -ENODEV);
    ck_assert_int_eq(cuda_result_errno(CUDA_ERROR_INVALID_DEVICE), -ENODEV);
    ck_assert_int_eq(cuda_result_errno(CUDA_ERROR_NOT_READY), -EAGAIN);
    ck_assert_int_eq(cuda_result_errno(CUDA_ERROR_ILLEGAL_ADDRESS), -EIO);
    ck_assert_int_eq(cuda_result_errno((CUresult) 12345), -EIO);
    ck_assert_int_eq(nvml_result_errno(NVML_SUCCESS), 0);
    ck_assert_int_eq(nvml_result_errno(NVML_ERROR_INSUFFICIENT_SIZE), -E2BIG);
    ck_assert_int_eq(nvml_result_errno(NVML_ERROR_NOT_SUPPORTED), -EOPNOTSUPP);
    ck_assert_int_eq(nvml_result_errno((nvmlReturn_t) 12345), -EIO);
}
END_TEST

START_TEST(long_texts_are_cut_at_their_room)
{
    struct gpu_error error;
    char text[GPU_ERROR_SIZE + 10];

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    gpu_error_set(&error, 3, "%s", text);
    ck_assert_uint_eq(strlen(error.text), GPU_ERROR_SIZE - 1);
    ck_assert_int_eq(error.code, 3);
}
END_TEST

START_TEST(names_of_drivers_and_handle_types_are_total)
{
    enum gpu_driver driver = GPU_DRIVER_MAX;

    ck_assert_int_eq(gpu_driver_parse("sim", &driver), 0);
    ck_assert_int_eq(driver, GPU_DRIVER_SIM);
    ck_assert_int_eq(gpu_driver_parse("cuda", &driver), 0);
    ck_assert_int_eq(driver, GPU_DRIVER_CUDA);
    ck_assert_int_eq(gpu_driver_parse("CUDA", &driver), -EINVAL);
    ck_assert_int_eq(driver, GPU_DRIVER_CUDA);
    ck_assert_str_eq(gpu_driver_name(GPU_DRIVER_SIM), "sim");
    ck_assert_str_eq(gpu_driver_name(GPU_DRIVER_MAX), "unknown");
    ck_assert_str_eq(gpu_handle_type_name(GPU_HANDLE_POSIX_FD), "posix-fd");
    ck_assert_str_eq(gpu_handle_type_name(GPU_HANDLE_IPC), "ipc");
    ck_assert_str_eq(gpu_handle_type_name(GPU_HANDLE_MAX), "unknown");
}
END_TEST

START_TEST(devices_are_found_by_the_digits_of_their_uuid)
{
    static const struct gpu_device mig = {.uuid = "MIG-0123abcd-0000-0000-0000-000000000001"};
    static const struct gpu_device whole = {.uuid = "GPU-0123abcd-0000-0000-0000-000000000002"};
    static const struct gpu_device *const devices[] = {&mig, &whole};
    struct gpu gpu = {.device_count = 2, .devices = devices};

    ck_assert_ptr_eq(gpu_device_find(&gpu, whole.uuid), &whole);
    ck_assert_ptr_eq(gpu_device_find(&gpu, "GPU-0123ABCD-0000-0000-0000-000000000001"), &mig);
    ck_assert_ptr_null(gpu_device_find(&gpu, "GPU-0123abcd-0000-0000-0000-000000000003"));
    ck_assert_ptr_null(gpu_device_find(&gpu, ""));
}
END_TEST

UNIT_MAIN("gpu-loader", missing_library_is_no_device, toolkit_stub_is_no_device,
    old_driver_is_named_with_what_it_lacks, optional_functions_may_be_absent,
    errors_may_be_unwanted, named_simulator_directory_is_the_only_one,
    open_without_a_driver_says_why, results_have_an_errno_and_unknown_ones_are_io_errors,
    long_texts_are_cut_at_their_room, names_of_drivers_and_handle_types_are_total,
    devices_are_found_by_the_digits_of_their_uuid)
