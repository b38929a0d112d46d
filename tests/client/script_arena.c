/* The broker's side of an arena: a sealed memfd, of which the test keeps a mapping, and an eventfd.
 */
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "tests/client/script.h"

int call_arena(struct script *script, struct call *call)
{
    return gmb_arena_new(script->session, call->arena_params, &call->arena);
}

int call_alloc(struct script *script, struct call *call)
{
    return gmb_page_alloc(call->arena, call->n, call->pages, call->wait_ns);
}

int call_pages_wait(struct script *script, struct call *call)
{
    return gmb_page_wait(call->arena, call->n, call->pages, call->wait_ns);
}

int call_arena_free(struct script *script, struct call *call)
{
    return gmb_arena_free(call->arena);
}

static int table_make(uint64_t page_bytes, uint32_t chunks, struct script_arena *ret)
{
    struct arena_table_header layout;
    int fd = memfd_create("arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(arena_table_layout(page_bytes, CHUNK, chunks, 0, &layout), 0);
    ck_assert_int_eq(ftruncate(fd, (off_t) layout.table_bytes), 0);
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    ret->bytes = layout.table_bytes;
    ret->memory = mmap(NULL, ret->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(ret->memory, MAP_FAILED);
    arena_table_format(ret->memory, &layout, &ret->table);
    return fd;
}

void broker_arena(struct script *script, uint64_t id, uint64_t page_bytes, uint32_t chunks,
    struct script_arena *ret)
{
    Gmb__BrokerMessage message = GMB__BROKER_MESSAGE__INIT;
    Gmb__ArenaCreated created;
    struct fdset fds = FDSET_EMPTY;

    gmb__arena_created__init(&created);
    message.id = id;
    message.body_case = GMB__BROKER_MESSAGE__BODY_ARENA_CREATED;
    message.arena_created = &created;
    created.lease = LEASE_ID;
    created.chunk_bytes = CHUNK;
    created.max_chunks = chunks;
    created.device.data = (uint8_t *) (uintptr_t) fake_gpu_uuid;
    created.device.len = sizeof(fake_gpu_uuid);
    ck_assert_int_eq(fdset_consume(&fds, table_make(page_bytes, chunks, ret)), 0);
    ret->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ck_assert_int_eq(fdset_consume(&fds, fcntl(ret->event_fd, F_DUPFD_CLOEXEC, 0)), 0);
    ck_assert_int_eq(conn_send_consume(script->conn, &message.base, &fds), 0);
}

void script_arena_end(struct script_arena *arena)
{
    ck_assert_int_eq(munmap(arena->memory, arena->bytes), 0);
    close_fd(&arena->event_fd);
}

void broker_arena_grant(struct script *script, uint32_t first, uint32_t count)
{
    broker_grant(script, 0, first, count, first + count);
}

void broker_recall(struct script *script, uint32_t *chunks, size_t count)
{
    Gmb__BrokerMessage message = GMB__BROKER_MESSAGE__INIT;
    Gmb__ChunkRecall recall = GMB__CHUNK_RECALL__INIT;

    message.body_case = GMB__BROKER_MESSAGE__BODY_CHUNK_RECALL;
    message.chunk_recall = &recall;
    recall.lease = LEASE_ID;
    recall.n_chunks = count;
    recall.chunks = chunks;
    broker_send(script, &message.base, 0);
}

gmb_arena *script_arena(
    struct script *script, const struct gmb_arena_params *params, struct script_arena *ret)
{
    static const struct gmb_arena_params usual = {
        .size = sizeof(usual),
        .page_bytes = CHUNK / 4,
        .chunk_bytes = CHUNK,
        .max_bytes = 16 * CHUNK,
        .prefetch_bytes = 1,
        .idle_ns = UINT64_MAX,
    };
    struct call call = {.arena_params = params != NULL ? params : &usual};
    Gmb__ClientMessage *message;

    call_start(script, &call, call_arena);
    message = broker_expect(script, GMB__CLIENT_MESSAGE__BODY_ARENA_REQUEST);
    broker_arena(script, message->id, message->arena_request->page_bytes,
        (uint32_t) (message->arena_request->max_bytes / CHUNK), ret);
    message_free(message);
    ck_assert_int_eq(call_join(&call), 0);
    return call.arena;
}
