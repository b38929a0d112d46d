/* The ledger as bytes: what is written comes back, and what is damaged harms itself alone. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/ledger/ledger_format.h"
#include "tests/unit/unit.h"

#define MIB (UINT64_C(1) << 20)

static const struct uuid devices[2] = {{.bytes = {1}}, {.bytes = {2}}};

static struct ledger *ledger_make(void)
{
    struct ledger *ledger;

    ck_assert_int_eq(ledger_new(devices, 2, &ledger), 0);
    return ledger;
}

/* What the broker after this one opens. */
static int again(const struct ledger *ledger, const struct uuid *uuids, size_t count,
    struct ledger **ret, uint32_t *ret_version)
{
    int fd = fcntl(ledger_fd(ledger), F_DUPFD_CLOEXEC, 0);
    int r;

    ck_assert_int_ge(fd, 0);
    r = ledger_open(fd, uuids, count, ret, ret_version);
    if (r < 0)
        (void) close(fd);
    return r;
}

static struct ledger *reopen(const struct ledger *ledger)
{
    struct ledger *next;
    uint32_t version;

    ck_assert_int_eq(again(ledger, devices, 2, &next, &version), 0);
    return next;
}

static void put(struct ledger *ledger, const struct ledger_record *record)
{
    ck_assert_int_eq(ledger_write(ledger, record), 0);
}

static const struct ledger_record chunk_record = {.core = {.type = CORE_RECORD_CHUNK,
                                                      .number = 1000000,
                                                      .generation = 3,
                                                      .chunk = {.device = 1,
                                                          .tenant = 4,
                                                          .state = CORE_CHUNK_LEASED,
                                                          .index = 17,
                                                          .forsaken = true,
                                                          .lease = UINT64_C(0x500000006),
                                                          .bytes = 2 * MIB}},
    .chunk_kept = true};
static const struct ledger_record lease_record = {.core = {.type = CORE_RECORD_LEASE,
                                                      .number = 5,
                                                      .generation = 5,
                                                      .lease = {.client = UINT64_C(0x700000008),
                                                          .tenant = 1023,
                                                          .open = true,
                                                          .device = 1,
                                                          .count = 18,
                                                          .max = 0,
                                                          .chunk_bytes = 2 * MIB}},
    .lease = {.page_bytes = 65536, .element = 2, .format = 1, .kept = true, .label = "weights"}};
static const struct ledger_record client_record = {
    .core = {.type = CORE_RECORD_CLIENT, .number = 7, .generation = 7, .client.tenant = 4},
    .client = {.host = UINT64_C(0x1200000034),
        .pid = 4711,
        .start_ticks = 123456,
        .uid = 1000,
        .token = {1, 2, 3},
        .program = "engine"}};
static const struct ledger_record steward_record = {.core = {.type = CORE_RECORD_CLIENT,
                                                        .number = 8,
                                                        .generation = 2,
                                                        .client = {.tenant = 4, .steward = true}}};
static const struct ledger_record tenant_record = {
    .core = {.type = CORE_RECORD_TENANT, .number = 4, .tenant.name = "chat"}};
static const struct ledger_record account_record = {
    .core = {.type = CORE_RECORD_ACCOUNT,
        .number = CORE_NOBODY,
        .account = {
            .device = 1, .suspects_bytes = 4 * MIB, .others_bytes = 300 * MIB, .draining = true}}};
static const struct ledger_record holder_record = {
    .core = {.type = CORE_RECORD_HOLDER,
        .number = 5 * LIMIT_LEASE_HOLDERS + 3,
        .generation = 5,
        .holder = {.open = true, .lease = UINT64_C(0x500000006), .client = UINT64_C(0x700000008)}}};
static const struct ledger_record seat_record = {
    .core = {.type = CORE_RECORD_SEAT,
        .number = LIMIT_SEATS - 1,
        .generation = 7,
        .holder = {.open = true, .lease = UINT64_C(0x500000007), .client = UINT64_C(0x200000009)}}};
static const struct ledger_record gone_record = {
    .core = {.type = CORE_RECORD_CHUNK, .number = 3, .generation = 9, .gone = true}};

static const struct ledger_record *const all[] = {&tenant_record, &account_record, &client_record,
    &steward_record, &lease_record, &holder_record, &seat_record, &gone_record, &chunk_record};

