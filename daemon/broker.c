/*
 * Events go in one at a time, actions are carried out in order, and no action leads to another
 * event before the list is through: a session that breaks meanwhile is doomed, and ended when the
 * step is over. The timer is set once for each round of the loop.
 */
#include "daemon/broker.h"

#include <errno.h>
#include <event2/event.h>
#include <search.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/log.h"
#include "base/size.h"
#include "daemon/arena_holder.h"
#include "daemon/arena_kept.h"
#include "daemon/arena_message.h"
#include "daemon/device.h"
#include "daemon/guest.h"
#include "daemon/ledger/ledger.h"
#include "daemon/persist.h"
#include "daemon/pressure.h"
#include "daemon/restore.h"
#include "daemon/segment.h"
#include "daemon/segment_kept.h"
#include "daemon/slab_device.h"
#include "proto/frame.h"

/* Completions taken before the loop looks at anything else. */
#define DONE_BURST 256
/* 2 fds for each connection without Hello, and as many for all else; a page for each tenant, and
 * the watches. */
#define FDS_OTHERS (4u * LIMIT_UNGREETED + LIMIT_TENANTS + LIMIT_WATCHES)

/* ------------------------------------------------------------------ actions */

static void client_gone(struct broker *broker, core_id id)
{
    struct client *client = client_find(broker, id);
    uint32_t tenant;

    if (client == NULL)
        return;
    log_debug("client %llu of tenant %s (pid %d) holds nothing any more", (unsigned long long) id,
        client->tenant, (int) client->identity.pid);
    if (client->session != NULL) {
        session_doom(client->session, NULL);
        if (client->session->client == client)
            pressure_leave(client->session);
        session_forget(client->session, client);
    }
    tenant = client->tenant_index;
    (void) client_free(client);
    pressure_tenant_settle(broker->pressure, tenant);
    segments_note(broker, tenant);
}

static void action_answer(struct broker *broker, const struct core_action *action)
{
    struct client *client = client_find(broker, action->client);

    if (segments_answer(broker, action))
        return;
    if (action->request >= FRAME_BROKER_ID)
        restore_answer(broker, action);
    else if (client != NULL && client->session != NULL)
        session_answer(client->session, action);
}

static void action_run(struct broker *broker, const struct core_action *action)
{
    switch (action->type) {
    case CORE_ACTION_CHUNK_CREATE:
        executor_create(broker->executor, action->chunk.device, action->chunk.chunk,
            action->chunk.generation, action->chunk.bytes);
        break;
    case CORE_ACTION_CHUNK_RELEASE:
        hosting_release(
            broker->hosting[action->chunk.device], action->chunk.chunk, action->chunk.generation);
        break;
    case CORE_ACTION_MEMORY_OBSERVE:
        hosting_observe(broker->hosting[action->device.device]);
        break;
    case CORE_ACTION_GRANT:
    case CORE_ACTION_DONE:
        action_answer(broker, action);
        break;
    case CORE_ACTION_REFUSE:
        if (action->cookie != 0)
            broker->answer = action;
        else
            action_answer(broker, action);
        break;
    case CORE_ACTION_DEVICE_ADDED:
    case CORE_ACTION_CONFIGURED:
    case CORE_ACTION_CLIENT_ADDED:
        broker->answer = action;
        break;
    case CORE_ACTION_CLIENT_GONE:
        client_gone(broker, action->client);
        break;
    case CORE_ACTION_RECLAIM:
        reclaim_note(broker->hosting[action->reclaim.device], action);
        break;
    case CORE_ACTION_PRESSURE:
        pressure_changed(broker->pressure, action);
        break;
    case CORE_ACTION_ADVICE:
        pressure_advised(broker->pressure, action);
        break;
    case CORE_ACTION_MAX:
        break;
    }
}

void broker_step(struct broker *broker, const struct core_event *event)
{
    broker->answer = NULL;
    core_step(broker->core, event, clock_now(broker->clock), &broker->actions);
    persist_step(broker);
    for (size_t i = 0; i < broker->actions.count; i++)
        action_run(broker, &broker->actions.items[i]);
}

