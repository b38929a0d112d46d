/*
 * The broker is killed, restarted politely, ended by the watchdog and replaced by another build,
 * again and again, while workers of all kinds are at it on a device that is too small for them:
 * leases, arenas whose pages are evicted and restored, and computed tokens. RESTARTS says how
 * often.
 *
 * After each of them every worker goes on with what it had, byte for byte; then all but the
 * transformers rest for a moment, and what the broker counts of each is held against what it has.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/integration/crew.h"
#include "tests/integration/raw.h"
#include "tests/unit/unit.h"

#define PATIENCE_MS 90000
#define MOVER_PATIENCE_MS 2000
#define WATCHDOG "8" /* seconds: longer than a busy machine makes a healthy broker wait */

static struct crew *crew;

/* ------------------------------------------------------------------ looks */

/* Until everybody but the transformers has begun a round and ended it. */
static void rounds_wait(void)
{
    uint64_t deadline = harness_now_ms() + PATIENCE_MS;
    unsigned before[CREW_RESTERS];

    for (unsigned i = 0; i < CREW_RESTERS; i++)
        before[i] = atomic_load(&crew->slots[i].rounds);
    for (unsigned i = 0; i < CREW_RESTERS; i++) {
        while (atomic_load(&crew->slots[i].rounds) < before[i] + 2)
            crew_patience(deadline, "rounds of every worker");
    }
}

static uint64_t moved_pages(void)
{
    uint64_t pages = 0;

    for (unsigned i = 0; i < CREW_WORKERS; i++)
        pages += atomic_load(&crew->slots[i].restores);
    return pages;
}

static void pages_move_wait(uint64_t before)
{
    uint64_t deadline = harness_now_ms() + PATIENCE_MS;

    while (moved_pages() == before)
        crew_patience(deadline, "pages go on moving");
}

static Gmb__ControlReply *clients_get(const struct harness *harness)
{
    Gmb__ControlRequest request = GMB__CONTROL_REQUEST__INIT;
    Gmb__ClientsGet body = GMB__CLIENTS_GET__INIT;
    Gmb__ControlReply *reply;

    request.body_case = GMB__CONTROL_REQUEST__BODY_CLIENTS_GET;
    request.clients_get = &body;
    reply = raw_control(harness, &request);
    ck_assert_int_eq(reply->body_case, GMB__CONTROL_REPLY__BODY_CLIENT_PAGE);
    ck_assert(reply->client_page->last);
    return reply;
}

/* The broker knows this worker once, connected, with exactly what it has. */
static bool client_counted(const Gmb__ClientPage *page, unsigned number)
{
    const struct crew_slot *slot = &crew->slots[number];
    const Gmb__ClientStatus *found = NULL;

    for (size_t i = 0; i < page->n_clients; i++) {
        if (page->clients[i]->pid != crew_pid(number))
            continue;
        ck_assert_ptr_null(found);
        found = page->clients[i];
    }
    ck_assert_msg(found != NULL, "the broker doesn't know worker %u", number);
    return found->connected && found->leases == atomic_load(&slot->leases) &&
           found->leased_bytes == atomic_load(&slot->bytes);
}

static bool all_counted(const struct harness *harness)
{
    Gmb__ControlReply *reply = clients_get(harness);
    bool same = reply->client_page->n_clients <= CREW_WORKERS;

    for (unsigned i = 0; same && i < CREW_RESTERS; i++)
        same = client_counted(reply->client_page, i);
    frame_message_free(&reply->base);
    return same;
}

/* Nothing is in use beside what the broker counts; `ret` says what is. */
static bool all_accounted(const struct harness *harness, char ret[96])
{
    Gmb__ControlReply *reply = raw_status(harness);
    const Gmb__DeviceStatus *device = reply->status->devices[0];
    bool same = device->orphaned_bytes == 0 && device->unaccounted_bytes == 0;

    ck_assert_uint_eq(device->reserve_bytes + device->leased_bytes + device->cached_bytes +
                          device->clean_bytes + device->releasing_bytes + device->orphaned_bytes +
                          device->unaccounted_bytes + device->free_bytes,
        device->total_bytes);
    (void) snprintf(ret, 96, "no bytes but %llu orphaned and %llu unaccounted",
        (unsigned long long) device->orphaned_bytes,
        (unsigned long long) device->unaccounted_bytes);
    frame_message_free(&reply->base);
    return same;
}

/* A transformer is there once it knows what it has to say. */
static void everybody_wait(const struct harness *harness)
{
    uint64_t deadline = harness_now_ms() + PATIENCE_MS;
    size_t count;

    do {
        Gmb__ControlReply *reply = clients_get(harness);

        count = reply->client_page->n_clients;
        frame_message_free(&reply->base);
        crew_patience(deadline, "everybody is there");
    } while (count < CREW_WORKERS);
}

/*
 * What a mover takes as it starts, while releases are looked for, is charged as if it hadn't come
 * back until the mover ends; and with work to do it doesn't end by itself.
 */
static void movers_end(const struct harness *harness)
{
    pid_t movers[4];
    size_t count = harness_movers(harness, movers, ARRAY_SIZE(movers));

    for (size_t i = 0; i < count; i++)
        (void) kill(movers[i], SIGKILL);
}

