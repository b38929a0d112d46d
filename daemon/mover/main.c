/*
 * gmbd-mover: copies pages between one device and the host tier for the broker that started it. It
 * holds the CUDA context that the broker must not have, and nothing else: when it dies, no byte of
 * the tier is lost, and another goes on.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/helper.h"
#include "base/log.h"
#include "daemon/mover/service.h"

#define USAGE "gmbd starts this program: gmbd-mover --gpu=cuda|sim --socket=FD [--user=NAME]\n"

int main(int argc, char **argv)
{
    enum gpu_driver driver = GPU_DRIVER_CUDA;
    struct helper_arguments arguments;
    Gmb__MoverExit status;
    bool clean;
    int r = helper_arguments_parse(argc, argv, &arguments);

    if (r == 0 && arguments.driver != NULL)
        r = gpu_driver_parse(arguments.driver, &driver);
    if (r < 0) {
        (void) fprintf(stderr, USAGE);
        return GMB__MOVER_EXIT__MOVER_EXIT_USAGE;
    }
    r = helper_confine("gmbd-mover", &arguments);
    if (r < 0) {
        log_error("gmbd-mover cannot be confined: %s", strerror(-r));
        return GMB__MOVER_EXIT__MOVER_EXIT_USAGE;
    }
    status = service_run(driver, arguments.socket_fd, &clean);
    if (!clean)
        _exit((int) status);
    return (int) status;
}
