/* Keys of [Broker], and the rules that say which process belongs to a tenant. */
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"
#include "daemon/config_parse.h"
#include "proto/wire.h"

enum broker_key {
    BROKER_CLIENT_SOCKET,
    BROKER_CONTROL_SOCKET,
    BROKER_CONTROL_GROUP,
    BROKER_LOG_LEVEL,
    BROKER_RECYCLE_IDLE,
    BROKER_VERIFY_WINDOW,
    BROKER_ORPHAN_GRACE,
    BROKER_OBSERVE_INTERVAL,
    BROKER_CREATE_BACKOFF,
    BROKER_PREFETCH,
    BROKER_HOST_TIER,
    BROKER_HOST_TIER_DISK,
    BROKER_HOST_TIER_PATH,
    BROKER_RECALL_TIMEOUT,
    BROKER_REVOKE_TIMEOUT,
    BROKER_REVOKE,
    BROKER_MOVER_IDLE,
    BROKER_SEGMENT_IDLE,
    BROKER_SEGMENT_VERIFY,
    BROKER_KILL,
    BROKER_PRESSURE_LOW,
    BROKER_PRESSURE_MEDIUM,
    BROKER_PRESSURE_CRITICAL,
    BROKER_PRESSURE_HYSTERESIS,
    BROKER_PRESSURE_DWELL,
    BROKER_STALL_LOW,
    BROKER_STALL_MEDIUM,
    BROKER_STALL_CRITICAL,
    BROKER_DEGRADE_DWELL,
    BROKER_ADVICE_GRACE,
    BROKER_KEY_MAX
};

static const char *const broker_keys[] = {
    [BROKER_CLIENT_SOCKET] = "ClientSocket",
    [BROKER_CONTROL_SOCKET] = "ControlSocket",
    [BROKER_CONTROL_GROUP] = "ControlGroup",
    [BROKER_LOG_LEVEL] = "LogLevel",
    [BROKER_RECYCLE_IDLE] = "RecycleIdle",
    [BROKER_VERIFY_WINDOW] = "VerifyWindow",
    [BROKER_ORPHAN_GRACE] = "OrphanGrace",
    [BROKER_OBSERVE_INTERVAL] = "ObserveInterval",
    [BROKER_CREATE_BACKOFF] = "CreateBackoff",
    [BROKER_PREFETCH] = "Prefetch",
    [BROKER_HOST_TIER] = "HostTier",
    [BROKER_HOST_TIER_DISK] = "HostTierDisk",
    [BROKER_HOST_TIER_PATH] = "HostTierPath",
    [BROKER_RECALL_TIMEOUT] = "RecallTimeout",
    [BROKER_REVOKE_TIMEOUT] = "RevokeTimeout",
    [BROKER_REVOKE] = "Revoke",
    [BROKER_MOVER_IDLE] = "MoverIdle",
    [BROKER_SEGMENT_IDLE] = "SegmentIdle",
    [BROKER_SEGMENT_VERIFY] = "SegmentVerify",
    [BROKER_KILL] = "Kill",
    [BROKER_PRESSURE_LOW] = "PressureLow",
    [BROKER_PRESSURE_MEDIUM] = "PressureMedium",
    [BROKER_PRESSURE_CRITICAL] = "PressureCritical",
    [BROKER_PRESSURE_HYSTERESIS] = "PressureHysteresis",
    [BROKER_PRESSURE_DWELL] = "PressureDwell",
    [BROKER_STALL_LOW] = "StallLow",
    [BROKER_STALL_MEDIUM] = "StallMedium",
    [BROKER_STALL_CRITICAL] = "StallCritical",
    [BROKER_DEGRADE_DWELL] = "DegradeDwell",
    [BROKER_ADVICE_GRACE] = "AdviceGrace",
};
static_assert(ARRAY_SIZE(broker_keys) == BROKER_KEY_MAX, "every key has a name");

