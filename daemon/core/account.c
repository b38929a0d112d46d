/*
 * Every change of an account goes through account_change(), which keeps the device's sums in step:
 * a step never walks tenants or chunks to learn a sum. Subtractions are checked: a sum that would
 * go below zero is a fault of ours, stops a debug build, and stays at zero in any other.
 */
#include "daemon/core/account.h"
#include "daemon/core/change.h"

#include <assert.h>
#include <string.h>

static void sum_sub(uint64_t *sum, uint64_t bytes)
{
    assert(*sum >= bytes);
    *sum = sub_saturate(*sum, bytes);
}

static void sum_add(uint64_t *sum, uint64_t bytes)
{
    assert(*sum <= UINT64_MAX - bytes);
    *sum = add_saturate(*sum, bytes);
}

uint64_t account_unused_min(const struct account *account)
{
    return sub_saturate(account->limits.min, account->used);
}

uint64_t account_spare(const struct account *account)
{
    return MIN(account->bytes[CHUNK_CACHED], sub_saturate(account->used, account->limits.min));
}

/* Around each change of what account_spare() depends on. */
static void spare_leave(struct account *account)
{
    sum_sub(&account->device->spare, account_spare(account));
}

static void spare_enter(struct account *account)
{
    sum_add(&account->device->spare, account_spare(account));
    account_touch(account);
}

void account_touch(struct account *account)
{
    if (account->tenant && !list_linked(&account->touched_link))
        list_append(&account->device->touched, &account->touched_link);
}

static void account_change(struct account *account, uint64_t add_bytes, uint64_t sub_bytes)
{
    struct device *device = account->device;
    uint64_t before = account_unused_min(account);

    sum_add(&account->used, add_bytes);
    sum_sub(&account->used, sub_bytes);
    sum_add(&device->owned, add_bytes);
    sum_sub(&device->owned, sub_bytes);
    account->peak = MAX(account->peak, account->used);
    sum_add(&device->unused_min, account_unused_min(account));
    sum_sub(&device->unused_min, before);
    assert(device->owned <= device->capacity);
}

void account_init(struct account *account, struct tenant *tenant, struct device *device)
{
    *account = (struct account){.tenant = tenant, .device = device};
    account->limits.high = account->limits.max = UINT64_MAX;
    list_init(&account->pools);
    list_init(&account->idle);
    list_init(&account->releasing);
    list_init(&account->waiting);
    list_init(&account->idle_link);
    list_init(&account->releasing_link);
    list_init(&account->waiting_link);
    list_init(&account->suspect_link);
    list_init(&account->over_link);
    list_init(&account->supply);
    list_init(&account->supply_link);
    list_init(&account->touched_link);
}

void account_done(struct account *account)
{
    assert(account->used == 0);
    assert(account->suspects == 0);
    assert(list_empty(&account->waiting));
    list_remove(&account->over_link);
    account_set_limits(account, &(struct core_memory_limits){0});
    list_remove(&account->touched_link);
}

void account_set_limits(struct account *account, const struct core_memory_limits *limits)
{
    struct device *device = account->device;

    spare_leave(account);
    sum_sub(&device->unused_min, account_unused_min(account));
    sum_sub(&device->min_sum, account->limits.min);
    account->limits = *limits;
    sum_add(&device->min_sum, account->limits.min);
    sum_add(&device->unused_min, account_unused_min(account));
    spare_enter(account);
}

void charge_take(
    struct charge *charge, struct account *account, enum chunk_state heading, uint64_t bytes)
{
    assert(!charge->account);
    *charge = (struct charge){account, bytes, heading};
    spare_leave(account);
    sum_add(&account->bytes[heading], bytes);
    sum_add(&account->device->bytes[heading], bytes);
    account_change(account, bytes, 0);
    spare_enter(account);
}

void charge_move(struct charge *charge, struct account *account, enum chunk_state heading)
{
    struct account *from = charge->account;
    uint64_t bytes = charge->bytes;

    assert(from->device == account->device);
    spare_leave(from);
    if (from != account)
        spare_leave(account);
    sum_sub(&from->bytes[charge->heading], bytes);
    sum_sub(&from->device->bytes[charge->heading], bytes);
    sum_add(&account->bytes[heading], bytes);
    sum_add(&account->device->bytes[heading], bytes);
    if (from != account) {
        account_change(from, 0, bytes);
        account_change(account, bytes, 0);
        spare_enter(account);
    }
    spare_enter(from);
    charge->account = account;
    charge->heading = heading;
}

void charge_release(struct charge *charge)
{
    struct account *account = charge->account;

    if (!account)
        return;
    spare_leave(account);
    sum_sub(&account->bytes[charge->heading], charge->bytes);
    sum_sub(&account->device->bytes[charge->heading], charge->bytes);
    account_change(account, 0, charge->bytes);
    spare_enter(account);
    *charge = (struct charge){0};
}

