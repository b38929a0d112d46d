/*
 * gmbd-slab: holds the device memory of one device that can't share it by file descriptor, for the
 * broker that started it. Memory of cuMemAlloc is its process's and needs a CUDA context, which the
 * broker must not have; so this process has it, and does as little as can be, since everything that
 * is leased on the device goes with it.
 */
#include <stdio.h>
#include <string.h>

#include "base/helper.h"
#include "base/log.h"
#include "daemon/slab/service.h"

#define USAGE "gmbd starts this program: gmbd-slab --gpu=cuda|sim --socket=FD [--user=NAME]\n"

int main(int argc, char **argv)
{
    enum gpu_driver driver = GPU_DRIVER_CUDA;
    struct helper_arguments arguments;
    int r = helper_arguments_parse(argc, argv, &arguments);

    if (r == 0 && arguments.driver != NULL)
        r = gpu_driver_parse(arguments.driver, &driver);
    if (r < 0) {
        (void) fprintf(stderr, USAGE);
        return SLAB_EXIT_USAGE;
    }
    r = helper_confine("gmbd-slab", &arguments);
    if (r < 0) {
        log_error("gmbd-slab cannot be confined: %s", strerror(-r));
        return SLAB_EXIT_USAGE;
    }
    return (int) service_run(driver, arguments.socket_fd);
}