/* Longer is a mistyped unit. */
#define SPAN_MAX_NS (UINT64_C(24) * 3600 * NSEC_PER_SEC)
/* What fits in sockaddr_un with its NUL. */
#define SOCKET_PATH_BYTES 107

/* `500ms`, `10s`, `2min`, `1h`; more than 0 and at most a day. */
static bool span_parse(const char *text, uint64_t *ret_ns)
{
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = {
        {"us", NSEC_PER_USEC},
        {"ms", NSEC_PER_MSEC},
        {"s", NSEC_PER_SEC},
        {"min", 60 * NSEC_PER_SEC},
        {"h", 3600 * NSEC_PER_SEC},
    };
    size_t digits = strspn(text, "0123456789");
    uint64_t ns;

    if (digits == 0 || digits > 9)
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        if (strcmp(text + digits, units[i].name) != 0)
            continue;
        ns = strtoull(text, NULL, 10) * units[i].ns;
        if (ns == 0 || ns > SPAN_MAX_NS)
            return false;
        *ret_ns = ns;
        return true;
    }
    return false;
}

static int span_assign(
    uint64_t *target, const char *key, const char *value, char reason[CONFIG_REASON_BYTES])
{
    if (span_parse(value, target))
        return 0;
    (void) snprintf(reason, CONFIG_REASON_BYTES,
        "%s=%.64s is refused: it takes a time as 500ms, 10s or 2min, at most a day", key, value);
    return -EINVAL;
}

static int span_or_never_assign(
    uint64_t *target, const char *key, const char *value, char reason[CONFIG_REASON_BYTES])
{
    if (strcmp(value, "infinity") != 0)
        return span_assign(target, key, value, reason);
    *target = CLOCK_NEVER;
    return 0;
}

static int path_assign(
    char **target, const char *key, const char *value, char reason[CONFIG_REASON_BYTES])
{
    char *copy;

    if (value[0] != '/' || strlen(value) > SOCKET_PATH_BYTES) {
        (void) snprintf(reason, CONFIG_REASON_BYTES,
            "%s=%.120s is refused: it takes an absolute path of at most %d characters", key, value,
            SOCKET_PATH_BYTES);
        return -EINVAL;
    }
    copy = strdup(value);
    if (copy == NULL) {
        (void) snprintf(reason, CONFIG_REASON_BYTES, "no memory");
        return -ENOMEM;
    }
    free(*target);
    *target = copy;
    return 0;
}

/* Digits alone are an id; (uid_t) −1 is nobody's. */
static bool id_parse(const char *text, uint32_t *ret)
{
    size_t length = strlen(text);
    unsigned long long id;

    if (length == 0 || length > 10 || strspn(text, "0123456789") != length)
        return false;
    id = strtoull(text, NULL, 10);
    if (id >= UINT32_MAX)
        return false;
    *ret = (uint32_t) id;
    return true;
}

static bool group_find(const char *text, uint32_t *ret)
{
    const struct group *group;

    if (id_parse(text, ret))
        return true;
    group = getgrnam(text);
    if (group == NULL)
        return false;
    *ret = group->gr_gid;
    return true;
}

static bool user_find(const char *text, uint32_t *ret)
{
    const struct passwd *user;

    if (id_parse(text, ret))
        return true;
    user = getpwnam(text);
    if (user == NULL)
        return false;
    *ret = user->pw_uid;
    return true;
}

static int control_group_assign(
    struct config *config, const char *value, char reason[CONFIG_REASON_BYTES])
{
    uint32_t gid;

    if (!group_find(value, &gid)) {
        (void) snprintf(reason, CONFIG_REASON_BYTES, "there is no group %.64s", value);
        return -EINVAL;
    }
    config->control_group = gid;
    config->has_control_group = true;
    return 0;
}

static int prefetch_assign(
    struct core_options *options, const char *value, char reason[CONFIG_REASON_BYTES])
{
    uint64_t bytes;

