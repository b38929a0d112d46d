/* Waiting is polling with a deadline: the broker answers questions, and nothing sleeps blindly. */
#include "tests/client/node.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "client/ctl/control.h"
#include "tests/client/fds.h"

#define PATIENCE_MS 20000

static const char broker_section[] = "[Broker]\n"
                                     "RecycleIdle=20ms\n"
                                     "ObserveInterval=100ms\n";

/* True while there is patience left, after a short pause. */
static bool patient(uint64_t *deadline_ns)
{
    uint64_t now = clock_now(&clock_monotonic);

    if (*deadline_ns == 0)
        *deadline_ns = now + PATIENCE_MS * NSEC_PER_MSEC;
    (void) poll(NULL, 0, 5);
    return now < *deadline_ns;
}

void node_configure(const struct node *node, const char *tenants)
{
    FILE *file = fopen(node->config, "we");

    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fprintf(file, "%s\n%s", broker_section, tenants), 0);
    ck_assert_int_eq(fclose(file), 0);
}

static _Noreturn void become_broker(const struct node *node, pid_t parent)
{
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    (void) execl(getenv("GMBD"), "gmbd", "--gpu=sim", "--config", node->config, "--client-socket",
        node->client_socket, "--control-socket", node->control_socket, "--log-level", "warning",
        (char *) NULL);
    (void) fprintf(stderr, "gmbd can't be run: %s\n", strerror(errno));
    _exit(127);
}

static bool broker_ready(const struct node *node)
{
    struct outcome outcome;
    struct conn *conn;

    if (control_connect(node->control_socket, &conn, &outcome) < 0)
        return false;
    conn_free(conn);
    return true;
}

void node_start(struct node *node, uint64_t device_bytes, const char *tenants)
{
    char text[SCRATCH_PATH_BYTES + 8];
    uint64_t deadline_ns = 0;
    pid_t parent = getpid();

    ck_assert_msg(getenv("GMBD") != NULL, "GMBD names the broker to test");
    *node = (struct node){.open_fds = fds_open()};
    ck_assert_int_eq(scratch_make(node->directory), 0);
    (void) snprintf(node->client_socket, 96, "%s/client.sock", node->directory);
    (void) snprintf(node->control_socket, 96, "%s/control.sock", node->directory);
    (void) snprintf(node->config, 96, "%s/gmbd.conf", node->directory);
    node_configure(node, tenants);
    (void) snprintf(text, sizeof(text), "%s/sim", node->directory);
    /* For every user: workers of another tenant are another's. */
    ck_assert_int_eq(mkdir(text, 0777), 0);
    ck_assert_int_eq(chmod(text, 01777), 0);
    ck_assert_int_eq(setenv("GMB_SIM_DIR", text, 1), 0);
    (void) snprintf(text, sizeof(text), "%llu", (unsigned long long) device_bytes);
    ck_assert_int_eq(setenv("GMB_SIM_MEMORY", text, 1), 0);
    ck_assert_int_eq(setenv("GMB_SIM_FILL", "none", 1), 0);
    node->broker = fork();
    ck_assert_int_ge(node->broker, 0);
    if (node->broker == 0)
        become_broker(node, parent);
    while (!broker_ready(node))
        ck_assert_msg(patient(&deadline_ns), "gmbd doesn't start");
}

Gmb__ControlReply *node_status(const struct node *node)
{
    Gmb__ControlRequest request = GMB__CONTROL_REQUEST__INIT;
    Gmb__StatusGet get = GMB__STATUS_GET__INIT;
    struct outcome outcome = OUTCOME_OK;
    Gmb__ControlReply *reply = NULL;
    struct conn *conn = NULL;

    request.body_case = GMB__CONTROL_REQUEST__BODY_STATUS_GET;
    request.status_get = &get;
    if (control_connect(node->control_socket, &conn, &outcome) == 0)
        (void) control_ask(conn, &request, GMB__CONTROL_REPLY__BODY_STATUS, &reply, &outcome);
    conn_free(conn);
    ck_assert_msg(reply != NULL, "no status: %s", outcome.text);
    return reply;
}

uint64_t node_leased(const struct node *node)
{
    Gmb__ControlReply *reply = node_status(node);
    uint64_t bytes = reply->status->devices[0]->leased_bytes;

    frame_message_free(&reply->base);
    return bytes;
}

static bool idle(const struct node *node, char text[256])
{
    Gmb__ControlReply *reply = node_status(node);
    const Gmb__DeviceStatus *device = reply->status->devices[0];
    bool result = reply->status->clients == 0 &&
                  device->free_bytes == device->total_bytes - device->reserve_bytes;

    (void) snprintf(text, 256,
        "%u clients, %u leases, leased %llu cached %llu releasing %llu orphaned %llu "
        "unaccounted %llu free %llu",
        reply->status->clients, reply->status->leases, (unsigned long long) device->leased_bytes,
        (unsigned long long) device->cached_bytes, (unsigned long long) device->releasing_bytes,
        (unsigned long long) device->orphaned_bytes, (unsigned long long) device->unaccounted_bytes,
        (unsigned long long) device->free_bytes);
    frame_message_free(&reply->base);
    return result;
}

