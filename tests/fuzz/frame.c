/*
 * Bytes of a peer, as each of the four envelopes: what is accepted is encoded again to something
 * that is accepted too, and has as many fds as a frame can carry.
 */
#include <errno.h>

#include "proto/frame.h"
#include "tests/fuzz/fuzz.h"

typedef int (*decoder)(const uint8_t *bytes, size_t size, ProtobufCMessage **ret);

static int decode_client(const uint8_t *bytes, size_t size, ProtobufCMessage **ret)
{
    Gmb__ClientMessage *message;
    int r = frame_decode_client(bytes, size, &message);

    *ret = r == 0 ? &message->base : NULL;
    return r;
}

static int decode_broker(const uint8_t *bytes, size_t size, ProtobufCMessage **ret)
{
    Gmb__BrokerMessage *message;
    int r = frame_decode_broker(bytes, size, &message);

    if (r == 0)
        FUZZ_CHECK(frame_broker_fds(message) <= LIMIT_FRAME_FDS);
    *ret = r == 0 ? &message->base : NULL;
    return r;
}

static int decode_request(const uint8_t *bytes, size_t size, ProtobufCMessage **ret)
{
    Gmb__ControlRequest *message;
    int r = frame_decode_request(bytes, size, &message);

    *ret = r == 0 ? &message->base : NULL;
    return r;
}

static int decode_reply(const uint8_t *bytes, size_t size, ProtobufCMessage **ret)
{
    Gmb__ControlReply *message;
    int r = frame_decode_reply(bytes, size, &message);

    *ret = r == 0 ? &message->base : NULL;
    return r;
}

static void round_trip(decoder decode, const uint8_t *data, size_t size)
{
    static struct frame frame;
    ProtobufCMessage *message, *again;
    int r = decode(data, size, &message);

    FUZZ_CHECK(r == 0 || r == -EBADMSG || r == -ENOMEM);
    if (r < 0)
        return;
    /* Fields that were written shorter than their canonical form can make it outgrow a frame. */
    if (frame_encode(&frame, message) == 0) {
        FUZZ_CHECK(decode(frame.bytes, frame.size, &again) == 0);
        frame_message_free(again);
    }
    frame_message_free(message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    round_trip(decode_client, data, size);
    round_trip(decode_broker, data, size);
    round_trip(decode_request, data, size);
    round_trip(decode_reply, data, size);
    return 0;
}
