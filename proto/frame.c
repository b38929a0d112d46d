/*
 * A frame is checked in three steps: its bytes (wire.h), its decoding (out of a budget), its rules
 * as an envelope. Only what passes all three is handed out.
 */
#include "proto/frame.h"

#include <errno.h>

#include "proto/wire.h"

/* protobuf-c's own 1 KiB stack allocations aside, nothing of a frame costs more than this. */
struct budget {
    size_t left;
    bool exceeded;
};

/* Each allocation costs the allocator's own bookkeeping too. */
#define ALLOCATION_OVERHEAD 16

static void *budget_alloc(void *data, size_t size)
{
    struct budget *budget = data;

    if (size > budget->left || budget->left - size < ALLOCATION_OVERHEAD) {
        budget->exceeded = true;
        return NULL;
    }
    budget->left -= size + ALLOCATION_OVERHEAD;
    return malloc(size);
}

static void budget_free(void *data, void *ptr)
{
    (void) data;
    free(ptr);
}

int frame_encode(struct frame *ret, const ProtobufCMessage *message)
{
    size_t size = protobuf_c_message_get_packed_size(message);

    if (size > LIMIT_FRAME_BYTES)
        return -EMSGSIZE;
    ret->size = protobuf_c_message_pack(message, ret->bytes);
    return 0;
}

static int message_decode(const ProtobufCMessageDescriptor *descriptor, const uint8_t *bytes,
    size_t size, ProtobufCMessage **ret)
{
    struct budget budget = {.left = LIMIT_DECODE_BYTES};
    ProtobufCAllocator allocator = {budget_alloc, budget_free, &budget};
    ProtobufCMessage *message;
    int r;

    if (size > LIMIT_FRAME_BYTES)
        return -EBADMSG;
    r = wire_check(descriptor, bytes, size);
    if (r < 0)
        return r;
    message = protobuf_c_message_unpack(descriptor, &allocator, size, bytes);
    if (message == NULL)
        return budget.exceeded ? -ENOMEM : -EBADMSG;
    *ret = message;
    return 0;
}

static int message_refuse(ProtobufCMessage *message)
{
    frame_message_free(message);
    return -EBADMSG;
}

/* What a client tells without asking for an answer. */
static bool client_event(const Gmb__ClientMessage *message)
{
    return message->body_case == GMB__CLIENT_MESSAGE__BODY_ARENA_MAPPED ||
           message->body_case == GMB__CLIENT_MESSAGE__BODY_ARENA_READY ||
           message->body_case == GMB__CLIENT_MESSAGE__BODY_PAGE_WANT;
}

int frame_decode_client(const uint8_t *bytes, size_t size, Gmb__ClientMessage **ret)
{
    ProtobufCMessage *base;
    Gmb__ClientMessage *message;
    int r;

    r = message_decode(&gmb__client_message__descriptor, bytes, size, &base);
    if (r < 0)
        return r;
    message = (Gmb__ClientMessage *) base;
    if (message->body_case == GMB__CLIENT_MESSAGE__BODY__NOT_SET ||
        message->id >= FRAME_BROKER_ID || (message->id == 0) != client_event(message))
        return message_refuse(base);
    *ret = message;
    return 0;
}

static bool grant_valid(const Gmb__Grant *grant)
{
    uint32_t end;

    if (grant->n_chunks == 0 || grant->chunk_bytes == 0 || grant->lease == 0)
        return false;
    for (size_t i = 0; i < grant->n_chunks; i++) {
        bool ipc = grant->handle_type == GMB__HANDLE_TYPE__HANDLE_TYPE_IPC;

        if (grant->chunks[i]->ipc_handle.len != (ipc ? FRAME_IPC_HANDLE_BYTES : 0))
            return false;
    }
    if (__builtin_add_overflow(grant->first_chunk, (uint32_t) grant->n_chunks, &end))
        return false;
    return end <= grant->total_chunks && grant->total_chunks <= LIMIT_LEASE_CHUNKS;
}

bool frame_broker_foreign(const Gmb__BrokerMessage *message)
{
    return message->body_case == GMB__BROKER_MESSAGE__BODY__NOT_SET && message->id == 0 &&
           message->base.n_unknown_fields > 0;
}

