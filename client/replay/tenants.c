/*
 * Made-up tenants take group ids from the range that systemd sets aside for dynamic users, where no
 * lasting account is. From a configuration file only what we need is read, tenants and their
 * groups; whether the file is right the broker says.
 */
#include "client/replay/tenants.h"

#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/replay/text.h"

#define GROUP_FIRST 61184
#define TENANTS_DEFAULT 3
#define PRIORITY_FIRST 500u
#define PRIORITY_STEP 100u
/* The line of a configuration file: what gmbd takes at most. */
#define CONFIG_LINE_BYTES 512

int tenant_enter(const struct tenant *tenant)
{
    if (!tenant->has_group)
        return 0;
    if (setgroups(0, NULL) < 0 || setresgid(tenant->group, tenant->group, tenant->group) < 0)
        return -errno;
    return 0;
}

/* Tried in a child, since there is no way back. */
static bool can_enter(const struct tenant *tenant)
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        _exit(tenant_enter(tenant) == 0 ? EXIT_SUCCESS : EXIT_FAILURE);
    if (pid < 0)
        return false;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return false;
    return WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS;
}

void tenants_free(struct tenants *tenants)
{
    free(tenants->items);
    *tenants = (struct tenants){0};
}

static struct tenant *find(const struct tenants *tenants, const char *name)
{
    for (uint32_t i = 0; i < tenants->count; i++)
        if (strcmp(tenants->items[i].name, name) == 0)
            return &tenants->items[i];
    return NULL;
}

static struct tenant *add(struct tenants *tenants, const char *name)
{
    struct tenant *grown, *tenant = find(tenants, name);

    if (tenant)
        return tenant;
    grown = reallocarray(tenants->items, tenants->count + 1, sizeof(*grown));
    if (!grown)
        return NULL;
    tenants->items = grown;
    tenant = &grown[tenants->count++];
    *tenant = (struct tenant){0};
    (void) snprintf(tenant->name, sizeof(tenant->name), "%s", name);
    return tenant;
}

/* ---- from a configuration ---- */

static bool group_parse(const char *text, gid_t *ret)
{
    const struct group *group;
    uint64_t number;

    if (text_parse_uint(text, UINT32_MAX - 1, &number)) {
        *ret = (gid_t) number;
        return true;
    }
    group = getgrnam(text);
    if (group)
        *ret = group->gr_gid;
    return group != NULL;
}

/* `[Tenant NAME]` gives the name, any other header NULL. */
static char *tenant_header(char *line)
{
    static const char prefix[] = "[Tenant ";
    char *end = strchr(line, ']');

    if (strncmp(line, prefix, strlen(prefix)) != 0 || !end)
        return NULL;
    *end = '\0';
    line = text_trim(line + strlen(prefix));
    return line[strcspn(line, " \t")] == '\0' ? line : NULL;
}

static int read_line(struct tenants *tenants, char *line, struct tenant **current)
{
    char *value = strchr(line, '=');
    char *name;

    if (*line == '[') {
        name = tenant_header(line);
        *current = name ? add(tenants, name) : NULL;
        return name && !*current ? -ENOMEM : 0;
    }
    if (!*current || !value)
        return 0;
    *value++ = '\0';
    if (strcmp(text_trim(line), "Group") == 0 && !(*current)->has_group)
        (*current)->has_group = group_parse(text_trim(value), &(*current)->group);
    return 0;
}

static int from_config(const char *path, struct tenants *tenants, char text[TENANTS_ERROR_BYTES])
{
    char line[CONFIG_LINE_BYTES];
    struct tenant *current = NULL;
    FILE *file = fopen(path, "re");
    int r = 0;

    if (!file) {
        r = -errno;
        (void) snprintf(text, TENANTS_ERROR_BYTES, "%s: %s", path, strerror(-r));
        return r;
    }
    while (r == 0 && fgets(line, sizeof(line), file))
        r = read_line(tenants, text_trim(line), &current);
    (void) fclose(file);
    if (r == 0 && tenants->count == 0) {
        (void) snprintf(text, TENANTS_ERROR_BYTES, "%s: no [Tenant NAME] in it", path);
        return -ENOENT;
    }
    return r;
}

