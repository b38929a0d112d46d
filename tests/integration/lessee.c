/* See lessee.h. */
#include "tests/integration/lessee.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHUNK HARNESS_CHUNK

void lessee_need(int r, const char *what)
{
    ck_assert_msg(r == 0, "%s: %d, %s", what, r, gmb_error_text());
}

void lessee_need_or_later(int r, const char *what)
{
    ck_assert_msg(r == 0 || r == GMB_E_DISCONNECTED, "%s: %d, %s", what, r, gmb_error_text());
}

static void symbol_get(struct lessee *lessee, const char *name, void *ret_function)
{
    void *symbol = gmb_driver_symbol(lessee->session, name);

    ck_assert_ptr_nonnull(symbol);
    memcpy(ret_function, &symbol, sizeof(symbol));
}

void lessee_connect(struct lessee *lessee, const struct harness *harness)
{
    struct gmb_options options = {.size = sizeof(options),
        .socket = harness->client_socket,
        .timeout_ns = LESSEE_WAIT_NS,
        .offline = GMB_OFFLINE_WAIT};
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;

    /* Only a session that was welcomed comes back by itself. */
    while (gmb_connect(&options, &lessee->session) != 0) {
        ck_assert_msg(harness_now_ms() < deadline, "connect: %s", gmb_error_text());
        harness_breathe();
    }
    symbol_get(lessee, "cuCtxSetCurrent", &lessee->set_current);
    symbol_get(lessee, "cuMemcpyHtoD_v2", &lessee->to_device);
    symbol_get(lessee, "cuMemcpyDtoH_v2", &lessee->to_host);
}

gmb_lease *lessee_take(struct lessee *lessee, uint64_t chunks, const char *label)
{
    struct gmb_lease_params params = {.size = sizeof(params),
        .bytes = chunks * CHUNK,
        .max_bytes = 8 * CHUNK,
        .chunk_bytes = CHUNK,
        .wait_ns = LESSEE_WAIT_NS,
        .label = label};
    gmb_lease *lease;

    lessee_need(gmb_lease_new(lessee->session, &params, &lease), label);
    lessee_need(lessee->set_current(gmb_lease_context(lease)), "context");
    return lease;
}

struct words {
    uint64_t mark, at;
};

static const uint64_t places[] = {0, CHUNK / 2, CHUNK - sizeof(struct words)};

void lessee_write(struct lessee *lessee, gmb_lease *lease, uint64_t mark)
{
    for (uint64_t at = 0; at < gmb_lease_bytes(lease); at += CHUNK) {
        for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
            struct words words = {mark, at + places[i]};

            lessee_need(
                lessee->to_device(gmb_lease_address(lease) + words.at, &words, sizeof(words)),
                "write");
        }
    }
}

void lessee_check(struct lessee *lessee, gmb_lease *lease, uint64_t mark)
{
    for (uint64_t at = 0; at < gmb_lease_bytes(lease); at += CHUNK) {
        for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
            struct words words = {0};

            lessee_need(
                lessee->to_host(&words, gmb_lease_address(lease) + at + places[i], sizeof(words)),
                "read");
            ck_assert_uint_eq(words.mark, mark);
            ck_assert_uint_eq(words.at, at + places[i]);
        }
    }
}

/* ------------------------------------------------------------------ processes */

struct lessee_process lessee_fork_alone(lessee_alone *run, void *data)
{
    struct lessee_process process;
    pid_t parent = getpid();
    int go[2];

    ck_assert_int_eq(pipe(go), 0);
    process = (struct lessee_process){.pid = fork(), .go = go[1]};
    ck_assert_int_ge(process.pid, 0);
    if (process.pid == 0) {
        static struct harness harness;
        char sim[128];

        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void) signal(SIGTERM, SIG_DFL); /* libcheck's ends the whole group */
        (void) close(go[1]);
        if (getppid() != parent || read(go[0], &harness, sizeof(harness)) != sizeof(harness))
            _exit(EXIT_FAILURE);
        (void) close(go[0]);
        (void) snprintf(sim, sizeof(sim), "%s/sim", harness.dir);
        (void) setenv("GMB_SIM_DIR", sim, 1);
        (void) setenv("GMB_SIM_MEMORY", "1G", 0);
        run(&harness, data);
        _exit(EXIT_SUCCESS);
    }
    (void) close(go[0]);
    return process;
}

struct connected {
    lessee_run *run;
    void *data;
};

static void connect_and_run(const struct harness *harness, void *data)
{
    const struct connected *connected = data;
    struct lessee lessee;

    lessee_connect(&lessee, harness);
    connected->run(&lessee, connected->data);
    gmb_disconnect(lessee.session);
}

struct lessee_process lessee_fork(lessee_run *run, void *data)
{
    struct connected connected = {run, data};

    return lessee_fork_alone(connect_and_run, &connected);
}

void lessee_go(struct lessee_process *process, const struct harness *harness)
{
    ck_assert_int_eq(write(process->go, harness, sizeof(*harness)), sizeof(*harness));
    (void) close(process->go);
}

static bool ended(struct lessee_process *process, int options)
{
    int status;

    if (process->pid == 0)
        return true;
    if (waitpid(process->pid, &status, options) != process->pid)
        return false;
    process->pid = 0;
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a worker failed");
    return true;
}

bool lessee_runs(struct lessee_process *process)
{
    return !ended(process, WNOHANG);
}

void lessee_join(struct lessee_process *process)
{
    ck_assert(ended(process, 0));
}