int frame_decode_broker(const uint8_t *bytes, size_t size, Gmb__BrokerMessage **ret)
{
    ProtobufCMessage *base;
    Gmb__BrokerMessage *message;
    int r;

    r = message_decode(&gmb__broker_message__descriptor, bytes, size, &base);
    if (r < 0)
        return r;
    message = (Gmb__BrokerMessage *) base;
    if (message->body_case == GMB__BROKER_MESSAGE__BODY__NOT_SET && !frame_broker_foreign(message))
        return message_refuse(base);
    if (message->body_case == GMB__BROKER_MESSAGE__BODY_GRANT && !grant_valid(message->grant))
        return message_refuse(base);
    *ret = message;
    return 0;
}

int frame_decode_request(const uint8_t *bytes, size_t size, Gmb__ControlRequest **ret)
{
    ProtobufCMessage *base;
    Gmb__ControlRequest *message;
    int r;

    r = message_decode(&gmb__control_request__descriptor, bytes, size, &base);
    if (r < 0)
        return r;
    message = (Gmb__ControlRequest *) base;
    if (message->id == 0 || message->body_case == GMB__CONTROL_REQUEST__BODY__NOT_SET)
        return message_refuse(base);
    *ret = message;
    return 0;
}

int frame_decode_reply(const uint8_t *bytes, size_t size, Gmb__ControlReply **ret)
{
    ProtobufCMessage *base;
    Gmb__ControlReply *message;
    int r;

    r = message_decode(&gmb__control_reply__descriptor, bytes, size, &base);
    if (r < 0)
        return r;
    message = (Gmb__ControlReply *) base;
    if (message->body_case == GMB__CONTROL_REPLY__BODY__NOT_SET)
        return message_refuse(base);
    *ret = message;
    return 0;
}

static bool mover_valid(const Gmb__MoverMessage *message)
{
    switch (message->body_case) {
    case GMB__MOVER_MESSAGE__BODY_HELLO:
        return message->hello->device.len != 0;
    case GMB__MOVER_MESSAGE__BODY_JOB:
        return message->job->id != 0;
    case GMB__MOVER_MESSAGE__BODY_DONE:
        return message->done->id != 0;
    case GMB__MOVER_MESSAGE__BODY_READY:
        return true;
    case GMB__MOVER_MESSAGE__BODY__NOT_SET:
    case _GMB__MOVER_MESSAGE__BODY__CASE_IS_INT_SIZE:
        break;
    }
    return false;
}

int frame_decode_mover(const uint8_t *bytes, size_t size, Gmb__MoverMessage **ret)
{
    ProtobufCMessage *base;
    int r;

    r = message_decode(&gmb__mover_message__descriptor, bytes, size, &base);
    if (r < 0)
        return r;
    if (!mover_valid((Gmb__MoverMessage *) base))
        return message_refuse(base);
    *ret = (Gmb__MoverMessage *) base;
    return 0;
}

size_t frame_broker_fds(const Gmb__BrokerMessage *message)
{
    if (message->body_case == GMB__BROKER_MESSAGE__BODY_ARENA_CREATED)
        return 2;
    if (message->body_case == GMB__BROKER_MESSAGE__BODY_WELCOME ||
        message->body_case == GMB__BROKER_MESSAGE__BODY_PRESSURE_WATCHING)
        return 1;
    if (message->body_case != GMB__BROKER_MESSAGE__BODY_GRANT ||
        message->grant->handle_type == GMB__HANDLE_TYPE__HANDLE_TYPE_IPC)
        return 0;
    return message->grant->n_chunks;
}

size_t frame_mover_fds(const Gmb__MoverMessage *message)
{
    size_t count = 0;

    if (message->body_case == GMB__MOVER_MESSAGE__BODY_HELLO)
        return message->hello->disk_bytes > 0 ? 2 : 1;
    if (message->body_case != GMB__MOVER_MESSAGE__BODY_JOB)
        return 0;
    for (size_t i = 0; i < message->job->n_chunks; i++)
        count += message->job->chunks[i]->with_fd ? 1 : 0;
    return count;
}

void frame_message_free(ProtobufCMessage *message)
{
    if (message != NULL)
        protobuf_c_message_free_unpacked(message, NULL);
}
