/*
 * Guided by the descriptors that protoc-c generates, so that a field added to the protocol is in
 * the output without a line here.
 */
#include "client/ctl/json.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/limits.h"
#include "base/uuid.h"

/* Of a repeated field: element `index`; else the field itself. */
static const void *field_at(
    const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field, size_t index)
{
    const char *at = (const char *) message + field->offset;

    if (field->label != PROTOBUF_C_LABEL_REPEATED)
        return at;
    /* The only repeated fields are messages. */
    return *(const ProtobufCMessage *const *const *) (const void *) at + index;
}

/* Whether the message says of its device that it is a MIG instance. */
static bool says_mig(const ProtobufCMessage *message)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field_by_name(message->descriptor, "mig");

    return field != NULL && field->type == PROTOBUF_C_TYPE_BOOL &&
           *(const protobuf_c_boolean *) field_at(message, field, 0);
}

static json_t *json_from_uuid(const ProtobufCMessage *message, const ProtobufCBinaryData *data)
{
    char text[UUID_TEXT_MAX];
    struct uuid uuid;

    return uuid_from_bytes(data->data, data->len, &uuid) < 0
               ? json_null()
               : json_string(uuid_format_device(text, &uuid, says_mig(message)));
}

static json_t *json_from_unsigned(uint64_t value, uint64_t none)
{
    return value == none || value > INT64_MAX ? json_null() : json_integer((json_int_t) value);
}

/* What the names of an enum's values have in common, up to a `_`. */
static size_t enum_prefix(const ProtobufCEnumDescriptor *descriptor)
{
    const char *first = descriptor->values[0].name;
    size_t common = descriptor->n_values > 1 ? strlen(first) : 0;

    for (unsigned i = 1; i < descriptor->n_values; i++) {
        size_t k = 0;

        while (k < common && descriptor->values[i].name[k] == first[k])
            k++;
        common = k;
    }
    while (common > 0 && first[common - 1] != '_')
        common--;
    return common;
}

/* PURPOSE_WORKSPACE beside PURPOSE_ARENA is `workspace`. */
static json_t *json_from_enum(const ProtobufCFieldDescriptor *field, int value)
{
    const ProtobufCEnumDescriptor *descriptor = field->descriptor;
    const ProtobufCEnumValue *known = protobuf_c_enum_descriptor_get_value(descriptor, value);
    size_t prefix = enum_prefix(descriptor), length = 0;
    char name[LIMIT_NAME_BYTES];

    if (known == NULL || strlen(known->name) <= prefix)
        return json_integer(value);
    for (const char *at = known->name + prefix; *at != '\0' && length < sizeof(name) - 1; at++)
        name[length++] = (char) tolower((unsigned char) *at);
    name[length] = '\0';
    return json_string(name);
}

static json_t *json_from_value(
    const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field, const void *at)
{
    switch ((int) field->type) {
    case PROTOBUF_C_TYPE_UINT64:
        return json_from_unsigned(*(const uint64_t *) at, UINT64_MAX);
    case PROTOBUF_C_TYPE_UINT32:
        return json_from_unsigned(*(const uint32_t *) at, UINT32_MAX);
    case PROTOBUF_C_TYPE_INT32:
        return json_integer(*(const int32_t *) at);
    case PROTOBUF_C_TYPE_DOUBLE:
        return json_real(*(const double *) at);
    case PROTOBUF_C_TYPE_BOOL:
        return json_boolean(*(const protobuf_c_boolean *) at);
    case PROTOBUF_C_TYPE_STRING:
        return json_string(*(const char *const *) at);
    case PROTOBUF_C_TYPE_BYTES:
        return json_from_uuid(message, at);
    case PROTOBUF_C_TYPE_ENUM:
        return json_from_enum(field, *(const int *) at);
    case PROTOBUF_C_TYPE_MESSAGE:
        return json_from_message(*(const ProtobufCMessage *const *) at);
    default: /* the library's enum: a type that the protocol doesn't use */
        return json_null();
    }
}

static json_t *json_from_field(
    const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    const size_t *count =
        (const size_t *) (const void *) ((const char *) message + field->quantifier_offset);
    json_t *array;

    if (field->label != PROTOBUF_C_LABEL_REPEATED)
        return json_from_value(message, field, field_at(message, field, 0));
    array = json_array();
    for (size_t i = 0; array != NULL && i < *count; i++) {
        if (json_array_append_new(
                array, json_from_value(message, field, field_at(message, field, i))) < 0) {
            json_decref(array);
            array = NULL;
        }
    }
    return array;
}

json_t *json_from_message(const ProtobufCMessage *message)
{
    json_t *object = json_object();

    for (unsigned i = 0; object != NULL && i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];

        if (json_object_set_new(object, field->name, json_from_field(message, field)) < 0) {
            json_decref(object);
            object = NULL;
        }
    }
    return object;
}

json_t *json_from_messages(ProtobufCMessage *const *messages, size_t count)
{
    json_t *array = json_array();

    for (size_t i = 0; array != NULL && i < count; i++) {
        if (json_array_append_new(array, json_from_message(messages[i])) < 0) {
            json_decref(array);
            array = NULL;
        }
    }
    return array;
}

int json_print_consume(json_t *json, FILE *to)
{
    int r = json == NULL ? -ENOMEM : 0;

    if (r == 0 && (json_dumpf(json, to, JSON_INDENT(2)) < 0 || fputc('\n', to) == EOF))
        r = -EIO;
    json_decref(json);
    return r;
}