static struct ledger *ledger_full(void)
{
    struct ledger *ledger = ledger_make();

    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        put(ledger, all[i]);
    return ledger;
}

static bool same(const struct ledger_record *a, const struct ledger_record *b)
{
    const struct core_record *x = &a->core, *y = &b->core;

    if (x->type != y->type || x->number != y->number || x->generation != y->generation ||
        x->gone != y->gone)
        return false;
    switch (x->type) {
    case CORE_RECORD_TENANT:
        return strcmp(x->tenant.name, y->tenant.name) == 0;
    case CORE_RECORD_ACCOUNT:
        return x->account.device == y->account.device &&
               x->account.suspects_bytes == y->account.suspects_bytes &&
               x->account.others_bytes == y->account.others_bytes &&
               x->account.draining == y->account.draining;
    case CORE_RECORD_CLIENT:
        return x->client.tenant == y->client.tenant && x->client.steward == y->client.steward &&
               a->client.host == b->client.host && a->client.pid == b->client.pid &&
               a->client.start_ticks == b->client.start_ticks && a->client.uid == b->client.uid &&
               memcmp(a->client.token, b->client.token, LEDGER_TOKEN_BYTES) == 0 &&
               strcmp(a->client.program, b->client.program) == 0;
    case CORE_RECORD_LEASE:
        return x->lease.client == y->lease.client && x->lease.tenant == y->lease.tenant &&
               x->lease.open == y->lease.open && x->lease.device == y->lease.device &&
               x->lease.count == y->lease.count && x->lease.max == y->lease.max &&
               x->lease.chunk_bytes == y->lease.chunk_bytes &&
               a->lease.page_bytes == b->lease.page_bytes && a->lease.element == b->lease.element &&
               a->lease.format == b->lease.format && a->lease.kept == b->lease.kept &&
               strcmp(a->lease.label, b->lease.label) == 0;
    case CORE_RECORD_HOLDER:
    case CORE_RECORD_SEAT:
        return x->holder.open == y->holder.open && x->holder.lease == y->holder.lease &&
               x->holder.client == y->holder.client;
    case CORE_RECORD_CHUNK:
        return a->chunk_kept == b->chunk_kept && x->chunk.forsaken == y->chunk.forsaken &&
               x->chunk.device == y->chunk.device && x->chunk.tenant == y->chunk.tenant &&
               x->chunk.state == y->chunk.state && x->chunk.index == y->chunk.index &&
               x->chunk.lease == y->chunk.lease && x->chunk.bytes == y->chunk.bytes;
    case CORE_RECORD_MAX:
        break;
    }
    return false;
}

/* Records that are as they were, and those that are damaged. */
static void count(const struct ledger *ledger, size_t *ret_same, size_t *ret_damaged)
{
    static struct ledger_cursor cursor;
    struct ledger_record record;
    int r;

    cursor = (struct ledger_cursor){0};
    *ret_same = *ret_damaged = 0;
    while ((r = ledger_next(ledger, &cursor, &record)) != LEDGER_END) {
        ck_assert_int_gt(r, 0);
        *ret_damaged += r == LEDGER_DAMAGED;
        for (size_t i = 0; i < ARRAY_SIZE(all); i++)
            *ret_same += r == LEDGER_RECORD && same(&record, all[i]);
    }
}

static void assert_count(const struct ledger *ledger, size_t expected, size_t expected_damaged)
{
    size_t found, damaged;

    count(ledger, &found, &damaged);
    ck_assert_uint_eq(found, expected);
    ck_assert_uint_eq(damaged, expected_damaged);
}

START_TEST(what_is_written_comes_back_in_order)
{
    struct ledger *ledger = ledger_full(), *next = reopen(ledger);
    static struct ledger_cursor cursor;
    struct ledger_record record;

    ck_assert_uint_eq(ledger_epoch(next), 2);
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        ck_assert_int_eq(ledger_next(next, &cursor, &record), LEDGER_RECORD);
        ck_assert_msg(same(&record, all[i]), "record %zu", i);
    }
    ck_assert_int_eq(ledger_next(next, &cursor, &record), LEDGER_END);
    ck_assert_int_eq(ledger_next(next, &cursor, &record), LEDGER_END);
    (void) ledger_free(next);
    (void) ledger_free(ledger);
}
END_TEST

