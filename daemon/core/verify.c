/*
 * The driver says that it released a chunk, but the memory is free only when the last holder of the
 * chunk has let go, wherever that is. So the core compares: at each look,
 *
 *     in use by others = total - free - held,      held = what the driver holds for us
 *
 * must be what it was before (`others`, contexts and the like) plus the suspects (bytes released
 * and not come back). Releases go in epochs of one account each: look, release, look. What the last
 * look shows in excess of the first is missing; it may just be late, so the core looks again after
 * 1, 2, 4 … ms, at most verify_window_ns. Then the missing bytes become suspects, still charged to
 * the account, and later looks that show less than expected give them back, oldest first. An
 * account whose last epoch ended with bytes missing gets no window: it can't hold up the others.
 *
 * One epoch at a time, accounts in turn, so that what is missing has one owner. What it cannot tell
 * apart is another process that takes memory within an epoch: these bytes are charged, at most the
 * epoch's size, until as many are free again.
 *
 * Of a device that failed nothing is asked: what was released there is taken for free.
 */
#include "daemon/core/verify.h"

#include <assert.h>

#include "daemon/core/account.h"
#include "daemon/core/answer.h"
#include "daemon/core/change.h"
#include "daemon/core/chunk.h"
#include "daemon/core/states.h"

#define EPOCH_CHUNKS 64
#define FIRST_PAUSE_NS NSEC_PER_MSEC
/* Routine looks while there are suspects: soon, then less and less often. */
#define SUSPECT_PAUSE_NS (100 * NSEC_PER_MSEC)
#define SUSPECT_PAUSE_MAX_NS NSEC_PER_SEC

static void look(struct core *core, struct device *device)
{
    answer_add(core, CORE_ACTION_MEMORY_OBSERVE)->device.device = device->index;
    device->looks++;
}

static void epoch_start(struct core *core, struct device *device)
{
    struct verify *verify = &device->verify;
    struct account *account =
        list_first(&device->releasing_accounts, struct account, releasing_link);
    uint32_t count = 0;

    look(core, device);
    while (count < EPOCH_CHUNKS && !list_empty(&account->releasing)) {
        struct chunk *chunk = list_first(&account->releasing, struct chunk, link);
        struct core_action *action = answer_add(core, CORE_ACTION_CHUNK_RELEASE);

        list_remove(&chunk->link);
        list_append(&verify->chunks, &chunk->link);
        chunk->issued = true;
        action->chunk.device = device->index;
        action->chunk.chunk = chunk->slot.number;
        action->chunk.generation = chunk->slot.generation;
        action->chunk.bytes = chunk->charge.bytes;
        count++;
    }
    look(core, device);
    list_remove(&account->releasing_link);
    if (!list_empty(&account->releasing))
        list_append(&device->releasing_accounts, &account->releasing_link);
    verify->phase = VERIFY_RELEASING;
    verify->account = account;
    verify->unanswered = count;
    verify->pause_ns = FIRST_PAUSE_NS;
    verify->look_ns = CLOCK_NEVER;
}

void verify_work(struct core *core, struct device *device)
{
    struct verify *verify = &device->verify;

    switch (verify->phase) {
    case VERIFY_IDLE:
        if (!list_empty(&device->releasing_accounts)) {
            if (answer_room(core) < EPOCH_CHUNKS + 2)
                core->more = true;
            else
                epoch_start(core, device);
        } else if (device->looks == 0 && device->observe_ns <= core->now_ns && !device->failed) {
            if (answer_room(core) == 0)
                core->more = true;
            else
                look(core, device);
        }
        break;
    case VERIFY_LOOKING:
        if (verify->look_ns > core->now_ns)
            break;
        if (answer_room(core) == 0) {
            core->more = true;
            break;
        }
        look(core, device);
        verify->look_ns = CLOCK_NEVER;
        break;
    case VERIFY_RELEASING:
    case VERIFY_PHASE_MAX:
        break;
    }
}

