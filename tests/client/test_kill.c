/*
 * A worker dies by SIGKILL at each step of taking, growing, shrinking and releasing a lease: before
 * and after every call of the driver, every message sent and every message received. Whatever it
 * had comes back.
 *
 * The steps are found, not listed: the worker counts them and dies at the one it is told, until it
 * lives through all of them.
 */
#include <dlfcn.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "client/session.h"
#include "tests/client/node.h"
#include "tests/unit/unit.h"

static struct node node;

static uint64_t steps, deadly; /* of the worker; 0: none */

static void step(void)
{
    if (deadly != 0 && ++steps == deadly)
        (void) raise(SIGKILL);
}

/* ---- the socket: these stand before libc's in this program ---- */

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    static ssize_t (*next)(int, const struct msghdr *, int);
    ssize_t r;

    if (next == NULL)
        *(void **) (void *) &next = dlsym(RTLD_NEXT, "sendmsg");
    step();
    r = next(fd, message, flags);
    step();
    return r;
}

/* A message that has come dies with its receiver, fds and all. */
ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    static ssize_t (*next)(int, struct msghdr *, int);
    ssize_t r;

    if (next == NULL)
        *(void **) (void *) &next = dlsym(RTLD_NEXT, "recvmsg");
    r = next(fd, message, flags);
    if (r > 0)
        step();
    return r;
}

/* ---- the driver: the session's table, with a step on either side of each call ---- */

static const struct gpu_ops *real;

static int import(struct gpu *gpu, const struct gpu_device *device,
    const struct gpu_shareable *shareable, uint64_t bytes, struct gpu_chunk *ret,
    struct gpu_error *error)
{
    int r = real->chunk_import_borrow(gpu, device, shareable, bytes, ret, error);

    step();
    return r;
}

static int release(struct gpu *gpu, struct gpu_chunk *chunk, struct gpu_error *error)
{
    int r = real->chunk_release(gpu, chunk, error);

    step();
    return r;
}

static int synchronize(struct gpu *gpu, struct CUctx_st *context, struct gpu_error *error)
{
    int r = real->context_synchronize(gpu, context, error);

    step();
    return r;
}

static int reserve(
    struct gpu *gpu, uint64_t bytes, uint64_t align, uint64_t *ret_address, struct gpu_error *error)
{
    int r = real->range_reserve(gpu, bytes, align, ret_address, error);

    step();
    return r;
}

static int map(struct gpu *gpu, const struct gpu_chunk *chunk, uint64_t address,
    uint64_t *ret_address, struct gpu_error *error)
{
    int r = real->chunk_map(gpu, chunk, address, ret_address, error);

    step();
    return r;
}

static int set_access(struct gpu *gpu, const struct gpu_device *device, uint64_t address,
    uint64_t bytes, enum gpu_access access, struct gpu_error *error)
{
    int r = real->span_set_access(gpu, device, address, bytes, access, error);

    step();
    return r;
}

static int unmap(struct gpu *gpu, uint64_t address, uint64_t bytes, struct gpu_error *error)
{
    int r = real->span_unmap(gpu, address, bytes, error);

    step();
    return r;
}

static void ops_wrap(struct gpu *gpu)
{
    static struct gpu_ops ops;

    real = gpu->ops;
    ops = *real;
    ops.chunk_import_borrow = import;
    ops.chunk_release = release;
    ops.context_synchronize = synchronize;
    ops.range_reserve = reserve;
    ops.chunk_map = map;
    ops.span_set_access = set_access;
    ops.span_unmap = unmap;
    gpu->ops = &ops;
}

static void run_victim(const struct node *on, int fd, uint64_t at)
{
    struct gmb_lease_params params = {.size = sizeof(params),
        .bytes = 2 * CHUNK_BYTES,
        .max_bytes = 4 * CHUNK_BYTES,
        .wait_ns = WAIT_NS};
    gmb_session *session = worker_connect(on);
    gmb_lease *lease;

    ops_wrap(session->gpu);
    deadly = at;
    WORKER_CHECK(gmb_lease_new(session, &params, &lease) == 0);
    WORKER_CHECK(gmb_lease_grow(lease, CHUNK_BYTES, WAIT_NS) == 0);
    WORKER_CHECK(gmb_lease_shrink(lease, CHUNK_BYTES) == 0);
    WORKER_CHECK(gmb_lease_release(lease) == 0);
    gmb_disconnect(session);
}

START_TEST(death_at_any_step_gives_everything_back)
{
    uint64_t at = 0;
    int status;

    /* Room for one worker's lease alone: memory that stayed with a dead one would stop the next. */
    node_start(&node, 3 * CHUNK_BYTES, "[Tenant chat]\nUser=*\n");
    do {
        struct worker worker;

        worker_start(&node, &worker, run_victim, ++at);
        ck_assert_int_eq(waitpid(worker.pid, &status, 0), worker.pid);
        close_fd(&worker.fd);
        ck_assert_msg((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) || status == 0,
            "step %u: %#x", (unsigned) at, (unsigned) status);
        node_wait_idle(&node);
    } while (status != 0 && at < 200);
    /* 4 requests, each sent and answered, and the calls of the driver for 3 chunks. */
    ck_assert_int_eq(status, 0);
    ck_assert_uint_ge(at, 4 * 3 + 3 * 3 + 6);
    node_stop(&node);
}
END_TEST

UNIT_MAIN("client kill", death_at_any_step_gives_everything_back)
