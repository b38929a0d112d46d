/* What one process's driver leaves to others when it ends, forks or imports. */
#include <signal.h>
#include <sys/socket.h>

#include "gpu/sim/ledger_file.h"
#include "tests/simdriver/driver.h"

static CUmemGenericAllocationHandle import(int fd)
{
    CUmemGenericAllocationHandle handle;

    assert_ok(cuMemImportFromShareableHandle(
        &handle, (void *) (uintptr_t) fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    return handle;
}

/* Creates a chunk and sends an fd of it. */
static int run_exporter(const struct child *child, void *data)
{
    int fd;

    driver_begin();
    fd = driver_export(driver_chunk());
    fd_send(*(int *) data, fd);
    (void) close(fd);
    child_ready(child, 1);
    child_wait(child);
    return 0;
}

struct exporter {
    struct child child;
    int fd; /* of its chunk */
};

static struct exporter exporter_start(void)
{
    struct exporter exporter;
    int ends[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    exporter.child = child_start(run_exporter, &ends[1]);
    ck_assert_int_eq(child_await(&exporter.child), 1);
    exporter.fd = fd_receive(ends[0]);
    (void) close(ends[0]);
    (void) close(ends[1]);
    return exporter;
}

START_TEST(an_import_costs_an_fd_only_while_its_handle_is_held)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, .flags = 3};
    struct exporter exporter = exporter_start();
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    unsigned before;

    driver_begin();
    (void) driver_context();
    before = rig_fds();
    handle = import(exporter.fd);
    ck_assert_uint_eq(rig_fds(), before + 1);
    ck_assert_uint_eq(import(exporter.fd), handle);
    ck_assert_uint_eq(rig_fds(), before + 1);
    (void) close(exporter.fd);
    assert_ok(cuMemAddressReserve(&address, DRIVER_GRANULE, 0, 0, 0));
    assert_ok(cuMemMap(address, DRIVER_GRANULE, 0, handle, 0));
    assert_ok(cuMemSetAccess(address, DRIVER_GRANULE, &access, 1));
    assert_ok(cuMemRelease(handle));
    assert_ok(cuMemRelease(handle));
    ck_assert_uint_eq(rig_fds(), before - 1);
    child_kill(&exporter.child);
    ck_assert_uint_eq(driver_used(), DRIVER_GRANULE);
    /* A handle again, by the address: it holds as well. */
    assert_ok(cuMemRetainAllocationHandle(&handle, (void *) (uintptr_t) address));
    assert_ok(cuMemUnmap(address, DRIVER_GRANULE));
    ck_assert_uint_eq(driver_used(), DRIVER_GRANULE);
    assert_ok(cuMemRelease(handle));
    ck_assert_uint_eq(driver_used(), 0);
}
END_TEST

START_TEST(an_import_from_a_dead_owner_costs_no_fd)
{
    struct exporter exporter = exporter_start();
    CUmemGenericAllocationHandle handle;
    unsigned before;

    driver_begin();
    (void) driver_context();
    child_kill(&exporter.child);
    before = rig_fds();
    handle = import(exporter.fd);
    ck_assert_uint_eq(rig_fds(), before);
    (void) close(exporter.fd);
    ck_assert_uint_eq(driver_used(), DRIVER_GRANULE);
    assert_ok(cuMemRelease(handle));
    ck_assert_uint_eq(driver_used(), 0);
}
END_TEST

/* In a child of a process with a driver. */
static int run_forked(const struct child *child, void *data)
{
    CUmemGenericAllocationHandle handle = 0;
    int count;

    if (cuInit(0) != CUDA_ERROR_NOT_INITIALIZED ||
        cuDeviceGetCount(&count) != CUDA_ERROR_NOT_INITIALIZED ||
        driver_create(0, &handle) != CUDA_ERROR_NOT_INITIALIZED)
        return 1;
    child_ready(child, 1);
    /* It outlives its parent until the test kills it; the alarm is for a test that can't. */
    (void) alarm(60);
    (void) pause();
    return 0;
}

struct family {
    int fd; /* of another's chunk, imported by the parent */
};

/* Holds chunks of its own, mapped and not, and an imported one; then forks a child that stays. */
static int run_parent(const struct child *child, void *data)
{
    struct family *family = data;
    struct child forked;
    CUdeviceptr address;
    CUmemGenericAllocationHandle handle, imported;

    driver_begin();
    (void) driver_context();
    handle = driver_chunk();
    (void) driver_chunk();
    imported = import(family->fd);
    (void) close(family->fd);
    assert_ok(cuMemAddressReserve(&address, 2 * DRIVER_GRANULE, 0, 0, 0));
    assert_ok(cuMemMap(address, DRIVER_GRANULE, 0, handle, 0));
    assert_ok(cuMemMap(address + DRIVER_GRANULE, DRIVER_GRANULE, 0, imported, 0));
    assert_ok(cuMemRelease(handle));
    forked = child_start(run_forked, NULL);
    (void) child_await(&forked);
    child_ready(child, (int) forked.pid);
    child_wait(child);
    return 0;
}

START_TEST(a_forked_child_has_no_driver_and_keeps_nothing_of_its_parents)
{
    struct exporter exporter = exporter_start();
    struct family family = {.fd = exporter.fd};
    struct child parent = child_start(run_parent, &family);
    pid_t forked = child_await(&parent);

    (void) close(exporter.fd);
    driver_begin();
    (void) driver_context();
    ck_assert_uint_eq(driver_used(), 3 * DRIVER_GRANULE);
    child_kill(&exporter.child); /* the parent's import holds on */
    ck_assert_uint_eq(driver_used(), 3 * DRIVER_GRANULE);
    child_kill(&parent);
    ck_assert_int_eq(kill(forked, 0), 0); /* lives */
    ck_assert_uint_eq(driver_used(), 0);
    ck_assert_int_eq(kill(forked, SIGKILL), 0);
}
END_TEST

/* Stands in the middle of a change of the ledger. */
static int run_stuck(const struct child *child, void *data)
{
    struct ledger *ledger = rig_open();

    if (ledger_lock(ledger) < 0)
        return 1;
    child_ready(child, 1);
    child_wait(child);
    return 0;
}

START_TEST(a_lessees_calls_wait_for_no_other_process)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, .flags = 3};
    struct exporter exporter = exporter_start();
    CUmemGenericAllocationHandle handle;
    struct child stuck;
    CUdeviceptr address;

    driver_begin();
    (void) driver_context();
    stuck = child_start(run_stuck, NULL);
    ck_assert_int_eq(child_await(&stuck), 1);
    ck_assert_int_eq(kill(stuck.pid, SIGSTOP), 0);
    handle = import(exporter.fd);
    assert_ok(cuMemAddressReserve(&address, DRIVER_GRANULE, 0, 0, 0));
    assert_ok(cuMemMap(address, DRIVER_GRANULE, 0, handle, 0));
    assert_ok(cuMemRelease(handle));
    assert_ok(cuMemSetAccess(address, DRIVER_GRANULE, &access, 1));
    assert_ok(cuMemsetD8_v2(address, 1, DRIVER_GRANULE));
    assert_ok(cuCtxSynchronize()); /* the unmap doesn't wait for the memset */
    assert_ok(cuMemUnmap(address, DRIVER_GRANULE));
    assert_ok(cuMemAddressFree(address, DRIVER_GRANULE));
    child_kill(&stuck);
    (void) close(exporter.fd);
    child_kill(&exporter.child);
    ck_assert_uint_eq(driver_used(), 0);
}
END_TEST

