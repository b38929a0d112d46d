/*
 * Loading: read the files, parse them in order into settings, then turn the settings into the
 * core's records, for which the devices' capacities must be known. Matching: the first rule that
 * fits.
 */
#include "daemon/config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/size.h"
#include "daemon/config_parse.h"
#include "daemon/mover_control.h"

#define CLIENT_SOCKET_DEFAULT "/run/gmbd/client.sock"
#define CONTROL_SOCKET_DEFAULT "/run/gmbd/control.sock"

/* A worker synchronises its device and unmaps: milliseconds, unless a long kernel runs. */
#define RECALL_TIMEOUT_DEFAULT_NS (5 * NSEC_PER_SEC)
/* The library gives chunks back; a workspace only the program, which may finish what it is at. */
#define REVOKE_TIMEOUT_DEFAULT_NS (30 * NSEC_PER_SEC)

/* Reading all weights of a device takes some tens of milliseconds of its time. */
#define SEGMENT_VERIFY_DEFAULT_NS (3600 * NSEC_PER_SEC)

/* A worker shrinks its batch within one of its steps, and says so. */
#define ADVICE_GRACE_DEFAULT_NS (5 * NSEC_PER_SEC)

static struct config_parser *parser_free(struct config_parser *parser)
{
    if (parser == NULL)
        return NULL;
    (void) config_free(parser->config);
    for (size_t i = 0; i < parser->file_count; i++)
        free(parser->files[i]);
    free(parser->settings);
    free(parser);
    return NULL;
}

static void parser_free_ptr(struct config_parser **parser)
{
    *parser = parser_free(*parser);
}

static struct config_parser *parser_new(
    const struct config_device *devices, size_t device_count, char error[CONFIG_ERROR_BYTES])
{
    _cleanup_(parser_free_ptr) struct config_parser *parser = calloc(1, sizeof(*parser));
    struct config *config;

    (void) snprintf(error, CONFIG_ERROR_BYTES, "no memory");
    if (parser == NULL)
        return NULL;
    config = parser->config = calloc(1, sizeof(*config));
    if (config == NULL)
        return NULL;
    config->client_socket = strdup(CLIENT_SOCKET_DEFAULT);
    config->control_socket = strdup(CONTROL_SOCKET_DEFAULT);
    if (config->client_socket == NULL || config->control_socket == NULL)
        return NULL;
    config->log_level = LOG_LEVEL_INFO;
    config->options = core_options_default;
    config->recall_timeout_ns = RECALL_TIMEOUT_DEFAULT_NS;
    config->revoke_timeout_ns = REVOKE_TIMEOUT_DEFAULT_NS;
    config->advice_grace_ns = ADVICE_GRACE_DEFAULT_NS;
    config->mover_idle_ns = mover_options_default.idle_ns;
    config->segment_idle_ns = CLOCK_NEVER;
    config->segment_verify_ns = SEGMENT_VERIFY_DEFAULT_NS;
    config->device_count = MIN(device_count, (size_t) LIMIT_DEVICES);
    for (size_t i = 0; i < config->device_count; i++) {
        config->devices[i] = devices[i];
        config->devices[i].reserve_bytes = config->devices[i].tier_bytes = 0;
        config->devices[i].ipc = false;
    }
    parser->error = error;
    return TAKE_PTR(parser);
}

struct config *config_free(struct config *config)
{
    if (config == NULL)
        return NULL;
    for (size_t i = 0; i < config->rule_count; i++)
        free(config->rules[i].pattern);
    free(config->rules);
    free(config->tenants);
    free(config->tier_path);
    free(config->shares);
    free(config->client_socket);
    free(config->control_socket);
    free(config);
    return NULL;
}

/* ------------------------------------------------------------------ from settings to records */

static uint64_t capacity_of(const struct config_device *device)
{
    return sub_saturate(device->total_bytes, device->reserve_bytes);
}

