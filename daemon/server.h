/*
 * Accepts connections on both sockets and bounds how many there are. Flooding costs the flooder:
 * when too many connections have said no Hello, the oldest of the user that has most of them goes.
 */
#pragma once

#include "base/list.h"
#include "daemon/listen.h"
#include "daemon/ratelimit.h"

struct broker;
struct event;
struct server;

/* Takes both sockets over, on failure too. Accepting starts with the loop. -errno. */
int server_new_consume(struct broker *broker, struct listen_socket *client,
    struct listen_socket *control, struct server **ret) _must_check_;
/* Accepts nobody any more: who comes waits in the socket, for the next broker if systemd has it. */
void server_stop(struct server *server);
/* Closes the sockets and every operator's connection. Accepts NULL, returns NULL. */
struct server *server_free(struct server *server);
