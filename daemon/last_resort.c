/* See last_resort.h. Recalled chunks and revoked workspaces of a device share one cool-down. */
#include "daemon/last_resort.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/broker.h"

/* Between two victims: what the first gives back must have time to be enough. */
#define KILL_COOLDOWN_NS (30 * NSEC_PER_SEC)

static struct reclaim_tenant tenant_row(const struct hosting *hosting, uint32_t tenant)
{
    struct core_tenant_device_view use = {0};
    struct core_tenant_view view = {0};

    (void) core_tenant_get(hosting->broker->core, tenant, &view);
    (void) core_tenant_device_get(hosting->broker->core, tenant, hosting->device, &use);
    return (struct reclaim_tenant){
        .used = use.used,
        .min = use.limits.min,
        .priority = view.priority,
    };
}

bool last_resort_wanted(const struct hosting *hosting, uint32_t tenant)
{
    struct core_pressure_view view;

    return core_pressure_get(hosting->broker->core, tenant, hosting->device, &view) &&
           view.waiting > 0;
}

static void victim_kill(struct hosting *hosting, const struct client *client, uint32_t victim,
    uint32_t beneficiary, const char *kept)
{
    hosting->dying = client->id;
    hosting->killed_ns = clock_now(hosting->broker->clock);
    if (syscall(SYS_pidfd_send_signal, client->identity.pidfd, SIGKILL, NULL, 0) < 0) {
        log_error("pid %d can't be killed: %s", (int) client->identity.pid, strerror(errno));
        return;
    }
    log_warning("killed pid %d (tenant %s): it kept %s past their deadline while an entitled "
                "tenant waits",
        (int) client->identity.pid, client->tenant, kept);
    observers_killed(&hosting->broker->observers, &(struct broker_taking){
                                                      .device = hosting->device,
                                                      .tenant = victim,
                                                      .beneficiary = beneficiary,
                                                      .pid = client->identity.pid,
                                                  });
}

enum reclaim_kill_verdict last_resort_try(struct hosting *hosting, const struct client *client,
    uint32_t victim, uint32_t beneficiary, const char *kept)
{
    const struct reclaim_tenant rows[2] = {
        tenant_row(hosting, victim), tenant_row(hosting, beneficiary)};
    const struct reclaim_kill kill = {
        .allowed = hosting->broker->config->kill && (client == NULL || !client->identity.guessed),
        .victim = 0,
        .beneficiary = beneficiary == victim         ? 0
                       : beneficiary < LIMIT_TENANTS ? 1
                                                     : UINT32_MAX,
        .dying = hosting->dying != 0 && client_find(hosting->broker, hosting->dying) != NULL,
        .killed_before = hosting->killed_ns != 0,
        .since_ns = sub_saturate(clock_now(hosting->broker->clock), hosting->killed_ns),
        .cooldown_ns = KILL_COOLDOWN_NS,
    };
    enum reclaim_kill_verdict verdict = reclaim_may_kill(&kill, rows, ARRAY_SIZE(rows));

    if (verdict == RECLAIM_KILL_YES && client != NULL)
        victim_kill(hosting, client, victim, beneficiary, kept);
    return verdict;
}
