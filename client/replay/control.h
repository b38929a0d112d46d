/* One question to the broker's control socket: what the device's memory is doing. */
#pragma once

#include "base/macro.h"

/* Sums over all devices, bytes. */
struct control_memory {
    uint64_t total, leased, cached, clean, releasing, orphaned, free;
};

/* Blocks up to `timeout_ms`. -ECONNREFUSED, -ENOENT, -EACCES … of connecting, -ETIMEDOUT,
 * -EBADMSG. */
int control_memory(const char *socket, int timeout_ms, struct control_memory *ret) _must_check_;
