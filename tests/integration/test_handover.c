/*
 * Memory that goes from one tenant to the other and back never carries bytes along. Two workers of
 * two users, a device too small for both: each hand-over is a lease of most of it, looked at,
 * written and given back; now and then its holder is killed, its quota changed under it, the lease
 * asked back for the other one, or its memory taken by the operator while it holds pages there.
 * Where memory is shared over CUDA IPC there are no pages; instead the process that has the memory
 * is killed. Fresh memory of the driver holds garbage there: the broker wipes it. Needs root, to be
 * two users.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/orders.h"
#include "tests/unit/unit.h"

enum { NOBODY = 65534, SIDES = 2, PATIENCE_MS = 90000 };

/* Each of them, once in so many hand-overs, one after the other. */
enum { KILL = 3, QUOTA = 5, REVOKE = 8, EVICT = 11, CRASH = 13, CYCLE = 16 };

static const char *const names[SIDES] = {"one", "other"};

struct worker {
    pid_t pid;
    int to, from;
};

static struct harness harness;
static struct worker workers[SIDES];

static void worker_exec(unsigned side, int commands, int answers)
{
    const char *path = getenv("HANDOVER");
    char tag[16];

    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void) snprintf(tag, sizeof(tag), "%u", 1000 + side);
    if (side == 1 && (setgid(NOBODY) < 0 || setuid(NOBODY) < 0))
        _exit(125);
    if (path == NULL || dup2(commands, STDIN_FILENO) < 0 || dup2(answers, STDOUT_FILENO) < 0)
        _exit(126);
    (void) execl(path, path, harness.client_socket, tag, NULL);
    _exit(127);
}

static void worker_start(unsigned side)
{
    int to[2], from[2];

    ck_assert_int_eq(pipe2(to, O_CLOEXEC), 0);
    ck_assert_int_eq(pipe2(from, O_CLOEXEC), 0);
    workers[side].pid = fork();
    ck_assert_int_ge(workers[side].pid, 0);
    if (workers[side].pid == 0)
        worker_exec(side, to[0], from[1]);
    (void) close(to[0]);
    (void) close(from[1]);
    workers[side].to = to[1];
    workers[side].from = from[0];
}

static void worker_end(unsigned side, int signal)
{
    int status;

    if (signal != 0)
        ck_assert_int_eq(kill(workers[side].pid, signal), 0);
    (void) close(workers[side].to);
    (void) close(workers[side].from);
    ck_assert_int_eq(waitpid(workers[side].pid, &status, 0), workers[side].pid);
    ck_assert_msg(signal != 0 || status == 0, "a worker ended with %x", status);
}

static void tell(unsigned side, char command)
{
    ck_assert_int_eq(write(workers[side].to, &command, 1), 1);
}

static void expect(unsigned side, unsigned round, char command)
{
    struct pollfd poll_fd = {.fd = workers[side].from, .events = POLLIN};
    char answer = '-';

    ck_assert_msg(poll(&poll_fd, 1, PATIENCE_MS) == 1, "round %u: no answer to %c", round, command);
    ck_assert_int_eq(read(workers[side].from, &answer, 1), 1);
    ck_assert_msg(answer != '!', "round %u: tenant %s finds bytes of somebody else, after %c",
        round, names[side], command);
    ck_assert_msg(answer == '+', "round %u: tenant %s failed: %c", round, names[side], command);
}

static void order(unsigned side, unsigned round, char command)
{
    tell(side, command);
    expect(side, round, command);
}

/* The process that has the memory ends; what was leased of it is given back as ever. */
static void slab_kill(void)
{
    pid_t pid = harness_slab(&harness);

    ck_assert_int_ne(pid, 0);
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
}

/* The other one goes first for once, and this one is asked to give way. */
static void give_way(unsigned side, unsigned round)
{
    ck_assert_int_eq(raw_set(&harness, names[1 - side], "Priority", "900"), GMB_STATUS_OK);
    order(side, round, 'k');
    ck_assert_int_eq(raw_set(&harness, names[1 - side], "Priority", "500"), GMB_STATUS_OK);
}

static void change_quota(unsigned side, unsigned round)
{
    ck_assert_int_eq(raw_set(&harness, names[side], "MemoryMax", "2M"), GMB_STATUS_OK);
    order(side, round, 'r');
    ck_assert_int_eq(raw_set(&harness, names[side], "MemoryMax", "infinity"), GMB_STATUS_OK);
}

/* The next one asks while this one holds it, and this one lets go as `how` says. */
static void hand_over(unsigned side, unsigned round)
{
    unsigned next = 1 - side, how = round % CYCLE;
    bool held = how == EVICT && !raw_slabs();

    order(side, round, held ? 'a' : 't');
    tell(next, 't');
    if (how == KILL) {
        worker_end(side, SIGKILL);
        worker_start(side);
    } else if (how == QUOTA) {
        change_quota(side, round);
    } else if (how == REVOKE) {
        give_way(side, round);
    } else if (held) {
        /* Less where some of it is being taken for the next one already. */
        ck_assert_uint_le(order_evict(&harness, names[side], 10 << 20), 10 << 20);
    } else {
        if (how == CRASH && raw_slabs())
            slab_kill();
        order(side, round, 'r');
    }
    expect(next, round, 't');
    order(next, round, 'r');
    if (held)
        order(side, round, 'v');
}

START_TEST(memory_never_carries_bytes_to_another_tenant)
{
    /* Where the tenant gets fresh memory as it is, bytes of nobody would be noticed. */
    const char *const environment[] = {
        "GMB_SIM_MEMORY=24M", raw_slabs() ? "GMB_SIM_FILL=garbage" : "GMB_SIM_FILL=none", NULL};
    const char *given = getenv("HANDOVERS");
    unsigned rounds = given != NULL ? (unsigned) strtoul(given, NULL, 10) : 200;

    if (geteuid() != 0)
        return;
    harness_start_with(&harness,
        HARNESS_BROKER "HostTier=64M\nRevoke=yes\n[Device *]\nReserve=8M\n[Tenant one]\nUser=root\n"
                       "[Tenant other]\nUser=*\n",
        environment);
    for (unsigned side = 0; side < SIDES; side++)
        worker_start(side);
    for (unsigned round = 0; round < rounds; round++)
        hand_over(round / CYCLE % SIDES, round);
    for (unsigned side = 0; side < SIDES; side++)
        worker_end(side, 0);
    harness_stop(&harness);
}
END_TEST

UNIT_MAIN("handover", memory_never_carries_bytes_to_another_tenant)
