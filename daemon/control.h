/*
 * Operators' connections on control.sock. Who may connect, the socket's file mode and group say;
 * each change is logged with who made it.
 *
 * One reply for each request. The next request is read when the reply before has left, so that an
 * operator who doesn't read costs one page.
 */
#pragma once

#include "base/macro.h"

struct broker;
struct operators;

int operators_new(struct broker *broker, struct operators **ret) _must_check_;
/* Accepts NULL, returns NULL. */
struct operators *operators_free(struct operators *operators);
/* Takes `fd` over, on failure too. -EUSERS when there are LIMIT_OPERATORS, other -errno. */
int operators_add_consume(struct operators *operators, int fd) _must_check_;