/* Keeps the tenants that were asked for by name or number. */
static int keep_wanted(
    const struct options *options, struct tenants *tenants, char text[TENANTS_ERROR_BYTES])
{
    struct tenants kept = {0};

    if (options->tenants > tenants->count) {
        (void) snprintf(
            text, TENANTS_ERROR_BYTES, "%s has only %u tenants", options->config, tenants->count);
        return -EINVAL;
    }
    for (size_t i = 0; i < options->name_count; i++) {
        const struct tenant *tenant = find(tenants, options->names[i]);
        struct tenant *added;

        if (!tenant) {
            (void) snprintf(text, TENANTS_ERROR_BYTES, "%s has no tenant %s", options->config,
                options->names[i]);
            tenants_free(&kept);
            return -ENOENT;
        }
        added = add(&kept, tenant->name);
        if (!added) {
            tenants_free(&kept);
            return -ENOMEM;
        }
        *added = *tenant;
    }
    if (kept.count > 0) {
        tenants_free(tenants);
        *tenants = kept;
    } else if (options->tenants > 0) {
        tenants->count = options->tenants;
    }
    return 0;
}

static int check_groups(
    const struct options *options, const struct tenants *tenants, char text[TENANTS_ERROR_BYTES])
{
    for (uint32_t i = 0; i < tenants->count; i++) {
        const struct tenant *tenant = &tenants->items[i];

        if (!tenant->has_group && tenants->count > 1) {
            (void) snprintf(text, TENANTS_ERROR_BYTES,
                "%s: tenant %s has no Group= that a worker could take on", options->config,
                tenant->name);
            return -EINVAL;
        }
        if (tenant->has_group && !can_enter(tenant)) {
            (void) snprintf(text, TENANTS_ERROR_BYTES,
                "cannot take on group %u of tenant %s: run this as root", tenant->group,
                tenant->name);
            return -EPERM;
        }
    }
    return 0;
}

/* ---- made up ---- */

static uint32_t priority_of(const struct options *options, uint32_t index)
{
    if (options->priorities.count > 0)
        return options->priorities.values[index % options->priorities.count];
    return PRIORITY_FIRST - MIN(index, 4u) * PRIORITY_STEP;
}

static int make_up(
    const struct options *options, struct tenants *tenants, char text[TENANTS_ERROR_BYTES])
{
    uint32_t count = options->tenants > 0 ? options->tenants : TENANTS_DEFAULT;
    struct tenant probe = {.has_group = true, .group = GROUP_FIRST};
    char name[LIMIT_NAME_BYTES + 1];
    struct tenant *tenant;

    if (options->socket || (count > 1 && !can_enter(&probe))) {
        if (!options->socket)
            (void) snprintf(text, TENANTS_ERROR_BYTES,
                "only root can make its workers processes of different tenants: all are one's");
        tenant = add(tenants, "replay");
        if (!tenant)
            return -ENOMEM;
        tenant->priority = priority_of(options, 0);
        return 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        (void) snprintf(name, sizeof(name), "tenant%u", i + 1);
        tenant = add(tenants, i < options->name_count ? options->names[i] : name);
        if (!tenant)
            return -ENOMEM;
        tenant->has_group = count > 1;
        tenant->group = GROUP_FIRST + i;
        tenant->priority = priority_of(options, i);
    }
    return 0;
}

int tenants_choose(
    const struct options *options, struct tenants *ret, char text[TENANTS_ERROR_BYTES])
{
    _cleanup_(tenants_free) struct tenants tenants = {0};
    int r;

    (void) snprintf(text, TENANTS_ERROR_BYTES, "%s", "");
    if (options->config) {
        r = from_config(options->config, &tenants, text);
        if (r == 0)
            r = keep_wanted(options, &tenants, text);
        if (r == 0)
            r = check_groups(options, &tenants, text);
    } else {
        r = make_up(options, &tenants, text);
    }
    if (r < 0)
        return r;
    *ret = tenants;
    tenants = (struct tenants){0};
    return 0;
}