START_TEST(what_is_erased_or_never_written_is_not_there)
{
    struct ledger *ledger = ledger_full();

    ck_assert_int_eq(ledger_erase(ledger, CORE_RECORD_LEASE, 5), 0);
    assert_count(ledger, ARRAY_SIZE(all) - 1, 0);
    (void) ledger_free(ledger);
}
END_TEST

START_TEST(the_ends_of_each_region_have_room_and_no_more)
{
    struct ledger *ledger = ledger_make();
    struct ledger_record record = chunk_record;

    record.core.number = LIMIT_CHUNKS_TOTAL - 1;
    put(ledger, &record);
    record.core.number++;
    ck_assert_int_eq(ledger_write(ledger, &record), -EINVAL);
    record = client_record;
    record.core.number = LIMIT_CLIENTS + LIMIT_TENANTS - 1;
    put(ledger, &record);
    record.core.number++;
    ck_assert_int_eq(ledger_write(ledger, &record), -EINVAL);
    record = lease_record;
    record.core.number = LIMIT_CHUNKS_TOTAL + LIMIT_REQUESTS_TOTAL - 1;
    put(ledger, &record);
    assert_count(ledger, 0, 0);
    (void) ledger_free(ledger);
}
END_TEST

START_TEST(devices_are_known_by_uuid)
{
    static const struct uuid swapped[3] = {{.bytes = {2}}, {.bytes = {3}}, {.bytes = {1}}};
    static struct ledger_cursor cursor;
    struct ledger *ledger = ledger_full(), *next;
    struct ledger_record record;
    uint32_t version;

    /* Device 1 is number 0 now … */
    ck_assert_int_eq(again(ledger, swapped, 3, &next, &version), 0);
    while (ledger_next(next, &cursor, &record) == LEDGER_RECORD) {
        if (record.core.type == CORE_RECORD_CHUNK && !record.core.gone)
            ck_assert_uint_eq(record.core.chunk.device, 0);
    }
    (void) ledger_free(next);
    /* … and gone then. */
    ck_assert_int_eq(again(ledger, devices, 1, &next, &version), 0);
    cursor = (struct ledger_cursor){0};
    while (ledger_next(next, &cursor, &record) == LEDGER_RECORD) {
        if (record.core.type == CORE_RECORD_CHUNK && !record.core.gone)
            ck_assert_uint_eq(record.core.chunk.device, LEDGER_NO_DEVICE);
    }
    (void) ledger_free(next);
    (void) ledger_free(ledger);
}
END_TEST

static void header_change(const struct ledger *ledger, unsigned copy, size_t at, uint8_t value)
{
    ck_assert_int_eq(
        pwrite(ledger_fd(ledger), &value, 1, (off_t) copy * LEDGER_PAGE + (off_t) at), 1);
}

START_TEST(another_version_is_refused_by_its_number)
{
    struct ledger *ledger = ledger_full(), *next;
    uint32_t version;

    header_change(ledger, 0, offsetof(struct ledger_header, version), 7);
    ck_assert_int_eq(again(ledger, devices, 2, &next, &version), 0);
    (void) ledger_free(next); /* which has written both anew */
    header_change(ledger, 0, offsetof(struct ledger_header, version), 0);
    header_change(ledger, 1, offsetof(struct ledger_header, version), 0);
    ck_assert_int_eq(again(ledger, devices, 2, &next, &version), -EPROTONOSUPPORT);
    ck_assert_uint_eq(version, 0);
    header_change(ledger, 0, offsetof(struct ledger_header, version), 7);
    header_change(ledger, 1, offsetof(struct ledger_header, version), 7);
    ck_assert_int_eq(again(ledger, devices, 2, &next, &version), -EPROTONOSUPPORT);
    ck_assert_uint_eq(version, 7);
    (void) ledger_free(ledger);
}
END_TEST

START_TEST(a_file_that_is_no_ledger_is_refused)
{
    int fd = memfd_create("other", MFD_CLOEXEC);
    struct ledger *next;
    uint32_t version;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ledger_open(fd, devices, 2, &next, &version), -EINVAL);
    ck_assert_int_eq(ftruncate(fd, 3 * LEDGER_PAGE), 0);
    ck_assert_int_eq(ledger_open(fd, devices, 2, &next, &version), -EBADMSG);
    ck_assert_int_eq(close(fd), 0);
}
END_TEST

