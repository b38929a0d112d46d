/* What writing and reading of the ledger share. */
#pragma once

#include "daemon/ledger/ledger_format.h"

struct ledger {
    int fd;
    struct ledger_header header;
    uint32_t disk_index[LIMIT_DEVICES]; /* of the core's devices, in the ledger */
    uint32_t core_index[LIMIT_DEVICES]; /* the other way; LEDGER_NO_DEVICE: isn't there */
};
