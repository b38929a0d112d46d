/*
 * Frames: bytes ↔ messages. No I/O.
 *
 * Encoding goes into a buffer of the caller. Decoding allocates from a budget of
 * LIMIT_DECODE_BYTES, so that a frame of a hostile peer costs at most that; what doesn't decode,
 * decodes to more than one envelope's rules allow (no body, id 0 in a request, a string with a NUL
 * or past its bound, a text that is no UTF-8) is refused before anyone sees it.
 *
 * All functions are thread-safe; none blocks.
 */
#pragma once

#include "base/limits.h"
#include "base/macro.h"
#include "proto/gmb.pb-c.h"
#include "proto/mover.pb-c.h"

/* Request ids from here on are the broker's own: no client's reaches them. */
#define FRAME_BROKER_ID (UINT64_C(1) << 63)

/* What HANDLE_TYPE_IPC sends instead of an fd. */
#define FRAME_IPC_HANDLE_BYTES 64

struct frame {
    size_t size;
    uint8_t bytes[LIMIT_FRAME_BYTES];
};

/* -EMSGSIZE when the message doesn't fit in a frame. */
int frame_encode(struct frame *ret, const ProtobufCMessage *message) _must_check_;

/*
 * Each decodes and validates one envelope of its kind; the message is the caller's, to be freed
 * with frame_message_free(). -EBADMSG for bytes that are no valid envelope, -ENOMEM over the
 * budget.
 */
int frame_decode_client(const uint8_t *bytes, size_t size, Gmb__ClientMessage **ret) _must_check_;
int frame_decode_broker(const uint8_t *bytes, size_t size, Gmb__BrokerMessage **ret) _must_check_;
int frame_decode_request(const uint8_t *bytes, size_t size, Gmb__ControlRequest **ret) _must_check_;
int frame_decode_reply(const uint8_t *bytes, size_t size, Gmb__ControlReply **ret) _must_check_;
int frame_decode_mover(const uint8_t *bytes, size_t size, Gmb__MoverMessage **ret) _must_check_;

/*
 * An event whose body this version doesn't know: id 0, no body, a field without a name. Its
 * receiver ignores it, with any fds that came along. A reply without a known body is refused when
 * it is decoded, as is whatever a client sends.
 */
bool frame_broker_foreign(const Gmb__BrokerMessage *message);

/*
 * Number of fds that must come with the message: the chunks of a Grant; page table and eventfd of
 * an ArenaCreated; the status page of a Welcome; the eventfd of a PressureWatching; else none.
 */
size_t frame_broker_fds(const Gmb__BrokerMessage *message);
/* The same: the tier of a MoverHello, the chunks of a MoverJob that bring one, else none. */
size_t frame_mover_fds(const Gmb__MoverMessage *message);

/* Accepts NULL. Any of the envelopes (cast to its base). */
void frame_message_free(ProtobufCMessage *message);