/* Flips one byte, looks, flips it back. */
static void flip(const struct ledger *ledger, off_t at)
{
    uint8_t byte;

    ck_assert_int_eq(pread(ledger_fd(ledger), &byte, 1, at), 1);
    byte ^= 0x5a;
    ck_assert_int_eq(pwrite(ledger_fd(ledger), &byte, 1, at), 1);
}

/* Where a record lies. */
static off_t place_of(const struct ledger_record *record)
{
    const struct ledger_region *region = &ledger_regions[record->core.type];
    uint32_t number = record->core.number;

    if (record == &account_record)
        number = LEDGER_ACCOUNTS_PER_DEVICE + LIMIT_TENANTS;
    return region->offset + (off_t) number * region->record_bytes;
}

START_TEST(a_damaged_byte_of_a_record_costs_that_record)
{
    struct ledger *ledger = ledger_full();

    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        const struct ledger_region *region = &ledger_regions[all[i]->core.type];

        for (uint32_t k = 0; all[i] != &tenant_record && k < region->record_bytes; k++) {
            flip(ledger, place_of(all[i]) + k);
            assert_count(ledger, ARRAY_SIZE(all) - 1, 1);
            flip(ledger, place_of(all[i]) + k);
        }
    }
    assert_count(ledger, ARRAY_SIZE(all), 0);
    (void) ledger_free(ledger);
}
END_TEST

START_TEST(a_damaged_byte_of_a_tenant_costs_nothing_unless_its_copy_is_damaged_too)
{
    struct ledger *ledger = ledger_full();
    off_t place = place_of(&tenant_record);
    off_t copy = place - ledger_regions[CORE_RECORD_TENANT].offset + ledger_tenant_copies;

    for (uint32_t k = 0; k < ledger_regions[CORE_RECORD_TENANT].record_bytes; k++) {
        flip(ledger, place + k);
        assert_count(ledger, ARRAY_SIZE(all), 0);
        flip(ledger, copy);
        assert_count(ledger, ARRAY_SIZE(all) - 1, 1);
        flip(ledger, place + k);
        assert_count(ledger, ARRAY_SIZE(all), 0);
        flip(ledger, copy);
    }
    ck_assert_int_eq(ledger_erase(ledger, CORE_RECORD_TENANT, tenant_record.core.number), 0);
    assert_count(ledger, ARRAY_SIZE(all) - 1, 0);
    (void) ledger_free(ledger);
}
END_TEST

START_TEST(a_damaged_byte_of_a_header_costs_nothing)
{
    for (off_t i = 0; i < LEDGER_HEADERS * LEDGER_PAGE; i++) {
        struct ledger *ledger, *next;

        if (i % LEDGER_PAGE >= (off_t) sizeof(struct ledger_header))
            continue;
        ledger = ledger_full();
        flip(ledger, i);
        next = reopen(ledger);
        assert_count(next, ARRAY_SIZE(all), 0);
        (void) ledger_free(next);
        (void) ledger_free(ledger);
    }
}
END_TEST

START_TEST(a_record_in_anothers_place_is_damaged)
{
    const struct ledger_region *region = &ledger_regions[CORE_RECORD_CHUNK];
    struct ledger *ledger = ledger_full();
    union disk_record disk;
    uint32_t number = 1000001;

    ck_assert_int_eq(pread(ledger_fd(ledger), &disk, region->record_bytes,
                         region->offset + INT64_C(1000000) * region->record_bytes),
        region->record_bytes);
    memcpy(disk.bytes, &number, sizeof(number));
    ck_assert_int_eq(pwrite(ledger_fd(ledger), &disk, region->record_bytes,
                         region->offset + INT64_C(1000001) * region->record_bytes),
        region->record_bytes);
    assert_count(ledger, ARRAY_SIZE(all), 1);
    (void) ledger_free(ledger);
}
END_TEST

UNIT_MAIN("ledger", what_is_written_comes_back_in_order,
    what_is_erased_or_never_written_is_not_there, the_ends_of_each_region_have_room_and_no_more,
    devices_are_known_by_uuid, another_version_is_refused_by_its_number,
    a_file_that_is_no_ledger_is_refused, a_damaged_byte_of_a_record_costs_that_record,
    a_damaged_byte_of_a_tenant_costs_nothing_unless_its_copy_is_damaged_too,
    a_damaged_byte_of_a_header_costs_nothing, a_record_in_anothers_place_is_damaged)
