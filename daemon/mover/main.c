/*
 * gmbd-mover: copies pages between one device and the host tier for the broker that started it. It
 * holds the CUDA context that the broker must not have, and nothing else: when it dies, no byte of
 * the tier is lost, and another goes on.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "daemon/mover/confine.h"
#include "daemon/mover/service.h"

struct arguments {
    enum gpu_driver driver;
    const char *user;
    int socket_fd;
};

static int fd_parse(const char *text, int *ret)
{
    char *end;
    long value;

    errno = 0;
    value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value <= STDERR_FILENO || value > INT32_MAX)
        return -EINVAL;
    *ret = (int) value;
    return 0;
}

static int arguments_parse(int argc, char **argv, struct arguments *ret)
{
    static const struct option options[] = {
        {"gpu", required_argument, NULL, 'g'},
        {"socket", required_argument, NULL, 's'},
        {"user", required_argument, NULL, 'u'},
        {0},
    };
    struct arguments arguments = {.driver = GPU_DRIVER_CUDA, .socket_fd = -1};
    int option, r = 0;

    while (r == 0 && (option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
        if (option == 'g')
            r = gpu_driver_parse(optarg, &arguments.driver);
        else if (option == 's')
            r = fd_parse(optarg, &arguments.socket_fd);
        else if (option == 'u')
            arguments.user = optarg;
        else
            r = -EINVAL;
    }
    if (r < 0 || optind != argc || arguments.socket_fd < 0)
        return -EINVAL;
    *ret = arguments;
    return 0;
}

int main(int argc, char **argv)
{
    struct arguments arguments;
    Gmb__MoverExit status;
    bool clean;
    int r = arguments_parse(argc, argv, &arguments);

    if (r < 0) {
        (void) fprintf(stderr, "gmbd starts this program: gmbd-mover --gpu=cuda|sim --socket=FD "
                               "[--user=NAME]\n");
        return GMB__MOVER_EXIT__MOVER_EXIT_USAGE;
    }
    r = confine(arguments.socket_fd, arguments.user);
    if (r < 0) {
        log_error("gmbd-mover cannot be confined: %s", strerror(-r));
        return GMB__MOVER_EXIT__MOVER_EXIT_USAGE;
    }
    status = service_run(arguments.driver, arguments.socket_fd, &clean);
    if (!clean)
        _exit((int) status);
    return (int) status;
}
