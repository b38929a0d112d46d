/* What the service manager is told, against a socket that stands for it. */
#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "daemon/broker.h"
#include "daemon/notify.h"
#include "tests/unit/unit.h"

struct manager {
    int fd;
    char path[108];
    struct broker broker;
    struct notify *notify;
};

static uint64_t fake_now_ns;

static uint64_t fake_now(const struct clock *clock)
{
    (void) clock;
    return fake_now_ns;
}

static const struct clock fake_clock = {.now = fake_now};

static void manager_setup(struct manager *manager)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const struct core_options options = {0};

    *manager = (struct manager){.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    (void) snprintf(manager->path, sizeof(manager->path), "@gmbd-notify-%d", (int) getpid());
    memcpy(address.sun_path, manager->path, strlen(manager->path));
    address.sun_path[0] = '\0';
    ck_assert_int_eq(
        bind(manager->fd, (struct sockaddr *) &address,
            (socklen_t) (offsetof(struct sockaddr_un, sun_path) + strlen(manager->path))),
        0);
    ck_assert_int_eq(setenv("NOTIFY_SOCKET", manager->path, 1), 0);
    manager->broker.base = event_base_new();
    manager->broker.clock = &fake_clock;
    list_init(&manager->broker.observers);
    ck_assert_int_eq(core_new(&options, &manager->broker.core), 0);
    ck_assert_int_eq(notify_new(&manager->broker, &manager->notify), 0);
}

static void manager_teardown(struct manager *manager)
{
    (void) notify_free(manager->notify);
    (void) core_free(manager->broker.core);
    event_base_free(manager->broker.base);
    (void) close(manager->fd);
}

/* The next line, "" when there is none. */
static const char *heard(const struct manager *manager)
{
    static char text[1024];
    ssize_t n = recv(manager->fd, text, sizeof(text) - 1, MSG_DONTWAIT);

    text[n > 0 ? n : 0] = '\0';
    return text;
}

static void settle(struct manager *manager)
{
    list_for_each(observer, &manager->broker.observers, struct broker_observer, link)
        observer->settled(observer);
}

#define IDLE "READY=1\nSTATUS=0 clients with 0 leases, 0B of 0B leased, 0 requests waiting"

START_TEST(readiness_is_said_with_the_state)
{
    struct manager manager;

    manager_setup(&manager);
    ck_assert_str_eq(heard(&manager), "");
    notify_ready(manager.notify);
    ck_assert_str_eq(heard(&manager), IDLE);
    ck_assert_str_eq(heard(&manager), "");
    manager_teardown(&manager);
}
END_TEST

START_TEST(a_state_that_did_not_change_is_not_said_again)
{
    struct manager manager;

    manager_setup(&manager);
    notify_ready(manager.notify);
    (void) heard(&manager);
    for (unsigned i = 0; i < 1000; i++)
        settle(&manager);
    (void) event_base_dispatch(manager.broker.base); /* until the one timer has fired */
    ck_assert_str_eq(heard(&manager), "");
    manager_teardown(&manager);
}
END_TEST

START_TEST(a_reload_that_was_refused_is_said_until_one_succeeds)
{
    struct manager manager;

    manager_setup(&manager);
    notify_ready(manager.notify);
    (void) heard(&manager);
    notify_reloading(manager.notify);
    ck_assert_int_eq(strncmp(heard(&manager), "RELOADING=1\nMONOTONIC_USEC=", 27), 0);
    (void) snprintf(manager.broker.reload_error, CONFIG_ERROR_BYTES, "gmbd.conf:3: no\nsuch key");
    notify_reloaded(manager.notify);
    ck_assert_str_eq(heard(&manager), IDLE "; reload refused: gmbd.conf:3: no?such key");
    notify_reloading(manager.notify);
    (void) heard(&manager);
    manager.broker.reload_error[0] = '\0';
    notify_reloaded(manager.notify);
    ck_assert_str_eq(heard(&manager), IDLE);
    manager_teardown(&manager);
}
END_TEST

START_TEST(a_manager_that_does_not_read_blocks_nobody_and_hears_the_latest_afterwards)
{
    struct manager manager;
    unsigned sent = 0;

    manager_setup(&manager);
    notify_ready(manager.notify);
    /* Far more than the queue of a socket holds (net.unix.max_dgram_qlen). */
    for (; sent < 100000; sent++) {
        notify_reloading(manager.notify);
        notify_reloaded(manager.notify);
    }
    notify_stopping(manager.notify);
    while (heard(&manager)[0] != '\0')
        ;
    (void) event_base_dispatch(manager.broker.base);
    ck_assert_str_eq(heard(&manager), "STOPPING=1\nSTATUS=Ending");
    manager_teardown(&manager);
}
END_TEST

START_TEST(without_a_manager_nothing_is_sent_or_armed)
{
    struct manager manager;

    manager_setup(&manager);
    (void) notify_free(manager.notify);
    ck_assert_int_eq(unsetenv("NOTIFY_SOCKET"), 0);
    ck_assert_int_eq(notify_new(&manager.broker, &manager.notify), 0);
    notify_ready(manager.notify);
    settle(&manager);
    ck_assert_int_eq(event_base_get_num_events(manager.broker.base, EVENT_BASE_COUNT_ADDED), 0);
    ck_assert_str_eq(heard(&manager), "");
    manager_teardown(&manager);
}
END_TEST

START_TEST(an_address_of_another_kind_is_refused)
{
    struct manager manager;
    struct notify *other;

    manager_setup(&manager);
    ck_assert_int_eq(setenv("NOTIFY_SOCKET", "vsock:2:1234", 1), 0);
    ck_assert_int_eq(notify_new(&manager.broker, &other), -EAFNOSUPPORT);
    manager_teardown(&manager);
}
END_TEST

START_TEST(work_that_stays_undone_is_no_progress)
{
    struct broker broker = {.clock = &fake_clock, .tick_at_ns = 1000, .ticked_ns = 500};

    fake_now_ns = 1000 + 99;
    ck_assert(broker_progresses(&broker, 100));
    fake_now_ns = 1000 + 100;
    ck_assert(!broker_progresses(&broker, 100));
    /* Due for long, and done again and again: a core that always has more to do. */
    broker.tick_at_ns = 0;
    broker.ticked_ns = fake_now_ns - 99;
    ck_assert(broker_progresses(&broker, 100));
    broker.ticked_ns = fake_now_ns - 100;
    ck_assert(!broker_progresses(&broker, 100));
    /* Nothing due. */
    broker.tick_at_ns = CLOCK_NEVER;
    ck_assert(broker_progresses(&broker, 100));
}
END_TEST

UNIT_MAIN("daemon_notify", readiness_is_said_with_the_state,
    a_state_that_did_not_change_is_not_said_again,
    a_reload_that_was_refused_is_said_until_one_succeeds,
    a_manager_that_does_not_read_blocks_nobody_and_hears_the_latest_afterwards,
    without_a_manager_nothing_is_sent_or_armed, an_address_of_another_kind_is_refused,
    work_that_stays_undone_is_no_progress)
