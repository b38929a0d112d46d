/* Configuration: every key at its edges, and that anything malformed refuses all of it, by line. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "daemon/config.h"
#include "tests/unit/unit.h"

#define GIB (UINT64_C(1) << 30)
#define UUID_A "GPU-00000000-0000-0000-0000-000000000001"
#define UUID_B "GPU-00000000-0000-0000-0000-000000000002"

static const struct config_device devices[] = {
    {.uuid.bytes[15] = 1, .total_bytes = 8 * GIB},
    {.uuid.bytes[15] = 2, .total_bytes = 16 * GIB},
};
static char error[CONFIG_ERROR_BYTES];

static int load(const char *text, struct config **ret)
{
    return config_load_text(
        "test.conf", text, strlen(text), devices, ARRAY_SIZE(devices), ret, error);
}

static struct config *load_valid(const char *text)
{
    struct config *config = NULL;

    ck_assert_msg(load(text, &config) == 0, "refused: %s", error);
    return config;
}

/* Must be refused, at `line`, or as a whole if that is 0. */
static void refused(const char *text, unsigned line)
{
    struct config *config = NULL;
    char place[32];

    ck_assert_msg(load(text, &config) < 0, "accepted: %s", text);
    ck_assert_ptr_null(config);
    if (line > 0)
        (void) snprintf(place, sizeof(place), "test.conf:%u: ", line);
    else
        (void) snprintf(place, sizeof(place), "test.conf: ");
    ck_assert_msg(strncmp(error, place, strlen(place)) == 0, "'%s' for '%s'", error, text);
}

START_TEST(a_tenant_without_keys_has_no_limits)
{
    struct config *config = load_valid("[Tenant a]\n");

    ck_assert_uint_eq(config->tenant_count, 1);
    ck_assert_str_eq(config->tenants[0].name, "a");
    ck_assert_uint_eq(config->tenants[0].memory[1].min, 0);
    ck_assert_uint_eq(config->tenants[0].memory[1].max, SIZE_INFINITY);
    ck_assert_uint_eq(config->tenants[0].memory[1].high, SIZE_INFINITY);
    ck_assert_uint_eq(config->tenants[0].clients_max, UINT32_MAX);
    ck_assert(!config->built_in);
    ck_assert(!config_tenant_reachable(config, 0));
    (void) config_free(config);
}
END_TEST

START_TEST(no_tenant_at_all_is_one_for_the_own_user_alone)
{
    struct config *config = load_valid("");
    struct identity own = {.uid = geteuid(), .cgroup = (char[]){""}, .unit = (char[]){""}};
    struct identity other = {.uid = geteuid() + 1, .cgroup = (char[]){""}, .unit = (char[]){""}};
    uint32_t tenant;

    ck_assert(config->built_in);
    ck_assert(config_tenant_reachable(config, 0));
    ck_assert_str_eq(config->tenants[0].name, "default");
    ck_assert(config_match(config, &own, &tenant));
    ck_assert(!config_match(config, &other, &tenant));
    (void) config_free(config);
}
END_TEST

START_TEST(percent_and_override_are_resolved_in_any_order)
{
    struct config *config = load_valid("[Tenant a Device " UUID_B "]\nMemoryMax=1G\n"
                                       "[Tenant a]\nMemoryMax=50%\nMemoryMin=1%\n"
                                       "[Device *]\nReserve=1G\n"
                                       "[Device " UUID_A "]\nReserve=2G\n");
    const struct core_memory_limits *memory = config->tenants[0].memory;

    ck_assert_uint_eq(memory[0].max, 3 * GIB);
    ck_assert_uint_eq(memory[1].max, 1 * GIB);
    ck_assert_uint_eq(memory[0].min, 6 * GIB / 100);
    ck_assert_uint_eq(memory[1].min, 15 * GIB / 100);
    ck_assert_uint_eq(config->devices[0].reserve_bytes, 2 * GIB);
    ck_assert_uint_eq(config->devices[1].reserve_bytes, 1 * GIB);
    (void) config_free(config);
}
END_TEST

START_TEST(a_backend_is_chosen_for_all_devices_or_for_one)
{
    struct config *config = load_valid("[Device " UUID_A "]\nReserve=1G\nBackend=auto\n"
                                       "[Device *]\nBackend=ipc\n");

    ck_assert(!config->devices[0].ipc);
    ck_assert(config->devices[1].ipc);
    ck_assert_uint_eq(config->devices[0].reserve_bytes, 1 * GIB);
    (void) config_free(config);
    config = load_valid("");
    ck_assert(!config->devices[0].ipc);
    (void) config_free(config);
}
END_TEST

