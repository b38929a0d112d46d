/*
 * The files of a host tier: what they have to be, and who has them open.
 *
 * A mover gets an open of its own, with a lock. So a broker that takes a tier over can tell whether
 * a mover of its predecessor still has it.
 */
#pragma once

#include "base/macro.h"

/* Somebody else's gets such a size, if it hasn't: a mover that maps one that shrinks dies. -EINVAL
 * for a file that can't be sealed. */
int tier_file_seal(int fd) _must_check_;
/* What takes room there takes none any more, and the file stays as long. -errno. */
int tier_file_punch(int fd, uint64_t offset, uint64_t bytes) _must_check_;

/*
 * A file of the tier's for a mover, the caller's: an open of its own, with a lock that lasts as
 * long as any process has it. -errno.
 */
int tier_lend(int fd, int *ret_fd) _must_check_;
/* Until nobody has such an open of the file any more, `patience_ns` at most. For start only.
 * -ETIMEDOUT, -errno. */
int tier_quiet_wait(int fd, uint64_t patience_ns) _must_check_;