START_TEST(importing_a_hidden_device_is_101)
{
    CUmemGenericAllocationHandle handle;
    struct exporter exporter;

    ck_assert_int_eq(setenv("GMB_SIM_DEVICES", "2", 1), 0);
    exporter = exporter_start();
    ck_assert_int_eq(setenv("CUDA_VISIBLE_DEVICES", "1", 1), 0);
    driver_begin();
    assert_cuda(CUDA_ERROR_INVALID_DEVICE,
        cuMemImportFromShareableHandle(
            &handle, (void *) (uintptr_t) exporter.fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    child_kill(&exporter.child);
}
END_TEST

START_TEST(a_released_handle_is_refused_also_when_its_slot_lives_again)
{
    CUmemGenericAllocationHandle old, fresh;

    driver_begin();
    old = driver_chunk();
    assert_ok(cuMemRelease(old));
    fresh = driver_chunk();
    ck_assert_uint_ne(old, fresh);
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuMemRelease(old));
    assert_ok(cuMemRelease(fresh));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuMemRelease(fresh));
}
END_TEST

START_TEST(many_handles_of_the_creator_cost_no_fd)
{
    unsigned before;

    ck_assert_int_eq(setenv("GMB_SIM_MEMORY", "64G", 1), 0);
    driver_begin();
    before = rig_fds();
    for (unsigned i = 0; i < 5000; i++)
        (void) close(driver_export(driver_chunk()));
    ck_assert_uint_eq(rig_fds(), before);
}
END_TEST

RIG_MAIN("process", an_import_costs_an_fd_only_while_its_handle_is_held,
    an_import_from_a_dead_owner_costs_no_fd,
    a_forked_child_has_no_driver_and_keeps_nothing_of_its_parents,
    a_lessees_calls_wait_for_no_other_process, importing_a_hidden_device_is_101,
    a_released_handle_is_refused_also_when_its_slot_lives_again,
    many_handles_of_the_creator_cost_no_fd)
