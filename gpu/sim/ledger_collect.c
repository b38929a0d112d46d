/*
 * Finds what nobody holds any more. See ledger_file.h.
 *
 * A process is dead when its byte of `procs` isn't locked. Where that cannot be told the process
 * counts as alive: to charge too long is an error, to hand out memory in use is a disaster. A
 * chunk without owner is free when its file can be locked exclusively: each fd, mapping and
 * message that could reach it belongs to a description with a shared lock.
 */
#include "gpu/sim/ledger_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>

#include "base/clock.h"

bool ledger_proc_alive(struct ledger *ledger, uint32_t proc)
{
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t) proc, .l_len = 1};

    /* One's own lock doesn't show. */
    if (proc == ledger->self)
        return true;
    if (fcntl(ledger->procs_fd, F_OFD_GETLK, &lock) < 0)
        return true;
    return lock.l_type != F_UNLCK;
}

void ledger_proc_end(struct ledger *ledger, uint32_t number)
{
    struct ledger_proc *proc = &ledger->file->procs[number];
    uint32_t left = LEDGER_CHUNKS_MAX;

    while (proc->owned != LEDGER_NONE) {
        uint32_t slot = proc->owned;
        struct ledger_chunk *chunk = ledger_slot(ledger, slot);

        if (chunk == NULL || chunk->state != CHUNK_OWNED || chunk->owner != number || left-- == 0) {
            ledger->file->doubt = 1;
            break;
        }
        ledger_unlink(ledger, slot);
        chunk->state = CHUNK_UNOWNED;
        ledger_link(ledger, slot);
        if (ledger->file->doubt != 0)
            break;
    }
    memset(proc, 0, sizeof(*proc));
    proc->owned = LEDGER_NONE;
}

void ledger_collect_dead(struct ledger *ledger)
{
    uint32_t high = MIN(ledger->file->procs_high, LEDGER_PROCS_MAX);

    for (uint32_t i = 0; i < high; i++) {
        if (ledger->file->procs[i].used == 0 || ledger_proc_alive(ledger, i))
            continue;
        ledger_change(ledger);
        ledger_proc_end(ledger, i);
        ledger_changed(ledger);
    }
    while (high > 0 && ledger->file->procs[high - 1].used == 0)
        high--;
    ledger->file->procs_high = high;
}

/* Whether no description holds the data file. */
static bool chunk_let_go(struct ledger *ledger, uint32_t slot, unsigned device)
{
    _cleanup_close_ int fd = -1;
    char path[32];

    ledger_chunk_path(path, device, slot);
    fd = openat(ledger->dir, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT;
    return flock(fd, LOCK_EX | LOCK_NB) == 0;
}

bool ledger_chunk_probe(struct ledger *ledger, uint32_t slot)
{
    struct ledger_chunk *chunk = ledger_slot(ledger, slot);
    uint64_t delay = ledger->file->hardware.free_delay_ns;

    if (chunk->free_after_ns == 0) {
        if (!chunk_let_go(ledger, slot, chunk->device))
            return false;
        if (delay > 0)
            chunk->free_after_ns = add_saturate(clock_now(&clock_monotonic), delay);
    }
    if (chunk->free_after_ns > 0 && clock_now(&clock_monotonic) < chunk->free_after_ns)
        return false;
    ledger_unlink(ledger, slot);
    ledger_chunk_free(ledger, slot);
    return true;
}

void ledger_collect_unowned(struct ledger *ledger, unsigned device)
{
    uint32_t slot = ledger->file->devices[device].unowned;
    uint32_t left = LEDGER_CHUNKS_MAX;

    ledger_change(ledger);
    while (slot != LEDGER_NONE) {
        struct ledger_chunk *chunk = ledger_slot(ledger, slot);
        uint32_t next;

        if (chunk == NULL || chunk->state != CHUNK_UNOWNED || chunk->device != device ||
            left-- == 0) {
            ledger_recount(ledger);
            break;
        }
        next = chunk->next;
        (void) ledger_chunk_probe(ledger, slot);
        slot = next;
    }
    ledger_changed(ledger);
}

uint64_t ledger_context_bytes(struct ledger *ledger, unsigned device)
{
    uint32_t high = MIN(ledger->file->procs_high, LEDGER_PROCS_MAX);
    uint64_t contexts = 0, bytes;

    for (uint32_t i = 0; i < high; i++)
        contexts += ledger->file->procs[i].contexts[device];
    if (__builtin_mul_overflow(contexts, ledger->file->hardware.context_overhead, &bytes))
        return UINT64_MAX;
    return bytes;
}

uint64_t ledger_room(struct ledger *ledger, unsigned device)
{
    uint64_t used =
        add_saturate(ledger->file->devices[device].charged, ledger_context_bytes(ledger, device));

    return sub_saturate(ledger->file->hardware.capacity[device], used);
}
