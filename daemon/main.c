/*
 * gmbd: options, driver, configuration, sockets, loop. What goes wrong before the loop is said in
 * one sentence and ends with status 1; in the loop nothing that a peer does ends it.
 */
#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <systemd/sd-daemon.h>

#include "base/log.h"
#include "daemon/broker.h"
#include "daemon/bus/bus.h"
#include "daemon/ending.h"
#include "daemon/notify.h"
#include "daemon/options.h"
#include "daemon/server.h"
#include "daemon/signals.h"

/* Sockets, loop, driver, a mover's start: to say anything at all. */
#define FDS_TO_START 64

/* Everything that main() owns; parts that weren't made are NULL. */
struct program {
    struct options options;
    struct gpu *gpu;
    struct config *config; /* until the broker owns it */
    struct event_base *base;
    struct broker *broker;
    struct notify *notify;
    struct server *server;
    struct ending *ending;
    struct bus *bus;
    struct signals *signals;
};

static void program_clear(struct program *program)
{
    (void) signals_free(program->signals);
    (void) ending_free(program->ending);
    (void) bus_free(program->bus);
    (void) server_free(program->server);
    (void) notify_free(program->notify);
    (void) broker_free(program->broker);
    (void) config_free(program->config);
    if (program->base != NULL)
        event_base_free(program->base);
    (void) gpu_close(program->gpu);
}

/* Each client costs two fds, each frame of a grant up to 128 for a moment. */
static void fd_limit_raise(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        log_warning("cannot raise the number of open files: %s", strerror(errno));
}

/* What was passed can't be given back to make room: it stays where it is kept, and somebody is
 * told. */
static int fd_room_check(void)
{
    int passed = sd_listen_fds(0);
    struct rlimit limit;

    if (passed <= 0 || getrlimit(RLIMIT_NOFILE, &limit) < 0 ||
        limit.rlim_cur >= (rlim_t) passed + FDS_TO_START)
        return 0;
    log_error("%d file descriptors were passed, %d more are needed to start, and this process may "
              "have %llu open (RLIMIT_NOFILE): raise LimitNOFILE=",
        passed, FDS_TO_START, (unsigned long long) limit.rlim_cur);
    return -EMFILE;
}

/* What the service manager lets this process do is not for its children: movers get none of it. */
static void capabilities_keep(void)
{
    (void) prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
}

static int driver_open(struct program *program)
{
    const struct options *options = &program->options;
    enum gpu_driver driver = options->driver_auto ? GPU_DRIVER_CUDA : options->driver;
    struct gpu_error error = {0};
    int r = gpu_open(driver, GPU_ROLE_BROKER, &program->gpu, &error);

    if (r < 0) {
        log_error("no GPU driver: tried %s: %s%s", gpu_driver_name(driver),
            error.text[0] != '\0' ? error.text : strerror(-r),
            driver == GPU_DRIVER_CUDA ? "; --gpu=sim runs on a simulated GPU" : "");
        return r;
    }
    if (program->gpu->device_count == 0) {
        log_error("the driver %s has no device", gpu_driver_name(driver));
        return -ENODEV;
    }
    return 0;
}

static int configuration_load(struct program *program)
{
    const struct options *options = &program->options;
    struct config_device devices[LIMIT_DEVICES];
    char error[CONFIG_ERROR_BYTES];
    size_t count = broker_config_devices(program->gpu, devices);
    int r;

    r = config_load(options->config != NULL ? options->config : CONFIG_PATH_DEFAULT,
        options->config != NULL, devices, count, &program->config, error);
    if (r < 0) {
        log_error("configuration refused: %s", error);
        return r;
    }
    log_set_level(options->has_log_level ? options->log_level : program->config->log_level);
    broker_config_remark(program->config);
    return 0;
}

/* Sockets that systemd or the keeper passed, by name. Before anything else that was passed is taken
 * up: libsystemd finds none of it any more once one of those fds is closed. */
static int sockets_inherit(struct listen_socket *client, struct listen_socket *control)
{
    char error[LISTEN_ERROR_BYTES];
    int r = listen_activated("client", client, error);

    if (r >= 0)
        r = listen_activated("control", control, error);
    if (r < 0)
        log_error("%s", error);
    return MIN(r, 0);
}

