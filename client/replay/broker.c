/*
 * The directories lie in $TMPDIR; where that is not set, in /tmp, and the memory of the device in
 * /dev/shm if it has room, since a simulated GPU on a disk would measure the disk.
 */
#include "client/replay/broker.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "client/replay/broker_config.h"
#include "client/replay/control.h"
#include "client/replay/program.h"

#define START_SECONDS 10
#define STOP_SECONDS 5

static int fail(char error[BROKER_ERROR_BYTES], int code, const char *what)
{
    (void) snprintf(error, BROKER_ERROR_BYTES, "%s: %s", what, strerror(-code));
    return code;
}

/* ---- directory ---- */

static int remove_entry(const char *path, const struct stat *stat, int type, struct FTW *place)
{
    (void) stat;
    (void) type;
    (void) place;
    (void) remove(path);
    return 0;
}

static void remove_tree(const char *path)
{
    if (*path != '\0')
        (void) nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static bool has_room(const char *dir, uint64_t bytes)
{
    struct statvfs fs;

    return access(dir, W_OK | X_OK) == 0 && statvfs(dir, &fs) == 0 &&
           (uint64_t) fs.f_bavail * fs.f_frsize > bytes;
}

static int make_dir(const char *parent, const char *suffix, char ret[BROKER_PATH_BYTES])
{
    int n = snprintf(ret, BROKER_PATH_BYTES, "%s/gmb-replay%s-XXXXXX", parent, suffix);

    /* Room for the names of what goes into it. */
    if (n < 0 || n >= BROKER_PATH_BYTES - 16) {
        ret[0] = '\0';
        return -ENAMETOOLONG;
    }
    if (!mkdtemp(ret)) {
        ret[0] = '\0';
        return -errno;
    }
    return 0;
}

static int make_dirs(struct broker *broker, uint64_t device_bytes)
{
    const char *chosen = getenv("TMPDIR");
    const uint64_t room = device_bytes + (device_bytes >> 4);
    const char *parent = chosen && chosen[0] == '/' ? chosen : "/tmp";
    int r;

    r = make_dir(parent, "", broker->dir);
    if (r < 0)
        return r;
    (void) snprintf(broker->client_socket, BROKER_PATH_BYTES, "%.90s/client.sock", broker->dir);
    (void) snprintf(broker->control_socket, BROKER_PATH_BYTES, "%.90s/control.sock", broker->dir);
    if (parent != chosen && has_room("/dev/shm", room))
        parent = "/dev/shm";
    return make_dir(parent, "-device", broker->sim_dir);
}

/* ---- process ---- */

static void set_environment(const struct broker *broker, const struct sizing *sizing)
{
    char number[24];

    (void) setenv("GMB_SIM_DIR", broker->sim_dir, 1);
    (void) setenv("GMB_SIM_DEVICES", "1", 1);
    (void) snprintf(number, sizeof(number), "%llu",
        (unsigned long long) (sizing->device_bytes + sizing->reserve_bytes));
    (void) setenv("GMB_SIM_MEMORY", number, 1);
    (void) snprintf(number, sizeof(number), "%llu", (unsigned long long) sizing->granularity_bytes);
    (void) setenv("GMB_SIM_GRANULARITY", number, 1);
}

static _Noreturn void become_broker(const struct broker *broker, const char *config, pid_t parent)
{
    char program[PROGRAM_PATH_BYTES];

    process_tie_to_parent(parent);
    program_find("gmbd", "daemon", program);
    (void) execlp(program, "gmbd", "--gpu", "sim", "--config", config, "--client-socket",
        broker->client_socket, "--control-socket", broker->control_socket, "--log-level", "warning",
        (char *) NULL);
    fprintf(stderr, "gmb-replay: cannot start %s: %s\n", program, strerror(errno));
    _exit(127);
}

static bool has_ended(struct broker *broker, int *ret_status)
{
    pid_t pid = waitpid(broker->pid, ret_status, WNOHANG);

    if (pid == 0)
        return false;
    broker->pid = 0;
    return true;
}

/* A look every few milliseconds: gmbd listens once it is ready. */
static int await_answer(struct broker *broker)
{
    const struct timespec pause = {.tv_nsec = 5 * (long) NSEC_PER_MSEC};
    uint64_t deadline_ns = clock_now(&clock_monotonic) + START_SECONDS * NSEC_PER_SEC;
    struct control_memory memory;
    int status;

    while (clock_now(&clock_monotonic) < deadline_ns) {
        if (control_memory(broker->control_socket, 1000, &memory) == 0)
            return 0;
        if (has_ended(broker, &status))
            return -ECHILD;
        (void) nanosleep(&pause, NULL);
    }
    return -ETIMEDOUT;
}

static int start(struct broker *broker, const char *config)
{
    const pid_t self = getpid();

    (void) fflush(NULL);
    broker->pid = fork();
    if (broker->pid < 0) {
        broker->pid = 0;
        return -errno;
    }
    if (broker->pid == 0)
        become_broker(broker, config, self);
    return await_answer(broker);
}

int broker_start(const struct sizing *sizing, const struct tenants *tenants, const char *config,
    const char *ladder, struct broker *ret, char error[BROKER_ERROR_BYTES])
{
    struct broker broker = {0};
    char own_config[BROKER_PATH_BYTES];
    int r;

    r = make_dirs(&broker, sizing->device_bytes);
    if (r < 0)
        (void) fail(error, r, "cannot make a directory for the broker");
    if (r == 0 && !config) {
        (void) snprintf(own_config, sizeof(own_config), "%.90s/gmbd.conf", broker.dir);
        config = own_config;
        r = broker_config_write(config, sizing, tenants, ladder);
        if (r < 0)
            (void) fail(error, r, "cannot write the broker's configuration");
    }
    if (r == 0) {
        set_environment(&broker, sizing);
        r = start(&broker, config);
        if (r < 0)
            (void) fail(error, r, r == -ECHILD ? "gmbd ended at once" : "gmbd doesn't answer");
    }
    if (r < 0) {
        (void) broker_stop(&broker);
        return r;
    }
    *ret = broker;
    return 0;
}

int broker_stop(struct broker *broker)
{
    const struct timespec pause = {.tv_nsec = 5 * (long) NSEC_PER_MSEC};
    uint64_t deadline_ns = clock_now(&clock_monotonic) + STOP_SECONDS * NSEC_PER_SEC;
    int status = 0;

    if (broker->pid > 0) {
        (void) kill(broker->pid, SIGTERM);
        while (!has_ended(broker, &status)) {
            if (clock_now(&clock_monotonic) >= deadline_ns)
                (void) kill(broker->pid, SIGKILL);
            (void) nanosleep(&pause, NULL);
        }
    }
    remove_tree(broker->sim_dir);
    remove_tree(broker->dir);
    broker->sim_dir[0] = '\0';
    broker->dir[0] = '\0';
    return status == 0 ? 0 : -EPROTO;
}