    if (size_parse(value, &bytes) < 0 || bytes == SIZE_INFINITY) {
        (void) snprintf(reason, CONFIG_REASON_BYTES,
            "Prefetch=%.64s is refused: it takes a size as 64M or 1G", value);
        return -EINVAL;
    }
    options->prefetch_bytes = bytes;
    return 0;
}

static int log_level_assign(
    struct config *config, const char *value, char reason[CONFIG_REASON_BYTES])
{
    if (log_level_parse(value, &config->log_level) == 0)
        return 0;
    (void) snprintf(reason, CONFIG_REASON_BYTES,
        "LogLevel=%.64s is refused: it is error, warning, notice, info or debug", value);
    return -EINVAL;
}

static int host_tier_assign(
    struct config_parser *parser, const char *value, char reason[CONFIG_REASON_BYTES])
{
    struct config *config = parser->config;
    uint64_t bytes;

    if (size_parse(value, &bytes) < 0 || bytes == SIZE_INFINITY) {
        (void) snprintf(reason, CONFIG_REASON_BYTES,
            "HostTier=%.64s is refused: it takes a size as 512M or 64G, 0 for no tier", value);
        return -EINVAL;
    }
    parser->tier_set = true;
    for (size_t i = 0; i < config->device_count; i++)
        config->devices[i].tier_bytes = bytes;
    return 0;
}

static int host_tier_disk_assign(
    struct config *config, const char *value, char reason[CONFIG_REASON_BYTES])
{
    uint64_t bytes;

    if (size_parse(value, &bytes) < 0 || bytes == SIZE_INFINITY) {
        (void) snprintf(reason, CONFIG_REASON_BYTES,
            "HostTierDisk=%.64s is refused: it takes a size as 64G or 1T, 0 for no disk", value);
        return -EINVAL;
    }
    config->tier_disk_bytes = bytes;
    return 0;
}

/* Replies carry it, and no reply carries what isn't text. */
static int tier_path_assign(
    struct config *config, const char *value, char reason[CONFIG_REASON_BYTES])
{
    size_t left = strlen(value);

    for (const char *at = value; left > 0;) {
        size_t length = wire_text_length((const uint8_t *) at, left);

        if (length == 0) {
            (void) snprintf(
                reason, CONFIG_REASON_BYTES, "HostTierPath= is refused: it isn't UTF-8");
            return -EINVAL;
        }
        at += length;
        left -= length;
    }
    return path_assign(&config->tier_path, "HostTierPath", value, reason);
}

static int flag_assign(
    bool *target, const char *key, const char *value, char reason[CONFIG_REASON_BYTES])
{
    *target = strcmp(value, "yes") == 0;
    if (*target || strcmp(value, "no") == 0)
        return 0;
    (void) snprintf(
        reason, CONFIG_REASON_BYTES, "%s=%.64s is refused: it is yes or no", key, value);
    return -EINVAL;
}

/* `85%`, in millionths; 0 only where that has a meaning. */
static int percent_assign(uint32_t *target, const char *key, const char *value, unsigned low,
    char reason[CONFIG_REASON_BYTES])
{
    size_t digits = strspn(value, "0123456789");
    unsigned long percent = digits > 0 && digits <= 3 ? strtoul(value, NULL, 10) : 101;

    if (percent < low || percent > 100 || strcmp(value + digits, "%") != 0) {
        (void) snprintf(reason, CONFIG_REASON_BYTES, "%s=%.64s is refused: it takes %u%% to 100%%",
            key, value, low);
        return -EINVAL;
    }
    *target = (uint32_t) percent * (PRESSURE_WHOLE / 100);
    return 0;
}

/* Keys of levels and of the ladder's times. */
static int pressure_apply(
    struct config *config, enum broker_key key, const char *value, char reason[CONFIG_REASON_BYTES])
{
    struct core_pressure_options *options = &config->options.pressure;
    struct pressure_thresholds *levels = &options->levels;
    const char *name = broker_keys[key];

