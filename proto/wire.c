/*
 * A walk over protobuf's wire format, guided by the descriptors that protoc-c generates. It decides
 * by bounds alone and keeps one counter for each field of the message at hand, on the stack: depth
 * is bounded by WIRE_DEPTH_MAX, fields by WIRE_FIELDS_MAX.
 */
#include "proto/wire.h"

#include <errno.h>
#include <string.h>

#include "base/limits.h"
#include "base/macro.h"
#include "base/uuid.h"
#include "proto/frame.h"

/* ControlReply → PressurePage → TenantPressure → TenantDevicePressure → Stall. */
#define WIRE_DEPTH_MAX 5
/* More than the largest message has. */
#define WIRE_FIELDS_MAX 32
/* Assignments of one TenantSet: each key once for each of the devices, and room. */
#define ASSIGNMENTS_MAX 64
/* Elements of one page; the frame's size bounds it below that already. */
#define PAGE_MAX 1024

struct wire {
    const uint8_t *at;
    const uint8_t *end;
};

/* Sentences, units and device names are longer than what people name themselves. */
static size_t string_bound(const ProtobufCFieldDescriptor *field)
{
    static const char *const texts[] = {
        "name", "text", "unit", "value", "failure", "tier_path", "tier_disk_failure", "degraded"};

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        if (strcmp(field->name, texts[i]) == 0)
            return LIMIT_TEXT_BYTES;
    }
    return LIMIT_NAME_BYTES;
}

/* All bytes are UUIDs, but for one kind. */
static size_t bytes_size(const ProtobufCFieldDescriptor *field)
{
    return strcmp(field->name, "ipc_handle") == 0 ? FRAME_IPC_HANDLE_BYTES : UUID_BYTES;
}

static size_t repeat_bound(const ProtobufCFieldDescriptor *field)
{
    if (field->label != PROTOBUF_C_LABEL_REPEATED)
        return 1;
    if (strcmp(field->name, "devices") == 0 || strcmp(field->name, "parts") == 0)
        return LIMIT_DEVICES;
    if (strcmp(field->name, "chunks") == 0)
        return field->type == PROTOBUF_C_TYPE_MESSAGE ? LIMIT_FRAME_FDS : LIMIT_RECALL_CHUNKS;
    if (strcmp(field->name, "pages") == 0)
        return LIMIT_WANT_PAGES;
    if (strcmp(field->name, "assignments") == 0)
        return ASSIGNMENTS_MAX;
    return PAGE_MAX;
}

/* How often a field may stand in its message: a run of numbers is bounded as a whole. */
static size_t runs_bound(const ProtobufCFieldDescriptor *field)
{
    bool packed = field->label == PROTOBUF_C_LABEL_REPEATED &&
                  (field->type == PROTOBUF_C_TYPE_UINT32 || field->type == PROTOBUF_C_TYPE_FIXED64);

    return packed ? 1 : repeat_bound(field);
}

static bool varint_read(struct wire *wire, uint64_t *ret)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 70 && wire->at < wire->end; shift += 7) {
        uint8_t byte = *wire->at++;

        /* The tenth byte has room for one bit. */
        if (shift == 63 && byte > 1)
            return false;
        value |= (uint64_t) (byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            *ret = value;
            return true;
        }
    }
    return false;
}

