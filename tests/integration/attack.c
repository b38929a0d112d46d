/* See attack.h. */
#include "tests/integration/attack.h"

#include <check.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/frame.h"
#include "tests/integration/pages.h"
#include "tests/unit/unit.h"

enum { PAGES = 128 };
#define VICTIM_BYTES (8 * HARNESS_CHUNK)

#define CONFIG                                                                                     \
    HARNESS_BROKER "[Tenant victim]\nUser=root\nMemoryMin=64M\n"                                   \
                   "[Tenant attacker]\nUser=*\nMemoryMax=128M\nLeasesMax=32\n"
static_assert(ATTACK_CHUNKS * HARNESS_CHUNK == 128 << 20, "as CONFIG says");

struct attack_bed attack_bed;

/* It has pages, or, where there are none, a lease that is full of words. */
static struct {
    struct pages pages;
    gmb_session *session; /* of the pages, or of the lease */
    gmb_lease *lease;
    int (*set_current)(void *context);
    int (*to_device)(uint64_t to, const void *from, size_t bytes);
    int (*to_host)(void *to, uint64_t from, size_t bytes);
} victim;

static uint64_t words[VICTIM_BYTES / sizeof(uint64_t)];

static void driver_find(const char *name, void *ret_function)
{
    void *symbol = gmb_driver_symbol(victim.session, name);

    ck_assert_ptr_nonnull(symbol);
    memcpy(ret_function, &symbol, sizeof(symbol));
}

static void lease_open(void)
{
    struct gmb_options options = {.size = sizeof(options)};
    struct gmb_lease_params params = {.size = sizeof(params), .bytes = VICTIM_BYTES};

    options.socket = attack_bed.harness.client_socket;
    ck_assert_int_eq(gmb_connect(&options, &victim.session), 0);
    ck_assert_int_eq(gmb_lease_new(victim.session, &params, &victim.lease), 0);
    ck_assert_int_eq(gmb_thread_start(victim.session), 0);
    driver_find("cuCtxSetCurrent", &victim.set_current);
    driver_find("cuMemcpyHtoD_v2", &victim.to_device);
    driver_find("cuMemcpyDtoH_v2", &victim.to_host);
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        words[i] = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    ck_assert_int_eq(victim.set_current(gmb_lease_context(victim.lease)), 0);
    ck_assert_int_eq(victim.to_device(gmb_lease_address(victim.lease), words, sizeof(words)), 0);
}

static void lease_check(void)
{
    static uint64_t found[ARRAY_SIZE(words)];

    ck_assert_int_eq(victim.to_host(found, gmb_lease_address(victim.lease), sizeof(found)), 0);
    ck_assert_int_eq(memcmp(found, words, sizeof(found)), 0);
}

static void leases_learn(void)
{
    Gmb__ControlRequest request;
    Gmb__ControlReply *reply;
    Gmb__LeasesGet body;

    gmb__control_request__init(&request);
    gmb__leases_get__init(&body);
    request.body_case = GMB__CONTROL_REQUEST__BODY_LEASES_GET;
    request.leases_get = &body;
    reply = raw_control(&attack_bed.harness, &request);
    ck_assert_int_eq(reply->body_case, GMB__CONTROL_REPLY__BODY_LEASE_PAGE);
    attack_bed.lease_count = MIN(reply->lease_page->n_leases, (size_t) ATTACK_VICTIM_LEASES);
    ck_assert_uint_gt(attack_bed.lease_count, 0);
    for (size_t i = 0; i < attack_bed.lease_count; i++)
        attack_bed.leases[i] = reply->lease_page->leases[i]->id;
    frame_message_free(&reply->base);
}

void attack_begin(void)
{
    unit_need_root();
    harness_start(&attack_bed.harness, CONFIG);
    if (raw_slabs()) {
        lease_open();
    } else {
        pages_open(&victim.pages, &attack_bed.harness, 65536, HARNESS_CHUNK, 16 * HARNESS_CHUNK);
        pages_fill(&victim.pages, PAGES);
        victim.session = victim.pages.session;
    }
    leases_learn();
}

/* The victim has what it had, byte for byte, and gets memory. */
static void victim_check(void)
{
    struct gmb_lease_params params = {
        .size = sizeof(params), .bytes = 8 * HARNESS_CHUNK, .wait_ns = UINT64_C(15000000000)};
    gmb_lease *lease;

    if (raw_slabs())
        lease_check();
    else
        pages_check(&victim.pages, 0, PAGES, 16);
    ck_assert_msg(gmb_lease_new(victim.session, &params, &lease) == 0, "the victim waits: %s",
        gmb_error_text());
    ck_assert_int_eq(gmb_lease_release(lease), 0);
    ck_assert_int_eq(kill(attack_bed.harness.pid, 0), 0);
}

void attack_end(void)
{
    victim_check();
    if (raw_slabs())
        gmb_disconnect(victim.session);
    else
        pages_close(&victim.pages);
    harness_stop(&attack_bed.harness);
}

static void become_attacker(void)
{
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (setgid(ATTACK_USER) < 0 || setuid(ATTACK_USER) < 0)
        _exit(2);
}

void attack_run(void (*run)(void))
{
    int status;
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        become_attacker();
        run();
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0,
        "the attacker got something else than it should: %x", status);
    victim_check();
}
