/* See raw_arena.h. */
#include "tests/integration/raw_arena.h"

#include <check.h>
#include <sys/mman.h>
#include <sys/stat.h>

uint64_t raw_arena_request(
    struct raw *raw, uint64_t page_bytes, uint64_t chunk_bytes, uint64_t max_bytes)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__ArenaRequest body;

    gmb__arena_request__init(&body);
    body.page_bytes = page_bytes;
    body.chunk_bytes = chunk_bytes;
    body.max_bytes = max_bytes;
    message.body_case = GMB__CLIENT_MESSAGE__BODY_ARENA_REQUEST;
    message.arena_request = &body;
    return raw_send(raw, &message);
}

uint64_t raw_share(struct raw *raw, const char *name, uint64_t page_bytes, uint64_t max_bytes)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__ArenaRequest body;

    gmb__arena_request__init(&body);
    body.page_bytes = page_bytes;
    body.chunk_bytes = HARNESS_CHUNK;
    body.max_bytes = max_bytes;
    body.shared = true;
    body.label = (char *) (uintptr_t) name;
    message.body_case = GMB__CLIENT_MESSAGE__BODY_ARENA_REQUEST;
    message.arena_request = &body;
    return raw_send(raw, &message);
}

uint64_t raw_attach(struct raw *raw, const char *name)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__ArenaAttach body;

    gmb__arena_attach__init(&body);
    body.name = (char *) (uintptr_t) name;
    message.body_case = GMB__CLIENT_MESSAGE__BODY_ARENA_ATTACH;
    message.arena_attach = &body;
    return raw_send(raw, &message);
}

void raw_ready(struct raw *raw, uint64_t lease)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__ArenaReady body;

    gmb__arena_ready__init(&body);
    body.lease = lease;
    message.body_case = GMB__CLIENT_MESSAGE__BODY_ARENA_READY;
    message.arena_ready = &body;
    raw_tell(raw, &message);
}

void raw_expect_arena(struct raw *raw, uint64_t id, struct raw_arena *ret)
{
    Gmb__BrokerMessage *message = raw_receive(raw);
    struct stat status;
    int fd;

    ck_assert_ptr_nonnull(message);
    ck_assert_uint_eq(message->id, id);
    ck_assert_msg(message->body_case == GMB__BROKER_MESSAGE__BODY_ARENA_CREATED, "no arena but: %s",
        message->body_case == GMB__BROKER_MESSAGE__BODY_ERROR ? message->error->text : "?");
    ck_assert_uint_eq(raw->fds.count, 2);
    *ret = (struct raw_arena){.lease = message->arena_created->lease};
    fd = fdset_take(&raw->fds, 0);
    ret->event_fd = fdset_take(&raw->fds, 1);
    fdset_close(&raw->fds);
    ck_assert_int_eq(fstat(fd, &status), 0);
    ret->bytes = (size_t) status.st_size;
    ret->memory = mmap(NULL, ret->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert(ret->memory != MAP_FAILED);
    ck_assert_int_lt(ftruncate(fd, 0), 0);
    (void) close(fd);
    ck_assert_int_eq(arena_table_open(ret->memory, ret->bytes, &ret->table), 0);
    ck_assert_uint_eq(ret->table.layout.chunk_bytes, message->arena_created->chunk_bytes);
    ck_assert_uint_eq(ret->table.layout.max_chunks, message->arena_created->max_chunks);
    frame_message_free(&message->base);
}

void raw_arena_close(struct raw_arena *arena)
{
    (void) munmap(arena->memory, arena->bytes);
    close_fd(&arena->event_fd);
}

uint64_t raw_fill(struct raw *raw, uint64_t lease, uint32_t first, uint32_t count, uint64_t wait_ns)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__ArenaFill body = GMB__ARENA_FILL__INIT;

    body.lease = lease;
    body.first = first;
    body.count = count;
    body.wait_ns = wait_ns;
    message.body_case = GMB__CLIENT_MESSAGE__BODY_ARENA_FILL;
    message.arena_fill = &body;
    return raw_send(raw, &message);
}

uint64_t raw_return(struct raw *raw, uint64_t lease, uint32_t first, uint32_t count)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__ArenaReturn body = GMB__ARENA_RETURN__INIT;

    body.lease = lease;
    body.first = first;
    body.count = count;
    message.body_case = GMB__CLIENT_MESSAGE__BODY_ARENA_RETURN;
    message.arena_return = &body;
    return raw_send(raw, &message);
}

void raw_mapped(struct raw *raw, uint64_t lease, uint32_t first, uint32_t count)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__ArenaMapped body = GMB__ARENA_MAPPED__INIT;

    body.lease = lease;
    body.first = first;
    body.count = count;
    message.body_case = GMB__CLIENT_MESSAGE__BODY_ARENA_MAPPED;
    message.arena_mapped = &body;
    raw_tell(raw, &message);
}

void raw_want(struct raw *raw, uint64_t lease, uint32_t *pages, size_t count)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__PageWant body = GMB__PAGE_WANT__INIT;

    body.lease = lease;
    body.n_pages = count;
    body.pages = pages;
    message.body_case = GMB__CLIENT_MESSAGE__BODY_PAGE_WANT;
    message.page_want = &body;
    raw_tell(raw, &message);
}

void raw_expect_fill(struct raw *raw, uint64_t id, uint32_t first, uint32_t count)
{
    uint32_t next = first;

    while (next < first + count) {
        Gmb__BrokerMessage *message = raw_receive(raw);

        ck_assert_ptr_nonnull(message);
        ck_assert_uint_eq(message->id, id);
        ck_assert_msg(message->body_case == GMB__BROKER_MESSAGE__BODY_GRANT, "no grant but: %s",
            message->body_case == GMB__BROKER_MESSAGE__BODY_ERROR ? message->error->text : "?");
        ck_assert_uint_eq(message->grant->first_chunk, next);
        ck_assert_uint_eq(message->grant->total_chunks, first + count);
        ck_assert_uint_eq(message->grant->n_chunks, raw->fds.count);
        next += (uint32_t) message->grant->n_chunks;
        frame_message_free(&message->base);
    }
    fdset_close(&raw->fds);
}

void raw_expect_end_of(struct raw *raw, uint64_t id)
{
    bool last = false;

    while (!last) {
        Gmb__BrokerMessage *message = raw_receive(raw);

        ck_assert_ptr_nonnull(message);
        ck_assert(message->id == id || message->id == 0);
        last = message->id == id && (message->body_case != GMB__BROKER_MESSAGE__BODY_GRANT ||
                                        message->grant->first_chunk + message->grant->n_chunks ==
                                            message->grant->total_chunks);
        frame_message_free(&message->base);
        fdset_close(&raw->fds);
    }
}
