/* The harness itself: it has to notice a leaked fd, a leaked chunk and a broker that is gone. */

#include "tests/integration/raw.h"
#include "tests/unit/unit.h"

START_TEST(an_idle_broker_is_settled)
{
    struct harness harness;

    harness_start(&harness, NULL);
    ck_assert_uint_eq(harness.base_free_bytes, HARNESS_MEMORY);
    ck_assert_uint_gt(harness.base_fds, 3);
    harness_stop(&harness);
}
END_TEST

START_TEST(an_open_connection_is_noticed_as_leaked_fds)
{
    struct harness harness;
    struct raw raw;
    char reason[128];

    harness_start(&harness, NULL);
    raw_connect(&raw, &harness);
    ck_assert(!harness_settled(&harness, 300, reason));
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_kept_chunk_is_noticed_as_missing_memory)
{
    struct harness harness;
    struct raw raw;
    char reason[128];
    uint64_t lease;

    harness_start(&harness, NULL);
    raw_connect(&raw, &harness);
    /* The connection's socket and pidfd and its tenant's page are no leak here. They are known, not
     * counted: the broker may not have closed yet what the harness asked it by. */
    harness.base_fds += 3;
    lease = raw_expect_lease(&raw, raw_lease(&raw, HARNESS_CHUNK, HARNESS_CHUNK, 0), 1);
    ck_assert_uint_eq(harness_free_bytes(&harness), HARNESS_MEMORY - HARNESS_CHUNK);
    ck_assert(!harness_settled(&harness, 300, reason));
    raw_expect_done(&raw, raw_release(&raw, lease));
    harness_settle(&harness);
    harness.base_fds -= 3;
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

UNIT_MAIN("harness", an_idle_broker_is_settled, an_open_connection_is_noticed_as_leaked_fds,
    a_kept_chunk_is_noticed_as_missing_memory)
