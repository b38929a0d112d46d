/* What the bytes of a slab's handle are good for in other hands, and what they are not. */

#include "tests/integration/holder.h"
#include "tests/integration/slabs.h"
#include "tests/unit/unit.h"

/* A holder_take of a lease, whose handle it tells. */
static void victim_take(const struct harness *harness, void *told)
{
    struct raw raw;

    raw_connect(&raw, harness);
    (void) slab_take(&raw, MIB(16), told);
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
    victim = holder_start(&harness, victim_take, &handle, sizeof(handle));
    srand(4711);
    for (unsigned i = 0; i < 10000; i++) {
        guess = handle;
        /* All of it, or the part that says whose it is. */
        for (size_t k = 0; k < (i % 2 == 0 ? sizeof(guess.reserved) : 8); k++)
            guess.reserved[k] = (char) rand();
        ck_assert_int_eq(slab_open(&guess, &address), CUDA_ERROR_INVALID_VALUE);
    }
    raw_connect(&raw, &harness);
    raw_expect_done(&raw, raw_release(&raw, slab_take(&raw, MIB(16), &guess)));
    raw_close(&raw);
    holder_kill(victim);
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
    lease = slab_take(&raw, MIB(16), &handle);
    raw_expect_done(&raw, raw_release(&raw, lease));
    wait_until(harness_free_bytes(&harness) == harness.base_free_bytes);
    lease = slab_take(&raw, MIB(16), &later);
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
        uint64_t lease = slab_take(&raw, MIB(16), &handle);

        ck_assert_int_eq(slab_open(&handle, &address), CUDA_SUCCESS);
        raw_expect_done(&raw, raw_release(&raw, lease));
    }
    wait_until((raw_tenant(&harness, "test", &tenant), tenant.orphaned_bytes == MIB(16)));
    /* Its old bytes stay its own: the next slab is other memory. */
    raw_expect_done(&raw, raw_release(&raw, slab_take(&raw, MIB(16), &handle)));
    ck_assert_int_eq(slab_driver.ipc_close_mem_handle(address), CUDA_SUCCESS);
    wait_until((raw_tenant(&harness, "test", &tenant), tenant.used_bytes == 0));
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

UNIT_MAIN("slab handles", a_guess_at_random_opens_nothing_and_disturbs_nobody,
    the_handle_of_a_slab_that_was_given_back_opens_nothing,
    a_slab_that_is_kept_open_after_its_return_is_orphaned_on_its_tenants_account)
