/*
 * The simulator's settings, read from GMB_SIM_* environment variables: docs/simulator.md lists
 * them. A malformed value refuses the whole configuration; nothing falls back to a default.
 */
#pragma once

#include <limits.h>

#include "base/macro.h"

#define SIM_DEVICES_MAX 64
#define SIM_TEXT_BYTES 128
/* NAME_MAX leaves room behind the directory for `/dev63/1048575`. */
#define SIM_DIR_BYTES (PATH_MAX - 64)

/* What fresh memory holds. */
enum sim_fill {
    SIM_FILL_NONE,    /* zeros that occupy nothing until they are written */
    SIM_FILL_GARBAGE, /* the first 4 KiB of each 64 KiB hold garbage, the rest zeros */
    SIM_FILL_FULL,    /* every byte is garbage */
    SIM_FILL_MAX
};

/* What cuMemAddressReserve does with a hint. Real drivers differ. */
enum sim_hint {
    SIM_HINT_HONOUR, /* takes it where that address space is free, else another place */
    SIM_HINT_IGNORE, /* never takes it */
    SIM_HINT_FAIL,   /* 2 for any hint */
    SIM_HINT_MAX
};

/* The node's hardware: the process that creates the ledger decides for all. */
struct sim_hardware {
    unsigned devices;
    enum sim_fill fill;
    uint64_t vmm, posix_fd; /* device attributes 102 and 103: a bit for each device */
    uint64_t mig;           /* a bit for each device that is a MIG instance */
    uint64_t capacity[SIM_DEVICES_MAX];
    uint64_t granularity;
    uint64_t context_overhead; /* bytes for each context on its device */
    uint64_t free_delay_ns;    /* between the last reference and the memory being free */
};

static inline bool sim_device_mig(const struct sim_hardware *hardware, unsigned device)
{
    return (hardware->mig >> device & 1) != 0;
}

static inline bool sim_device_vmm(const struct sim_hardware *hardware, unsigned device)
{
    return (hardware->vmm >> device & 1) != 0;
}

/* Without VMM there is nothing that could be exported. */
static inline bool sim_device_posix_fd(const struct sim_hardware *hardware, unsigned device)
{
    return sim_device_vmm(hardware, device) && (hardware->posix_fd >> device & 1) != 0;
}

struct sim_config {
    struct sim_hardware hardware;
    enum sim_hint hint;  /* this process's */
    bool dir_is_default; /* then the directory must belong to this user */
    char dir[SIM_DIR_BYTES];
};

/*
 * Reads the environment. -EINVAL with one line in `error` that names the variable when a value
 * makes no sense. Not thread-safe against setenv, as getenv isn't.
 */
int sim_config_read(struct sim_config *ret, char error[SIM_TEXT_BYTES]) _must_check_;
