/*
 * Export, import, and how long memory lives: specification 3 and 4. Every way to hold memory is
 * taken in turn, alone, and free memory must say so.
 */
#include "tests/conformance/conformance.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/conformance/peer.h"

/* Large enough to be seen on a real GPU where others breathe. */
#define BYTES (UINT64_C(64) << 20)

static CUmemGenericAllocationHandle import_fd(int fd)
{
    CUmemGenericAllocationHandle handle;

    cu_ok(cu->mem_import_from_shareable_handle(
        &handle, (void *) (uintptr_t) fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    return handle;
}

/* The peer creates a chunk; we get its fd. */
static int peer_chunk(struct peer *peer)
{
    struct peer_message reply;
    int fd = -1;

    reply =
        peer_call(peer, (struct peer_message){.op = PEER_CREATE_EXPORT, .bytes = BYTES}, -1, &fd);
    ck_assert_int_eq(reply.result, CUDA_SUCCESS);
    ck_assert_int_ge(fd, 0);
    return fd;
}

static void peer_give(struct peer *peer, enum peer_op op, int fd)
{
    struct peer_message reply =
        peer_call(peer, (struct peer_message){.op = op, .bytes = BYTES}, fd, NULL);

    ck_assert_int_eq(reply.result, CUDA_SUCCESS);
}

static unsigned peer_byte(struct peer *peer, uint64_t offset)
{
    return (unsigned) peer_do(peer, PEER_READ, offset).value;
}

START_TEST(each_export_is_a_new_fd)
{
    CUmemGenericAllocationHandle handle;
    int first, second;

    setup_driver();
    handle = chunk_new(granule);
    first = chunk_fd(handle);
    second = chunk_fd(handle);
    ck_assert_int_ne(first, second);
    (void) close(first);
    (void) cu->mem_release(import_fd(second));
    (void) close(second);
    cu_ok(cu->mem_release(handle));
}
END_TEST

START_TEST(import_does_not_consume_the_fd)
{
    CUmemGenericAllocationHandle handle, imported;
    int fd;

    setup_driver();
    handle = chunk_new(granule);
    fd = chunk_fd(handle);
    imported = import_fd(fd);
    ck_assert_int_ge(fcntl(fd, F_GETFD), 0);
    cu_ok(cu->mem_release(imported));
    imported = import_fd(fd);
    cu_ok(cu->mem_release(imported));
    (void) close(fd);
    cu_ok(cu->mem_release(handle));
}
END_TEST

START_TEST(each_import_needs_its_own_release)
{
    CUmemGenericAllocationHandle handle, first, second;
    uint64_t before;
    int fd;

    setup_driver();
    before = device_free_bytes();
    handle = chunk_new(BYTES);
    fd = chunk_fd(handle);
    first = import_fd(fd);
    second = import_fd(fd);
    (void) close(fd);
    cu_ok(cu->mem_release(handle));
    cu_ok(cu->mem_release(first));
    expect_free(before - BYTES);
    cu_ok(cu->mem_release(second));
    expect_free(before);
}
END_TEST

START_TEST(importer_may_export_again)
{
    CUmemGenericAllocationHandle handle, imported;
    int fd, again = -1;

    setup_driver();
    handle = chunk_new(granule);
    fd = chunk_fd(handle);
    imported = import_fd(fd);
    (void) close(fd);
    cu_ok(cu->mem_release(handle));
    cu_observe("3 export by an importer", CUDA_SUCCESS,
        cu->mem_export_to_shareable_handle(
            &again, imported, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    cu_ok(cu->mem_release(imported));
    if (again >= 0) {
        imported = import_fd(again);
        (void) close(again);
        cu_ok(cu->mem_release(imported));
    }
}
END_TEST

START_TEST(imported_chunk_tells_type_and_location)
{
    CUmemGenericAllocationHandle handle, imported;
    CUmemAllocationProp seen;
    int fd;

    setup_driver();
    handle = chunk_new(granule);
    fd = chunk_fd(handle);
    imported = import_fd(fd);
    (void) close(fd);
    cu_ok(cu->mem_get_allocation_properties(&seen, imported));
    ck_assert_int_eq(seen.type, CU_MEM_ALLOCATION_TYPE_PINNED);
    ck_assert_int_eq(seen.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
    ck_assert_int_eq(seen.location.id, device);
    cu_ok(cu->mem_release(imported));
    cu_ok(cu->mem_release(handle));
}
END_TEST

START_TEST(import_in_the_exporting_process_is_the_same_bytes)
{
    CUmemGenericAllocationHandle handle, imported;
    CUdeviceptr address, alias;
    int fd;

    setup_context();
    handle = chunk_new(granule);
    fd = chunk_fd(handle);
    imported = import_fd(fd);
    (void) close(fd);
    address = chunk_map_new(handle, granule);
    alias = chunk_map_new(imported, granule);
    byte_write(address, 0x66);
    ck_assert_uint_eq(byte_read(alias), 0x66);
    chunk_unmap(address, granule);
    chunk_unmap(alias, granule);
    cu_ok(cu->mem_release(handle));
    cu_ok(cu->mem_release(imported));
}
END_TEST

START_TEST(import_of_a_foreign_fd_is_refused)
{
    CUmemGenericAllocationHandle handle;
    int null, pipes[2];

    setup_driver();
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(null, 0);
    ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
    cu_observe("9.4 import of /dev/null", CUDA_ERROR_INVALID_VALUE,
        cu->mem_import_from_shareable_handle(
            &handle, (void *) (uintptr_t) null, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    cu_observe("9.4 import of a pipe", CUDA_ERROR_INVALID_VALUE,
        cu->mem_import_from_shareable_handle(
            &handle, (void *) (uintptr_t) pipes[0], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    (void) close(null);
    (void) close(pipes[0]);
    (void) close(pipes[1]);
    cu_observe("9.4 import of a closed fd", CUDA_ERROR_INVALID_VALUE,
        cu->mem_import_from_shareable_handle(
            &handle, (void *) (uintptr_t) null, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
}
END_TEST

START_TEST(importer_in_another_process_sees_and_writes_the_bytes)
{
    struct peer peer = peer_start(NULL);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    int fd;

    setup_context();
    handle = chunk_new(BYTES);
    address = chunk_map_new(handle, BYTES);
    byte_write(address + BYTES - 1, 0x77);
    fd = chunk_fd(handle);
    (void) peer_do(&peer, PEER_INIT, 0);
    peer_give(&peer, PEER_IMPORT, fd);
    (void) close(fd);
    (void) peer_do(&peer, PEER_MAP, BYTES);
    ck_assert_uint_eq(peer_byte(&peer, BYTES - 1), 0x77);
    (void) peer_call(&peer, (struct peer_message){.op = PEER_FILL, .value = 0x78}, -1, NULL);
    ck_assert_uint_eq(byte_read(address), 0x78);
    ck_assert_uint_eq(byte_read(address + BYTES - 1), 0x78);
    peer_end(&peer);
    chunk_unmap(address, BYTES);
    cu_ok(cu->mem_release(handle));
}
END_TEST

START_TEST(memory_outlives_its_creator_through_an_import)
{
    struct peer peer = peer_start(NULL);
    CUmemGenericAllocationHandle handle;
    uint64_t before;
    int fd;

    setup_driver();
    before = device_free_bytes();
    (void) peer_do(&peer, PEER_INIT_BARE, 0);
    fd = peer_chunk(&peer);
    handle = import_fd(fd);
    (void) close(fd);
    peer_kill(&peer);
    expect_free(before - BYTES);
    cu_ok(cu->mem_release(handle));
    expect_free(before);
}
END_TEST

START_TEST(memory_outlives_its_creator_through_a_mapping)
{
    struct peer peer = peer_start(NULL);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    uint64_t before;
    int fd;

    setup_context();
    before = device_free_bytes();
    (void) peer_do(&peer, PEER_INIT_BARE, 0);
    fd = peer_chunk(&peer);
    handle = import_fd(fd);
    (void) close(fd);
    address = chunk_map_new(handle, BYTES);
    cu_ok(cu->mem_release(handle));
    peer_end(&peer);
    expect_free(before - BYTES);
    byte_write(address, 1);
    chunk_unmap(address, BYTES);
    expect_free(before);
}
END_TEST

START_TEST(importers_mapping_keeps_memory_that_the_creator_released)
{
    struct peer peer = peer_start(NULL);
    CUmemGenericAllocationHandle handle;
    uint64_t before;
    int fd;

    setup_driver();
    (void) peer_do(&peer, PEER_INIT, 0);
    before = device_free_bytes();
    handle = chunk_new(BYTES);
    fd = chunk_fd(handle);
    peer_give(&peer, PEER_IMPORT, fd);
    (void) close(fd);
    (void) peer_do(&peer, PEER_MAP, BYTES);
    (void) peer_do(&peer, PEER_RELEASE, 0);
    cu_ok(cu->mem_release(handle));
    expect_free(before - BYTES);
    (void) peer_do(&peer, PEER_UNMAP, 0);
    expect_free(before);
    peer_end(&peer);
}
END_TEST

START_TEST(killed_importer_gives_its_references_back)
{
    struct peer peer = peer_start(NULL);
    CUmemGenericAllocationHandle handle;
    uint64_t before;
    int fd;

    setup_driver();
    before = device_free_bytes();
    handle = chunk_new(BYTES);
    fd = chunk_fd(handle);
    (void) peer_do(&peer, PEER_INIT, 0);
    peer_give(&peer, PEER_IMPORT, fd);
    (void) close(fd);
    (void) peer_do(&peer, PEER_MAP, BYTES);
    cu_ok(cu->mem_release(handle));
    peer_kill(&peer);
    expect_free(before);
}
END_TEST

START_TEST(killed_creator_without_exports_frees_everything)
{
    struct peer peer = peer_start(NULL);
    uint64_t before;
    int fd;

    setup_driver();
    before = device_free_bytes();
    (void) peer_do(&peer, PEER_INIT, 0);
    fd = peer_chunk(&peer);
    (void) peer_do(&peer, PEER_MAP, BYTES);
    (void) close(fd);
    peer_kill(&peer);
    expect_free(before);
}
END_TEST

START_TEST(fd_alone_keeps_memory)
{
    CUmemGenericAllocationHandle handle;
    uint64_t before;
    int fd, copy;

    setup_driver();
    before = device_free_bytes();
    handle = chunk_new(BYTES);
    fd = chunk_fd(handle);
    cu_ok(cu->mem_release(handle));
    expect_free(before - BYTES);
    copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    (void) close(fd);
    expect_free(before - BYTES);
    (void) close(copy);
    expect_free(before);
}
END_TEST

START_TEST(fd_parked_in_a_third_process_keeps_memory)
{
    struct peer keeper = peer_start(NULL), creator = peer_start(NULL);
    uint64_t before;
    int fd;

    setup_driver();
    before = device_free_bytes();
    (void) peer_do(&creator, PEER_INIT_BARE, 0);
    fd = peer_chunk(&creator);
    peer_give(&keeper, PEER_PARK, fd);
    (void) close(fd);
    peer_kill(&creator);
    expect_free(before - BYTES);
    (void) peer_do(&keeper, PEER_UNPARK, 0);
    expect_free(before);
    peer_end(&keeper);
}
END_TEST

START_TEST(killed_keeper_of_an_fd_frees_memory)
{
    struct peer keeper = peer_start(NULL);
    CUmemGenericAllocationHandle handle;
    uint64_t before;
    int fd;

    setup_driver();
    before = device_free_bytes();
    handle = chunk_new(BYTES);
    fd = chunk_fd(handle);
    peer_give(&keeper, PEER_PARK, fd);
    (void) close(fd);
    cu_ok(cu->mem_release(handle));
    expect_free(before - BYTES);
    peer_kill(&keeper);
    expect_free(before);
}
END_TEST

START_TEST(fd_in_an_unread_socket_keeps_memory)
{
    CUmemGenericAllocationHandle handle;
    struct peer_message message = {0};
    uint64_t before;
    int sockets[2];
    int fd;

    setup_driver();
    before = device_free_bytes();
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    handle = chunk_new(BYTES);
    fd = chunk_fd(handle);
    ck_assert_int_eq(peer_send(sockets[0], &message, fd), 0);
    (void) close(fd);
    cu_ok(cu->mem_release(handle));
    (void) close(sockets[0]);
    expect_free(before - BYTES);
    ck_assert_int_eq(peer_receive(sockets[1], &message, &fd), 0);
    ck_assert_int_ge(fd, 0);
    handle = import_fd(fd);
    (void) close(fd);
    expect_free(before - BYTES);
    cu_ok(cu->mem_release(handle));
    (void) close(sockets[1]);
    expect_free(before);
}
END_TEST

START_TEST(unread_socket_that_closes_frees_memory)
{
    CUmemGenericAllocationHandle handle;
    struct peer_message message = {0};
    uint64_t before;
    int sockets[2];
    int fd;

    setup_driver();
    before = device_free_bytes();
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    handle = chunk_new(BYTES);
    fd = chunk_fd(handle);
    ck_assert_int_eq(peer_send(sockets[0], &message, fd), 0);
    (void) close(fd);
    cu_ok(cu->mem_release(handle));
    expect_free(before - BYTES);
    (void) close(sockets[0]);
    (void) close(sockets[1]);
    expect_free(before);
}
END_TEST

START_TEST(import_without_the_owning_device_is_invalid_device)
{
    CUmemGenericAllocationHandle handle;
    struct peer_message reply;
    struct peer peer;
    int count, fd;

    setup_driver();
    cu_ok(cu->device_get_count(&count));
    if (count < 2)
        return;
    peer = peer_start("CUDA_VISIBLE_DEVICES=1");
    handle = chunk_new(BYTES);
    fd = chunk_fd(handle);
    (void) peer_do(&peer, PEER_INIT, 0);
    reply = peer_call(&peer, (struct peer_message){.op = PEER_IMPORT, .bytes = BYTES}, fd, NULL);
    cu_observe("3 import of a hidden device's memory", CUDA_ERROR_INVALID_DEVICE, reply.result);
    (void) close(fd);
    peer_end(&peer);
    cu_ok(cu->mem_release(handle));
}
END_TEST

START_TEST(device_order_follows_cuda_visible_devices)
{
    CUmemGenericAllocationHandle handle;
    struct peer peer;
    uint64_t before;
    int count, fd;

    setup_driver();
    cu_ok(cu->device_get_count(&count));
    if (count < 2)
        return;
    /* The peer's ordinal 0 is our ordinal 1: our device keeps its memory. */
    peer = peer_start("CUDA_VISIBLE_DEVICES=1,0");
    before = device_free_bytes();
    (void) peer_do(&peer, PEER_INIT_BARE, 0);
    fd = peer_chunk(&peer);
    expect_free(before);
    handle = import_fd(fd);
    (void) close(fd);
    cu_ok(cu->mem_release(handle));
    peer_end(&peer);
}
END_TEST

CONFORMANCE_MAIN("share", each_export_is_a_new_fd, import_does_not_consume_the_fd,
    each_import_needs_its_own_release, importer_may_export_again,
    imported_chunk_tells_type_and_location, import_in_the_exporting_process_is_the_same_bytes,
    import_of_a_foreign_fd_is_refused, importer_in_another_process_sees_and_writes_the_bytes,
    memory_outlives_its_creator_through_an_import, memory_outlives_its_creator_through_a_mapping,
    importers_mapping_keeps_memory_that_the_creator_released,
    killed_importer_gives_its_references_back, killed_creator_without_exports_frees_everything,
    fd_alone_keeps_memory, fd_parked_in_a_third_process_keeps_memory,
    killed_keeper_of_an_fd_frees_memory, fd_in_an_unread_socket_keeps_memory,
    unread_socket_that_closes_frees_memory, import_without_the_owning_device_is_invalid_device,
    device_order_follows_cuda_visible_devices)
