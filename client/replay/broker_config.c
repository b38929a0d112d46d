/* What is written is what docs/replay.md shows. */
#include "client/replay/broker_config.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#define PRIORITY_FIRST 500u
#define PRIORITY_STEP 100u

static void write_tenant(
    FILE *file, const struct tenant *tenant, uint32_t index, const struct sizing *sizing)
{
    fprintf(file, "[Tenant %s]\n", tenant->name);
    if (tenant->has_group)
        fprintf(file, "Group=%u\n", tenant->group);
    else
        fprintf(file, "User=%u\n", geteuid());
    fprintf(file,
        "MemoryMin=%llu\n"
        "MemoryMax=%llu\n"
        "Priority=%u\n\n",
        (unsigned long long) sizing->memory_min_bytes,
        (unsigned long long) sizing->memory_max_bytes,
        PRIORITY_FIRST - MIN(index, 4u) * PRIORITY_STEP);
}

int broker_config_write(
    const char *path, const struct sizing *sizing, const struct tenants *tenants)
{
    FILE *file = fopen(path, "wxe");
    int r;

    if (!file)
        return -errno;
    for (uint32_t i = 0; i < tenants->count; i++)
        write_tenant(file, &tenants->items[i], i, sizing);
    r = ferror(file) ? -EIO : 0;
    if (fclose(file) != 0 && r == 0)
        r = -errno;
    return r;
}
