/* NVML as the broker uses it: specification 8. */
#include "tests/conformance/conformance.h"

#include <string.h>
#include <unistd.h>

#include "tests/conformance/peer.h"

static nvmlDevice_t device_by_index(unsigned index)
{
    nvmlDevice_t at;

    ck_assert_int_eq(nvml->device_get_handle_by_index(index, &at), NVML_SUCCESS);
    return at;
}

START_TEST(nvml_before_init_is_uninitialized)
{
    unsigned count;

    ck_assert_int_eq(nvml->device_get_count(&count), NVML_ERROR_UNINITIALIZED);
    ck_assert_int_eq(nvml->shutdown(), NVML_ERROR_UNINITIALIZED);
    ck_assert_int_eq(nvml->init(), NVML_SUCCESS);
    ck_assert_int_eq(nvml->device_get_count(&count), NVML_SUCCESS);
    ck_assert_uint_ge(count, 1);
    ck_assert_int_eq(nvml->shutdown(), NVML_SUCCESS);
}
END_TEST

START_TEST(nvml_uuid_names_the_device)
{
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE], again[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    nvmlDevice_t at;
    unsigned count;

    ck_assert_int_eq(nvml->init(), NVML_SUCCESS);
    ck_assert_int_eq(nvml->device_get_uuid(device_by_index(0), uuid, sizeof(uuid)), NVML_SUCCESS);
    ck_assert_int_eq(strncmp(uuid, "GPU-", 4), 0);
    ck_assert_uint_eq(strlen(uuid), 40);
    ck_assert_int_eq(nvml->device_get_handle_by_uuid(uuid, &at), NVML_SUCCESS);
    ck_assert_int_eq(nvml->device_get_uuid(at, again, sizeof(again)), NVML_SUCCESS);
    ck_assert_str_eq(uuid, again);
    ck_assert_int_eq(nvml->device_get_uuid(at, again, 8), NVML_ERROR_INSUFFICIENT_SIZE);
    ck_assert_int_ne(
        nvml->device_get_handle_by_uuid("GPU-00000000-0000-0000-0000-000000000000", &at),
        NVML_SUCCESS);
    ck_assert_int_eq(nvml->device_get_count(&count), NVML_SUCCESS);
    ck_assert_int_eq(nvml->device_get_handle_by_index(count, &at), NVML_ERROR_INVALID_ARGUMENT);
}
END_TEST

/* setup_driver() has joined CUDA's device 0 by UUID when memory can be read. */
START_TEST(nvml_memory_adds_up_and_follows_cuda)
{
    CUmemGenericAllocationHandle handle;
    nvmlMemory_t memory;
    uint64_t before;

    setup_driver();
    before = device_free_bytes();
    ck_assert_int_eq(nvml->device_get_memory_info(device_by_index(0), &memory), NVML_SUCCESS);
    ck_assert_uint_eq(memory.total, memory.free + memory.used);
    handle = chunk_new(64 * granule);
    expect_free(before - 64 * granule);
    cu_ok(cu->mem_release(handle));
    expect_free(before);
}
END_TEST

START_TEST(nvml_memory_v2_wants_its_version)
{
    nvmlMemory_v2_t memory = {.version = NVML_MEMORY_V2};
    nvmlMemory_t old;

    ck_assert_int_eq(nvml->init(), NVML_SUCCESS);
    if (nvml->device_get_memory_info_v2 == NULL)
        return;
    ck_assert_uint_eq(memory.version, 0x02000028);
    ck_assert_int_eq(nvml->device_get_memory_info_v2(device_by_index(0), &memory), NVML_SUCCESS);
    ck_assert_int_eq(nvml->device_get_memory_info(device_by_index(0), &old), NVML_SUCCESS);
    ck_assert_uint_eq(memory.total, old.total);
    memory.version = 7;
    ck_assert_int_ne(nvml->device_get_memory_info_v2(device_by_index(0), &memory), NVML_SUCCESS);
}
END_TEST

static bool pid_listed(pid_t pid, uint64_t *ret_bytes)
{
    nvmlProcessInfo_t list[256];
    unsigned count = ARRAY_SIZE(list);

    ck_assert_int_eq(nvml->device_get_processes(device_by_index(0), &count, list), NVML_SUCCESS);
    for (unsigned i = 0; i < count; i++) {
        if (list[i].pid == (unsigned) pid) {
            *ret_bytes = list[i].usedGpuMemory;
            ck_assert_uint_eq(list[i].gpuInstanceId, NVML_INSTANCE_NONE);
            return true;
        }
    }
    return false;
}

