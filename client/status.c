/*
 * Reading shared memory that another process writes. Each word is loaded once, whole, and nothing
 * of it is believed without a bound. The loads are acquiring, so that none of a copy's words is
 * read after the number that confirms the copy.
 */
#include "client/status.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "client/fork.h"

#define _rare_ __attribute__((noinline, cold))
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/* Without a single one of these a page could change its size or lose its bytes while we read. */
#define SEALS_WANTED (F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE)
/* A broker changes an entry once in STATUS_INTERVAL_NS: two tries do, where it keeps to that. */
#define TRIES_MAX 64

/* Four bits of a head; never more than there are. */
static uint32_t head_level(uint64_t head, unsigned shift)
{
    return MIN((uint32_t) (head >> shift) & 15u, (uint32_t) GMB_PRESSURE_CRITICAL);
}

int status_map(struct status_view *view, int fd, unsigned entries, struct outcome *outcome)
{
    const uint64_t wanted =
        sizeof(struct status_header) + (uint64_t) entries * sizeof(struct status_entry);
    const struct status_page *page;
    struct stat status;
    int seals = fcntl(fd, F_GET_SEALS);
    void *memory;

    if (seals < 0 || (seals & SEALS_WANTED) != SEALS_WANTED || fstat(fd, &status) < 0)
        return outcome_set(outcome, GMB_E_PROTOCOL, "the broker sent an unsealed status page");
    if (status.st_size < 0 || (uint64_t) status.st_size < wanted)
        return outcome_set(outcome, GMB_E_PROTOCOL,
            "the broker sent a status page of %lld bytes for %u devices",
            (long long) status.st_size, entries);
    memory = mmap(NULL, wanted, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (memory == MAP_FAILED)
        return outcome_set_errno(outcome, errno, "the status page can't be mapped");
    page = memory;
    if (__atomic_load_n(&page->header.magic, __ATOMIC_ACQUIRE) != STATUS_MAGIC ||
        __atomic_load_n(&page->header.entries, __ATOMIC_RELAXED) != entries ||
        __atomic_load_n(&page->header.entry_bytes, __ATOMIC_RELAXED) !=
            sizeof(struct status_entry)) {
        (void) munmap(memory, wanted);
        return outcome_set(
            outcome, GMB_E_PROTOCOL, "the broker sent a status page of another shape");
    }
    *view = (struct status_view){.page = page, .bytes = wanted, .entries = entries};
    return 0;
}

int status_remap(struct status_view *view, int fd, struct outcome *outcome)
{
    struct status_view fresh = {0};
    void *place = (void *) (uintptr_t) view->page;
    int r;

    if (place == NULL)
        return 0;
    r = status_map(&fresh, fd, view->entries, outcome);
    if (r < 0)
        return r;
    /* One step to whoever reads: a page fault meanwhile waits for the end of it. */
    if (mremap((void *) (uintptr_t) fresh.page, fresh.bytes, fresh.bytes,
            MREMAP_MAYMOVE | MREMAP_FIXED, place) != place) {
        status_unmap(&fresh);
        return outcome_set_errno(outcome, errno, "the new status page can't be put in place");
    }
    return 0;
}

void status_unmap(struct status_view *view)
{
    if (view->page != NULL)
        (void) munmap((void *) (uintptr_t) view->page, view->bytes);
    *view = (struct status_view){0};
}

/* Why there is no entry to be read. */
static int entry_refuse(const struct gmb_session *session, unsigned device, struct outcome *outcome)
{
    if (fork_guard_check(session, outcome) < 0)
        return outcome->code;
    if (session->status.page == NULL)
        return outcome_set(
            outcome, GMB_E_UNSUPPORTED, "the broker keeps no status page for its clients");
    return outcome_set(outcome, GMB_E_INVALID, "there is no device %u, the broker has %u", device,
        session->status.entries);
}

/* One whole copy, or false after as many tries as no broker makes necessary. */
static bool copy_try(const struct status_entry *entry, struct status_copy *ret, uint64_t *ret_head)
{
    uint64_t head = __atomic_load_n(&entry->head, __ATOMIC_ACQUIRE), again;

    for (unsigned i = 0; i < TRIES_MAX; i++, head = again) {
        const uint64_t *from = (const uint64_t *) (const void *) &entry->copies[head & 1];
        uint64_t words[sizeof(*ret) / sizeof(uint64_t)];

        for (size_t w = 0; w < ARRAY_SIZE(words); w++)
            words[w] = __atomic_load_n(&from[w], __ATOMIC_ACQUIRE);
        again = __atomic_load_n(&entry->head, __ATOMIC_ACQUIRE);
        if (again == head) {
            __builtin_memcpy(ret, words, sizeof(words));
            *ret_head = head;
            return true;
        }
    }
    return false;
}

static int copy_read(const struct gmb_session *session, unsigned device, struct status_copy *ret,
    uint64_t *ret_head, struct outcome *outcome)
{
    if (!fork_guard_likely(session) || device >= session->status.entries)
        return entry_refuse(session, device, outcome);
    if (!copy_try(&session->status.page->entries[device], ret, ret_head))
        return outcome_set(outcome, GMB_E_PROTOCOL, "the broker's status page never holds still");
    if ((*ret_head & STATUS_FLAG_LIVE) == 0)
        return outcome_set(
            outcome, GMB_E_UNSUPPORTED, "the broker has told nothing of device %u yet", device);
    return 0;
}

static _rare_ int get_refuse(const struct gmb_session *session, unsigned device)
{
    struct outcome outcome = OUTCOME_OK;

    (void) entry_refuse(session, device, &outcome);
    return outcome_publish(&outcome);
}

_public_ int gmb_pressure_get(const gmb_session *session, unsigned device)
{
    /* Without a page there are no entries. */
    if (UNLIKELY(!fork_guard_likely(session) || device >= session->status.entries))
        return get_refuse(session, device);
    return (int) head_level(
        __atomic_load_n(&session->status.page->entries[device].head, __ATOMIC_RELAXED),
        STATUS_LEVEL_SHIFT);
}

static uint32_t flags_of(const struct gmb_session *session, uint64_t head)
{
    uint32_t flags = atomic_load(&session->stale) ? GMB_PRESSURE_STALE : 0;

    flags |= (head & STATUS_FLAG_PAUSE_NEW) != 0 ? GMB_PRESSURE_PAUSE_NEW : 0;
    flags |= (head & STATUS_FLAG_FAILED) != 0 ? GMB_PRESSURE_FAILED : 0;
    return flags;
}

int status_pressure_read(const struct gmb_session *session, unsigned device,
    struct gmb_pressure *ret, struct outcome *outcome)
{
    struct status_copy copy = {0};
    uint64_t head = 0;
    int r = copy_read(session, device, &copy, &head, outcome);

    if (r < 0)
        return r;
    *ret = (struct gmb_pressure){
        .size = sizeof(*ret),
        .level = head_level(head, STATUS_LEVEL_SHIFT),
        .device_level = head_level(head, STATUS_DEVICE_LEVEL_SHIFT),
        .rung = head_level(head, STATUS_RUNG_SHIFT),
        .flags = flags_of(session, head),
        .advice = copy.advice,
        .used_bytes = copy.used,
        .min_bytes = copy.min,
        .low_bytes = copy.low,
        .high_bytes = copy.high,
        .max_bytes = copy.max,
        .headroom_bytes = copy.headroom,
        .reachable_bytes = copy.reachable,
        .some_stall_us = copy.some_total_us,
        .full_stall_us = copy.full_total_us,
        .some_avg10 = copy.some_avg10,
        .some_avg60 = copy.some_avg60,
        .full_avg10 = copy.full_avg10,
        .full_avg60 = copy.full_avg60,
        .wait_estimate_ns = copy.wait_estimate_ns,
        .reject_below = copy.reject_below,
        .waiting = copy.waiting,
        .updated_ns = copy.updated_ns,
    };
    return 0;
}

_public_ int gmb_pressure_read(
    const gmb_session *session, unsigned device, struct gmb_pressure *pressure)
{
    struct outcome outcome = OUTCOME_OK;
    struct gmb_pressure read;

    if (pressure == NULL || pressure->size < sizeof(*pressure))
        (void) outcome_set(&outcome, GMB_E_INVALID, "pressure.size must be sizeof the structure");
    else if (status_pressure_read(session, device, &read, &outcome) == 0)
        *pressure = read;
    return outcome_publish(&outcome);
}

void status_memory(const struct gmb_pressure *pressure, uint64_t capacity_bytes, uint64_t *ret_free,
    uint64_t *ret_total)
{
    uint64_t granted = MIN(pressure->max_bytes, capacity_bytes);
    uint64_t total = MIN(pressure->reachable_bytes, granted);
    bool none = (pressure->flags & (GMB_PRESSURE_FAILED | GMB_PRESSURE_STALE)) != 0;

    *ret_total = total;
    *ret_free = none ? 0 : MIN(pressure->headroom_bytes, total);
}

_public_ int gmb_memory_info(
    const gmb_session *session, unsigned device, uint64_t *ret_free, uint64_t *ret_total)
{
    struct outcome outcome = OUTCOME_OK;
    struct gmb_pressure read;

    if (status_pressure_read(session, device, &read, &outcome) == 0)
        status_memory(&read, session->devices[device].info.capacity_bytes, ret_free, ret_total);
    return outcome_publish(&outcome);
}