    if (key >= BROKER_PRESSURE_LOW && key <= BROKER_PRESSURE_CRITICAL)
        return percent_assign(
            &levels->share[PRESSURE_LOW + (key - BROKER_PRESSURE_LOW)], name, value, 1, reason);
    if (key >= BROKER_STALL_LOW && key <= BROKER_STALL_CRITICAL)
        return percent_assign(
            &levels->stall[PRESSURE_LOW + (key - BROKER_STALL_LOW)], name, value, 1, reason);
    if (key == BROKER_PRESSURE_HYSTERESIS)
        return percent_assign(&levels->hysteresis, name, value, 0, reason);
    if (key == BROKER_PRESSURE_DWELL)
        return span_assign(&levels->dwell_ns, name, value, reason);
    if (key == BROKER_DEGRADE_DWELL)
        return span_assign(&options->degrade_dwell_ns, name, value, reason);
    return span_assign(&config->advice_grace_ns, name, value, reason);
}

static int broker_apply(struct config_parser *parser, enum broker_key key, const char *value,
    char reason[CONFIG_REASON_BYTES])
{
    struct config *config = parser->config;
    struct core_options *options = &config->options;
    const char *name = broker_keys[key];

    switch (key) {
    case BROKER_CLIENT_SOCKET:
        return path_assign(&config->client_socket, name, value, reason);
    case BROKER_CONTROL_SOCKET:
        return path_assign(&config->control_socket, name, value, reason);
    case BROKER_CONTROL_GROUP:
        return control_group_assign(config, value, reason);
    case BROKER_LOG_LEVEL:
        return log_level_assign(config, value, reason);
    case BROKER_RECYCLE_IDLE:
        return span_assign(&options->recycle_idle_ns, name, value, reason);
    case BROKER_VERIFY_WINDOW:
        return span_assign(&options->verify_window_ns, name, value, reason);
    case BROKER_ORPHAN_GRACE:
        return span_assign(&options->orphan_grace_ns, name, value, reason);
    case BROKER_OBSERVE_INTERVAL:
        return span_assign(&options->observe_ns, name, value, reason);
    case BROKER_CREATE_BACKOFF:
        return span_assign(&options->create_backoff_ns, name, value, reason);
    case BROKER_PREFETCH:
        return prefetch_assign(options, value, reason);
    case BROKER_HOST_TIER:
        return host_tier_assign(parser, value, reason);
    case BROKER_HOST_TIER_DISK:
        return host_tier_disk_assign(config, value, reason);
    case BROKER_HOST_TIER_PATH:
        return tier_path_assign(config, value, reason);
    case BROKER_RECALL_TIMEOUT:
        return span_assign(&config->recall_timeout_ns, name, value, reason);
    case BROKER_REVOKE_TIMEOUT:
        return span_assign(&config->revoke_timeout_ns, name, value, reason);
    case BROKER_REVOKE:
        return flag_assign(&config->revoke, name, value, reason);
    case BROKER_MOVER_IDLE:
        return span_assign(&config->mover_idle_ns, name, value, reason);
    case BROKER_SEGMENT_IDLE:
        return span_or_never_assign(&config->segment_idle_ns, name, value, reason);
    case BROKER_SEGMENT_VERIFY:
        return span_or_never_assign(&config->segment_verify_ns, name, value, reason);
    case BROKER_KILL:
        return flag_assign(&config->kill, name, value, reason);
    case BROKER_PRESSURE_LOW:
    case BROKER_PRESSURE_MEDIUM:
    case BROKER_PRESSURE_CRITICAL:
    case BROKER_PRESSURE_HYSTERESIS:
    case BROKER_PRESSURE_DWELL:
    case BROKER_STALL_LOW:
    case BROKER_STALL_MEDIUM:
    case BROKER_STALL_CRITICAL:
    case BROKER_DEGRADE_DWELL:
    case BROKER_ADVICE_GRACE:
        return pressure_apply(config, key, value, reason);
    case BROKER_KEY_MAX:
        break;
    }
    return -EINVAL;
}

