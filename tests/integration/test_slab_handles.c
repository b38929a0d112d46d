/* What the bytes of a slab's handle are good for in other hands, and what they are not. */
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/slabs.h"
#include "tests/unit/unit.h"

/* A process of its own has a lease, whose handle it tells; ended by the caller. */
static pid_t victim_start(const struct harness *harness, CUipcMemHandle *ret_handle)
{
    int pipes[2];
    pid_t pid;

    ck_assert_int_eq(pipe(pipes), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        struct raw raw;

        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        raw_connect(&raw, harness);
        (void) slab_take(&raw, 16 * MIB, ret_handle);
        (void) !write(pipes[1], ret_handle, sizeof(*ret_handle));
        for (;;)
            (void) pause();
    }
    ck_assert_int_eq(read(pipes[0], ret_handle, sizeof(*ret_handle)), sizeof(*ret_handle));
    (void) close(pipes[0]);
    (void) close(pipes[1]);
    return pid;
}

static void victim_end(pid_t pid)
{
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

START_TEST(a_guess_at_random_opens_nothing_and_disturbs_nobody)
{
    CUipcMemHandle handle, guess;
    struct harness harness;
    CUdeviceptr address;
    struct raw raw;
    pid_t victim;

    harness_start_with(&harness, NULL, slabs_only);
    slab_driver_begin();
    victim = victim_start(&harness, &handle);
    srand(4711);
    for (unsigned i = 0; i < 10000; i++) {
        guess = handle;
        /* All of it, or the part that says whose it is. */
        for (size_t k = 0; k < (i % 2 == 0 ? sizeof(guess.reserved) : 8); k++)
            guess.reserved[k] = (char) rand();
        ck_assert_int_eq(slab_open(&guess, &address), CUDA_ERROR_INVALID_VALUE);
    }
    raw_connect(&raw, &harness);
    raw_expect_done(&raw, raw_release(&raw, slab_take(&raw, 16 * MIB, &guess)));
    raw_close(&raw);
    victim_end(victim);
    harness_stop(&harness);
}
END_TEST

START_TEST(the_handle_of_a_slab_that_was_given_back_opens_nothing)
{
    CUipcMemHandle handle, later;
    struct harness harness;
    CUdeviceptr address;
    struct raw raw;
    uint64_t lease;

    harness_start_with(&harness, NULL, slabs_only);
    slab_driver_begin();
    raw_connect(&raw, &harness);
    lease = slab_take(&raw, 16 * MIB, &handle);
    raw_expect_done(&raw, raw_release(&raw, lease));
    wait_until(harness_free_bytes(&harness) == harness.base_free_bytes);
    lease = slab_take(&raw, 16 * MIB, &later);
    ck_assert_int_eq(slab_open(&handle, &address), CUDA_ERROR_INVALID_VALUE);
    ck_assert_int_eq(slab_open(&later, &address), CUDA_SUCCESS);
    ck_assert_int_eq(slab_driver.ipc_close_mem_handle(address), CUDA_SUCCESS);
    raw_expect_done(&raw, raw_release(&raw, lease));
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_slab_that_is_kept_open_after_its_return_is_orphaned_on_its_tenants_account)
{
    Gmb__TenantDevice tenant;
    struct harness harness;
    CUipcMemHandle handle;
    CUdeviceptr address;
    struct raw raw;

    harness_start_with(&harness, NULL, slabs_only);
    slab_driver_begin();
    raw_connect(&raw, &harness);
    {
        uint64_t lease = slab_take(&raw, 16 * MIB, &handle);

        ck_assert_int_eq(slab_open(&handle, &address), CUDA_SUCCESS);
        raw_expect_done(&raw, raw_release(&raw, lease));
    }
    wait_until((raw_tenant(&harness, "test", &tenant), tenant.orphaned_bytes == 16 * MIB));
    /* Its old bytes stay its own: the next slab is other memory. */
    raw_expect_done(&raw, raw_release(&raw, slab_take(&raw, 16 * MIB, &handle)));
    ck_assert_int_eq(slab_driver.ipc_close_mem_handle(address), CUDA_SUCCESS);
    wait_until((raw_tenant(&harness, "test", &tenant), tenant.used_bytes == 0));
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

UNIT_MAIN("slab handles", a_guess_at_random_opens_nothing_and_disturbs_nobody,
    the_handle_of_a_slab_that_was_given_back_opens_nothing,
    a_slab_that_is_kept_open_after_its_return_is_orphaned_on_its_tenants_account)
