/* See harness.h. */
#include "tests/integration/harness.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

uint64_t harness_now_ms(void)
{
    struct timespec now;

    (void) clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t) now.tv_sec * 1000 + (uint64_t) now.tv_nsec / 1000000;
}

void harness_breathe(void)
{
    (void) poll(NULL, 0, 2);
}

/* The log is what tells why; so it is printed before the test ends. */
static void log_print(const struct harness *harness)
{
    _cleanup_close_ int fd = open(harness->log, O_RDONLY | O_CLOEXEC);
    char text[4096];
    ssize_t n;

    while (fd >= 0 && (n = read(fd, text, sizeof(text))) > 0)
        (void) fwrite(text, 1, (size_t) n, stderr);
}

#define harness_fail(harness, ...)                                                                 \
    do {                                                                                           \
        log_print(harness);                                                                        \
        ck_abort_msg(__VA_ARGS__);                                                                 \
    } while (0)

size_t harness_log_count(const struct harness *harness, const char *text)
{
    FILE *file = fopen(harness->log, "re");
    _cleanup_free_ char *line = NULL;
    size_t room = 0, count = 0;

    while (file != NULL && getline(&line, &room, file) >= 0)
        count += strstr(line, text) != NULL;
    if (file != NULL)
        (void) fclose(file);
    return count;
}

bool harness_logged(const struct harness *harness, const char *text)
{
    return harness_log_count(harness, text) > 0;
}

/* ------------------------------------------------------------------ processes */

struct process {
    char name[32], state; /* 'Z': it has ended */
    pid_t parent;
};

/* False when there is none. */
static bool process_read(pid_t pid, struct process *ret)
{
    char path[64];
    bool found;
    FILE *file;

    (void) snprintf(path, sizeof(path), "/proc/%d/stat", (int) pid);
    file = fopen(path, "re");
    if (file == NULL)
        return false;
    found = fscanf(file, "%*d (%31[^)]) %c %d", ret->name, &ret->state, &ret->parent) == 3;
    (void) fclose(file);
    return found;
}

char harness_process_state(pid_t pid)
{
    struct process process;

    return process_read(pid, &process) ? process.state : '?';
}

/* ------------------------------------------------------------------ start */

static int notify_open(const struct harness *harness, struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    (void) snprintf(address->sun_path, sizeof(address->sun_path), "%s/notify", harness->dir);
    (void) unlink(address->sun_path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *) address, sizeof(*address)), 0);
    return fd;
}

/* Our child: the broker, or the keeper above it. */
static pid_t top(const struct harness *harness)
{
    return harness->keeper != 0 ? harness->keeper : harness->pid;
}

/* What a test that ends early would leave: a keeper that is killed can't tidy up. */
static struct {
    pid_t owner, keeper, broker; /* 0: none */
    char notify[128];            /* the keeper's socket, alone in its folder */
} kept;

static void ready_wait(struct harness *harness)
{
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;
    struct pollfd poll_fd = {.fd = harness->notify_fd, .events = POLLIN};
    char text[512];

    for (;;) {
        ssize_t n;

        if (waitpid(top(harness), NULL, WNOHANG) == top(harness)) {
            harness->pid = harness->keeper = kept.keeper = 0;
            harness_fail(harness, "the broker ended before it was ready");
        }
        if (harness_now_ms() > deadline)
            harness_fail(harness, "the broker wasn't ready in time");
        if (poll(&poll_fd, 1, 50) <= 0)
            continue;
        n = recv(harness->notify_fd, text, sizeof(text) - 1, 0);
        text[n > 0 ? n : 0] = '\0';
        if (strstr(text, "READY=1") != NULL)
            return;
    }
}

static const char *log_level(void)
{
    return getenv("GMBD_LOG_LEVEL") != NULL ? getenv("GMBD_LOG_LEVEL") : "debug";
}

/* Adds an option with what the environment says, if it does. */
static size_t option_add(const char **arguments, size_t count, const char *name, const char *from)
{
    const char *value = getenv(from);

    if (value == NULL)
        return count;
    arguments[count] = name;
    arguments[count + 1] = value;
    return count + 2;
}

static void keeper_exec(const struct harness *harness, const char *path)
{
    const char *keeper = getenv("GMBD_KEEPER"), *other = getenv("GMBD_UNDER_KEEPER");
    char client[128], control[128];
    const char *arguments[24] = {keeper, "--listen", client, "--listen", control};
    const char *const broker[] = {"--", other != NULL ? other : path, "--gpu=sim", "--config",
        harness->config, "--log-level", log_level()};
    size_t count = 5;

    if (keeper == NULL)
        _exit(126);
    (void) snprintf(client, sizeof(client), "client=%s", harness->client_socket);
    (void) snprintf(control, sizeof(control), "control=%s:0660", harness->control_socket);
    count = option_add(arguments, count, "--fds", "HARNESS_FDS");
    count = option_add(arguments, count, "--watchdog", "HARNESS_WATCHDOG");
    memcpy(arguments + count, broker, sizeof(broker));
    (void) execv(keeper, (char *const *) (uintptr_t) arguments);
    _exit(127);
}

