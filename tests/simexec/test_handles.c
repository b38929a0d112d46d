/* Handles are recognised for what they are, or not at all. */
#include "gpu/sim/handle.h"
#include "tests/unit/unit.h"

START_TEST(test_handle_leads_to_its_object_by_its_type_alone)
{
    int object = 0;
    void *handle = sim_handle_add(SIM_HANDLE_EVENT, &object);

    ck_assert_ptr_nonnull(handle);
    for (unsigned type = 0; type < SIM_HANDLE_MAX; type++)
        ck_assert_ptr_eq(sim_handle_get(type, handle), type == SIM_HANDLE_EVENT ? &object : NULL);
    ck_assert_ptr_null(sim_handle_remove(SIM_HANDLE_STREAM, handle));
    ck_assert_ptr_eq(sim_handle_remove(SIM_HANDLE_EVENT, handle), &object);
    ck_assert_ptr_null(sim_handle_get(SIM_HANDLE_EVENT, handle));
    ck_assert_ptr_null(sim_handle_remove(SIM_HANDLE_EVENT, handle));
}
END_TEST

START_TEST(test_reused_slot_has_another_handle)
{
    int object = 0;
    void *first = sim_handle_add(SIM_HANDLE_STREAM, &object);
    void *second;

    ck_assert_ptr_eq(sim_handle_remove(SIM_HANDLE_STREAM, first), &object);
    second = sim_handle_add(SIM_HANDLE_STREAM, &object);
    ck_assert_ptr_ne(first, second);
    ck_assert_ptr_null(sim_handle_get(SIM_HANDLE_STREAM, first));
    ck_assert_ptr_eq(sim_handle_get(SIM_HANDLE_STREAM, second), &object);
}
END_TEST

START_TEST(test_no_handle_is_a_special_stream_or_null)
{
    static int objects[1000];
    static void *handles[1000];

    for (size_t i = 0; i < ARRAY_SIZE(objects); i++) {
        handles[i] = sim_handle_add(SIM_HANDLE_STREAM, &objects[i]);
        ck_assert_uint_gt((uintptr_t) handles[i], 2);
    }
    for (size_t i = 0; i < ARRAY_SIZE(objects); i++)
        ck_assert_ptr_eq(sim_handle_get(SIM_HANDLE_STREAM, handles[i]), &objects[i]);
    for (uintptr_t value = 0; value <= 2; value++)
        ck_assert_ptr_null(sim_handle_get(SIM_HANDLE_STREAM, (void *) value));
    ck_assert_ptr_null(sim_handle_get(SIM_HANDLE_STREAM, (void *) UINTPTR_MAX));
    ck_assert_ptr_null(sim_handle_get(SIM_HANDLE_STREAM, objects));
}
END_TEST

UNIT_MAIN("simexec-handles", test_handle_leads_to_its_object_by_its_type_alone,
    test_reused_slot_has_another_handle, test_no_handle_is_a_special_stream_or_null)