const struct core_action *broker_ask(struct broker *broker, struct core_event *event)
{
    event->cookie = 1;
    broker_step(broker, event);
    if (broker->answer == NULL)
        return NULL;
    broker->answer_copy = *broker->answer;
    return &broker->answer_copy;
}

/* ------------------------------------------------------------------ time and completions */

static void timer_set(struct broker *broker)
{
    uint64_t due = core_next_tick(broker->core), now, wait;
    struct timeval delay;

    if (due == broker->tick_at_ns)
        return;
    broker->tick_at_ns = due;
    if (due == CLOCK_NEVER) {
        (void) event_del(broker->tick_event);
        return;
    }
    now = clock_now(broker->clock);
    /* Rounded up: a timer that fires a little early would only be set again. */
    wait = (sub_saturate(due, now) + NSEC_PER_USEC - 1) / NSEC_PER_USEC;
    delay = (struct timeval){
        .tv_sec = (time_t) (wait / 1000000),
        .tv_usec = (suseconds_t) (wait % 1000000),
    };
    (void) event_add(broker->tick_event, &delay);
}

void broker_detach(struct broker *broker, struct client *client, bool keep)
{
    struct core_event event = {
        .type = CORE_EVENT_CLIENT_DETACH,
        .client_detach.keep = keep,
        .client = client->id,
    };

    client->session = NULL;
    list_for_each(holder, &client->holdings, struct arena_holder, client_link)
    {
        restore_leave(holder->arena, client->id);
        arena_held_drop(holder->arena, client->id);
    }
    segments_note(broker, client->tenant_index);
    broker_step(broker, &event);
}

static void sessions_end(struct broker *broker)
{
    struct session *session;

    while ((session = list_first(&broker->doomed, struct session, doomed_link)) != NULL) {
        struct client *client = session->client, *guest = session->guest;

        (void) session_free(session);
        guest_detach(broker, client, guest);
    }
}

void broker_settle(struct broker *broker)
{
    sessions_end(broker);
    segments_settle(broker);
    restore_waits_tell(broker);
    pressure_pump(broker->pressure);
    sessions_end(broker);
    timer_set(broker);
    observers_settled(&broker->observers);
}

bool broker_progresses(const struct broker *broker, uint64_t patience_ns)
{
    uint64_t now = clock_now(broker->clock);

    /* A core that always has more to do is due at once, again and again: it does progress. */
    return sub_saturate(now, broker->tick_at_ns) < patience_ns ||
           sub_saturate(now, broker->ticked_ns) < patience_ns;
}

static void on_tick(evutil_socket_t fd, short what, void *data)
{
    struct broker *broker = data;
    struct core_event event = {.type = CORE_EVENT_TICK};

    (void) fd;
    (void) what;
    broker->ticked_ns = clock_now(broker->clock);
    broker->tick_at_ns = CLOCK_NEVER - 1; /* it is set to nothing that core_next_tick() gives */
    broker_step(broker, &event);
    broker_settle(broker);
}

static void driver_failed(struct broker *broker, const struct executor_done *done, const char *what)
{
    struct broker_device *device = &broker->devices[done->device];
    uint32_t held;

    if (done->result == GPU_NO_MEMORY) {
        log_debug("device %u: the driver has no memory for a chunk", done->device);
        return;
    }
    device_healthy_set(broker, done->device, false);
    if (!ratelimit_pass(&device->failures, clock_now(broker->clock), COMPLAINT_INTERVAL_NS,
            COMPLAINT_LINES, &held))
        return;
    if (held > 0)
        log_error("device %u: %u more driver calls failed", done->device, held);
    log_error("device %u: %s failed: %s (%s)", done->device, what,
        done->text[0] != '\0' ? done->text : "no details",
        done->result < 0 ? strerror(-done->result) : "unexpected outcome");
}