static void broker_exec(const struct harness *harness)
{
    const char *path = getenv("GMBD");
    int log = open(harness->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

    /* A test that fails doesn't leave its broker behind. */
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getenv("HARNESS_NOFILE") != NULL) {
        rlim_t fds = strtoul(getenv("HARNESS_NOFILE"), NULL, 10);
        struct rlimit limit = {fds, fds};

        (void) setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (path == NULL || log < 0 || dup2(log, STDERR_FILENO) < 0)
        _exit(126);
    /* What this process has from a shell is nothing to count. */
    (void) close_range(STDERR_FILENO + 1, ~0u, CLOSE_RANGE_CLOEXEC);
    if (harness->keeper != 0)
        keeper_exec(harness, path);
    (void) execl(path, path, "--gpu=sim", "--config", harness->config, "--client-socket",
        harness->client_socket, "--control-socket", harness->control_socket, "--log-level",
        log_level(), NULL);
    _exit(127);
}

static void kept_remove(void)
{
    if (kept.owner != getpid())
        return; /* a fork of the test ends */
    if (kept.keeper > 0 && kill(kept.keeper, SIGKILL) == 0)
        (void) waitpid(kept.keeper, NULL, 0); /* it starts no other */
    if (kept.broker > 0)
        (void) kill(kept.broker, SIGKILL);
    if (kept.notify[0] != '\0') {
        (void) unlink(kept.notify);
        (void) rmdir(dirname(kept.notify));
    }
    memset(&kept, 0, sizeof(kept));
}

/* The environment that the broker was started with says where its keeper listens. */
static void kept_notify_read(pid_t broker)
{
    static const char name[] = "NOTIFY_SOCKET=";
    _cleanup_free_ char *line = NULL;
    char path[64];
    size_t room = 0;
    FILE *file;

    (void) snprintf(path, sizeof(path), "/proc/%d/environ", (int) broker);
    file = fopen(path, "re");
    while (file != NULL && getdelim(&line, &room, '\0', file) >= 0) {
        if (strncmp(line, name, strlen(name)) == 0)
            (void) snprintf(kept.notify, sizeof(kept.notify), "%s", line + strlen(name));
    }
    if (file != NULL)
        (void) fclose(file);
}

/* The broker that the keeper said last that it started; 0: none. */
static pid_t kept_said(const struct harness *harness)
{
    static const char text[] = "the broker is process ";
    FILE *file = fopen(harness->log, "re");
    _cleanup_free_ char *line = NULL;
    size_t room = 0;
    int pid = 0;

    while (file != NULL && getline(&line, &room, file) >= 0) {
        const char *said = strstr(line, text);

        if (said != NULL && strchr(said, ',') != NULL)
            pid = (int) strtol(said + strlen(text), NULL, 10);
    }
    if (file != NULL)
        (void) fclose(file);
    return (pid_t) pid;
}

/*
 * The broker that the keeper runs; waits for it. `before`: one that is gone. Its word alone tells
 * it from the other children of a keeper that adopts orphans: a mover or slab process whose broker
 * died before it became its own program has the broker's name.
 */
static pid_t kept_find(struct harness *harness, pid_t before)
{
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;
    struct process process;
    pid_t pid;

    for (;;) {
        pid = kept_said(harness);
        if (pid != 0 && pid != before && process_read(pid, &process) && process.state != 'Z' &&
            process.parent == harness->keeper)
            break;
        if (harness_now_ms() > deadline)
            harness_fail(harness, "the keeper starts no broker");
        harness_breathe();
    }
    kept.broker = pid;
    return pid;
}

static void broker_start(struct harness *harness)
{
    struct sockaddr_un address;

    harness->notify_fd = notify_open(harness, &address);
    (void) setenv("NOTIFY_SOCKET", address.sun_path, 1);
    harness->pid = fork();
    ck_assert_int_ge(harness->pid, 0);
    if (harness->pid == 0)
        broker_exec(harness);
    (void) unsetenv("NOTIFY_SOCKET");
    if (harness->keeper != 0) {
        kept.owner = getpid();
        kept.keeper = harness->pid;
        harness->keeper = harness->pid;
    }
    ready_wait(harness);
    if (harness->keeper != 0) {
        harness->pid = kept_find(harness, 0);
        kept_notify_read(harness->pid);
    }
}

void harness_configure(const struct harness *harness, const char *text)
{
    FILE *file = fopen(harness->config, "we");

    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

/*
 * What the broker has open when nobody is connected. READY comes from within a call that has a
 * socket open for it; so an operator's connection is made, and once that is accepted the broker is
 * past the call and has exactly this one more.
 */
static size_t fds_at_rest(const struct harness *harness)
{
    static const uint8_t status_get[] = {8, 1, 18, 0};
    _cleanup_close_ int fd = harness_dial(harness->control_socket);
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    ck_assert_int_eq(send(fd, status_get, sizeof(status_get), 0), sizeof(status_get));
    ck_assert_int_eq(poll(&poll_fd, 1, HARNESS_DEADLINE_MS), 1);
    return harness_open_fds(harness->pid) - 1;
}

/* A copy, as putenv(3) would go on with the caller's own. */
static void environment_set(const char *entry)
{
    const char *value = strchr(entry, '=');
    _cleanup_free_ char *name = NULL;

    ck_assert_ptr_nonnull(value);
    name = strndup(entry, (size_t) (value - entry));
    ck_assert_ptr_nonnull(name);
    ck_assert_int_eq(setenv(name, value + 1, 1), 0);
}

static void start(struct harness *harness, const char *text, const char *const *environment)
{
    struct gpu_error error = {0};
    char sim[80];

    ck_assert_int_eq(scratch_make(harness->dir), 0);
    (void) snprintf(
        harness->client_socket, sizeof(harness->client_socket), "%s/client.sock", harness->dir);
    (void) snprintf(
        harness->control_socket, sizeof(harness->control_socket), "%s/control.sock", harness->dir);
    (void) snprintf(harness->config, sizeof(harness->config), "%s/gmbd.conf", harness->dir);
    (void) snprintf(harness->log, sizeof(harness->log), "%s/log", harness->dir);
    (void) snprintf(sim, sizeof(sim), "%s/sim", harness->dir);
    /* The broker's mover is another user where the broker is root's. */
    ck_assert_int_eq(mkdir(sim, 0700), 0);
    ck_assert_int_eq(chmod(sim, 01777), 0);
    (void) setenv("GMB_SIM_DIR", sim, 1);
    (void) setenv("GMB_SIM_MEMORY", "1G", 0);
    harness_configure(harness, text != NULL ? text : HARNESS_BROKER HARNESS_TENANT);
    for (size_t i = 0; environment != NULL && environment[i] != NULL; i++)
        environment_set(environment[i]);
    broker_start(harness);
    if (gpu_open(GPU_DRIVER_SIM, GPU_ROLE_BROKER, &harness->gpu, &error) < 0)
        harness_fail(harness, "the simulated GPU can't be opened: %s", error.text);
    harness->base_fds = fds_at_rest(harness);
    harness->base_free_bytes = harness_free_bytes(harness);
}

void harness_start_with(struct harness *harness, const char *text, const char *const *environment)
{
    *harness = (struct harness){.notify_fd = -1};
    start(harness, text, environment);
}

void harness_start_kept(struct harness *harness, const char *text, const char *const *environment)
{
    (void) atexit(kept_remove);
    *harness = (struct harness){.notify_fd = -1, .keeper = -1};
    start(harness, text, environment);
}

void harness_succeed(struct harness *harness, int signal)
{
    pid_t before = harness->pid;

    if (signal != 0)
        ck_assert_int_eq(kill(before, signal), 0);
    harness->pid = kept_find(harness, before);
    /* Answered by one that is ready. */
    (void) fds_at_rest(harness);
}

void harness_find(struct harness *harness)
{
    harness->pid = kept_find(harness, 0);
    (void) fds_at_rest(harness);
}

void harness_keeper_renew(struct harness *harness)
{
    static const char text[] = "took over from an earlier keeper";
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;
    size_t before = harness_log_count(harness, text);

    ck_assert_int_eq(kill(harness->keeper, SIGUSR2), 0);
    while (harness_log_count(harness, text) == before) {
        if (harness_now_ms() > deadline)
            harness_fail(harness, "the keeper doesn't hand over");
        harness_breathe();
    }
}

void harness_start(struct harness *harness, const char *text)
{
    harness_start_with(harness, text, NULL);
}

/* ------------------------------------------------------------------ end */

static void folder_remove(struct harness *harness)
{
    harness->gpu = gpu_close(harness->gpu);
    ck_assert_int_eq(scratch_remove(harness->dir), 0);
}

static void broker_gone(struct harness *harness)
{
    harness->pid = harness->keeper = 0;
    memset(&kept, 0, sizeof(kept));
    close_fd(&harness->notify_fd);
}

void harness_kill(struct harness *harness)
{
    ck_assert_int_eq(kill(harness->pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(harness->pid, NULL, 0), harness->pid);
    broker_gone(harness);
}

void harness_restart(struct harness *harness)
{
    broker_start(harness);
}

void harness_stop(struct harness *harness)
{
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;
    int status = 0;
    pid_t ended;

    harness_settle(harness);
    ck_assert_int_eq(kill(top(harness), SIGTERM), 0);
    while ((ended = waitpid(top(harness), &status, WNOHANG)) == 0) {
        if (harness_now_ms() > deadline)
            harness_fail(harness, "the broker doesn't end on SIGTERM");
        harness_breathe();
    }
    if (ended != top(harness) || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        harness_fail(harness, "the broker ended with status %d", status);
    broker_gone(harness);
    folder_remove(harness);
}

void harness_discard(struct harness *harness)
{
    if (harness->keeper != 0) {
        ck_assert_int_eq(kept.owner, getpid());
        kept_remove();
        broker_gone(harness);
    } else {
        harness_kill(harness);
    }
    folder_remove(harness);
}

/* ------------------------------------------------------------------ looks */

size_t harness_open_fds(pid_t pid)
{
    char path[32];
    size_t count = 0;
    DIR *folder;

    (void) snprintf(path, sizeof(path), "/proc/%d/fd", (int) pid);
    folder = opendir(path);
    ck_assert_ptr_nonnull(folder);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        count += entry->d_name[0] != '.';
    (void) closedir(folder);
    return count;
}

/* The broker's children of that name that live, at most `max`. */
static size_t children(const struct harness *harness, const char *wanted, pid_t *ret, size_t max)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    size_t count = 0;

    ck_assert_ptr_nonnull(proc);
    while ((entry = readdir(proc)) != NULL) {
        pid_t pid = (pid_t) strtol(entry->d_name, NULL, 10);
        struct process process;

        if (pid == 0 || !process_read(pid, &process) || process.parent != harness->pid ||
            strcmp(process.name, wanted) != 0 || process.state == 'Z')
            continue;
        ck_assert_uint_lt(count, max);
        ret[count++] = pid;
    }
    (void) closedir(proc);
    return count;
}

size_t harness_movers(const struct harness *harness, pid_t *ret, size_t max)
{
    return children(harness, "gmbd-mover", ret, max);
}

pid_t harness_slab(const struct harness *harness)
{
    pid_t pid = 0;

    return children(harness, "gmbd-slab", &pid, 1) == 1 ? pid : 0;
}

static struct gpu_memory memory_of(const struct harness *harness, const struct gpu_device *device)
{
    struct gpu_memory memory = {0};
    struct gpu_error error = {0};

    if (harness->gpu->ops->memory_info(harness->gpu, device, &memory, &error) != 0)
        harness_fail(harness, "free memory: %s", error.text);
    return memory;
}

uint64_t harness_free_bytes(const struct harness *harness)
{
    return memory_of(harness, harness->gpu->devices[0]).free_bytes;
}

uint64_t harness_used_bytes(const struct harness *harness, const char *uuid)
{
    const struct gpu_device *device = gpu_device_find(harness->gpu, uuid);
    struct gpu_memory memory;

    ck_assert_ptr_nonnull(device);
    memory = memory_of(harness, device);
    return memory.total_bytes - memory.free_bytes;
}

bool harness_settled(struct harness *harness, unsigned ms, char reason[128])
{
    uint64_t deadline = harness_now_ms() + ms;

    for (;;) {
        size_t fds = harness_open_fds(harness->pid);
        uint64_t free_bytes = harness_free_bytes(harness);

        if (fds == harness->base_fds && free_bytes == harness->base_free_bytes)
            return true;
        if (harness_now_ms() >= deadline) {
            (void) snprintf(reason, 128, "fds: %zu, were %zu; free bytes: %llu, were %llu", fds,
                harness->base_fds, (unsigned long long) free_bytes,
                (unsigned long long) harness->base_free_bytes);
            return false;
        }
        harness_breathe();
    }
}

void harness_settle(struct harness *harness)
{
    char reason[128];

    if (!harness_settled(harness, HARNESS_DEADLINE_MS, reason))
        harness_fail(harness, "the broker isn't as it was: %s", reason);
}

int harness_dial(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    ck_assert_int_ge(fd, 0);
    ck_assert_uint_lt(strlen(path), sizeof(address.sun_path));
    memcpy(address.sun_path, path, strlen(path));
    ck_assert_msg(connect(fd, (struct sockaddr *) &address, sizeof(address)) == 0, "connect: %s",
        strerror(errno));
    return fd;
}
