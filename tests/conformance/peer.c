/* The test's side of the conversation: starting, asking, ending. */
#include "tests/conformance/peer.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

struct peer peer_start(const char *environment)
{
    struct peer peer;
    int sockets[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    peer.socket = sockets[0];
    peer.pid = fork();
    ck_assert_int_ge(peer.pid, 0);
    if (peer.pid == 0) {
        char number[16];

        /* Without CLOEXEC in the child alone: no other peer inherits it. */
        int fd = dup(sockets[1]);
        (void) snprintf(number, sizeof(number), "%d", fd);
        if (environment != NULL)
            (void) putenv(strdup(environment));
        (void) execl(PEER_PROGRAM, "conformance-peer", number, (char *) NULL);
        _exit(127);
    }
    (void) close(sockets[1]);
    return peer;
}

struct peer_message peer_call(struct peer *peer, struct peer_message request, int fd, int *ret_fd)
{
    struct peer_message reply;
    int received = -1;

    ck_assert_int_eq(peer_send(peer->socket, &request, fd), 0);
    ck_assert_int_eq(peer_receive(peer->socket, &reply, &received), 0);
    if (ret_fd != NULL)
        *ret_fd = received;
    else
        ck_assert_int_lt(received, 0);
    return reply;
}

struct peer_message peer_do(struct peer *peer, enum peer_op op, uint64_t bytes)
{
    struct peer_message reply =
        peer_call(peer, (struct peer_message){.op = op, .bytes = bytes}, -1, NULL);

    ck_assert_msg(
        reply.result == CUDA_SUCCESS, "the peer's step %d gives %d", (int) op, (int) reply.result);
    return reply;
}

static void peer_wait(struct peer *peer, int *ret_status)
{
    (void) close(peer->socket);
    ck_assert_int_eq(waitpid(peer->pid, ret_status, 0), peer->pid);
    *peer = (struct peer){.pid = -1, .socket = -1};
}

void peer_end(struct peer *peer)
{
    int status;

    peer_wait(peer, &status);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the peer ended with %#x", status);
}

void peer_kill(struct peer *peer)
{
    int status;

    ck_assert_int_eq(kill(peer->pid, SIGKILL), 0);
    peer_wait(peer, &status);
}
