/* Signals as events of the loop. */
#pragma once

#include "base/macro.h"

struct broker;
struct notify;
struct signals;

/*
 * SIGTERM and SIGINT end the loop; a second one changes nothing: what ends is ended once and in
 * order. SIGHUP reads the configuration again. SIGPIPE is ignored. Both are
 * borrowed. -ENOMEM.
 */
int signals_new(struct broker *broker, struct notify *notify, struct signals **ret) _must_check_;
/* Accepts NULL, returns NULL. */
struct signals *signals_free(struct signals *signals);
