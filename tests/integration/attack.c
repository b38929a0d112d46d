/* See attack.h. */
#include "tests/integration/attack.h"

#include <check.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/frame.h"
#include "tests/integration/pages.h"

enum { PAGES = 128 };

#define CONFIG                                                                                     \
    HARNESS_BROKER "[Tenant victim]\nUser=root\nMemoryMin=64M\n"                                   \
                   "[Tenant attacker]\nUser=*\nMemoryMax=128M\nLeasesMax=32\n"
static_assert(ATTACK_CHUNKS * HARNESS_CHUNK == 128 << 20, "as CONFIG says");

struct attack_bed attack_bed;
static struct pages victim;

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

bool attack_begin(void)
{
    if (geteuid() != 0)
        return false;
    harness_start(&attack_bed.harness, CONFIG);
    pages_open(&victim, &attack_bed.harness, 65536, HARNESS_CHUNK, 16 * HARNESS_CHUNK);
    pages_fill(&victim, PAGES);
    leases_learn();
    return true;
}

/* The victim has its pages, byte for byte, and gets memory. */
static void victim_check(void)
{
    struct gmb_lease_params params = {
        .size = sizeof(params), .bytes = 8 * HARNESS_CHUNK, .wait_ns = UINT64_C(15000000000)};
    gmb_lease *lease;

    pages_check(&victim, 0, PAGES, 16);
    ck_assert_msg(gmb_lease_new(victim.session, &params, &lease) == 0, "the victim waits: %s",
        gmb_error_text());
    ck_assert_int_eq(gmb_lease_release(lease), 0);
    ck_assert_int_eq(kill(attack_bed.harness.pid, 0), 0);
}

void attack_end(void)
{
    victim_check();
    pages_close(&victim);
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
