/*
 * Configuration: gmbd.conf and gmbd.conf.d/<name>.conf in the order of their names, as
 * gmbd.conf(5) describes it. Loading gives a whole new configuration or an error that names file
 * and line; there is no half of one.
 *
 * Not thread-safe. Reads files, so it may block as long as the disk does.
 */
#pragma once

#include <sys/types.h>

#include "base/log.h"
#include "base/uuid.h"
#include "daemon/config_key.h"
#include "daemon/identity.h"

#define CONFIG_ERROR_BYTES 640
#define CONFIG_PATH_DEFAULT "/etc/gmbd/gmbd.conf"

enum config_rule_type {
    CONFIG_RULE_USER,
    CONFIG_RULE_GROUP,
    CONFIG_RULE_UNIT,
    CONFIG_RULE_CGROUP,
    CONFIG_RULE_MAX
};

struct config_rule {
    enum config_rule_type type;
    uint32_t tenant; /* index in tenants */
    bool anyone;     /* User=* */
    uint32_t id;     /* USER, GROUP */
    char *pattern;   /* UNIT, CGROUP: fnmatch(3) */
};

/* A device as the driver knows it; the index is the core's. */
struct config_device {
    struct uuid uuid;
    uint64_t total_bytes;
    uint64_t reserve_bytes; /* filled in by loading, as is: */
    uint64_t tier_bytes;    /* of host memory for its evicted pages */
    bool ipc;               /* Backend=ipc: shared over CUDA IPC, whatever it could do */
};

/* What a tenant has to do with share groups; one for each of config.tenants. */
struct config_share {
    bool group; /* it is one itself: an account without processes of its own */
    char member[LIMIT_NAME_BYTES + 1]; /* of this one; "": of none */
    unsigned line;                     /* that says so, in … */
    const char *file;                  /* … valid while loading alone */
};

struct config {
    char *client_socket, *control_socket;
    bool has_control_group;
    gid_t control_group;
    enum log_level log_level;
    char *tier_path;          /* folder on a disk, for more of them; NULL: none */
    uint64_t tier_disk_bytes; /* there, for each device */
    struct core_options options;
    uint64_t recall_timeout_ns; /* for a worker to give an emptied chunk back */
    uint64_t mover_idle_ns;     /* a mover without work is ended */
    uint64_t segment_idle_ns;   /* a segment that nobody has is removed after; CLOCK_NEVER: never */
    uint64_t segment_verify_ns; /* distance of looks at a segment's checksums; the same */
    uint64_t advice_grace_ns;   /* for a tenant's clients to answer to advice */
    uint64_t revoke_timeout_ns; /* for a worker to give up what is revoked of a workspace */
    bool revoke;                /* workspaces may be asked back */
    bool kill;                  /* the last resort is allowed */
    size_t device_count;
    struct config_device devices[LIMIT_DEVICES];
    size_t tenant_count;
    struct core_tenant_config *tenants; /* and share groups */
    struct config_share *shares;
    size_t rule_count;
    struct config_rule *rules; /* in the order of files and lines: the first that matches wins */
    bool built_in;             /* no [Tenant] anywhere: one tenant for the daemon's own user */
};

/*
 * Loads `path` and its drop-ins for the given devices (count and the first two members are read).
 * A missing `path` is an error only if `required`. -errno, with one line in `error`.
 */
int config_load(const char *path, bool required, const struct config_device *devices,
    size_t device_count, struct config **ret, char error[CONFIG_ERROR_BYTES]) _must_check_;
/* The same from a text, as if it stood in a file `name`. */
int config_load_text(const char *name, const char *text, size_t size,
    const struct config_device *devices, size_t device_count, struct config **ret,
    char error[CONFIG_ERROR_BYTES]) _must_check_;
/* Whether a rule leads to the tenant: to one without, no process can ever belong. */
bool config_tenant_reachable(const struct config *config, uint32_t tenant);
/* Accepts NULL, returns NULL. */
struct config *config_free(struct config *config);

/* Name of the share group that the tenant is in, owned by `config`; NULL: it is in none. */
const char *config_group(const struct config *config, const char *tenant);
/* The tenant of a process: false when no rule matches. */
bool config_match(
    const struct config *config, const struct identity *identity, uint32_t *ret_tenant);
