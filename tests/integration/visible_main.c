/*
 * A worker that tries every device of the broker's: visible SOCKET prints for each, in the broker's
 * order, its ordinal in this process or `hidden`; and `none` where the driver gives it no device at
 * all. Ends with 1 when a lease or an arena isn't on the device that was asked for.
 */
#include <stdio.h>

#include "base/uuid.h"
#include "client/gmb.h"

#define MIB (UINT64_C(1) << 20)

typedef int (*current_fn)(void *context);
typedef int (*device_fn)(int *ordinal);
typedef int (*uuid_fn)(struct uuid *uuid, int ordinal);
typedef int (*fill_fn)(uint64_t address, unsigned char byte, size_t bytes);

/* Through void *, which ISO C doesn't convert to a function. */
#define SYMBOL(session, type, name) (*(type *) &(void *){gmb_driver_symbol(session, name)})

/* The ordinal of the context's device, whose UUID must be that one; -1 if it isn't. */
static int ordinal_of(gmb_session *session, void *context, const char *wanted, uint64_t address)
{
    struct uuid expected, found;
    int ordinal;

    if (uuid_parse(wanted, &expected) < 0 ||
        SYMBOL(session, current_fn, "cuCtxSetCurrent")(context) != 0 ||
        SYMBOL(session, device_fn, "cuCtxGetDevice")(&ordinal) != 0 ||
        SYMBOL(session, uuid_fn, "cuDeviceGetUuid_v2")(&found, ordinal) != 0 ||
        SYMBOL(session, fill_fn, "cuMemsetD8_v2")(address, 0x5a, 4096) != 0)
        return -1;
    return uuid_equal(&expected, &found) ? ordinal : -1;
}

/* 0, also for a device that is hidden; 1 for one that is wrong. */
static int device_try(gmb_session *session, unsigned index)
{
    struct gmb_device_info info = {.size = sizeof(info)};
    struct gmb_lease_params params = {.size = sizeof(params), .bytes = 2 * MIB};
    struct gmb_arena_params arena_params = {
        .size = sizeof(arena_params), .page_bytes = 65536, .max_bytes = 8 * MIB};
    gmb_arena *arena;
    gmb_lease *lease;
    uint32_t page;
    int r, ordinal;

    if (gmb_device_get(session, index, &info) < 0)
        return 1;
    params.device = arena_params.device = info.uuid;
    r = gmb_lease_new(session, &params, &lease);
    if (r == GMB_E_NOT_FOUND) {
        (void) printf(" hidden");
        return 0;
    }
    if (r < 0 || gmb_arena_new(session, &arena_params, &arena) < 0 ||
        gmb_page_alloc(arena, 1, &page, UINT64_C(30000000000)) < 0) {
        (void) fprintf(stderr, "device %s: %s\n", info.uuid, gmb_error_text());
        return 1;
    }
    ordinal = ordinal_of(session, gmb_lease_context(lease), info.uuid, gmb_lease_address(lease));
    if (ordinal < 0 || ordinal != ordinal_of(session, gmb_arena_context(arena), info.uuid,
                                      gmb_arena_address(arena) + page * UINT64_C(65536)))
        return 1;
    (void) printf(" %d", ordinal);
    return 0;
}

int main(int argc, char **argv)
{
    struct gmb_options options = {.size = sizeof(options)};
    gmb_session *session;
    int r = 0;

    if (argc != 2)
        return 2;
    options.socket = argv[1];
    r = gmb_connect(&options, &session);
    if (r == GMB_E_GPU)
        (void) printf(" none");
    if (r < 0)
        return r == GMB_E_GPU ? 0 : 1;
    for (unsigned i = 0; r == 0 && i < gmb_device_count(session); i++)
        r = device_try(session, i);
    gmb_disconnect(session);
    return r;
}
