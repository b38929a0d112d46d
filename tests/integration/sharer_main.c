/*
 * The program behind sharer.h: `integration-sharer SOCKET make|attach`, orders on fd 3, answers on
 * fd 4. A program of its own, since no driver survives a fork.
 */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/integration/sharer.h"

#define ORDERS_FD 3
#define ANSWERS_FD 4
#define CHURNERS 2
#define WAIT_NS UINT64_C(15000000000)

static char **arguments;
static struct pages pages;
static struct sharer_order churned;

static void *churn(void *data)
{
    uint32_t mine[8];

    for (uint64_t turn = (uint64_t) (uintptr_t) data;; turn++) {
        uint32_t n = 1 + (uint32_t) (turn % 8);

        if (gmb_page_alloc(pages.arena, n, mine, GMB_WAIT_NONE) == 0) {
            if (gmb_page_pin(pages.arena, n, mine) >= 0)
                (void) gmb_page_unpin(pages.arena, n, mine);
            (void) gmb_page_unref(pages.arena, n, mine);
        }
        if (churned.count == 0 || gmb_page_ref(pages.arena, churned.count, churned.pages) != 0)
            continue;
        if (gmb_page_pin(pages.arena, churned.count, churned.pages) >= 0)
            (void) gmb_page_unpin(pages.arena, churned.count, churned.pages);
        (void) gmb_page_unref(pages.arena, churned.count, churned.pages);
    }
    return NULL;
}

static void churn_start(const struct sharer_order *order)
{
    pthread_t thread;

    churned = *order;
    for (uintptr_t i = 0; i < CHURNERS; i++)
        ck_assert_int_eq(pthread_create(&thread, NULL, churn, (void *) i), 0);
}

static int pin(const struct sharer_order *order)
{
    int r = gmb_page_pin(pages.arena, order->count, order->pages);

    return r == GMB_PIN_WAITING ? gmb_page_wait(pages.arena, order->count, order->pages, WAIT_NS)
                                : r;
}

/* Pages of the order are those of `pages` while they are checked. */
static int check(const struct sharer_order *order)
{
    memcpy(pages.pages, order->pages, order->count * sizeof(order->pages[0]));
    pages_check(&pages, 0, order->count, 16);
    return 0;
}

static struct gmb_prefix_key key(uint32_t number)
{
    return (struct gmb_prefix_key){.low = number + 1, .high = ~(uint64_t) number};
}

static int publish(const struct sharer_order *order)
{
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < order->count; i++) {
        const struct gmb_prefix_key own = key(i), parent = key(i - 1);
        const struct gmb_page_hint hint = {.parent = UINT32_MAX, .tokens = 16, .position = 16 * i};

        r = gmb_page_set_hint(pages.arena, order->pages[i], &hint);
        if (r == 0)
            r = gmb_arena_prefix_publish(
                pages.arena, order->pages[i], &own, i > 0 ? &parent : NULL);
    }
    return r;
}

static void lookup(uint32_t count, struct sharer_answer *answer)
{
    struct gmb_prefix_key keys[SHARER_PAGES];

    for (uint32_t i = 0; i < count; i++)
        keys[i] = key(i);
    answer->result = gmb_arena_prefix_lookup(pages.arena, count, keys, answer->pages);
    answer->count = answer->result > 0 ? (uint32_t) answer->result : 0;
}

static void stats(struct sharer_answer *answer)
{
    struct gmb_arena_stats now = pages_stats(&pages);

    answer->count = 3;
    answer->pages[0] = (uint32_t) now.used_pages;
    answer->pages[1] = (uint32_t) (now.mapped_bytes >> 20);
    answer->pages[2] = (uint32_t) now.evicted_pages;
}

static void order_run(const struct sharer_order *order, struct sharer_answer *answer)
{
    switch ((enum sharer_what) order->what) {
    case SHARER_ALLOC:
        pages.count = 0;
        pages_fill(&pages, order->count);
        answer->count = order->count;
        memcpy(answer->pages, pages.pages, order->count * sizeof(answer->pages[0]));
        break;
    case SHARER_REF:
        answer->result = gmb_page_ref(pages.arena, order->count, order->pages);
        break;
    case SHARER_UNREF:
        answer->result = gmb_page_unref(pages.arena, order->count, order->pages);
        break;
    case SHARER_PIN:
        answer->result = pin(order);
        break;
    case SHARER_UNPIN:
        answer->result = gmb_page_unpin(pages.arena, order->count, order->pages);
        break;
    case SHARER_CHECK:
        answer->result = check(order);
        break;
    case SHARER_STATS:
        stats(answer);
        break;
    case SHARER_CHURN:
        churn_start(order);
        break;
    case SHARER_PUBLISH:
        answer->result = publish(order);
        break;
    case SHARER_LOOKUP:
        lookup(order->count, answer);
        break;
    case SHARER_LEAVE:
        answer->result = gmb_arena_free(pages.arena);
        pages.arena = NULL;
        break;
    }
}

/* The checks of pages.c belong into a running test. */
START_TEST(serve)
{
    static struct sharer_order order;
    static struct sharer_answer answer;
    struct harness harness = {0};

    (void) snprintf(harness.client_socket, sizeof(harness.client_socket), "%s", arguments[1]);
    if (strcmp(arguments[2], "make") == 0)
        pages_share(&pages, &harness, SHARER_PAGE, HARNESS_CHUNK, SHARER_MAX, "kv");
    else
        pages_attach(&pages, &harness, "kv");
    ck_assert_int_eq(write(ANSWERS_FD, &answer, sizeof(answer)), sizeof(answer));
    while (read(ORDERS_FD, &order, sizeof(order)) == sizeof(order)) {
        memset(&answer, 0, sizeof(answer));
        order_run(&order, &answer);
        ck_assert_int_eq(write(ANSWERS_FD, &answer, sizeof(answer)), sizeof(answer));
    }
    if (churned.what != SHARER_CHURN)
        pages_close(&pages);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("sharer");
    TCase *tcase = tcase_create("sharer");
    SRunner *runner;
    int failed;

    if (argc != 3)
        return 2;
    arguments = argv;
    (void) unsetenv("CK_TAP_LOG_FILE_NAME"); /* the test's, on the same output */
    tcase_add_test(tcase, serve);
    tcase_set_timeout(tcase, 0);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_SILENT);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
