/* What a broker says to whoever connects: asked by a child, since a process that has used the
 * driver can't fork workers that use it too. */
#pragma once

#include "client/gmb.h"
#include "gpu/gpu.h"

#define PROBE_TEXT_BYTES 256

struct probe {
    bool good;
    enum gpu_driver driver;
    struct gmb_device_info device; /* the broker's first */
    char tenant[65];
    char text[PROBE_TEXT_BYTES]; /* why it isn't good */
};

/* Blocks up to the library's 10 s. -errno when there can be no child; else see `good`. */
int probe_broker(const char *socket, struct probe *ret) _must_check_;
