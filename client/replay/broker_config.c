/* What is written is what docs/replay.md shows. */
#include "client/replay/broker_config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The broker's own defaults, in the time of a trace. */
#define PRESSURE_DWELL_MS 2000.0
#define DEGRADE_DWELL_MS 5000.0

/* docs/pressure.md says why these. */
static const char ladder_default[] = "DegradeLow=drop-prefix-cache 0.5\n"
                                     "DegradeMedium=quantize-kv int8\n"
                                     "DegradeCritical=drop-prefix-cache 1, "
                                     "reject-below-priority 50\n";

int broker_ladder_read(const char *name, char ret[BROKER_LADDER_BYTES])
{
    FILE *file;
    size_t size;
    int r = 0;

    ret[0] = '\0';
    if (name == NULL || strcmp(name, "none") == 0)
        return 0;
    if (strcmp(name, "default") == 0) {
        memcpy(ret, ladder_default, sizeof(ladder_default));
        return 0;
    }
    file = fopen(name, "re");
    if (!file)
        return -errno;
    size = fread(ret, 1, BROKER_LADDER_BYTES - 2, file);
    if (ferror(file))
        r = -EIO;
    else if (!feof(file) && fgetc(file) != EOF)
        r = -E2BIG;
    (void) fclose(file);
    ret[size] = '\0';
    if (size > 0 && ret[size - 1] != '\n')
        memcpy(ret + size, "\n", 2);
    return r;
}

static void write_tenant(
    FILE *file, const struct tenant *tenant, const struct sizing *sizing, const char *ladder)
{
    fprintf(file, "[Tenant %s]\n", tenant->name);
    if (tenant->has_group)
        fprintf(file, "Group=%u\n", tenant->group);
    else
        fprintf(file, "User=%u\n", geteuid());
    fprintf(file,
        "MemoryMin=%llu\n"
        "MemoryMax=%llu\n"
        "Priority=%u\n%s\n",
        (unsigned long long) sizing->memory_min_bytes,
        (unsigned long long) sizing->memory_max_bytes, tenant->priority, ladder);
}

/* What the broker waits before it takes advice back, compressed as all times of the trace are. */
static void write_dwell(FILE *file, const struct sizing *sizing)
{
    fprintf(file, "PressureDwell=%.0fms\nDegradeDwell=%.0fms\n",
        MAX(PRESSURE_DWELL_MS / sizing->speed, 1.0), MAX(DEGRADE_DWELL_MS / sizing->speed, 1.0));
}

int broker_config_write(const char *path, const struct sizing *sizing,
    const struct tenants *tenants, const char *ladder)
{
    FILE *file = fopen(path, "wxe");
    int r;

    if (!file)
        return -errno;
    fputs("[Broker]\n", file);
    if (sizing->host_tier_bytes > 0)
        fprintf(file, "HostTier=%llu\n", (unsigned long long) sizing->host_tier_bytes);
    if (ladder[0] != '\0')
        write_dwell(file, sizing);
    if (sizing->host_tier_bytes > 0)
        fprintf(file, "\n[Device *]\nReserve=%llu\n", (unsigned long long) sizing->reserve_bytes);
    fputc('\n', file);
    for (uint32_t i = 0; i < tenants->count; i++)
        write_tenant(file, &tenants->items[i], sizing, ladder);
    r = ferror(file) ? -EIO : 0;
    if (fclose(file) != 0 && r == 0)
        r = -errno;
    return r;
}
