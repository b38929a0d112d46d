/* What is written is what docs/replay.md shows. */
#include "client/replay/broker_config.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

static void write_tenant(FILE *file, const struct tenant *tenant, const struct sizing *sizing)
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
        (unsigned long long) sizing->memory_max_bytes, tenant->priority);
}

int broker_config_write(
    const char *path, const struct sizing *sizing, const struct tenants *tenants)
{
    FILE *file = fopen(path, "wxe");
    int r;

    if (!file)
        return -errno;
    if (sizing->host_tier_bytes > 0)
        fprintf(file, "[Broker]\nHostTier=%llu\n\n[Device *]\nReserve=%llu\n\n",
            (unsigned long long) sizing->host_tier_bytes,
            (unsigned long long) sizing->reserve_bytes);
    for (uint32_t i = 0; i < tenants->count; i++)
        write_tenant(file, &tenants->items[i], sizing);
    r = ferror(file) ? -EIO : 0;
    if (fclose(file) != 0 && r == 0)
        r = -errno;
    return r;
}
