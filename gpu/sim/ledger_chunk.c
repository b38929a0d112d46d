/*
 * A chunk's life on the ledger: created, exported, identified, adopted, dropped.
 * See ledger_file.h.
 *
 * A slot belongs to the process that owns its chunk: only that one gives it up. Who holds an fd
 * of a chunk knows that its slot isn't used again meanwhile, and may read it without the
 * node-wide lock: an import by a process that is stopped in the middle stops nobody.
 */
#include "gpu/sim/ledger_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

int ledger_make_room(struct ledger *ledger, unsigned device, uint64_t bytes)
{
    if (ledger_room(ledger, device) >= bytes)
        return 0;
    ledger_collect_dead(ledger);
    ledger_collect_unowned(ledger, device);
    return ledger_room(ledger, device) >= bytes ? 0 : -ENOMEM;
}

/* A slot for a new chunk, out of the chain or never used before. */
static int slot_take(struct ledger *ledger, uint32_t *ret_slot)
{
    struct ledger_file *file = ledger->file;
    struct ledger_chunk *chunk = ledger_slot(ledger, file->free);
    uint32_t high = MIN(file->chunks_high, LEDGER_CHUNKS_MAX);

    if (chunk != NULL && chunk->state == CHUNK_FREE) {
        *ret_slot = file->free;
        file->free = chunk->next;
        return 0;
    }
    if (file->free != LEDGER_NONE)
        file->doubt = 1;
    if (high == LEDGER_CHUNKS_MAX)
        return -ENOSPC;
    if (high % LEDGER_STEP == 0) {
        int r = ledger_back(ledger, &file->chunks[high], LEDGER_STEP * sizeof(file->chunks[0]));
        if (r < 0)
            return r;
    }
    file->chunks_high = high + 1;
    *ret_slot = high;
    return 0;
}

static int chunk_charge(struct ledger *ledger, struct ledger_chunk_info *info)
{
    struct ledger_chunk *chunk;
    uint64_t *charged;
    uint32_t slot;
    int r;

    ledger_change(ledger);
    r = slot_take(ledger, &slot);
    if (r == 0) {
        chunk = &ledger->file->chunks[slot];
        *chunk = (struct ledger_chunk){
            .device = (uint8_t) info->device,
            .handle_types = info->handle_types,
            .flags = info->flags,
            .owner = ledger->self,
            .generation = chunk->generation + 1,
            .bytes = info->bytes,
        };
        charged = &ledger->file->devices[info->device].charged;
        *charged = add_saturate(*charged, info->bytes);
        __atomic_store_n(&chunk->state, CHUNK_OWNED, __ATOMIC_RELEASE);
        ledger_link(ledger, slot);
        info->id = (struct ledger_id){.slot = slot, .generation = chunk->generation};
    }
    ledger_changed(ledger);
    return r;
}

int ledger_chunk_create(struct ledger *ledger, struct ledger_chunk_info *info)
{
    uint64_t inode;
    int r;

    if (ledger->self == LEDGER_NONE || info->device >= SIM_DEVICES_MAX || info->bytes == 0)
        return -EINVAL;
    r = ledger_lock(ledger);
    if (r < 0)
        return r;
    if (info->device >= ledger->file->hardware.devices)
        r = -ENODEV;
    if (r == 0)
        r = ledger_make_room(ledger, info->device, info->bytes);
    if (r == 0)
        r = chunk_charge(ledger, info);
    ledger_unlock(ledger);
    if (r < 0)
        return r;
    /* The slot is this process's: the file needs no lock. */
    r = ledger_data_make(ledger, info, &inode);
    if (r < 0) {
        ledger_chunk_drop(ledger, info->id, false);
        return r;
    }
    __atomic_store_n(&ledger->file->chunks[info->id.slot].inode, inode, __ATOMIC_RELAXED);
    return 0;
}

void ledger_chunk_drop(struct ledger *ledger, struct ledger_id id, bool shared)
{
    struct ledger_chunk *chunk;

    if (ledger_lock(ledger) < 0)
        return;
    chunk = ledger_slot(ledger, id.slot);
    if (chunk != NULL && chunk->generation == id.generation && chunk->state == CHUNK_OWNED &&
        chunk->owner == ledger->self) {
        bool delayed = ledger->file->hardware.free_delay_ns > 0;

        ledger_change(ledger);
        ledger_unlink(ledger, id.slot);
        if (shared || delayed) {
            chunk->state = CHUNK_UNOWNED;
            ledger_link(ledger, id.slot);
            (void) ledger_chunk_probe(ledger, id.slot);
        } else {
            ledger_chunk_free(ledger, id.slot);
        }
        ledger_changed(ledger);
    }
    ledger_unlock(ledger);
}

bool ledger_chunk_adopt(struct ledger *ledger, struct ledger_id id)
{
    struct ledger_chunk *chunk;
    bool adopted = false;

    if (ledger->self == LEDGER_NONE || !ledger_chunk_ownerless(ledger, id) ||
        ledger_lock(ledger) < 0)
        return false;
    chunk = ledger_slot(ledger, id.slot);
    if (chunk != NULL && chunk->generation == id.generation && chunk->state == CHUNK_OWNED &&
        chunk->owner < LEDGER_PROCS_MAX && !ledger_proc_alive(ledger, chunk->owner)) {
        ledger_change(ledger);
        ledger_proc_end(ledger, chunk->owner);
        ledger_changed(ledger);
    }
    if (chunk != NULL && chunk->generation == id.generation && chunk->state == CHUNK_UNOWNED) {
        ledger_change(ledger);
        ledger_unlink(ledger, id.slot);
        chunk->owner = ledger->self;
        chunk->free_after_ns = 0;
        chunk->state = CHUNK_OWNED;
        ledger_link(ledger, id.slot);
        ledger_changed(ledger);
        adopted = true;
    }
    ledger_unlock(ledger);
    return adopted;
}