/* What [Device *] says holds for the devices that say nothing themselves. */
static void devices_resolve(struct config_parser *parser)
{
    struct config *config = parser->config;
    char total[SIZE_TEXT_MAX];

    for (size_t i = 0; i < config->device_count; i++) {
        struct config_device *device = &config->devices[i];

        if (!parser->reserve_set[i])
            device->reserve_bytes = parser->reserve_any;
        if (!parser->ipc_set[i])
            device->ipc = parser->ipc_any;
        if (device->reserve_bytes >= device->total_bytes)
            config_fail(parser, -EINVAL, parser->files[0], 0,
                "Reserve= takes all of device %zu, which has %s", i,
                size_format(total, device->total_bytes));
    }
}

/* Unless it is said: a quarter of the machine for all devices, and for none more than it holds. */
static void tier_resolve(struct config_parser *parser)
{
    struct config *config = parser->config;
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t share = 0;

    if ((config->tier_path != NULL) != (config->tier_disk_bytes > 0))
        config_fail(parser, -EINVAL, parser->files[0], 0, "%s",
            config->tier_path != NULL
                ? "HostTierPath= says where, and HostTierDisk= has to say how much"
                : "HostTierDisk= says how much, and HostTierPath= has to say where");
    if (parser->tier_set)
        return;
    if (pages > 0 && page > 0 && config->device_count > 0)
        share = (uint64_t) pages * (uint64_t) page / 4 / config->device_count;
    for (size_t i = 0; i < config->device_count; i++)
        config->devices[i].tier_bytes = MIN(share, capacity_of(&config->devices[i]));
}

/* First what holds for all devices, then what holds for one, wherever either was written. */
static void settings_resolve(struct config_parser *parser, bool all_devices)
{
    struct config *config = parser->config;

    for (size_t i = 0; i < parser->setting_count; i++) {
        const struct config_setting *setting = &parser->settings[i];
        struct core_tenant_config *tenant = &config->tenants[setting->tenant];
        uint32_t first = all_devices ? 0 : setting->device;
        uint32_t end = all_devices ? (uint32_t) config->device_count : first + 1;

        if (setting->all_devices != all_devices)
            continue;
        if (!config_key_is_memory(setting->key))
            config_value_apply(tenant, setting->key, &setting->value, 0, 0);
        for (uint32_t d = first; config_key_is_memory(setting->key) && d < end; d++)
            config_value_apply(
                tenant, setting->key, &setting->value, d, capacity_of(&config->devices[d]));
    }
}

/* The line that set a tenant's value for a device, for the message. */
static const struct config_setting *setting_find(
    const struct config_parser *parser, uint32_t tenant, uint32_t device, enum config_key key)
{
    static const struct config_setting nowhere = {.file = "configuration"};
    const struct config_setting *found = &nowhere;

    for (size_t i = 0; i < parser->setting_count; i++) {
        const struct config_setting *setting = &parser->settings[i];

        if (setting->tenant == tenant && setting->key == key &&
            (setting->all_devices ? found == &nowhere : setting->device == device))
            found = setting;
    }
    return found;
}

/* What the core would refuse as well, said with the line that is to blame. */
static void guarantees_check(struct config_parser *parser, uint32_t device)
{
    const struct config *config = parser->config;
    uint64_t capacity = capacity_of(&config->devices[device]), sum = 0;
    char sum_text[SIZE_TEXT_MAX], capacity_text[SIZE_TEXT_MAX];

    for (uint32_t i = 0; i < config->tenant_count && parser->result == 0; i++) {
        const struct core_memory_limits *memory = &config->tenants[i].memory[device];
        const struct config_setting *setting;

        sum = add_saturate(sum, memory->min);
        if (memory->min <= memory->max && (sum <= capacity || memory->min == 0))
            continue;
        setting = setting_find(parser, i, device, CONFIG_KEY_MEMORY_MIN);
        if (memory->min > memory->max)
            config_fail(parser, -EINVAL, setting->file, setting->line,
                "MemoryMin= of tenant %s is above its MemoryMax=", config->tenants[i].name);
        else
            config_fail(parser, -EINVAL, setting->file, setting->line,
                "with this MemoryMin= the tenants are promised %s of device %u, which has %s",
                size_format(sum_text, sum), device, size_format(capacity_text, capacity));
    }
}

