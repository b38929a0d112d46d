/* Signals as events of the loop. */
#pragma once

#include "base/macro.h"

struct broker;
struct ending;
struct notify;
struct signals;

/*
 * SIGTERM and SIGINT end the broker (ending.h), a second one at once and still in order. SIGHUP
 * reads the configuration again. SIGPIPE is ignored. All are borrowed. -ENOMEM.
 */
int signals_new(struct broker *broker, struct notify *notify, struct ending *ending,
    struct signals **ret) _must_check_;
/* Accepts NULL, returns NULL. */
struct signals *signals_free(struct signals *signals);