int config_broker_assign(struct config_parser *parser, const char *key, const char *value,
    char reason[CONFIG_REASON_BYTES])
{
    for (unsigned i = 0; i < BROKER_KEY_MAX; i++) {
        if (strcmp(key, broker_keys[i]) != 0)
            continue;
        if ((parser->broker_seen >> i & 1) != 0) {
            (void) snprintf(
                reason, CONFIG_REASON_BYTES, "%s= stands already further up", broker_keys[i]);
            return -EEXIST;
        }
        parser->broker_seen |= UINT32_C(1) << i;
        return broker_apply(parser, (enum broker_key) i, value, reason);
    }
    (void) snprintf(reason, CONFIG_REASON_BYTES, "unknown key %.64s= in [Broker]", key);
    return -EINVAL;
}

/* ------------------------------------------------------------------ rules */

static const char *const rule_keys[] = {
    [CONFIG_RULE_USER] = "User",
    [CONFIG_RULE_GROUP] = "Group",
    [CONFIG_RULE_UNIT] = "Unit",
    [CONFIG_RULE_CGROUP] = "CGroup",
};
static_assert(ARRAY_SIZE(rule_keys) == CONFIG_RULE_MAX, "every rule has a key");

/* More rules than tenants have reason to need; each is tried for each connection. */
#define RULES_MAX 4096

static int rule_parse(struct config_rule *rule, const char *value, char reason[CONFIG_REASON_BYTES])
{
    switch (rule->type) {
    case CONFIG_RULE_USER:
        rule->anyone = strcmp(value, "*") == 0;
        if (rule->anyone || user_find(value, &rule->id))
            return 0;
        (void) snprintf(reason, CONFIG_REASON_BYTES, "there is no user %.64s", value);
        return -EINVAL;
    case CONFIG_RULE_GROUP:
        if (group_find(value, &rule->id))
            return 0;
        (void) snprintf(reason, CONFIG_REASON_BYTES, "there is no group %.64s", value);
        return -EINVAL;
    case CONFIG_RULE_UNIT:
    case CONFIG_RULE_CGROUP:
        if (value[0] == '\0') {
            (void) snprintf(reason, CONFIG_REASON_BYTES, "%s= is empty", rule_keys[rule->type]);
            return -EINVAL;
        }
        rule->pattern = strdup(value);
        return rule->pattern != NULL ? 0 : -ENOMEM;
    case CONFIG_RULE_MAX:
        break;
    }
    return -EINVAL;
}

int config_rule_assign(struct config_parser *parser, uint32_t tenant, const char *key,
    const char *value, char reason[CONFIG_REASON_BYTES])
{
    struct config *config = parser->config;
    struct config_rule rule = {.type = CONFIG_RULE_USER, .tenant = tenant}, *grown;
    int r;

    while (rule.type < CONFIG_RULE_MAX && strcmp(key, rule_keys[rule.type]) != 0)
        rule.type++;
    if (rule.type == CONFIG_RULE_MAX)
        return -ENOENT;
    if (config->rule_count >= RULES_MAX) {
        (void) snprintf(reason, CONFIG_REASON_BYTES, "more than %d rules", RULES_MAX);
        return -EINVAL;
    }
    (void) snprintf(reason, CONFIG_REASON_BYTES, "no memory");
    grown = reallocarray(config->rules, config->rule_count + 1, sizeof(*grown));
    if (grown == NULL)
        return -ENOMEM;
    config->rules = grown;
    r = rule_parse(&rule, value, reason);
    if (r == 0)
        grown[config->rule_count++] = rule;
    return r;
}