void node_wait_idle(const struct node *node)
{
    uint64_t deadline_ns = 0;
    char text[256];

    while (!idle(node, text))
        ck_assert_msg(patient(&deadline_ns), "memory doesn't come back: %s", text);
}

void node_kill_broker(struct node *node)
{
    ck_assert_int_eq(kill(node->broker, SIGKILL), 0);
    ck_assert_int_eq(waitpid(node->broker, NULL, 0), node->broker);
    node->broker = -1;
}

void node_stop(struct node *node)
{
    int status;

    if (node->broker > 0) {
        node_wait_idle(node);
        ck_assert_int_eq(kill(node->broker, SIGTERM), 0);
        ck_assert_int_eq(waitpid(node->broker, &status, 0), node->broker);
        ck_assert_msg(
            WIFEXITED(status) && WEXITSTATUS(status) == 0, "gmbd ends with %#x", (unsigned) status);
    }
    ck_assert_int_eq(scratch_remove(node->directory), 0);
    ck_assert_uint_eq(fds_open(), node->open_fds);
}

void worker_start(const struct node *node, struct worker *worker,
    void (*run)(const struct node *node, int fd, uint64_t argument), uint64_t argument)
{
    pid_t parent = getpid();
    int pair[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    worker->pid = fork();
    ck_assert_int_ge(worker->pid, 0);
    if (worker->pid == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void) close(pair[0]);
        if (getppid() == parent)
            run(node, pair[1], argument);
        _exit(0);
    }
    (void) close(pair[1]);
    worker->fd = pair[0];
}

void worker_end(struct worker *worker)
{
    int status;

    ck_assert_int_eq(waitpid(worker->pid, &status, 0), worker->pid);
    ck_assert_msg(
        WIFEXITED(status) && WEXITSTATUS(status) == 0, "worker ends with %#x", (unsigned) status);
    close_fd(&worker->fd);
}

void worker_kill(struct worker *worker)
{
    ck_assert_int_eq(kill(worker->pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(worker->pid, NULL, 0), worker->pid);
    close_fd(&worker->fd);
}

void say(int fd, uint64_t number)
{
    if (send(fd, &number, sizeof(number), MSG_NOSIGNAL) != sizeof(number))
        worker_fail(__FILE__, __LINE__, "the other end hears");
}

uint64_t hear(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    uint64_t number;

    if (poll(&poll_fd, 1, PATIENCE_MS) != 1 ||
        recv(fd, &number, sizeof(number), 0) != sizeof(number))
        worker_fail(__FILE__, __LINE__, "the other end says something");
    return number;
}

_Noreturn void worker_fail(const char *file, int line, const char *condition)
{
    (void) fprintf(stderr, "%s:%d: not so: %s (%s)\n", file, line, condition, gmb_error_text());
    _exit(1);
}

gmb_session *worker_connect(const struct node *node)
{
    struct gmb_options options = {.size = sizeof(options), .socket = node->client_socket};
    gmb_session *session = NULL;

    WORKER_CHECK(gmb_connect(&options, &session) == 0);
    return session;
}

static void symbol_get(
    const gmb_session *session, const char *name, void *ret_function, size_t size)
{
    void *symbol = gmb_driver_symbol(session, name);

    WORKER_CHECK(symbol != NULL);
    memcpy(ret_function, &symbol, size);
}

static void context_set(const gmb_session *session, const gmb_lease *lease)
{
    int (*set_current)(void *context);

    symbol_get(session, "cuCtxSetCurrent", &set_current, sizeof(set_current));
    WORKER_CHECK(set_current(gmb_lease_context(lease)) == 0);
}

void lease_fill(const gmb_session *session, const gmb_lease *lease, uint64_t offset, uint64_t bytes,
    unsigned char value)
{
    int (*fill)(unsigned long long to, unsigned char value, size_t bytes);

    symbol_get(session, "cuMemsetD8_v2", &fill, sizeof(fill));
    context_set(session, lease);
    WORKER_CHECK(fill(gmb_lease_address(lease) + offset, value, bytes) == 0);
}

bool lease_holds(const gmb_session *session, const gmb_lease *lease, uint64_t offset,
    uint64_t bytes, unsigned char value)
{
    int (*to_host)(void *to, unsigned long long from, size_t bytes);
    _cleanup_free_ unsigned char *copy = malloc(bytes);

    WORKER_CHECK(copy != NULL);
    symbol_get(session, "cuMemcpyDtoH_v2", &to_host, sizeof(to_host));
    context_set(session, lease);
    WORKER_CHECK(to_host(copy, gmb_lease_address(lease) + offset, bytes) == 0);
    for (uint64_t i = 0; i < bytes; i++) {
        if (copy[i] != value)
            return false;
    }
    return true;
}
