/*
 * A small worker: takes a lease, writes to it, grows it, finds its bytes unharmed, gives it back.
 *
 *     cc worker.c $(pkg-config --cflags --libs gmb) -o worker && ./worker
 *
 * It calls the driver through gmb_driver_symbol(), so that it runs on the simulated driver too. A
 * program that uses the CUDA runtime calls cudaMemcpy() and its kernels with the address instead.
 */
#include <gmb.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

typedef int (*set_current_fn)(void *context);
typedef int (*to_device_fn)(uint64_t to, const void *from, size_t bytes);
typedef int (*to_host_fn)(void *to, uint64_t from, size_t bytes);

struct driver {
    set_current_fn set_current;
    to_device_fn to_device;
    to_host_fn to_host;
};

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s (limit: %s)\n", what, gmb_error_text(), gmb_error_limit());
    return EXIT_FAILURE;
}

/* What dlsym(3) gives is an object pointer; this is how C lets one become a function pointer. */
static int driver_find(gmb_session *session, const char *name, void *ret_function, size_t size)
{
    void *symbol = gmb_driver_symbol(session, name);

    if (symbol == NULL)
        return -1;
    memcpy(ret_function, &symbol, size);
    return 0;
}

static int work(gmb_session *session, const struct driver *driver, gmb_lease *lease)
{
    char sent[] = "written before the lease grew", received[sizeof(sent)] = "";
    uint64_t address = gmb_lease_address(lease);

    if (driver->set_current(gmb_lease_context(lease)) != 0 ||
        driver->to_device(address, sent, sizeof(sent)) != 0)
        return EXIT_FAILURE;
    if (gmb_lease_grow(lease, 4 * MIB, UINT64_C(5000000000)) != 0)
        return fail("grow");
    if (driver->to_host(received, gmb_lease_address(lease), sizeof(received)) != 0)
        return EXIT_FAILURE;
    printf("%s: %" PRIu64 " MiB of %s memory, \"%s\"\n", gmb_tenant(session),
        gmb_lease_bytes(lease) / MIB, gmb_driver(session), received);
    return strcmp(sent, received) == 0 && gmb_lease_address(lease) == address ? EXIT_SUCCESS
                                                                              : EXIT_FAILURE;
}

int main(void)
{
    struct gmb_lease_params params = {
        .size = sizeof(params),
        .bytes = 4 * MIB,
        .max_bytes = 64 * MIB,
        .wait_ns = UINT64_C(5000000000),
        .label = "example",
    };
    struct driver driver;
    gmb_session *session;
    gmb_lease *lease;
    int status;

    if (gmb_connect(NULL, &session) != 0)
        return fail("connect");
    if (driver_find(session, "cuCtxSetCurrent", &driver.set_current, sizeof(driver.set_current)) ||
        driver_find(session, "cuMemcpyHtoD_v2", &driver.to_device, sizeof(driver.to_device)) ||
        driver_find(session, "cuMemcpyDtoH_v2", &driver.to_host, sizeof(driver.to_host)))
        status = fail("driver");
    else if (gmb_lease_new(session, &params, &lease) != 0)
        status = fail("lease");
    else {
        status = work(session, &driver, lease);
        if (gmb_lease_release(lease) != 0)
            status = fail("release");
    }
    gmb_disconnect(session);
    return status;
}
