/* See observer.h. */
#include "daemon/observer.h"

#define TELL(observers, what, ...)                                                                 \
    list_for_each(observer, observers, struct broker_observer, link)                               \
    {                                                                                              \
        if (observer->what != NULL)                                                                \
            observer->what(__VA_ARGS__);                                                           \
    }

void observers_settled(const struct list *observers)
{
    TELL(observers, settled, observer)
}

void observers_refused(const struct list *observers, const struct broker_refusal *refusal)
{
    TELL(observers, refused, observer, refusal)
}

void observers_evicted(const struct list *observers, const struct broker_taking *taking)
{
    TELL(observers, evicted, observer, taking)
}

void observers_killed(const struct list *observers, const struct broker_taking *taking)
{
    TELL(observers, killed, observer, taking)
}

void observers_quarantined(const struct list *observers, const struct broker_quarantine *quarantine)
{
    TELL(observers, quarantined, observer, quarantine)
}

void observers_pressed(const struct list *observers, uint32_t tenant, uint32_t device)
{
    TELL(observers, pressed, observer, tenant, device)
}
