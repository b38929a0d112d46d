/*
 * The chunks that this process refers to: one object for each physical allocation, however often
 * it was created, imported or retained. So all handles of one chunk have the same value, and each
 * create, import and retain needs a release.
 *
 * A chunk of this process's own costs no fd. One of another's costs one while a handle is held;
 * once it is only mapped the mapping holds it.
 */
#pragma once

#include "gpu/sim/internal.h"

CUresult chunk_create(struct ledger_chunk_info *info, uint64_t *ret_handle) _must_check_;
/* Borrows the fd. 1 for what isn't a chunk, 101 when its device is hidden. */
CUresult chunk_import(int fd, uint64_t *ret_handle) _must_check_;
/* 1 for a handle that isn't one; outputs may be NULL. */
CUresult chunk_info(uint64_t handle, struct ledger_chunk_info *ret) _must_check_;
CUresult chunk_release(uint64_t handle) _must_check_;
/* A new fd of its own description that pins the chunk, CLOEXEC. */
CUresult chunk_export(uint64_t handle, int *ret_fd) _must_check_;

/*
 * A reference for a mapping, with an fd to map: the caller closes it. Ended with chunk_unmapped,
 * when the mapping is gone.
 */
CUresult chunk_mapped(uint64_t handle, struct ledger_chunk_info *ret, int *ret_fd) _must_check_;
void chunk_unmapped(uint64_t handle);
/* One more handle for a chunk that is mapped. */
CUresult chunk_retain(uint64_t handle) _must_check_;
/* Marks that others may get at the chunk by its id (legacy IPC). */
void chunk_share(uint64_t handle);

struct ledger_id chunk_id(uint64_t handle);

void chunks_fork_prepare(void);
void chunks_fork_parent(void);
/* In a forked child: the fds of imported chunks go. */
void chunks_fork_child(void);
