/* What the ledger says to who asks: memory, processes, names. See ledger_file.h. */
#include "gpu/sim/ledger_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int ledger_memory(struct ledger *ledger, unsigned device, struct ledger_memory *ret)
{
    int r;

    if (device >= SIM_DEVICES_MAX)
        return -EINVAL;
    r = ledger_lock(ledger);
    if (r < 0)
        return r;
    ledger_collect_dead(ledger);
    ledger_collect_unowned(ledger, device);
    ret->total = ledger->file->hardware.capacity[device];
    ret->free = ledger_room(ledger, device);
    ret->used = ret->total - ret->free;
    ledger_unlock(ledger);
    return 0;
}

/* Bytes of the chunks of one process on one device. */
static uint64_t proc_bytes(struct ledger *ledger, uint32_t proc, unsigned device)
{
    uint32_t slot = ledger->file->procs[proc].owned;
    uint32_t left = LEDGER_CHUNKS_MAX;
    uint64_t bytes = 0;

    for (; slot != LEDGER_NONE && left > 0; left--) {
        const struct ledger_chunk *chunk = ledger_slot(ledger, slot);

        if (chunk == NULL)
            break;
        if (chunk->device == device)
            bytes = add_saturate(bytes, chunk->bytes);
        slot = chunk->next;
    }
    return bytes;
}

int ledger_processes(
    struct ledger *ledger, unsigned device, struct ledger_process *ret, unsigned size)
{
    struct ledger_file *file = ledger->file;
    unsigned count = 0;
    uint64_t contexts;
    int r;

    if (device >= SIM_DEVICES_MAX)
        return -EINVAL;
    r = ledger_lock(ledger);
    if (r < 0)
        return r;
    ledger_collect_dead(ledger);
    for (uint32_t i = 0; i < MIN(file->procs_high, LEDGER_PROCS_MAX); i++) {
        const struct ledger_proc *proc = &file->procs[i];

        if (proc->used == 0 || proc->contexts[device] == 0)
            continue;
        if (count < size) {
            if (__builtin_mul_overflow(
                    (uint64_t) proc->contexts[device], file->hardware.context_overhead, &contexts))
                contexts = UINT64_MAX;
            ret[count] = (struct ledger_process){
                .pid = proc->pid, .used = add_saturate(proc_bytes(ledger, i, device), contexts)};
        }
        count++;
    }
    ledger_unlock(ledger);
    return (int) count;
}

struct uuid ledger_uuid(unsigned device)
{
    /* Version 4, variant 1, as real ones are. */
    struct uuid uuid = {{'g', 'm', 'b', 's', 'i', 'm', 0x40, 0x00, 0x80}};

    /* The first group tells devices apart, as that of real ones nearly always does. */
    uuid.bytes[3] = (uint8_t) (uuid.bytes[3] + device);
    uuid.bytes[UUID_BYTES - 1] = (uint8_t) device;
    return uuid;
}

char *ledger_uuid_text(
    const struct sim_hardware *hardware, unsigned device, char text[UUID_TEXT_MAX])
{
    struct uuid uuid = ledger_uuid(device);

    uuid_format(text, &uuid);
    if (sim_device_mig(hardware, device))
        memcpy(text, "MIG-", 4);
    return text;
}