/* Those that weren't are bound here. */
static int sockets_bind(
    const struct program *program, struct listen_socket *client, struct listen_socket *control)
{
    const struct config *config = program->broker->config;
    const struct options *options = &program->options;
    gid_t group = config->has_control_group ? config->control_group : (gid_t) -1;
    char error[LISTEN_ERROR_BYTES];
    int r = 0;

    if (client->fd < 0)
        r = listen_bind(
            options->client_socket != NULL ? options->client_socket : config->client_socket, 0666,
            (gid_t) -1, client, error);
    if (r == 0 && control->fd < 0)
        r = listen_bind(
            options->control_socket != NULL ? options->control_socket : config->control_socket,
            0660, group, control, error);
    if (r < 0)
        log_error("%s", error);
    return r;
}

static int program_start(struct program *program)
{
    struct listen_socket client = LISTEN_SOCKET_NONE, control = LISTEN_SOCKET_NONE;
    const struct options *options = &program->options;
    char error[CONFIG_ERROR_BYTES];
    bool bus;
    int r;

    program->base = event_base_new();
    if (program->base == NULL) {
        log_error("no event loop: %s", strerror(errno));
        return -ENOMEM;
    }
    r = sockets_inherit(&client, &control);
    if (r < 0)
        return r;
    if (control.fd >= 0 && program->config->has_control_group)
        log_warning("ControlGroup= has no effect: the socket is the service manager's");
    r = broker_new(
        program->base, &clock_monotonic, program->gpu, program->config, &program->broker, error);
    if (r < 0) {
        listen_close(&client);
        listen_close(&control);
        log_error("cannot start: %s", error);
        return r;
    }
    program->config = NULL; /* the broker's now */
    program->broker->config_path = options->config != NULL ? options->config : CONFIG_PATH_DEFAULT;
    program->broker->config_required = options->config != NULL;
    r = sockets_bind(program, &client, &control);
    if (r < 0) {
        listen_close(&client);
        listen_close(&control);
        return r;
    }
    /* One that makes its own sockets is somebody's trial: the name is the service's. */
    bus = options->dbus == OPTIONS_DBUS_YES ||
          (options->dbus == OPTIONS_DBUS_AUTO && control.path == NULL);
    r = server_new_consume(program->broker, &client, &control, &program->server);
    if (r == 0 && bus)
        r = bus_new(program->broker, &program->bus);
    if (r == 0)
        r = notify_new(program->broker, &program->notify);
    if (r == 0)
        r = ending_new(program->broker, program->server, &program->ending);
    if (r == 0)
        r = signals_new(program->broker, program->notify, program->ending, &program->signals);
    if (r < 0)
        log_error("cannot serve: %s", strerror(-r));
    return r;
}

static int program_run(struct program *program)
{
    size_t devices = program->gpu->device_count;
    size_t tenants = program->broker->config->tenant_count;

    log_notice("ready: driver %s, %zu device%s, %zu tenant%s",
        gpu_driver_name(program->gpu->driver), devices, PLURAL_S(devices), tenants,
        PLURAL_S(tenants));
    notify_ready(program->notify);
    if (event_base_dispatch(program->base) < 0) {
        log_error("the event loop failed: %s", strerror(errno));
        return -EIO;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct program program = {0};
    int r = options_parse(argc, argv, &program.options);

    if (r != OPTIONS_RUN)
        return r == OPTIONS_DONE ? EXIT_SUCCESS : EXIT_FAILURE;
    fd_limit_raise();
    capabilities_keep();
    r = fd_room_check();
    if (r == 0)
        r = driver_open(&program);
    if (r == 0)
        r = configuration_load(&program);
    if (r == 0 && program.options.check_config) {
        (void) printf("the configuration is valid: %zu tenant%s\n", program.config->tenant_count,
            PLURAL_S(program.config->tenant_count));
    } else if (r == 0) {
        r = program_start(&program);
        if (r == 0)
            r = program_run(&program);
    }
    program_clear(&program);
    return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
