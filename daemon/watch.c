/* See watch.h. */
#include "daemon/watch.h"

#include <errno.h>
#include <fcntl.h>

#include "daemon/bell.h"
#include "daemon/broker.h"

/* Looks at a window while something is stalled, as often as the kernel does. */
#define LOOKS 10
/* What of all watches is promised, evenly, to tenants that don't use them yet: a quarter. */
#define PROMISED 4

struct watch {
    struct list link; /* pressure_tenant.watches */
    struct session *session;
    uint64_t id;
    int fd;
    struct watch_params params;
    struct stall_window window;
    uint64_t rang_ns; /* 0: never */
    uint64_t due_ns;  /* to be looked at; CLOCK_NEVER: when something changes */
    bool above;       /* the level is reached … */
    bool silent;      /* … and was not told yet, or so much stall wasn't */
};

static struct watch *watch_free(struct watch *watch)
{
    if (watch == NULL)
        return NULL;
    list_remove(&watch->link);
    close_fd(&watch->fd);
    free(watch);
    return NULL;
}

/* ------------------------------------------------------------------ conditions */

/* Readable from now on, until it is read. */
static void watch_ring(struct watch *watch, uint64_t now_ns)
{
    bell_ring(watch->fd);
    watch->rang_ns = now_ns;
    watch->silent = false;
}

static void level_look(struct watch *watch, const struct core_pressure_view *view)
{
    bool above =
        (watch->params.of_device ? view->device_level : view->level) >= watch->params.level;

    watch->silent = above && (watch->silent || !watch->above);
    watch->above = above;
}

static void stall_look(struct watch *watch, const struct core_pressure_view *view, uint64_t now_ns)
{
    uint64_t growth =
        stall_window_update(&watch->window, now_ns, view->stall_ns[watch->params.line]);

    watch->silent = watch->silent || growth >= watch->params.stall_ns;
    if (view->stalled || growth > 0)
        watch->due_ns = now_ns + watch->params.window_ns / LOOKS;
}

static void watch_see(struct watch *watch, const struct core_pressure_view *view, uint64_t now_ns)
{
    uint64_t next_ns = add_saturate(watch->rang_ns, watch->params.window_ns);

    watch->due_ns = CLOCK_NEVER;
    if (watch->params.level != PRESSURE_NONE)
        level_look(watch, view);
    else
        stall_look(watch, view, now_ns);
    if (watch->silent && (watch->rang_ns == 0 || next_ns <= now_ns))
        watch_ring(watch, now_ns);
    if (watch->silent)
        watch->due_ns = MIN(watch->due_ns, next_ns);
    pressure_at(watch->session->broker->pressure, watch->due_ns);
}

void watch_look(struct pressure_tenant *tenant, uint32_t device,
    const struct core_pressure_view *view, uint64_t now_ns)
{
    list_for_each(watch, &tenant->watches, struct watch, link)
    {
        if (watch->params.device == device)
            watch_see(watch, view, now_ns);
    }
}

static void tenant_turn(
    const struct pressure *pressure, struct pressure_tenant *tenant, uint64_t now_ns)
{
    list_for_each(watch, &tenant->watches, struct watch, link)
    {
        struct core_pressure_view view;

        if (watch->due_ns > now_ns)
            pressure_at(watch->session->broker->pressure, watch->due_ns);
        else if (core_pressure_get(
                     pressure->broker->core, tenant->index, watch->params.device, &view))
            watch_see(watch, &view, now_ns);
    }
}

void watch_turn(struct pressure *pressure, uint64_t now_ns)
{
    for (uint32_t i = 0; pressure->watch_count > 0 && i < LIMIT_TENANTS; i++) {
        if (pressure->tenants[i] != NULL)
            tenant_turn(pressure, pressure->tenants[i], now_ns);
    }
}

/* ------------------------------------------------------------------ life */

/* One tenant's watches must not keep out those of another. Walks the tenants: a request's cost. */
static bool watch_allowed(const struct pressure *pressure, const struct listener *listener)
{
    struct core_totals totals;
    uint32_t share, promised = 0, idle;

    if (listener->watches >= LIMIT_WATCHES_PER_CLIENT)
        return false;
    core_totals_get(pressure->broker->core, &totals);
    share = LIMIT_WATCHES / PROMISED / MAX(totals.tenants, 1u);
    idle = totals.tenants;
    for (uint32_t i = 0; i < LIMIT_TENANTS; i++) {
        const struct pressure_tenant *tenant = pressure->tenants[i];

        if (tenant == NULL)
            continue;
        idle -= idle > 0;
        if (tenant != listener->tenant)
            promised += (uint32_t) sub_saturate(share, tenant->watch_count);
    }
    return pressure->watch_count + promised + idle * share < LIMIT_WATCHES;
}

int watch_new(
    struct session *session, const struct watch_params *params, uint64_t *ret_id, int *ret_fd)
{
    struct pressure *pressure = session->broker->pressure;
    struct listener *listener = &session->listener;
    struct core_pressure_view view;
    uint64_t now = clock_now(session->broker->clock);
    struct watch *watch;
    int r;

    if (!watch_allowed(pressure, listener))
        return -EDQUOT;
    if (!core_pressure_get(session->broker->core, listener->tenant->index, params->device, &view))
        return -ENODEV;
    watch = calloc(1, sizeof(*watch));
    if (watch == NULL)
        return -ENOMEM;
    list_init(&watch->link);
    watch->session = session;
    watch->params = *params;
    watch->window.size_ns = params->window_ns;
    stall_window_reset(&watch->window, now, view.stall_ns[params->line]);
    watch->fd = -1;
    r = bell_new(&watch->fd);
    *ret_fd = r == 0 ? fcntl(watch->fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (r == 0 && *ret_fd < 0)
        r = -errno;
    if (r < 0) {
        (void) watch_free(watch);
        return r;
    }
    *ret_id = watch->id = ++pressure->watch_ids;
    list_append(&listener->tenant->watches, &watch->link);
    listener->tenant->watch_count++;
    pressure->watch_count++;
    listener->watches++;
    watch_see(watch, &view, now);
    return 0;
}

static void watch_remove(struct session *session, struct watch *watch)
{
    session->listener.watches--;
    session->listener.tenant->watch_count--;
    session->broker->pressure->watch_count--;
    (void) watch_free(watch);
}

bool watch_end(struct session *session, uint64_t id)
{
    list_for_each(watch, &session->listener.tenant->watches, struct watch, link)
    {
        if (watch->session != session || watch->id != id)
            continue;
        watch_remove(session, watch);
        return true;
    }
    return false;
}

void watch_end_all(struct session *session)
{
    if (session->listener.tenant == NULL || session->listener.watches == 0)
        return;
    list_for_each_safe(watch, &session->listener.tenant->watches, struct watch, link)
    {
        if (watch->session == session)
            watch_remove(session, watch);
    }
}
