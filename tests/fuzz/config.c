/*
 * A configuration file: it is accepted whole or refused with file and line; what is accepted
 * promises no more than there is.
 */
#include "daemon/config.h"

#include <string.h>

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct config_device devices[] = {
        {.uuid.bytes[15] = 1, .total_bytes = UINT64_C(80) << 30},
        {.uuid.bytes[15] = 2, .total_bytes = 1},
    };
    char error[CONFIG_ERROR_BYTES] = "";
    struct config *config = NULL;
    int r = config_load_text("fuzz.conf", (const char *) data, size, devices,
        sizeof(devices) / sizeof(*devices), &config, error);

    if (r < 0) {
        FUZZ_CHECK(config == NULL);
        FUZZ_CHECK(strchr(error, ':') != NULL);
        return 0;
    }
    FUZZ_CHECK(config->tenant_count > 0 && config->tenant_count <= LIMIT_TENANTS);
    for (size_t d = 0; d < config->device_count; d++) {
        uint64_t sum = 0;

        for (size_t t = 0; t < config->tenant_count; t++)
            sum += config->tenants[t].memory[d].min;
        FUZZ_CHECK(sum <= devices[d].total_bytes - config->devices[d].reserve_bytes);
    }
    (void) config_free(config);
    return 0;
}
