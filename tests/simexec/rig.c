/* See rig.h. */
#include "tests/simexec/rig.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

CUcontext rig_begin(void)
{
    CUcontext context;

    assert_ok(cuInit(0));
    assert_ok(cuDevicePrimaryCtxRetain(&context, 0));
    assert_ok(cuCtxSetCurrent(context));
    return context;
}

void rig_set_access(const struct rig_memory *memory, CUmemAccess_flags access)
{
    const CUmemAccessDesc description = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}, .flags = access};

    assert_ok(cuMemSetAccess(memory->address, RIG_BYTES, &description, 1));
}

struct rig_memory rig_map(CUmemAccess_flags access)
{
    const CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    };
    struct rig_memory memory;

    assert_ok(cuMemCreate(&memory.handle, RIG_BYTES, &properties, 0));
    assert_ok(cuMemAddressReserve(&memory.address, RIG_BYTES, RIG_BYTES, 0, 0));
    assert_ok(cuMemMap(memory.address, RIG_BYTES, 0, memory.handle, 0));
    if (access != CU_MEM_ACCESS_FLAGS_PROT_NONE)
        rig_set_access(&memory, access);
    return memory;
}

void rig_unmap(const struct rig_memory *memory)
{
    assert_ok(cuMemUnmap(memory->address, RIG_BYTES));
    assert_ok(cuMemRelease(memory->handle));
}

uint64_t rig_word(CUdeviceptr address)
{
    uint64_t word;

    assert_ok(cuMemcpyDtoH_v2(&word, address, sizeof(word)));
    return word;
}

CUstream rig_stream(unsigned flags)
{
    CUstream stream;

    assert_ok(cuStreamCreate(&stream, flags));
    return stream;
}

void rig_wait(sem_t *semaphore)
{
    struct timespec deadline;
    int rc;

    ck_assert_int_eq(clock_gettime(CLOCK_REALTIME, &deadline), 0);
    deadline.tv_sec += RIG_DEADLINE_SECONDS;
    do
        rc = sem_timedwait(semaphore, &deadline);
    while (rc != 0 && errno == EINTR);
    ck_assert_msg(rc == 0, "nothing happened for %d s", RIG_DEADLINE_SECONDS);
}

static void gate_pass(void *data)
{
    struct rig_gate *gate = data;

    (void) sem_post(&gate->entered);
    while (sem_wait(&gate->opened) != 0)
        ;
}

void rig_gate_close(struct rig_gate *gate, CUstream stream)
{
    ck_assert_int_eq(sem_init(&gate->entered, 0, 0), 0);
    ck_assert_int_eq(sem_init(&gate->opened, 0, 0), 0);
    assert_ok(cuLaunchHostFunc(stream, gate_pass, gate));
    rig_wait(&gate->entered);
}

void rig_gate_open(struct rig_gate *gate)
{
    ck_assert_int_eq(sem_post(&gate->opened), 0);
}

void rig_set(void *data)
{
    __atomic_store_n((bool *) data, true, __ATOMIC_RELEASE);
}

bool rig_is_set(const bool *flag)
{
    return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}

int rig_main(const char *name, const TTest *const tests[], size_t count)
{
    char directory[] = "/tmp/gmb-simexec-XXXXXX";
    int result;

    if (mkdtemp(directory) == NULL || setenv("GMB_SIM_DIR", directory, 1) != 0) {
        perror("simexec: temporary directory");
        return EXIT_FAILURE;
    }
    result = unit_run(name, tests, count);
    (void) scratch_remove(directory);
    return result;
}
