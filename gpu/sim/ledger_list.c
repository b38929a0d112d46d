/*
 * Lists and sums of the ledger, and how they are derived anew. See ledger_file.h.
 *
 * A link that leads nowhere sensible raises `doubt`: the change in progress goes on with what it
 * has, and the next one who takes the lock recounts.
 */
#include "gpu/sim/ledger_file.h"

void ledger_change(struct ledger *ledger)
{
    __atomic_store_n(&ledger->file->dirty, 1, __ATOMIC_SEQ_CST);
}

void ledger_changed(struct ledger *ledger)
{
    uint32_t doubt = ledger->file->doubt;

    ledger->file->doubt = 0;
    __atomic_store_n(&ledger->file->dirty, doubt, __ATOMIC_SEQ_CST);
}

struct ledger_chunk *ledger_slot(struct ledger *ledger, uint32_t slot)
{
    struct ledger_file *file = ledger->file;

    if (slot >= MIN(file->chunks_high, LEDGER_CHUNKS_MAX))
        return NULL;
    return &file->chunks[slot];
}

/* The head of the list that the chunk's state says it is in; NULL when the state is nonsense. */
static uint32_t *list_head(struct ledger *ledger, const struct ledger_chunk *chunk)
{
    struct ledger_file *file = ledger->file;

    if (chunk->device >= SIM_DEVICES_MAX)
        return NULL;
    if (chunk->state == CHUNK_UNOWNED)
        return &file->devices[chunk->device].unowned;
    if (chunk->state == CHUNK_OWNED && chunk->owner < LEDGER_PROCS_MAX)
        return &file->procs[chunk->owner].owned;
    return NULL;
}

void ledger_unlink(struct ledger *ledger, uint32_t slot)
{
    struct ledger_chunk *chunk = ledger_slot(ledger, slot);
    uint32_t *head = list_head(ledger, chunk);
    struct ledger_chunk *prev = ledger_slot(ledger, chunk->prev);
    struct ledger_chunk *next = ledger_slot(ledger, chunk->next);

    if (prev != NULL)
        prev->next = chunk->next;
    else if (chunk->prev == LEDGER_NONE && head != NULL && *head == slot)
        *head = chunk->next;
    else
        ledger->file->doubt = 1;
    if (next != NULL)
        next->prev = chunk->prev;
    else if (chunk->next != LEDGER_NONE)
        ledger->file->doubt = 1;
    chunk->next = LEDGER_NONE;
    chunk->prev = LEDGER_NONE;
}

void ledger_link(struct ledger *ledger, uint32_t slot)
{
    struct ledger_chunk *chunk = ledger_slot(ledger, slot);
    uint32_t *head = list_head(ledger, chunk);
    struct ledger_chunk *next;

    chunk->prev = LEDGER_NONE;
    chunk->next = LEDGER_NONE;
    if (head == NULL) {
        ledger->file->doubt = 1;
        return;
    }
    next = ledger_slot(ledger, *head);
    if (next != NULL) {
        next->prev = slot;
        chunk->next = *head;
    }
    *head = slot;
}

void ledger_chunk_free(struct ledger *ledger, uint32_t slot)
{
    struct ledger_chunk *chunk = ledger_slot(ledger, slot);
    char path[32];

    if (chunk->device < SIM_DEVICES_MAX) {
        uint64_t *charged = &ledger->file->devices[chunk->device].charged;

        ledger_chunk_path(path, chunk->device, slot);
        /* Not there when its creator was killed before it made the file. */
        (void) unlinkat(ledger->dir, path, 0);
        if (*charged < chunk->bytes)
            ledger->file->doubt = 1;
        *charged = sub_saturate(*charged, chunk->bytes);
    }
    chunk->state = CHUNK_FREE;
    chunk->next = ledger->file->free;
    chunk->prev = LEDGER_NONE;
    ledger->file->free = slot;
}

/* A slot as it must be from its state alone; false when it holds no chunk. */
static bool slot_check(struct ledger *ledger, struct ledger_chunk *chunk)
{
    if (chunk->state != CHUNK_OWNED && chunk->state != CHUNK_UNOWNED)
        return false;
    if (chunk->device >= ledger->file->hardware.devices || chunk->bytes == 0)
        return false;
    if (chunk->state == CHUNK_OWNED &&
        (chunk->owner >= LEDGER_PROCS_MAX || ledger->file->procs[chunk->owner].used == 0))
        chunk->state = CHUNK_UNOWNED;
    return true;
}

void ledger_recount(struct ledger *ledger)
{
    struct ledger_file *file = ledger->file;

    file->chunks_high = MIN(file->chunks_high, LEDGER_CHUNKS_MAX);
    file->procs_high = MIN(file->procs_high, LEDGER_PROCS_MAX);
    file->hardware.devices = MIN(file->hardware.devices, (unsigned) SIM_DEVICES_MAX);
    file->free = LEDGER_NONE;
    for (unsigned i = 0; i < SIM_DEVICES_MAX; i++)
        file->devices[i] = (struct ledger_device){.unowned = LEDGER_NONE};
    for (uint32_t i = 0; i < file->procs_high; i++)
        file->procs[i].owned = LEDGER_NONE;
    for (uint32_t slot = file->chunks_high; slot-- > 0;) {
        struct ledger_chunk *chunk = &file->chunks[slot];

        if (slot_check(ledger, chunk)) {
            uint64_t *charged = &file->devices[chunk->device].charged;

            ledger_link(ledger, slot);
            *charged = add_saturate(*charged, chunk->bytes);
        } else {
            chunk->state = CHUNK_FREE;
            chunk->next = file->free;
            chunk->prev = LEDGER_NONE;
            file->free = slot;
        }
    }
    file->doubt = 0;
    __atomic_store_n(&file->dirty, 0, __ATOMIC_SEQ_CST);
}
