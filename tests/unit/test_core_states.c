/* The full N x N matrix of each state machine, drawn by hand: rows from, columns to. */
#include "daemon/core/states.h"

#include <string.h>

#include "tests/unit/unit.h"

typedef bool (*legal_fn)(unsigned from, unsigned to);

static bool chunk_legal(unsigned from, unsigned to)
{
    return chunk_state_legal(from, to);
}

static bool request_legal(unsigned from, unsigned to)
{
    return request_state_legal(from, to);
}

static bool lease_legal(unsigned from, unsigned to)
{
    return lease_state_legal(from, to);
}

static bool client_legal(unsigned from, unsigned to)
{
    return client_state_legal(from, to);
}

static void assert_matrix(legal_fn legal, unsigned count, const char *const rows[])
{
    for (unsigned from = 0; from < count; from++) {
        ck_assert_uint_eq(strlen(rows[from]), count);
        for (unsigned to = 0; to < count; to++)
            ck_assert_msg(legal(from, to) == (rows[from][to] == 'x'), "from %u to %u", from, to);
        ck_assert(!legal(from, count));
        ck_assert(!legal(count, from));
    }
}

START_TEST(chunk_transitions)
{
    /* NONE CREATING CLEAN LEASED CACHED RELEASING RELEASED */
    static const char *const rows[] = {
        ".x.....",
        "x.xx...",
        "...x.x.",
        "..x.xx.",
        "...x.x.",
        "......x",
        "x......",
    };

    ck_assert_uint_eq(ARRAY_SIZE(rows), CHUNK_STATE_MAX);
    assert_matrix(chunk_legal, CHUNK_STATE_MAX, rows);
}
END_TEST

START_TEST(request_transitions)
{
    /* NONE QUEUED CREATING GRANTED REFUSED CANCELLED */
    static const char *const rows[] = {
        ".x....",
        "..x.xx",
        ".x.xxx",
        "......",
        "......",
        "......",
    };

    ck_assert_uint_eq(ARRAY_SIZE(rows), REQUEST_STATE_MAX);
    assert_matrix(request_legal, REQUEST_STATE_MAX, rows);
}
END_TEST

START_TEST(lease_transitions)
{
    /* NONE PENDING ACTIVE ENDED */
    static const char *const rows[] = {".x..", "..xx", "...x", "...."};

    ck_assert_uint_eq(ARRAY_SIZE(rows), LEASE_STATE_MAX);
    assert_matrix(lease_legal, LEASE_STATE_MAX, rows);
}
END_TEST

START_TEST(client_transitions)
{
    /* NONE ACTIVE DETACHED DEAD */
    static const char *const rows[] = {".x..", "..xx", ".x.x", "...."};

    ck_assert_uint_eq(ARRAY_SIZE(rows), CLIENT_STATE_MAX);
    assert_matrix(client_legal, CLIENT_STATE_MAX, rows);
}
END_TEST

START_TEST(states_have_names)
{
    ck_assert_str_eq(chunk_state_name(CHUNK_RELEASED), "released");
    ck_assert_str_eq(chunk_state_name(CHUNK_STATE_MAX), "unknown");
    ck_assert_str_eq(request_state_name(REQUEST_CREATING), "creating");
    ck_assert_str_eq(request_state_name(REQUEST_STATE_MAX), "unknown");
    ck_assert_str_eq(lease_state_name(LEASE_PENDING), "pending");
    ck_assert_str_eq(lease_state_name(LEASE_STATE_MAX), "unknown");
    ck_assert_str_eq(client_state_name(CLIENT_DETACHED), "detached");
    ck_assert_str_eq(client_state_name(CLIENT_STATE_MAX), "unknown");
    for (unsigned i = 0; i < CORE_EVENT_MAX; i++)
        ck_assert_str_ne(core_event_type_name(i), "unknown");
    ck_assert_str_eq(core_event_type_name(CORE_EVENT_MAX), "unknown");
    for (unsigned i = 0; i < CORE_ACTION_MAX; i++)
        ck_assert_str_ne(core_action_type_name(i), "unknown");
    ck_assert_str_eq(core_action_type_name(CORE_ACTION_MAX), "unknown");
}
END_TEST

UNIT_MAIN("core_states", chunk_transitions, request_transitions, lease_transitions,
    client_transitions, states_have_names)