/* Length of the UTF-8 sequence at `at` (RFC 3629: no surrogate, no overlong form), 0 if invalid. */
static size_t utf8_length(const uint8_t *at, size_t left)
{
    uint8_t low = 0x80, high = 0xbf;
    size_t length;

    if (at[0] < 0x80)
        return 1;
    if (at[0] >= 0xc2 && at[0] <= 0xdf)
        length = 2;
    else if (at[0] >= 0xe0 && at[0] <= 0xef)
        length = 3;
    else if (at[0] >= 0xf0 && at[0] <= 0xf4)
        length = 4;
    else
        return 0;
    if (at[0] == 0xe0)
        low = 0xa0;
    else if (at[0] == 0xed)
        high = 0x9f;
    else if (at[0] == 0xf0)
        low = 0x90;
    else if (at[0] == 0xf4)
        high = 0x8f;
    if (left < length || at[1] < low || at[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    }
    return length;
}

/* Text for people, on one line: what would move a terminal's cursor has no place in it. */
size_t wire_text_length(const uint8_t *at, size_t left)
{
    size_t length = utf8_length(at, left);

    if (length == 0 || at[0] < 0x20 || at[0] == 0x7f)
        return 0;
    return length == 2 && at[0] == 0xc2 && at[1] < 0xa0 ? 0 : length; /* C1 controls */
}

static bool text_valid(const uint8_t *text, size_t size)
{
    for (size_t i = 0, length; i < size; i += length) {
        length = wire_text_length(text + i, size - i);
        if (length == 0)
            return false;
    }
    return true;
}

static int message_check(
    const ProtobufCMessageDescriptor *descriptor, struct wire wire, unsigned depth);

/* Numbers sent as one run, as proto3 sends repeated ones. */
static int packed_check(const ProtobufCFieldDescriptor *field, const uint8_t *payload, size_t size)
{
    struct wire wire = {.at = payload, .end = payload + size};
    size_t count = 0;
    uint64_t value;

    if (field->label != PROTOBUF_C_LABEL_REPEATED)
        return -EBADMSG;
    if (field->type == PROTOBUF_C_TYPE_FIXED64)
        return size % 8 == 0 && size / 8 <= repeat_bound(field) ? 0 : -EBADMSG;
    while (wire.at < wire.end) {
        if (!varint_read(&wire, &value) || value > UINT32_MAX || ++count > repeat_bound(field))
            return -EBADMSG;
    }
    return 0;
}

static int payload_check(
    const ProtobufCFieldDescriptor *field, const uint8_t *payload, size_t size, unsigned depth)
{
    switch ((int) field->type) {
    case PROTOBUF_C_TYPE_STRING:
        return size <= string_bound(field) && text_valid(payload, size) ? 0 : -EBADMSG;
    case PROTOBUF_C_TYPE_BYTES:
        return size == 0 || size == bytes_size(field) ? 0 : -EBADMSG;
    case PROTOBUF_C_TYPE_MESSAGE:
        return message_check(
            field->descriptor, (struct wire){.at = payload, .end = payload + size}, depth + 1);
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED64:
        return packed_check(field, payload, size);
    default: /* the library's enum, not ours: a number sent as a run of bytes */
        return -EBADMSG;
    }
}

/* One field behind its tag: skips the value, and checks it if `field` is known. */
static int value_check(
    struct wire *wire, unsigned type, const ProtobufCFieldDescriptor *field, unsigned depth)
{
    const uint8_t *payload;
    uint64_t value;

    switch (type) {
    case PROTOBUF_C_WIRE_TYPE_VARINT:
        return varint_read(wire, &value) ? 0 : -EBADMSG;
    case PROTOBUF_C_WIRE_TYPE_64BIT:
    case PROTOBUF_C_WIRE_TYPE_32BIT:
        value = type == PROTOBUF_C_WIRE_TYPE_64BIT ? 8 : 4;
        break;
    case PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED:
        if (!varint_read(wire, &value))
            return -EBADMSG;
        break;
    default: /* a number from the peer */
        return -EBADMSG;
    }
    if (value > (size_t) (wire->end - wire->at))
        return -EBADMSG;
    payload = wire->at;
    wire->at += value;
    if (field == NULL || type != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)
        return 0;
    return payload_check(field, payload, value, depth);
}

static int message_check(
    const ProtobufCMessageDescriptor *descriptor, struct wire wire, unsigned depth)
{
    uint32_t seen[WIRE_FIELDS_MAX] = {0};
    unsigned members = 0, unknown = 0;

    if (depth >= WIRE_DEPTH_MAX || descriptor->n_fields > WIRE_FIELDS_MAX)
        return -EBADMSG;
    while (wire.at < wire.end) {
        const ProtobufCFieldDescriptor *field;
        uint64_t tag;
        int r;

        if (!varint_read(&wire, &tag) || tag > UINT32_MAX || tag >> 3 == 0)
            return -EBADMSG;
        field = protobuf_c_message_descriptor_get_field(descriptor, (unsigned) (tag >> 3));
        if (field != NULL) {
            if (++seen[field - descriptor->fields] > runs_bound(field))
                return -EBADMSG;
            if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0 && ++members > 1)
                return -EBADMSG;
        } else if (++unknown > LIMIT_UNKNOWN_FIELDS) {
            return -EBADMSG;
        }
        r = value_check(&wire, tag & 7, field, depth);
        if (r < 0)
            return r;
    }
    return 0;
}

int wire_check(const ProtobufCMessageDescriptor *descriptor, const uint8_t *bytes, size_t size)
{
    return message_check(descriptor, (struct wire){.at = bytes, .end = bytes + size}, 0);
}
