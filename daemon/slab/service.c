/*
 * One request at a time. The broker is trusted to mean well and not to be right: numbers are
 * checked. A driver that fails is reported and not judged: what the slabs hold is others' work, and
 * ending this process would take it from them.
 */
#include "daemon/slab/service.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "daemon/slab/store.h"
#include "daemon/slab/wire.h"
#include "gpu/cuda_abi.h"

/* 0 with the whole struct; -EPIPE at the end; -EBADMSG for anything of another size. */
static int receive(int socket_fd, void *ret, size_t size)
{
    char extra[sizeof(struct slab_reply)];
    struct iovec parts[] = {{ret, size}, {extra, sizeof(extra)}};
    struct msghdr header = {.msg_iov = parts, .msg_iovlen = ARRAY_SIZE(parts)};
    ssize_t n;

    do
        n = recvmsg(socket_fd, &header, 0);
    while (n < 0 && errno == EINTR);
    if (n == 0 || (n < 0 && errno == ECONNRESET))
        return -EPIPE;
    if (n < 0)
        return -errno;
    return (size_t) n == size ? 0 : -EBADMSG;
}

static int answer(int socket_fd, const void *bytes, size_t size)
{
    ssize_t n;

    do
        n = send(socket_fd, bytes, size, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : 0;
}

static enum slab_exit exit_for(int r)
{
    if (r == -EPIPE || r == -ECONNRESET)
        return SLAB_EXIT_END;
    log_error("cannot go on: %s", strerror(-r));
    return SLAB_EXIT_PROTOCOL;
}

static void request_run(
    struct store *store, const struct slab_request *request, struct slab_reply *reply)
{
    struct gpu_error error = {0};

    *reply = (struct slab_reply){.id = request->id, .index = request->index};
    if (request->kind == SLAB_CREATE)
        reply->result = store_create(store, request->bytes, &reply->index, reply->token, &error);
    else if (request->kind == SLAB_FREE)
        reply->result = store_drop(store, request->index, &error);
    else
        reply->result = -EINVAL;
    if (reply->result != 0)
        (void) snprintf(reply->text, sizeof(reply->text), "%s", error.text);
}

static enum slab_exit serve(int socket_fd, struct store *store)
{
    struct slab_request request;
    struct slab_reply reply;
    int r;

    do {
        r = receive(socket_fd, &request, sizeof(request));
        if (r == 0) {
            request_run(store, &request, &reply);
            r = answer(socket_fd, &reply, sizeof(reply));
        }
    } while (r == 0);
    return exit_for(r);
}

enum slab_exit service_run(enum gpu_driver driver, int socket_fd)
{
    struct slab_ready ready = {.version = SLAB_WIRE_VERSION};
    struct gpu_error error = {0};
    struct slab_hello hello;
    struct store *store;
    enum slab_exit status;
    int r = receive(socket_fd, &hello, sizeof(hello));

    if (r == 0 && hello.version != SLAB_WIRE_VERSION)
        r = -EPROTONOSUPPORT;
    if (r < 0)
        return exit_for(r);
    r = store_new(driver, hello.device, &store, &error);
    if (r < 0) {
        log_error("not ready: %s", error.text[0] != '\0' ? error.text : strerror(-r));
        return error.code == CUDA_ERROR_OUT_OF_MEMORY ? SLAB_EXIT_MEMORY : SLAB_EXIT_DEVICE;
    }
    ready.context_bytes = store_context_bytes(store);
    r = answer(socket_fd, &ready, sizeof(ready));
    status = r == 0 ? serve(socket_fd, store) : exit_for(r);
    (void) store_free(store);
    return status;
}
