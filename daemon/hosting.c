/* See hosting.h. */
#include "daemon/hosting.h"

#include <errno.h>

#include "daemon/arena.h"
#include "daemon/broker.h"

int hosting_new(struct broker *broker, uint32_t device, uint64_t tier_bytes, struct hosting **ret)
{
    struct hosting *hosting = calloc(1, sizeof(*hosting));
    int r = 0;

    if (hosting == NULL)
        return -ENOMEM;
    hosting->broker = broker;
    hosting->device = device;
    list_init(&hosting->arenas);
    for (size_t i = 0; i < LIMIT_TENANTS; i++)
        hosting->accounts[i].max_bytes = UINT64_MAX;
    if (tier_bytes >= TIER_SLAB_BYTES)
        r = tier_new(tier_bytes, TIER_SLAB_BYTES, &hosting->tier);
    if (r < 0) {
        (void) hosting_free(hosting);
        return r;
    }
    *ret = hosting;
    return 0;
}

struct hosting *hosting_free(struct hosting *hosting)
{
    if (hosting == NULL)
        return NULL;
    list_for_each_safe(arena, &hosting->arenas, struct arena, device_link)(void) arena_free(arena);
    (void) tier_free(hosting->tier);
    free(hosting);
    return NULL;
}

int hosting_space_new(struct hosting *hosting, struct arena *arena)
{
    int r;

    if (hosting->tier == NULL)
        return 0;
    r = tier_space_new(hosting->tier, &hosting->accounts[arena->tenant],
        arena->table.layout.page_bytes, &arena->space);
    /* Pages too large for the tier's slabs stay on the device. */
    return r == -EFBIG ? 0 : r;
}
