/*
 * Checks the bytes of a message against its descriptor before anything is decoded from them.
 *
 * protobuf-c hands out strings as C strings and checks neither their length nor what is in them:
 * a NUL inside silently cuts one short, and then two readers of the same frame see different names.
 * So the bytes are walked first.
 */
#pragma once

#include "base/macro.h"
#include "proto/gmb.pb-c.h"

/*
 * Refuses (-EBADMSG): fields that don't parse or are deeper nested than any message here, a string
 * that holds a NUL or a control character, is no UTF-8 or is longer than its bound, a `bytes` field
 * (all are UUIDs) of other than 0 or 16 bytes, more elements of a repeated field than its bound, a
 * message or oneof member that stands twice. Unknown fields are skipped. Thread-safe, allocates
 * nothing, linear in `size`.
 */
int wire_check(
    const ProtobufCMessageDescriptor *descriptor, const uint8_t *bytes, size_t size) _must_check_;

/* Bytes of the character at `at`, of which `left` > 0 remain: 0 if no text may hold it. For senders
 * of text that isn't theirs. */
size_t wire_text_length(const uint8_t *at, size_t left);
