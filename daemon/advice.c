/* See advice.h. */
#include "daemon/advice.h"

#include <string.h>

#include "daemon/broker.h"
#include "daemon/pressure.h"

void advice_ack(struct advice *advice, struct listener *listener, enum ladder_action action,
    enum advice_outcome outcome, uint64_t freed_bytes)
{
    struct advice_answer *answer = &advice->answers[action];

    if (listener->acked != advice->id) {
        memset(listener->outcomes, 0, sizeof(listener->outcomes));
        listener->acked = advice->id;
    }
    if (listener->outcomes[action] > 0)
        answer->clients[listener->outcomes[action] - 1]--;
    listener->outcomes[action] = (uint8_t) (1 + outcome);
    answer->clients[outcome]++;
    answer->freed_bytes = add_saturate(answer->freed_bytes, freed_bytes);
    advice->answered = true;
}

bool advice_ignored(const struct pressure *pressure, uint32_t tenant, uint64_t now_ns,
    uint64_t grace_ns, uint64_t *ret_age_ns, uint64_t *ret_id)
{
    const struct pressure_tenant *record = pressure_tenant_find(pressure, tenant);
    struct core_advice_view view;
    uint64_t age_ns;

    if (record == NULL || !core_advice_get(pressure->broker->core, tenant, &view) ||
        view.steps.present == 0)
        return false;
    age_ns = sub_saturate(now_ns, view.since_ns);
    if (age_ns < grace_ns || (record->advice.answered && record->listener_count > 0))
        return false;
    if (ret_age_ns != NULL)
        *ret_age_ns = age_ns;
    if (ret_id != NULL)
        *ret_id = view.id;
    return true;
}
