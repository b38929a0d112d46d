/* admission_decide() at each limit: at N, at N + 1 and with figures that no device has. */
#include "policies/admission.h"

#include "tests/unit/unit.h"

/* A device of 1000 with all of it free, a tenant without limits that asks for 100. */
static struct admission_view open_view(void)
{
    return (struct admission_view){
        .requested = 100, .max = UINT64_MAX, .capacity = 1000, .free = 1000};
}

static void assert_decision(const struct admission_view *view, enum admission_verdict verdict,
    enum gmb_limit limit, uint64_t available)
{
    struct admission_decision d = admission_decide(view);

    ck_assert_msg(d.verdict == verdict && d.limit == limit && d.available_bytes == available,
        "%s by %s with %llu", admission_verdict_name(d.verdict), limit_name(d.limit),
        (unsigned long long) d.available_bytes);
}

static void assert_admitted(const struct admission_view *view)
{
    assert_decision(view, ADMISSION_ADMIT, GMB_LIMIT_NONE, 0);
}

START_TEST(memory_max_admits_n_and_holds_back_one_more)
{
    struct admission_view view = open_view();

    view.max = 300;
    view.used = 200;
    assert_admitted(&view);
    view.used = 201;
    assert_decision(&view, ADMISSION_WAIT, GMB_LIMIT_MEMORY_MAX, 99);
    view.used = UINT64_MAX;
    assert_decision(&view, ADMISSION_WAIT, GMB_LIMIT_MEMORY_MAX, 0);
}
END_TEST

START_TEST(more_than_memory_max_can_never_be)
{
    struct admission_view view = open_view();

    view.max = 100;
    assert_admitted(&view);
    view.requested = 101;
    assert_decision(&view, ADMISSION_REFUSE, GMB_LIMIT_MEMORY_MAX, 100);
    view.requested = UINT64_MAX;
    assert_decision(&view, ADMISSION_REFUSE, GMB_LIMIT_MEMORY_MAX, 100);
    view.requested = 1;
    view.max = 0;
    assert_decision(&view, ADMISSION_REFUSE, GMB_LIMIT_MEMORY_MAX, 0);
}
END_TEST

START_TEST(a_lease_that_grows_counts_what_it_has)
{
    struct admission_view view = open_view();

    view.max = 150;
    view.held = 50;
    view.used = 50;
    assert_admitted(&view);
    view.held = view.used = 51;
    assert_decision(&view, ADMISSION_REFUSE, GMB_LIMIT_MEMORY_MAX, 99);
    view.held = UINT64_MAX;
    assert_decision(&view, ADMISSION_REFUSE, GMB_LIMIT_MEMORY_MAX, 0);
}
END_TEST

START_TEST(the_device_gives_its_last_byte_and_no_more)
{
    struct admission_view view = open_view();

    view.free = 100;
    assert_admitted(&view);
    view.free = 99;
    assert_decision(&view, ADMISSION_WAIT, GMB_LIMIT_DEVICE, 99);
    view.requested = 1000;
    assert_decision(&view, ADMISSION_WAIT, GMB_LIMIT_DEVICE, 99);
    view.requested = 1001;
    assert_decision(&view, ADMISSION_REFUSE, GMB_LIMIT_DEVICE, 1000);
    view.requested = UINT64_MAX;
    assert_decision(&view, ADMISSION_REFUSE, GMB_LIMIT_DEVICE, 1000);
}
END_TEST

START_TEST(what_is_promised_to_others_is_not_granted)
{
    struct admission_view view = open_view();

    view.others_min = view.others_unused_min = 900;
    assert_admitted(&view);
    view.requested = 101;
    assert_decision(&view, ADMISSION_REFUSE, GMB_LIMIT_GUARANTEED, 100);
    view.requested = 100;
    view.free = 999; /* somebody else has one */
    assert_decision(&view, ADMISSION_WAIT, GMB_LIMIT_GUARANTEED, 99);
    view.others_min = view.others_unused_min = UINT64_MAX;
    assert_decision(&view, ADMISSION_REFUSE, GMB_LIMIT_GUARANTEED, 0);
}
END_TEST

START_TEST(unused_memory_min_is_always_grantable)
{
    struct admission_view view = open_view();

    /* Promised to others: all that is free. Asked for by those before it: all of it too. */
    view.min = 100;
    view.free = 100;
    view.others_unused_min = 100;
    view.others_min = 900;
    view.reserved = UINT64_MAX;
    assert_admitted(&view);
    view.used = 1;
    assert_decision(&view, ADMISSION_WAIT, GMB_LIMIT_GUARANTEED, 99);
    view.used = 100;
    assert_decision(&view, ADMISSION_WAIT, GMB_LIMIT_GUARANTEED, 0);
}
END_TEST

START_TEST(what_waits_before_it_comes_first)
{
    struct admission_view view = open_view();

    view.reserved = 900;
    assert_admitted(&view);
    view.reserved = 901;
    assert_decision(&view, ADMISSION_WAIT, GMB_LIMIT_DEVICE, 99);
    view.reserved = UINT64_MAX;
    assert_decision(&view, ADMISSION_WAIT, GMB_LIMIT_DEVICE, 0);
}
END_TEST

START_TEST(returned_chunks_of_its_own_need_no_room)
{
    struct admission_view view = open_view();

    view.recycled = 100;
    view.used = 1000;
    view.max = 1000;
    view.free = 0;
    assert_admitted(&view);
    view.recycled = 99;
    assert_decision(&view, ADMISSION_WAIT, GMB_LIMIT_MEMORY_MAX, 99);
}
END_TEST

START_TEST(clean_chunks_count_for_the_tenant_and_not_for_the_device)
{
    struct admission_view view = open_view();

    view.ready = view.clean = 100;
    view.free = 0;
    assert_admitted(&view);
    view.max = 100;
    view.used = 1;
    assert_decision(&view, ADMISSION_WAIT, GMB_LIMIT_MEMORY_MAX, 99);
    view.used = 0;
    view.ready = 99;
    assert_decision(&view, ADMISSION_WAIT, GMB_LIMIT_DEVICE, 99);
}
END_TEST

UNIT_MAIN("policy_admission", memory_max_admits_n_and_holds_back_one_more,
    more_than_memory_max_can_never_be, a_lease_that_grows_counts_what_it_has,
    the_device_gives_its_last_byte_and_no_more, what_is_promised_to_others_is_not_granted,
    unused_memory_min_is_always_grantable, what_waits_before_it_comes_first,
    returned_chunks_of_its_own_need_no_room,
    clean_chunks_count_for_the_tenant_and_not_for_the_device)
