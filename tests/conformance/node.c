/* Everything of a simulated node lies in one directory: removing that is removing the node. */
#include "tests/conformance/node.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int entry_remove(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    return remove(path);
}

/* A setting of whoever started the test would change what it measures. */
static void environment_clear(void)
{
    static const char *const names[] = {"CUDA_VISIBLE_DEVICES", "GMB_SIM_CONTEXT_OVERHEAD",
        "GMB_SIM_FAULTS", "GMB_SIM_FILL", "GMB_SIM_FREE_DELAY", "GMB_SIM_GRANULARITY",
        "GMB_SIM_HINT", "GMB_SIM_LATENCY", "GMB_SIM_POSIX_FD", "GMB_SIM_VMM"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        (void) unsetenv(names[i]);
}

int node_create(struct node *ret)
{
    char text[32];

    environment_clear();
    (void) snprintf(ret->directory, sizeof(ret->directory), "/dev/shm/gmb-test-XXXXXX");
    if (mkdtemp(ret->directory) == NULL)
        return -errno;
    if (setenv("GMB_SIM_DIR", ret->directory, 1) < 0)
        return -errno;
    (void) snprintf(text, sizeof(text), "%llu", (unsigned long long) NODE_CAPACITY_BYTES);
    if (setenv("GMB_SIM_MEMORY", text, 1) < 0)
        return -errno;
    (void) snprintf(text, sizeof(text), "%d", NODE_DEVICES);
    return setenv("GMB_SIM_DEVICES", text, 1) < 0 ? -errno : 0;
}

void node_remove(struct node *node)
{
    (void) nftw(node->directory, entry_remove, 16, FTW_DEPTH | FTW_PHYS);
}