void suspect_add(struct account *account, uint64_t bytes, uint64_t now_ns, uint64_t grace_ns)
{
    struct device *device = account->device;
    struct suspect *last = account->young_count ? &account->young[account->young_count - 1] : NULL;

    if (bytes == 0)
        return;
    spare_leave(account);
    account_change(account, bytes, 0);
    spare_enter(account);
    change_account(account);
    sum_add(&account->suspects, bytes);
    sum_add(&device->suspects, bytes);
    if (!list_linked(&account->suspect_link))
        list_append(&device->suspect_accounts, &account->suspect_link);
    /* A slice takes what comes within its time; the last record takes what finds no other room. */
    if (last && (now_ns - last->since_ns <= grace_ns / SUSPECT_SLICES ||
                    account->young_count == SUSPECT_RECORDS)) {
        last->bytes += bytes;
        return;
    }
    account->young[account->young_count++] = (struct suspect){bytes, now_ns};
}

static void young_drop_first(struct account *account)
{
    account->young_count--;
    memmove(account->young, account->young + 1, account->young_count * sizeof(struct suspect));
}

uint64_t suspect_young(const struct account *account)
{
    return account->suspects - account->orphaned;
}

/* Takes bytes off the account's oldest record; how many these were. */
static uint64_t suspect_credit_account(struct account *account, uint64_t bytes)
{
    struct device *device = account->device;
    uint64_t back;

    if (account->orphaned > 0) {
        back = MIN(account->orphaned, bytes);
        sum_sub(&account->orphaned, back);
        sum_sub(&device->orphaned, back);
    } else {
        back = MIN(account->young[0].bytes, bytes);
        sum_sub(&account->young[0].bytes, back);
        if (account->young[0].bytes == 0)
            young_drop_first(account);
    }
    change_account(account);
    sum_sub(&account->suspects, back);
    sum_sub(&device->suspects, back);
    spare_leave(account);
    account_change(account, 0, back);
    spare_enter(account);
    if (account->suspects == 0)
        list_remove(&account->suspect_link);
    return back;
}

void suspect_take(struct account *account, uint64_t bytes)
{
    while (bytes > 0 && account->suspects > 0)
        bytes -= suspect_credit_account(account, bytes);
}

static uint64_t suspect_since(const struct account *account)
{
    return account->orphaned > 0 ? account->orphaned_since_ns : account->young[0].since_ns;
}

void suspect_credit(struct device *device, uint64_t bytes)
{
    while (bytes > 0 && device->suspects > 0) {
        struct account *oldest = NULL;

        list_for_each(account, &device->suspect_accounts, struct account, suspect_link)
        {
            if (!oldest || suspect_since(account) < suspect_since(oldest))
                oldest = account;
        }
        if (!oldest)
            return;
        bytes -= suspect_credit_account(oldest, bytes);
    }
}

uint64_t suspect_age(struct device *device, uint64_t now_ns, uint64_t grace_ns)
{
    /* Until the youngest byte of a slice has had its time. */
    uint64_t span_ns = add_saturate(grace_ns, grace_ns / SUSPECT_SLICES);
    uint64_t next_ns = CLOCK_NEVER;

    list_for_each(account, &device->suspect_accounts, struct account, suspect_link)
    {
        while (account->young_count > 0) {
            struct suspect first = account->young[0];
            uint64_t due_ns = add_saturate(first.since_ns, span_ns);

            if (due_ns > now_ns) {
                next_ns = MIN(next_ns, due_ns);
                break;
            }
            if (account->orphaned == 0)
                account->orphaned_since_ns = first.since_ns;
            sum_add(&account->orphaned, first.bytes);
            sum_add(&device->orphaned, first.bytes);
            young_drop_first(account);
        }
    }
    return next_ns;
}

uint64_t device_unaccounted(const struct device *device)
{
    uint64_t others = add_saturate(device->others, device->hold);
    uint64_t beyond = sub_saturate(others, add_saturate(device->reserve, device->stuck));

    return MIN(beyond, device->capacity - device->owned);
}

uint64_t device_hold_lacking(const struct device *device)
{
    uint64_t others = add_saturate(device->others, device->hold);
    uint64_t known = add_saturate(device->reserve, device->stuck);
    uint64_t returning = device->bytes[CHUNK_RELEASING] + device->bytes[CHUNK_RELEASED];
    uint64_t present = device->capacity - device->owned + returning;

    return device->hold == 0 ? 0 : sub_saturate(sub_saturate(others, known), present);
}

uint64_t device_free(const struct device *device)
{
    return device->capacity - device->owned - device_unaccounted(device);
}

uint64_t device_held(const struct device *device)
{
    return device->bytes[CHUNK_CLEAN] + device->bytes[CHUNK_LEASED] + device->bytes[CHUNK_CACHED] +
           device->bytes[CHUNK_RELEASING] - device->stuck;
}

uint64_t account_idle(const struct account *account)
{
    return account->bytes[CHUNK_CACHED] + account->bytes[CHUNK_CLEAN];
}

uint64_t account_returning(const struct account *account)
{
    return account->bytes[CHUNK_RELEASING] + account->bytes[CHUNK_RELEASED];
}
