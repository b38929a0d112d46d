/*
 * Chunks that are mapped in this process, by number and generation. Importing costs a few driver
 * calls, so mappings are kept; since a mapping keeps the chunk's memory in use, they are bounded,
 * and dropped when the broker says so.
 *
 * A chunk that jobs use is dropped with the last of them. Belongs to one thread.
 */
#pragma once

#include "base/list.h"
#include "daemon/mover/device.h"

/* Beyond it the one that was unused for longest goes: the process's map table isn't endless. */
#define IMPORTS_MAX 16384

struct import {
    struct list link;    /* in `idle` of its imports, or nowhere while it is used */
    struct import *next; /* in its bucket */
    uint32_t number, generation;
    uint64_t bytes, address;
    uint32_t users;
    bool doomed; /* in no bucket any more; goes with its last user */
};

struct imports;

int imports_new(const struct device *device, struct imports **ret) _must_check_;
/* Unmaps all; nothing may be in use. Accepts NULL, returns NULL. */
struct imports *imports_free(struct imports *imports);

/*
 * The chunk, used once more. `fd` (borrowed; −1: none came) is imported unless the chunk is mapped
 * already; another generation of the same number is dropped. -ENOENT when it isn't mapped and no fd
 * came; -EINVAL when it is mapped with another size; -ENOMEM; else the driver's, with `error`.
 */
int imports_use(struct imports *imports, uint32_t number, uint32_t generation, uint64_t bytes,
    int fd, struct import **ret, struct gpu_error *error) _must_check_;
/* Ends a use. */
void imports_drop(struct imports *imports, struct import *import);

/*
 * Drops the chunk if this generation of it is mapped. True once it is gone; false while jobs use
 * it: ask again when some have ended.
 */
bool imports_forget(struct imports *imports, uint32_t number, uint32_t generation);