static void completion_step(struct broker *broker, const struct executor_done *done)
{
    struct core_event event = {0};

    switch (done->type) {
    case EXECUTOR_JOB_CREATE:
        event.type = done->result == 0 ? CORE_EVENT_CHUNK_CREATED : CORE_EVENT_CHUNK_FAILED;
        if (done->result != 0)
            driver_failed(broker, done, "creating a chunk");
        event.chunk.out_of_memory = done->result == GPU_NO_MEMORY || done->result == -ENOMEM;
        break;
    case EXECUTOR_JOB_RELEASE:
        event.type = CORE_EVENT_CHUNK_RELEASED;
        if (done->result != 0)
            driver_failed(broker, done, "releasing a chunk");
        break;
    case EXECUTOR_JOB_OBSERVE:
        event.type = CORE_EVENT_MEMORY_OBSERVED;
        event.observed.device = done->device;
        event.observed.free_bytes = done->free_bytes;
        if (done->result != 0) {
            driver_failed(broker, done, "asking for free memory");
            event.observed.free_bytes = UINT64_MAX;
        }
        device_heard(broker, done->device, done->result, done->text);
        broker_step(broker, &event);
        return;
    case EXECUTOR_JOB_KEEP:
        if (!segment_kept_done(broker, done))
            arena_kept_done(broker, done);
        return;
    case EXECUTOR_JOB_MAX:
        return;
    }
    event.chunk.device = done->device;
    event.chunk.chunk = done->chunk;
    event.chunk.generation = done->generation;
    device_heard(broker, done->device, done->result, done->text);
    broker_step(broker, &event);
}

static void on_done(evutil_socket_t fd, short what, void *data)
{
    struct broker *broker = data;
    struct executor_done done;
    unsigned burst = 0;

    (void) fd;
    (void) what;
    while (burst < DONE_BURST && executor_take(broker->executor, &done)) {
        completion_step(broker, &done);
        burst++;
    }
    if (burst == DONE_BURST)
        event_active(broker->done_event, EV_READ, 0);
    broker_settle(broker);
}

/* ------------------------------------------------------------------ life */

size_t broker_config_devices(const struct gpu *gpu, struct config_device devices[LIMIT_DEVICES])
{
    size_t count = MIN(gpu->device_count, (size_t) LIMIT_DEVICES);

    for (size_t i = 0; i < count; i++) {
        devices[i] = (struct config_device){.total_bytes = gpu->devices[i]->total_bytes};
        if (uuid_parse(gpu->devices[i]->uuid, &devices[i].uuid) < 0)
            devices[i].uuid = (struct uuid){0}; /* a driver that names it otherwise */
    }
    return count;
}

static int devices_add(struct broker *broker, char error[CONFIG_ERROR_BYTES])
{
    for (size_t i = 0; i < broker->device_count; i++) {
        const struct config_device *device = &broker->config->devices[i];
        const struct core_action *answer;
        struct core_event event = {
            .type = CORE_EVENT_DEVICE_ADD,
            .device_add.total_bytes = device->total_bytes,
            .device_add.reserve_bytes = device->reserve_bytes,
            .device_add.granularity_bytes = broker->devices[i].granularity_bytes,
            .device_add.whole = broker->devices[i].sharing == GPU_HANDLE_IPC,
        };

        broker->devices[i].uuid = device->uuid;
        broker->devices[i].mig = uuid_is_mig(broker->gpu->devices[i]->uuid);
        broker->devices[i].healthy = true;
        answer = broker_ask(broker, &event);
        if (answer == NULL || answer->type != CORE_ACTION_DEVICE_ADDED) {
            (void) snprintf(error, CONFIG_ERROR_BYTES, "device %s can't be managed: %s",
                broker->gpu->devices[i]->uuid,
                answer != NULL ? answer->refuse.text : "the core gave no answer");
            return -EINVAL;
        }
    }
    return 0;
}

void broker_configured(struct broker *broker)
{
    for (size_t i = 0; i < broker->device_count; i++)
        hosting_configure(broker->hosting[i]);
}

static int configure(
    struct broker *broker, const struct config *config, char error[CONFIG_ERROR_BYTES])
{
    struct core_event event = {
        .type = CORE_EVENT_CONFIGURE,
        .configure.tenants = config->tenants,
        .configure.count = config->tenant_count,
        .configure.pressure = &config->options.pressure,
    };
    const struct core_action *answer = broker_ask(broker, &event);