START_TEST(guarantees_may_reach_the_capacity_and_not_pass_it)
{
    (void) config_free(load_valid("[Tenant a]\nMemoryMin=3G\n[Tenant b]\nMemoryMin=5G\n"));
    refused("[Tenant a]\nMemoryMin=3G\n[Tenant b]\nMemoryMin=5368709121\n", 4);
    refused("[Tenant a]\nMemoryMin=2G\nMemoryMax=1G\n", 2);
    refused("[Device *]\nReserve=8G\n", 0);
}
END_TEST

START_TEST(every_key_takes_its_range_and_no_more)
{
    static const struct {
        const char *key, *low, *high, *below, *above;
    } cases[] = {
        {"Priority", "0", "1000", "-1", "1001"},
        {"Weight", "1", "10000", "0", "10001"},
        {"ClientsMax", "0", "16384", "-1", "16385"},
        {"LeasesMax", "0", "4294967294", "-1", "4294967295"},
        {"MemoryMin", "0", "8G", "-1", "infinity"},
        {"MemoryLow", "0%", "100%", "-1%", "101%"},
        {"MemoryHigh", "1", "infinity", "", "1 G"},
        {"MemoryMax", "0", "infinity", "none", "99999999999999999999"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *valid[] = {cases[i].low, cases[i].high};
        const char *invalid[] = {cases[i].below, cases[i].above};
        char text[128];

        for (size_t k = 0; k < 2; k++) {
            (void) snprintf(text, sizeof(text), "[Tenant a]\n%s=%s\n", cases[i].key, valid[k]);
            (void) config_free(load_valid(text));
            (void) snprintf(text, sizeof(text), "[Tenant a]\n\n%s=%s\n", cases[i].key, invalid[k]);
            refused(text, 3);
        }
    }
}
END_TEST

START_TEST(the_broker_keys_take_what_they_are_for)
{
    struct config *config = load_valid(
        "[Broker]\nClientSocket=/run/a\nControlSocket=/run/b\nControlGroup=0\nLogLevel=debug\n"
        "RecycleIdle=500ms\nVerifyWindow=1us\nOrphanGrace=24h\nObserveInterval=2min\n"
        "CreateBackoff=1s\nPrefetch=64M\n"
        "HostTierPath=/tier\nHostTierDisk=3G\n");
    ck_assert_str_eq(config->tier_path, "/tier");
    ck_assert_uint_eq(config->tier_disk_bytes, 3 * GIB);

    ck_assert_str_eq(config->client_socket, "/run/a");
    ck_assert_uint_eq(config->options.recycle_idle_ns, 500000000);
    ck_assert_uint_eq(config->options.verify_window_ns, 1000);
    ck_assert_uint_eq(config->options.orphan_grace_ns, UINT64_C(86400000000000));
    ck_assert_uint_eq(config->options.observe_ns, UINT64_C(120000000000));
    ck_assert_uint_eq(config->options.prefetch_bytes, 64 << 20);
    ck_assert_int_eq(config->log_level, LOG_LEVEL_DEBUG);
    (void) config_free(config);
    refused("[Broker]\nRecycleIdle=25h\n", 2);
    refused("[Broker]\nRecycleIdle=0s\n", 2);
    refused("[Broker]\nVerifyWindow=1\n", 2);
    refused("[Broker]\nOrphanGrace=1 s\n", 2);
    refused("[Broker]\nObserveInterval=-1s\n", 2);
    refused("[Broker]\nCreateBackoff=\n", 2);
    refused("[Broker]\nClientSocket=run\n", 2);
    refused("[Broker]\nControlGroup=no-such-group\n", 2);
    refused("[Broker]\nLogLevel=loud\n", 2);
    refused("[Broker]\nPrefetch=infinity\n", 2);
    refused("[Broker]\nHostTierDisk=infinity\n", 2);
    refused("[Broker]\nHostTierPath=tier\n", 2);
    refused("[Broker]\nHostTierPath=/\xff\nHostTierDisk=1G\n", 2);
    refused("[Broker]\nHostTierPath=/tier\n", 0);
    refused("[Broker]\nHostTierPath=/tier\nHostTierDisk=0\n", 0);
    refused("[Broker]\nHostTierDisk=1G\n", 0);
    refused("[Broker]\nLogLevel=info\nLogLevel=info\n", 3);
    refused("[Broker]\nLoglevel=info\n", 2);
}
END_TEST

START_TEST(what_is_unknown_twice_or_malformed_refuses_everything)
{
    refused("[Tenant]\n", 1);
    refused("[Tenant a b]\n", 1);
    refused("[tenant a]\n", 1);
    refused("[Tenant a Device x]\n", 1);
    refused("[Tenant a Device GPU-00000000-0000-0000-0000-000000000003]\n", 1);
    refused("[Tenant a/b]\n", 1);
    refused("[Tenant a\n", 1);
    refused("[Broker] x\n", 1);
    refused("Weight=1\n", 1);
    refused("[Tenant a]\nWeight\n", 2);
    refused("[Tenant a]\nWeight=1\n[Tenant b]\n[Tenant a]\nWeight=1\n", 5);
    refused("[Tenant a]\nMemoryMaxx=1\n", 2);
    refused("[Tenant a Device " UUID_A "]\nWeight=1\n", 2);
    refused("[Tenant a Device " UUID_A "]\nUser=0\n", 2);
    refused("[Tenant a]\nUser=no-such-user-here\n", 2);
    refused("[Tenant a]\nUnit=\n", 2);
    refused("[Device *]\nReserve=50%\n", 2);
    refused("[Device *]\nWeight=1\n", 2);
    refused("[Device *]\nBackend=vmm\n", 2);
    refused("[Device *]\nBackend=\n", 2);
    refused("[Device *]\nBackend=ipc\nReserve=1G\nBackend=auto\n", 4);
    /* inih would join an indented line to the value before it. */
    (void) config_free(load_valid("[Tenant a]\n  Weight=1\n  Priority=2\n"));
}
END_TEST

START_TEST(long_lines_and_names_are_refused_not_cut)
{
    char text[1024], name[LIMIT_NAME_BYTES + 2];

    memset(name, 'n', sizeof(name));
    name[LIMIT_NAME_BYTES] = '\0';
    (void) snprintf(text, sizeof(text), "[Tenant %s Device " UUID_A "]\nMemoryMax=1G\n", name);
    (void) config_free(load_valid(text));
    name[LIMIT_NAME_BYTES] = 'n';
    name[LIMIT_NAME_BYTES + 1] = '\0';
    (void) snprintf(text, sizeof(text), "[Tenant %s]\n", name);
    refused(text, 1);
    (void) snprintf(text, sizeof(text), "[Tenant a]\nCGroup=%0800d\n", 0);
    refused(text, 2);
}
END_TEST

START_TEST(the_first_rule_that_fits_wins)
{
    struct config *config = load_valid("[Tenant unit]\nUnit=vllm@*.service\n"
                                       "[Tenant group]\nGroup=77\n"
                                       "[Tenant user]\nUser=1000\nUser=1001\n"
                                       "[Tenant group]\nCGroup=/machine.slice/*\n");
    gid_t groups[] = {5, 77};
    struct identity identity = {
        .uid = 1001,
        .cgroup = (char[]){"/machine.slice/a/b"},
        .unit = (char[]){"vllm@1.service"},
        .groups = groups,
        .group_count = 2,
    };
    uint32_t tenant;

    ck_assert(config_match(config, &identity, &tenant));
    ck_assert_str_eq(config->tenants[tenant].name, "unit");
    identity.unit = (char[]){"vllm.service"};
    ck_assert(config_match(config, &identity, &tenant));
    ck_assert_str_eq(config->tenants[tenant].name, "group");
    identity.group_count = 1;
    ck_assert(config_match(config, &identity, &tenant));
    ck_assert_str_eq(config->tenants[tenant].name, "user");
    identity.uid = 1002;
    ck_assert(config_match(config, &identity, &tenant));
    ck_assert_str_eq(config->tenants[tenant].name, "group");
    identity.cgroup = (char[]){"/machine.slice"};
    ck_assert(!config_match(config, &identity, &tenant));
    (void) config_free(config);
}
END_TEST

UNIT_MAIN("daemon_config", a_tenant_without_keys_has_no_limits,
    no_tenant_at_all_is_one_for_the_own_user_alone, percent_and_override_are_resolved_in_any_order,
    a_backend_is_chosen_for_all_devices_or_for_one,
    guarantees_may_reach_the_capacity_and_not_pass_it, every_key_takes_its_range_and_no_more,
    the_broker_keys_take_what_they_are_for, what_is_unknown_twice_or_malformed_refuses_everything,
    long_lines_and_names_are_refused_not_cut, the_first_rule_that_fits_wins)