/* Pids are of another namespace in a container: on a real GPU this is recorded. */
START_TEST(nvml_lists_processes_with_a_context_alone)
{
    struct peer peer = peer_start(NULL);
    uint64_t bytes = 0;

    setup_driver();
    if (nvml->device_get_processes == NULL)
        return;
    (void) peer_do(&peer, PEER_INIT_BARE, 0);
    if (on_simulator)
        ck_assert(!pid_listed(peer.pid, &bytes));
    (void) peer_do(&peer, PEER_INIT, 0);
    if (on_simulator)
        ck_assert(pid_listed(peer.pid, &bytes));
    else
        observation_write("9.7 a process with a context", "listed %d, %llu bytes",
            pid_listed(peer.pid, &bytes), (unsigned long long) bytes);
    peer_kill(&peer);
    ck_assert(poll_until(5, !pid_listed(peer.pid, &bytes)));
}
END_TEST

START_TEST(nvml_charges_the_owner_not_the_importer)
{
    struct peer peer = peer_start(NULL);
    uint64_t mine = 0, its = 0, mine_before = 0, its_before = 0;
    CUmemGenericAllocationHandle handle;
    int fd;

    setup_context();
    if (nvml->device_get_processes == NULL)
        return;
    (void) peer_do(&peer, PEER_INIT, 0);
    (void) pid_listed(getpid(), &mine_before);
    (void) pid_listed(peer.pid, &its_before);
    handle = chunk_new(32 * granule);
    fd = chunk_fd(handle);
    ck_assert_int_eq(
        peer_call(&peer, (struct peer_message){.op = PEER_IMPORT}, fd, NULL).result, CUDA_SUCCESS);
    (void) close(fd);
    (void) peer_do(&peer, PEER_MAP, 32 * granule);
    (void) pid_listed(getpid(), &mine);
    (void) pid_listed(peer.pid, &its);
    if (on_simulator) {
        ck_assert_uint_eq(mine - mine_before, 32 * granule);
        ck_assert_uint_eq(its - its_before, 0);
    } else {
        observation_write("9.7 owner and importer of a chunk", "owner +%lld, importer +%lld bytes",
            (long long) (mine - mine_before), (long long) (its - its_before));
    }
    peer_end(&peer);
    cu_ok(cu->mem_release(handle));
}
END_TEST

START_TEST(nvml_process_list_says_how_much_room_it_needs)
{
    unsigned count = 0;

    setup_context();
    if (nvml->device_get_processes == NULL)
        return;
    ck_assert_int_eq(
        nvml->device_get_processes(device_by_index(0), &count, NULL), NVML_ERROR_INSUFFICIENT_SIZE);
    ck_assert_uint_ge(count, 1);
}
END_TEST

START_TEST(nvml_ordinals_ignore_cuda_visible_devices)
{
    char first[NVML_DEVICE_UUID_V2_BUFFER_SIZE], again[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    unsigned count = 0;

    ck_assert_int_eq(nvml->init(), NVML_SUCCESS);
    ck_assert_int_eq(nvml->device_get_uuid(device_by_index(0), first, sizeof(first)), NVML_SUCCESS);
    ck_assert_int_eq(nvml->shutdown(), NVML_SUCCESS);
    ck_assert_int_eq(setenv("CUDA_VISIBLE_DEVICES", "1", 1), 0);
    ck_assert_int_eq(nvml->init(), NVML_SUCCESS);
    ck_assert_int_eq(nvml->device_get_uuid(device_by_index(0), again, sizeof(again)), NVML_SUCCESS);
    ck_assert_str_eq(first, again);
    ck_assert_int_eq(nvml->device_get_count(&count), NVML_SUCCESS);
    if (on_simulator)
        ck_assert_uint_eq(count, 2);
}
END_TEST

START_TEST(nvml_persistence_mode_is_readable)
{
    nvmlEnableState_t mode = (nvmlEnableState_t) 99;

    ck_assert_int_eq(nvml->init(), NVML_SUCCESS);
    if (nvml->device_get_persistence_mode == NULL)
        return;
    ck_assert_int_eq(nvml->device_get_persistence_mode(device_by_index(0), &mode), NVML_SUCCESS);
    ck_assert(mode == NVML_FEATURE_DISABLED || mode == NVML_FEATURE_ENABLED);
}
END_TEST

CONFORMANCE_MAIN("nvml", nvml_before_init_is_uninitialized, nvml_uuid_names_the_device,
    nvml_memory_adds_up_and_follows_cuda, nvml_memory_v2_wants_its_version,
    nvml_lists_processes_with_a_context_alone, nvml_charges_the_owner_not_the_importer,
    nvml_process_list_says_how_much_room_it_needs, nvml_ordinals_ignore_cuda_visible_devices,
    nvml_persistence_mode_is_readable)