    if (answer != NULL && answer->type == CORE_ACTION_CONFIGURED) {
        broker_configured(broker);
        return 0;
    }
    (void) snprintf(error, CONFIG_ERROR_BYTES, "%s",
        answer != NULL ? answer->refuse.text : "the core gave no answer");
    return -EINVAL;
}

/*
 * How many clients the fds of this process are enough for, at two each. What else takes some has at
 * least half: connections without Hello (two as well), operators, grants on their way, the driver.
 */
static void fds_share(struct broker *broker, struct core_options *options)
{
    struct rlimit limit;
    rlim_t fds = 4 * LIMIT_CLIENTS, others;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        fds = MIN(fds, limit.rlim_cur);
    others = MIN(FDS_OTHERS, fds / 2);
    fds = (fds - others) / 2;
    options->clients_max = (uint32_t) MIN(fds, (rlim_t) LIMIT_CLIENTS);
    broker->ungreeted_max = (size_t) MIN(others / 4, (rlim_t) LIMIT_UNGREETED);
}

static int broker_start(struct broker *broker, char error[CONFIG_ERROR_BYTES])
{
    struct core_options options = broker->config->options;
    int r;

    (void) snprintf(error, CONFIG_ERROR_BYTES, "no memory for the broker");
    fds_share(broker, &options);
    r = core_new(&options, &broker->core);
    if (r == 0)
        r = recover_begin(broker, error);
    if (r < 0)
        return r;
    r = executor_new(broker->gpu, broker->store, &broker->executor);
    if (r == 0)
        r = closer_new(&broker->closer);
    if (r < 0) {
        (void) snprintf(error, CONFIG_ERROR_BYTES, "cannot start threads: %s", strerror(-r));
        return r;
    }
    r = pressure_new(broker, &broker->pressure);
    if (r == 0)
        r = segments_new(broker, &broker->segments);
    if (r < 0)
        return r;
    broker->done_event = event_new(
        broker->base, executor_fd(broker->executor), EV_READ | EV_PERSIST, on_done, broker);
    broker->tick_event = event_new(broker->base, -1, 0, on_tick, broker);
    if (broker->done_event == NULL || broker->tick_event == NULL ||
        event_add(broker->done_event, NULL) < 0)
        return -ENOMEM;
    r = slab_devices_start(broker);
    if (r < 0)
        return r;
    for (uint32_t i = 0; r == 0 && i < broker->device_count; i++)
        r = hosting_new(broker, i, !slab_device(broker, i), &broker->hosting[i]);
    if (r < 0) {
        (void) snprintf(error, CONFIG_ERROR_BYTES, "no host tier (HostTier=): %s", strerror(-r));
        return r;
    }
    r = devices_add(broker, error);
    if (r < 0)
        return r;
    r = recover_records(broker);
    if (r < 0) {
        (void) snprintf(error, CONFIG_ERROR_BYTES,
            "what the broker before left can't be taken over: %s", strerror(-r));
        return r;
    }
    r = configure(broker, broker->config, error);
    if (r < 0)
        return r;
    recover_end(broker);
    r = hostings_begin(broker);
    if (r < 0)
        (void) snprintf(error, CONFIG_ERROR_BYTES, "no host tier (HostTier=): %s", strerror(-r));
    return r;
}

int broker_new(struct event_base *base, const struct clock *clock, struct gpu *gpu,
    struct config *config, struct broker **ret, char error[CONFIG_ERROR_BYTES])
{
    struct broker *broker = calloc(1, sizeof(*broker));
    int r;

    if (broker == NULL) {
        (void) snprintf(error, CONFIG_ERROR_BYTES, "no memory for the broker");
        return -ENOMEM;
    }
    broker->base = base;
    broker->clock = clock;
    broker->gpu = gpu;
    broker->config = config;
    broker->start_ns = broker->ticked_ns = clock_now(clock);
    broker->device_count = config->device_count;
    broker->tick_at_ns = CLOCK_NEVER;
    list_init(&broker->sessions);
    list_init(&broker->greeting);
    list_init(&broker->doomed);
    list_init(&broker->noted);
    list_init(&broker->kept_answers);
    list_init(&broker->observers);
    r = broker_start(broker, error);
    if (r < 0) {
        broker->config = NULL;
        (void) broker_free(broker);
        return r;
    }
    broker_settle(broker);
    *ret = broker;
    return 0;
}

