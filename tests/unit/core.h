/* Assertions of the core's unit tests, and the world that each of them starts in. */
#pragma once

#include "tests/core/world.h"
#include "tests/unit/unit.h"

static struct world world;

/* One device without a reserve, two tenants without limits; the values may be changed and sent. */
static inline void world_start(uint64_t total_bytes)
{
    world_init(&world, NULL, total_bytes, 0);
    (void) world_tenant(&world, "chat");
    (void) world_tenant(&world, "batch");
    ck_assert_int_eq(world_configure(&world)->type, CORE_ACTION_CONFIGURED);
}

static inline struct core_memory_limits *chat_limits(void)
{
    return &world.tenants[0].memory[0];
}

static inline struct core_memory_limits *batch_limits(void)
{
    return &world.tenants[1].memory[0];
}

static inline void reconfigure(void)
{
    const struct core_action *answer = world_configure(&world);

    ck_assert_msg(answer->type == CORE_ACTION_CONFIGURED, "%s",
        answer->type == CORE_ACTION_REFUSE ? answer->refuse.text : "no answer");
}

static inline core_id assert_granted(core_id client, uint64_t request)
{
    const struct core_action *answer = world_answer(&world, client, request);

    ck_assert_msg(answer != NULL, "request %llu waits", (unsigned long long) request);
    ck_assert_msg(answer->type == CORE_ACTION_GRANT, "%s",
        answer->type == CORE_ACTION_REFUSE ? answer->refuse.text : "not a grant");
    return answer->grant.lease;
}

static inline const struct core_action *assert_refused(
    core_id client, uint64_t request, enum gmb_status status, enum gmb_limit limit)
{
    const struct core_action *answer = world_answer(&world, client, request);

    ck_assert_msg(answer != NULL, "request %llu waits", (unsigned long long) request);
    ck_assert_msg(answer->type == CORE_ACTION_REFUSE, "request %llu is not refused",
        (unsigned long long) request);
    ck_assert_msg(answer->refuse.status == status && answer->refuse.limit == limit, "%s by %s: %s",
        status_name(answer->refuse.status), limit_name(answer->refuse.limit), answer->refuse.text);
    ck_assert_msg(answer->refuse.text[0] != '\0', "a refusal without a word");
    return answer;
}

static inline void assert_done(core_id client, uint64_t request)
{
    const struct core_action *answer = world_answer(&world, client, request);

    ck_assert_ptr_nonnull(answer);
    ck_assert_int_eq(answer->type, CORE_ACTION_DONE);
}

static inline void assert_waits(core_id client, uint64_t request)
{
    const struct core_action *answer = world_answer(&world, client, request);

    ck_assert_msg(answer == NULL, "request %llu doesn't wait: %s", (unsigned long long) request,
        answer && answer->type == CORE_ACTION_REFUSE ? answer->refuse.text : "granted");
}
