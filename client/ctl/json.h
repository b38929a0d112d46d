/*
 * Any message of the protocol as JSON, field by field under its own name: UUIDs as text, numbers as
 * integers, what means "no limit" as null.
 */
#pragma once

#include <jansson.h>

#include "proto/gmb.pb-c.h"

/* A new reference; NULL without memory. */
json_t *json_from_message(const ProtobufCMessage *message);
/* An array of so many. */
json_t *json_from_messages(ProtobufCMessage *const *messages, size_t count);

/* Writes it, indented, with a newline. Consumes it, NULL too. -ENOMEM, -EIO. */
int json_print_consume(json_t *json, FILE *to);