/* What the core would refuse as well. */
static void levels_check(struct config_parser *parser)
{
    if (!pressure_thresholds_sane(&parser->config->options.pressure.levels))
        config_fail(parser, -EINVAL, parser->levels.file != NULL ? parser->levels.file : "built in",
            parser->levels.line,
            "with this PressureLow= < PressureMedium= < PressureCritical= and PressureHysteresis= "
            "< "
            "PressureLow= don't hold, or StallLow= < StallMedium= < StallCritical= don't");
}

/* Nobody is configured: the daemon's own user may use it, and nobody else. */
static int tenant_built_in(struct config *config)
{
    config->tenants = calloc(1, sizeof(*config->tenants));
    config->shares = calloc(1, sizeof(*config->shares));
    config->rules = calloc(1, sizeof(*config->rules));
    if (config->tenants == NULL || config->shares == NULL || config->rules == NULL)
        return -ENOMEM;
    config_tenant_init(&config->tenants[0], "default");
    config->rules[0] = (struct config_rule){.type = CONFIG_RULE_USER, .id = geteuid()};
    config->tenant_count = config->rule_count = 1;
    config->built_in = true;
    return 0;
}

/* Every group that a tenant says to be in has a section. */
static void members_check(struct config_parser *parser)
{
    const struct config *config = parser->config;

    for (uint32_t i = 0; i < config->tenant_count; i++) {
        const struct config_share *share = &config->shares[i];
        uint32_t k = 0;

        if (share->member[0] == '\0')
            continue;
        while (k < config->tenant_count &&
               (!config->shares[k].group || strcmp(config->tenants[k].name, share->member) != 0))
            k++;
        if (k == config->tenant_count)
            config_fail(parser, -EINVAL, share->file, share->line,
                "ShareGroup=%s: there is no [ShareGroup %s]", share->member, share->member);
    }
}

static int parser_finish(struct config_parser *parser, struct config **ret)
{
    struct config *config = parser->config;

    if (parser->result == 0)
        devices_resolve(parser);
    if (parser->result == 0)
        tier_resolve(parser);
    if (parser->result == 0)
        members_check(parser);
    if (parser->result == 0)
        levels_check(parser);
    if (parser->result == 0 && config->tenant_count == 0)
        parser->result = tenant_built_in(config);
    if (parser->result == 0) {
        settings_resolve(parser, true);
        settings_resolve(parser, false);
    }
    for (uint32_t d = 0; parser->result == 0 && d < config->device_count; d++)
        guarantees_check(parser, d);
    if (parser->result < 0)
        return parser->result;
    *ret = TAKE_PTR(parser->config);
    return 0;
}

/* ------------------------------------------------------------------ files */

/* -ENOENT is left to the caller to judge; everything else is noted. Owns nothing of `name`. */
static int file_parse(struct config_parser *parser, const char *name, size_t *left)
{
    _cleanup_close_ int fd = open(name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    _cleanup_free_ char *text = NULL;
    struct stat status;
    size_t used = 0;

    if (fd < 0)
        return -errno;
    if (fstat(fd, &status) < 0)
        return -errno;
    if (!S_ISREG(status.st_mode))
        return -EISDIR;
    if ((uint64_t) status.st_size > *left)
        return -EFBIG;
    text = malloc((size_t) status.st_size + 1);
    if (text == NULL)
        return -ENOMEM;
    while (used < (size_t) status.st_size) {
        ssize_t n = read(fd, text + used, (size_t) status.st_size - used);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        used += (size_t) n;
    }
    *left -= used;
    config_parse_text(parser, name, text, used);
    return 0;
}

static int drop_in_filter(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);

    return entry->d_name[0] != '.' && length > 5 &&
           strcmp(entry->d_name + length - 5, ".conf") == 0;
}