static void accounts_wait(const struct harness *harness, uint64_t deadline)
{
    uint64_t patient = harness_now_ms() + MOVER_PATIENCE_MS;
    char accounts[96];

    while (!all_accounted(harness, accounts)) {
        crew_patience(deadline, accounts);
        if (harness_now_ms() < patient)
            continue;
        movers_end(harness);
        patient = harness_now_ms() + MOVER_PATIENCE_MS;
    }
}

/* Returns may be on their way still, and pages on theirs. */
static void books_compare(const struct harness *harness)
{
    static unsigned fds[CREW_RESTERS];
    uint64_t deadline = harness_now_ms() + PATIENCE_MS;

    atomic_store(&crew->rest, true);
    for (unsigned i = 0; i < CREW_RESTERS; i++) {
        while (!atomic_load(&crew->slots[i].resting))
            crew_patience(deadline, "rest of every worker");
        if (fds[i] == 0)
            fds[i] = atomic_load(&crew->slots[i].fds);
        while (atomic_load(&crew->slots[i].fds) != fds[i])
            crew_patience(deadline, "a worker has as many fds as before");
    }
    while (!all_counted(harness))
        crew_patience(deadline, "the broker counts what the workers have");
    accounts_wait(harness, deadline);
    atomic_store(&crew->rest, false);
}

/* ------------------------------------------------------------------ restarts */

enum restart { RESTART_KILL, RESTART_POLITE, RESTART_UPGRADE, RESTART_WATCHDOG, RESTART_MAX };

static char folder[SCRATCH_PATH_BYTES], program[96];

/* Which build lies where the keeper starts it. */
static void install(const char *path)
{
    char fresh[96];

    (void) snprintf(program, sizeof(program), "%s/gmbd", folder);
    (void) snprintf(fresh, sizeof(fresh), "%s/fresh", folder);
    ck_assert_int_eq(symlink(path, fresh), 0);
    ck_assert_int_eq(rename(fresh, program), 0);
}

static void version_get(const struct harness *harness, char ret[64])
{
    Gmb__ControlReply *reply = raw_status(harness);

    (void) snprintf(ret, 64, "%s", reply->status->version);
    frame_message_free(&reply->base);
}

static void upgrade(struct harness *harness)
{
    static bool next;
    char before[64], after[64];

    version_get(harness, before);
    next = !next;
    install(getenv(next ? "GMBD_NEXT" : "GMBD"));
    ck_assert_int_eq(kill(harness->keeper, SIGUSR1), 0);
    harness_succeed(harness, 0);
    version_get(harness, after);
    ck_assert_str_ne(before, after);
}

static void restart_run(struct harness *harness, enum restart restart)
{
    harness_keeper_renew(harness); /* which starts the next one at once */
    switch (restart) {
    case RESTART_KILL:
        harness_succeed(harness, SIGKILL);
        break;
    case RESTART_POLITE:
        ck_assert_int_eq(kill(harness->keeper, SIGUSR1), 0);
        harness_succeed(harness, 0);
        break;
    case RESTART_UPGRADE:
        upgrade(harness);
        break;
    case RESTART_WATCHDOG:
        harness_succeed(harness, SIGSTOP);
        break;
    case RESTART_MAX:
        break;
    }
}

static void keeper_settle(const struct harness *harness, size_t fds)
{
    uint64_t deadline = harness_now_ms() + PATIENCE_MS;

    while (harness_open_fds(harness->keeper) != fds) {
        ck_assert_msg(harness_now_ms() < deadline, "the keeper has %zu fds and had %zu",
            harness_open_fds(harness->keeper), fds);
        harness_breathe();
    }
}

START_TEST(no_restart_under_load_loses_a_lease_a_page_or_a_token_or_grants_memory_twice)
{
    static char under[128], config[CREW_CONFIG_BYTES];
    const char *const environment[] = {"HARNESS_WATCHDOG=" WATCHDOG, under, NULL};
    unsigned restarts = (unsigned) strtoul(getenv("RESTARTS"), NULL, 10);
    static struct harness harness;
    size_t keeper_fds;

    ck_assert_int_eq(scratch_make(folder), 0);
    install(getenv("GMBD"));
    (void) snprintf(under, sizeof(under), "GMBD_UNDER_KEEPER=%s", program);
    crew_configure(config);
    crew = crew_fork();
    harness_start_kept(&harness, config, environment);
    keeper_fds = harness_open_fds(harness.keeper);
    crew_go(&harness);
    everybody_wait(&harness);
    rounds_wait();
    books_compare(&harness);
    for (unsigned i = 0; i < restarts; i++) {
        uint64_t moved = moved_pages();

        restart_run(&harness, i % RESTART_MAX);
        rounds_wait();
        pages_move_wait(moved);
        books_compare(&harness);
    }
    atomic_store(&crew->stop, true);
    crew_join();
    harness_settle(&harness);
    keeper_settle(&harness, keeper_fds);
    harness_stop(&harness);
    ck_assert_int_eq(scratch_remove(folder), 0);
}
END_TEST

UNIT_MAIN("restarts", no_restart_under_load_loses_a_lease_a_page_or_a_token_or_grants_memory_twice)
