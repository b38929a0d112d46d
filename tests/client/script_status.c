/* A status page as the broker keeps it: mapped for writing before it is sealed. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/client/script.h"

int status_make(struct script_status *ret, uint32_t entries, int seals)
{
    int fd = memfd_create("status", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    ck_assert_int_ge(fd, 0);
    ret->bytes = sizeof(struct status_page) + entries * sizeof(struct status_entry);
    ck_assert_int_eq(ftruncate(fd, (off_t) ret->bytes), 0);
    ret->page = mmap(NULL, ret->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(ret->page, MAP_FAILED);
    ret->page->header = (struct status_header){
        .magic = STATUS_MAGIC, .entries = entries, .entry_bytes = sizeof(struct status_entry)};
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

void status_publish(struct script_status *status, uint64_t bits, const struct status_copy *copy)
{
    struct status_entry *entry = &status->page->entries[0];
    uint64_t next = (uint32_t) (entry->head + 1), words[sizeof(*copy) / sizeof(uint64_t)];
    uint64_t *to = (uint64_t *) (void *) &entry->copies[next & 1];

    memcpy(words, copy, sizeof(words));
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        __atomic_store_n(&to[i], words[i], __ATOMIC_RELAXED);
    __atomic_store_n(&entry->head, next | STATUS_FLAG_LIVE | bits, __ATOMIC_RELEASE);
}

void script_status_end(struct script_status *status)
{
    ck_assert_int_eq(munmap(status->page, status->bytes), 0);
}

void script_connect_status(struct script *script, struct script_status *ret)
{
    struct call call;

    call_start(script, &call, call_connect);
    broker_accept(script);
    broker_welcome_consume(script, broker_expect_id(script, GMB__CLIENT_MESSAGE__BODY_HELLO),
        status_make(ret, 1, STATUS_SEALS));
    ck_assert_int_eq(call_join(&call), 0);
}
