/*
 * The processes on the ledger: registering, contexts, fork. See ledger_file.h.
 *
 * A forked child shares its parent's open file descriptions and with them its locks; it closes
 * them at once, so that the parent's death shows while the child lives.
 */
#include "gpu/sim/ledger_file.h"

#include <errno.h>
#include <fcntl.h>

void ledger_fork_prepare(struct ledger *ledger)
{
    pthread_mutex_lock(&ledger->mutex);
}

void ledger_fork_parent(struct ledger *ledger)
{
    pthread_mutex_unlock(&ledger->mutex);
}

void ledger_fork_child(struct ledger *ledger)
{
    close_fd(&ledger->procs_fd);
    close_fd(&ledger->fd);
    close_fd(&ledger->dir);
    pthread_mutex_unlock(&ledger->mutex);
}

static int proc_lock(struct ledger *ledger, uint32_t proc)
{
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t) proc, .l_len = 1};

    return fcntl(ledger->procs_fd, F_OFD_SETLK, &lock) < 0 ? -errno : 0;
}

/* True when nobody lives on the node and nothing is charged. */
static bool node_idle(struct ledger *ledger)
{
    for (unsigned i = 0; i < ledger->file->hardware.devices && i < SIM_DEVICES_MAX; i++) {
        ledger_collect_unowned(ledger, i);
        if (ledger->file->devices[i].charged != 0)
            return false;
    }
    return ledger->file->procs_high == 0;
}

static int proc_claim(struct ledger *ledger)
{
    struct ledger_file *file = ledger->file;

    for (uint32_t i = 0; i < LEDGER_PROCS_MAX; i++) {
        int r;

        if (i >= file->procs_high && i % LEDGER_STEP == 0) {
            r = ledger_back(ledger, &file->procs[i], LEDGER_STEP * sizeof(file->procs[i]));
            if (r < 0)
                return r;
        }
        if (i < file->procs_high && file->procs[i].used != 0)
            continue;
        /* Locked though unused: its process is about to go, or another ledger of ours. */
        if (proc_lock(ledger, i) < 0)
            continue;
        ledger_change(ledger);
        file->procs[i] =
            (struct ledger_proc){.used = 1, .pid = (int32_t) getpid(), .owned = LEDGER_NONE};
        if (file->procs_high <= i)
            file->procs_high = i + 1;
        ledger_changed(ledger);
        ledger->self = i;
        return 0;
    }
    return -EUSERS;
}

int ledger_register(struct ledger *ledger, const struct sim_config *config)
{
    int r;

    r = ledger_lock(ledger);
    if (r < 0)
        return r;
    if (ledger->self == LEDGER_NONE) {
        ledger_collect_dead(ledger);
        if (node_idle(ledger))
            r = ledger_configure(ledger, &config->hardware);
        if (r == 0)
            r = proc_claim(ledger);
    }
    ledger_unlock(ledger);
    return r;
}

void ledger_hardware(struct ledger *ledger, struct sim_hardware *ret)
{
    pthread_mutex_lock(&ledger->mutex);
    *ret = ledger->file->hardware;
    pthread_mutex_unlock(&ledger->mutex);
    /* The file may say anything: what the callers index with is bounded here. */
    ret->devices = MIN(ret->devices, (unsigned) SIM_DEVICES_MAX);
    if (ret->granularity < 4096 || (ret->granularity & (ret->granularity - 1)) != 0)
        ret->granularity = UINT64_C(2) << 20;
}

int ledger_context_begin(struct ledger *ledger, unsigned device)
{
    uint16_t *contexts;
    int r;

    if (ledger->self == LEDGER_NONE || device >= SIM_DEVICES_MAX)
        return -EINVAL;
    r = ledger_lock(ledger);
    if (r < 0)
        return r;
    contexts = &ledger->file->procs[ledger->self].contexts[device];
    if (*contexts == UINT16_MAX)
        r = -ENOMEM;
    else
        r = ledger_make_room(ledger, device, ledger->file->hardware.context_overhead);
    if (r == 0)
        (*contexts)++;
    ledger_unlock(ledger);
    return r;
}

void ledger_context_end(struct ledger *ledger, unsigned device)
{
    uint16_t *contexts;

    if (ledger->self == LEDGER_NONE || device >= SIM_DEVICES_MAX || ledger_lock(ledger) < 0)
        return;
    contexts = &ledger->file->procs[ledger->self].contexts[device];
    if (*contexts > 0)
        (*contexts)--;
    ledger_unlock(ledger);
}