static void client_free_node(void *node)
{
    struct client *client = node;

    client->broker->clients = NULL; /* the tree is being taken down around it */
    (void) client_free(client);
}

struct broker *broker_free(struct broker *broker)
{
    void *clients;

    if (broker == NULL)
        return NULL;
    if (broker->segments != NULL)
        broker->segments->closing = true;
    arena_kept_close(broker);
    list_for_each_safe(session, &broker->sessions, struct session, link)(void)
        session_free(session);
    clients = TAKE_PTR(broker->clients);
    tdestroy(clients, client_free_node);
    for (size_t i = 0; i < broker->device_count; i++)
        hosting_mover_end(broker->hosting[i]);
    broker->segments = segments_free(broker->segments);
    for (size_t i = 0; i < broker->device_count; i++)
        broker->hosting[i] = hosting_free(broker->hosting[i]);
    (void) pressure_free(broker->pressure);
    if (broker->done_event != NULL)
        event_free(broker->done_event);
    if (broker->tick_event != NULL)
        event_free(broker->tick_event);
    slab_devices_stop(broker);
    (void) executor_free(broker->executor);
    slab_devices_free(broker);
    (void) closer_free(broker->closer);
    (void) core_free(broker->core);
    (void) ledger_free(broker->ledger);
    (void) fdstore_free(broker->store);
    recover_clear(broker);
    (void) config_free(broker->config);
    free(broker);
    return NULL;
}

/* ------------------------------------------------------------------ calls */

static bool start_changed(const struct config *a, const struct config *b)
{
    struct core_options before = a->options, after = b->options;

    for (size_t i = 0; i < a->device_count; i++) {
        if (a->devices[i].reserve_bytes != b->devices[i].reserve_bytes ||
            a->devices[i].ipc != b->devices[i].ipc)
            return true;
    }
    /* These take effect with the reload. */
    before.pressure = after.pressure = core_options_default.pressure;
    return memcmp(&before, &after, sizeof(before)) != 0 ||
           strcmp(a->client_socket, b->client_socket) != 0 ||
           strcmp(a->control_socket, b->control_socket) != 0;
}

void broker_config_remark(const struct config *config)
{
    if (config->built_in)
        log_warning("no [Tenant] is configured: only uid %u may take leases, without limits",
            (unsigned) geteuid());
    for (uint32_t i = 0; i < config->tenant_count; i++) {
        if (!config->shares[i].group && !config_tenant_reachable(config, i))
            log_warning("tenant %s has no User=, Group=, Unit= or CGroup=: nobody belongs to it",
                config->tenants[i].name);
    }
}

static int reload(struct broker *broker, char error[CONFIG_ERROR_BYTES])
{
    struct config_device devices[LIMIT_DEVICES];
    size_t count = broker_config_devices(broker->gpu, devices);
    struct config *config;
    int r;

    r = config_load(broker->config_path, broker->config_required, devices, count, &config, error);
    if (r < 0)
        return r;
    r = configure(broker, config, error);
    if (r < 0) {
        (void) config_free(config);
        return r;
    }
    if (start_changed(broker->config, config))
        log_warning(
            "Reserve=, Backend=, sockets and times of [Broker] take effect at the next start");
    broker_config_remark(config);
    (void) config_free(broker->config);
    broker->config = config;
    segments_reload(broker);
    return 0;
}

int broker_reload(struct broker *broker, char error[CONFIG_ERROR_BYTES])
{
    int r = reload(broker, error);

    memcpy(broker->reload_error, r < 0 ? error : "", r < 0 ? CONFIG_ERROR_BYTES : 1);
    return r;
}

bool broker_device_find(
    const struct broker *broker, const uint8_t *uuid, size_t size, uint32_t *ret_index)
{
    struct uuid wanted;

    if (size > 0 && uuid_from_bytes(uuid, size, &wanted) < 0)
        return false;
    for (uint32_t i = 0; i < broker->device_count; i++) {
        if (size == 0 || uuid_equal(&broker->devices[i].uuid, &wanted)) {
            *ret_index = i;
            return true;
        }
    }
    return false;
}
