/* Segments whose connections break or whose broker is killed: who had them has them. */
#include <check.h>
#include <signal.h>
#include <string.h>

#include "tests/integration/segments.h"
#include "tests/unit/unit.h"

#define CHUNK HARNESS_CHUNK
#define GROUP SEGMENT_BROKER "[ShareGroup models]\n[Tenant test]\nUser=*\nShareGroup=models\n"

static struct harness harness;

/* Creates one of the share group's, of so many chunks. */
static uint64_t group_create(struct raw *raw, const char *name, uint32_t chunks)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__SegmentRequest body;

    gmb__segment_request__init(&body);
    body.name = (char *) (uintptr_t) name;
    body.bytes = chunks * CHUNK;
    body.chunk_bytes = CHUNK;
    body.group = true;
    message.body_case = GMB__CLIENT_MESSAGE__BODY_SEGMENT_REQUEST;
    message.segment_request = &body;
    return raw_expect_lease(raw, raw_send(raw, &message), chunks);
}

/* ------------------------------------------------------------------ guests */

/* Two sessions of one process, of which neither has anything but of the group's. */
START_TEST(each_session_of_a_process_gets_its_own_guest_back)
{
    struct raw first, second;
    uint64_t one, two;

    harness_start(&harness, GROUP);
    raw_connect(&first, &harness);
    raw_connect(&second, &harness);
    one = group_create(&first, "one", 1);
    two = group_create(&second, "two", 2);
    for (int i = 0; i < 3; i++) {
        struct raw *early = i % 2 == 0 ? &second : &first, *late = i % 2 == 0 ? &first : &second;

        raw_close(&first);
        raw_close(&second);
        ck_assert(raw_come_back(early, &harness));
        ck_assert(raw_come_back(late, &harness));
        ck_assert_uint_eq(raw_resume_one(&first, one, 1), 0);
        ck_assert_uint_eq(raw_resume_one(&second, two, 2), 0);
        ck_assert_uint_eq(segment_count(&harness), 2);
    }
    /* Of what it doesn't name it lets go. */
    ck_assert(raw_come_back(&first, &harness));
    ck_assert_uint_eq(raw_resume(&first, NULL, 0, true), 0);
    segment_await(&harness, "one", STATE(REMOVED));
    raw_expect_done(&second, raw_release(&second, two));
    segment_await(&harness, "two", STATE(REMOVED));
    raw_close(&first);
    raw_close(&second);
    harness_stop(&harness);
}
END_TEST

UNIT_MAIN("integration: segments over restarts", each_session_of_a_process_gets_its_own_guest_back)