uint64_t verify_due(const struct device *device)
{
    switch (device->verify.phase) {
    case VERIFY_IDLE:
        return device->looks == 0 && !device->failed ? device->observe_ns : CLOCK_NEVER;
    case VERIFY_LOOKING:
        return device->verify.look_ns;
    case VERIFY_RELEASING:
    case VERIFY_PHASE_MAX:
        break;
    }
    return CLOCK_NEVER;
}

void verify_released(struct core *core, struct chunk *chunk)
{
    struct account *account = chunk->charge.account;
    struct verify *verify = &account->device->verify;

    if (chunk->state != CHUNK_RELEASING || !chunk->issued)
        return;
    assert(verify->phase == VERIFY_RELEASING && verify->account == account);
    chunk_set_state(chunk, CHUNK_RELEASED, account);
    if (--verify->unanswered > 0)
        return;
    verify->phase = VERIFY_LOOKING;
    verify->started_ns = core->now_ns;
}

/* `missing` of the epoch's bytes stay charged as suspects, the others are free. */
static void epoch_end(struct core *core, struct device *device, uint64_t missing)
{
    struct account *account = device->verify.account;

    while (!list_empty(&device->verify.chunks))
        chunk_end(core, list_first(&device->verify.chunks, struct chunk, link));
    suspect_add(account, missing, core->now_ns, core->options.orphan_grace_ns);
    account->leaks = missing > 0;
    if (missing > 0)
        verify_look_soon(core, device);
    device->verify.phase = VERIFY_IDLE;
    device->verify.account = NULL;
}

/* The look after an epoch's releases. True when the epoch is over. */
static bool epoch_look(struct core *core, struct device *device, uint64_t missing)
{
    struct verify *verify = &device->verify;
    uint64_t window_ns = verify->account->leaks ? 0 : core->options.verify_window_ns;

    if (missing > 0 && core->now_ns - verify->started_ns < window_ns) {
        verify->look_ns = add_saturate(core->now_ns, verify->pause_ns);
        verify->pause_ns = add_saturate(verify->pause_ns, verify->pause_ns);
        return false;
    }
    epoch_end(core, device, missing);
    return true;
}

/* When the next routine look is due. */
static void routine_next(struct core *core, struct device *device)
{
    uint64_t pause_ns = core->options.observe_ns;

    if (device->suspects > 0) {
        pause_ns = MIN(pause_ns, device->observe_pause_ns);
        device->observe_pause_ns = MIN(2 * device->observe_pause_ns, SUSPECT_PAUSE_MAX_NS);
    }
    device->observe_ns = add_saturate(core->now_ns, pause_ns);
}

static void others_set(struct device *device, uint64_t bytes)
{
    if (device->others != bytes)
        change_account(&device->nobody);
    device->others = bytes;
}

void verify_observed(struct core *core, struct device *device, uint64_t free_bytes)
{
    uint64_t released = device->bytes[CHUNK_RELEASED];
    uint64_t expected = add_saturate(device->others, device->suspects);
    uint64_t in_use = sub_saturate(sub_saturate(device->total, free_bytes), device_held(device));
    uint64_t missing = MIN(released, sub_saturate(in_use, expected));
    bool known = free_bytes <= device->total && !device->failed;

    if (device->looks == 0)
        return; /* nobody asked */
    device->looks--;
    device->hold_looks -= device->hold_looks > 0;
    routine_next(core, device);
    if (known && in_use < expected)
        suspect_credit(device, expected - in_use);
    if (device->verify.phase == VERIFY_RELEASING && released > 0)
        return; /* amid the releases: says nothing */
    if (device->verify.phase == VERIFY_LOOKING && device->looks == 0 &&
        !epoch_look(core, device,
            device->failed ? 0
            : known        ? missing
                           : released))
        return;
    if (known && device->bytes[CHUNK_RELEASED] == 0) {
        others_set(device, sub_saturate(in_use, device->suspects));
        if (device->hold_wanted > device->hold || device->hold_looks == 0)
            device->hold = device->hold_wanted;
    }
    device->drain = true;
}

void verify_look_soon(struct core *core, struct device *device)
{
    device->observe_pause_ns = SUSPECT_PAUSE_NS;
    device->observe_ns = MIN(device->observe_ns, add_saturate(core->now_ns, SUSPECT_PAUSE_NS));
}