/* Notes the names of the files to read, in order; parser->files owns them. */
static int files_list(struct config_parser *parser, const char *path)
{
    _cleanup_free_ char *folder = NULL;
    struct dirent **entries = NULL;
    int count, r = 0;

    parser->files[parser->file_count] = strdup(path);
    if (parser->files[parser->file_count++] == NULL || asprintf(&folder, "%s.d", path) < 0)
        return -ENOMEM;
    count = scandir(folder, &entries, drop_in_filter, alphasort);
    if (count < 0) {
        if (errno == ENOENT)
            return 0;
        r = -errno;
        config_fail(parser, r, folder, 0, "cannot be read: %s", strerror(-r));
        return r;
    }
    if (count > LIMIT_CONFIG_FILES) {
        config_fail(parser, -E2BIG, folder, 0, "more than %d files", LIMIT_CONFIG_FILES);
        r = -E2BIG;
    }
    for (int i = 0; i < count; i++) {
        if (r == 0) {
            char *name = NULL;

            if (asprintf(&name, "%s/%s", folder, entries[i]->d_name) < 0)
                r = -ENOMEM;
            else
                parser->files[parser->file_count++] = name;
        }
        free(entries[i]);
    }
    free(entries);
    return r;
}

int config_load(const char *path, bool required, const struct config_device *devices,
    size_t device_count, struct config **ret, char error[CONFIG_ERROR_BYTES])
{
    _cleanup_(parser_free_ptr) struct config_parser *parser =
        parser_new(devices, device_count, error);
    size_t left = LIMIT_CONFIG_BYTES;
    int r;

    if (parser == NULL)
        return -ENOMEM;
    r = files_list(parser, path);
    if (r < 0)
        return r;
    for (size_t i = 0; i < parser->file_count && parser->result == 0; i++) {
        r = file_parse(parser, parser->files[i], &left);
        if (r < 0 && !(r == -ENOENT && i == 0 && !required))
            config_fail(parser, r, parser->files[i], 0, "cannot be read: %s",
                r == -EISDIR  ? "it is no regular file"
                : r == -EFBIG ? "the files hold more than 1 MiB in all"
                              : strerror(-r));
    }
    return parser_finish(parser, ret);
}

int config_load_text(const char *name, const char *text, size_t size,
    const struct config_device *devices, size_t device_count, struct config **ret,
    char error[CONFIG_ERROR_BYTES])
{
    _cleanup_(parser_free_ptr) struct config_parser *parser =
        parser_new(devices, device_count, error);

    if (parser == NULL)
        return -ENOMEM;
    parser->files[0] = strdup(name);
    if (parser->files[parser->file_count++] == NULL)
        return -ENOMEM;
    if (size > LIMIT_CONFIG_BYTES)
        config_fail(parser, -EFBIG, name, 0, "it holds more than 1 MiB");
    else
        config_parse_text(parser, name, text, size);
    return parser_finish(parser, ret);
}

/* ------------------------------------------------------------------ matching */

bool config_tenant_reachable(const struct config *config, uint32_t tenant)
{
    for (size_t i = 0; i < config->rule_count; i++) {
        if (config->rules[i].tenant == tenant)
            return true;
    }
    return false;
}

const char *config_group(const struct config *config, const char *tenant)
{
    for (uint32_t i = 0; i < config->tenant_count; i++) {
        if (strcmp(config->tenants[i].name, tenant) == 0)
            return config->shares[i].member[0] != '\0' ? config->shares[i].member : NULL;
    }
    return NULL;
}

static bool rule_matches(const struct config_rule *rule, const struct identity *identity)
{
    switch (rule->type) {
    case CONFIG_RULE_USER:
        return rule->anyone || rule->id == identity->uid;
    case CONFIG_RULE_GROUP:
        return identity_in_group(identity, rule->id);
    case CONFIG_RULE_UNIT:
        return fnmatch(rule->pattern, identity->unit, 0) == 0;
    case CONFIG_RULE_CGROUP:
        return fnmatch(rule->pattern, identity->cgroup, 0) == 0;
    case CONFIG_RULE_MAX:
        break;
    }
    return false;
}

bool config_match(
    const struct config *config, const struct identity *identity, uint32_t *ret_tenant)
{
    for (size_t i = 0; i < config->rule_count; i++) {
        if (rule_matches(&config->rules[i], identity)) {
            *ret_tenant = config->rules[i].tenant;
            return true;
        }
    }
    return false;
}
