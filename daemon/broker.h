/*
 * The shell's middle: turns completions, deaths, time and messages into the core's events and
 * carries out its actions. Sockets, sessions and operators stand around it.
 *
 * One thread, one event loop. Nothing here waits: driver calls that take long are the executor's.
 */
#pragma once

#include "base/clock.h"
#include "base/list.h"
#include "daemon/client.h"
#include "daemon/closer.h"
#include "daemon/complaint.h"
#include "daemon/config.h"
#include "daemon/executor.h"
#include "daemon/hosting.h"
#include "daemon/observer.h"
#include "daemon/recover.h"
#include "daemon/session.h"
#include "daemon/slabs.h"

struct event_base;
struct pressure;
struct segments;

struct broker_device {
    struct broker *broker;
    struct uuid uuid;
    bool mig; /* an instance: written MIG- in front */
    uint64_t granularity_bytes;
    enum gpu_handle_type sharing;   /* how its chunks travel */
    struct slabs *slabs;            /* who has them under IPC; NULL else */
    bool healthy;                   /* the driver's last call on it didn't fail */
    unsigned broken;                /* calls in a row that failed and nobody can say why */
    char failure[LIMIT_TEXT_BYTES]; /* why it is out of service; "" while it isn't */
    struct ratelimit failures;
};

struct broker {
    struct event_base *base;
    const struct clock *clock;
    struct gpu *gpu;
    struct config *config;
    const char *config_path; /* borrowed */
    bool config_required;
    char reload_error[CONFIG_ERROR_BYTES]; /* why the last reload was refused; "" else */
    struct core *core;
    struct executor *executor;
    struct fdstore *store; /* NULL: nothing outlives this process */
    struct ledger *ledger; /* the same */
    bool ledger_failed;    /* it couldn't be written; said once */
    struct recovery recovery;
    struct list kept_answers; /* of arena_kept.c: what waits for the store */
    uint64_t kept_tags;
    bool kept_closed; /* it ends: the store stays as it is */
    struct closer *closer;
    struct event *done_event, *tick_event;
    uint64_t tick_at_ns; /* what the timer is set to */
    uint64_t ticked_ns;  /* when it came last */
    uint64_t start_ns;
    size_t device_count;
    struct broker_device devices[LIMIT_DEVICES];
    struct hosting *hosting[LIMIT_DEVICES];
    struct pressure *pressure;
    struct segments *segments;
    uint64_t fills;        /* ids of the broker's own requests, below FRAME_BROKER_ID */
    void *arenas;          /* tsearch(3) tree of struct arena, by lease */
    void *shared;          /* tsearch(3) tree of struct arena, by tenant and name */
    void *clients;         /* tsearch(3) tree of struct client, by id */
    struct list sessions;  /* struct session.link */
    struct list greeting;  /* struct session.greeting_link, oldest first */
    struct list noted;     /* struct client.noted_link */
    struct list doomed;    /* struct session.doomed_link: to be ended when the step is over */
    struct list observers; /* struct broker_observer.link */
    bool ending;           /* no new plans to move memory */
    struct complaints complaints;
    size_t session_count, ungreeted_count, ungreeted_max;
    struct core_actions actions;
    const struct core_action *answer; /* to the event that is being asked, with its cookie */
    struct core_action answer_copy;
};

/*
 * Opens nothing: `base`, `clock` and `gpu` are borrowed, `config` is taken over on success.
 * Registers the devices and applies the configuration. -errno, with one line in `error`.
 */
int broker_new(struct event_base *base, const struct clock *clock, struct gpu *gpu,
    struct config *config, struct broker **ret, char error[CONFIG_ERROR_BYTES]) _must_check_;
/* Ends every session, joins the executor. Accepts NULL, returns NULL. */
struct broker *broker_free(struct broker *broker);

/*
 * Lets the core take one event and carries out what it asks for. Not from within an action: what
 * ends there is doomed and ended by broker_settle().
 */
void broker_step(struct broker *broker, const struct core_event *event);
/*
 * The same for an event with an answer of its own (CLIENT_ADD, CONFIGURE, TENANT_SET): gives the
 * answer, valid until the next step; NULL would mean that the core didn't answer.
 */
const struct core_action *broker_ask(struct broker *broker, struct core_event *event);
/* The client's connection has ended, or is about to: the core ends the client with it if it holds
 * nothing, unless it is to be kept. */
void broker_detach(struct broker *broker, struct client *client, bool keep);
/* Ends what is doomed and sets the timer. To be called last in every callback of the loop. */
void broker_settle(struct broker *broker);
/* Whether nothing that the core is to do has been due for `patience_ns` without being done. */
bool broker_progresses(const struct broker *broker, uint64_t patience_ns);

/* Logs what is valid and yet seldom meant. */
void broker_config_remark(const struct config *config);
/* Reads the configuration again; on failure the old one stays. -errno, with `error`. */
int broker_reload(struct broker *broker, char error[CONFIG_ERROR_BYTES]) _must_check_;
/* The core has taken other values of tenants: what the shell keeps of them follows. */
void broker_configured(struct broker *broker);
/* The device's index: the first one for an empty UUID. False when there is none. */
bool broker_device_find(
    const struct broker *broker, const uint8_t *uuid, size_t size, uint32_t *ret_index);
/* Devices as the configuration wants to know them. */
size_t broker_config_devices(const struct gpu *gpu, struct config_device devices[LIMIT_DEVICES]);
