/* gmbctl as scripts see it: its output word by word, and its exit status. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/client/node.h"
#include "tests/unit/unit.h"

#define TENANTS                                                                                    \
    "[Tenant chat]\nUser=*\nMemoryMax=64M\nMemoryMin=8M\nPriority=700\nClientsMax=4\n"             \
    "[Tenant batch]\nUser=nobody\n"

static struct node node;

static struct {
    int status;
    char out[262144], err[4096];
} ran;

static void file_read(const char *name, char *ret, size_t size)
{
    char path[128];
    FILE *file;
    size_t length;

    (void) snprintf(path, sizeof(path), "%s/%s", node.directory, name);
    file = fopen(path, "re");
    ck_assert_ptr_nonnull(file);
    length = fread(ret, 1, size - 1, file);
    ret[length] = '\0';
    (void) fclose(file);
}

/* Runs gmbctl with the words of a line of shell. */
static int ctl(const char *format, ...) _printf_(1, 2);
static int ctl(const char *format, ...)
{
    char words[1024], line[2048];
    va_list args;
    int status;

    va_start(args, format);
    (void) vsnprintf(words, sizeof(words), format, args);
    va_end(args);
    (void) snprintf(line, sizeof(line),
        "LC_ALL=C.UTF-8 GMB_CONTROL_SOCKET=%s %s %s >%s/out 2>%s/err", node.control_socket,
        getenv("GMBCTL"), words, node.directory, node.directory);
    status = system(line);
    ck_assert(WIFEXITED(status));
    ran.status = WEXITSTATUS(status);
    file_read("out", ran.out, sizeof(ran.out));
    file_read("err", ran.err, sizeof(ran.err));
    return ran.status;
}

static json_t *ctl_json(const char *words)
{
    json_error_t error;
    json_t *json;

    ck_assert_int_eq(ctl("%s --json", words), 0);
    json = json_loads(ran.out, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(json != NULL, "%s", error.text);
    return json;
}

static json_int_t number_at(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);

    ck_assert_msg(json_is_integer(value), "%s", key);
    return json_integer_value(value);
}

static json_t *tenant_get(json_t *tenants, const char *name)
{
    for (size_t i = 0; i < json_array_size(tenants); i++) {
        json_t *tenant = json_array_get(tenants, i);

        if (strcmp(json_string_value(json_object_get(tenant, "name")), name) == 0)
            return tenant;
    }
    ck_abort_msg("no tenant %s", name);
}

static json_int_t memory_max(const char *name)
{
    json_t *tenants = ctl_json("tenants");
    json_t *device = json_array_get(json_object_get(tenant_get(tenants, name), "devices"), 0);
    json_t *value = json_object_get(device, "memory_max");
    json_int_t max = json_is_null(value) ? -1 : json_integer_value(value);

    json_decref(tenants);
    return max;
}

static json_int_t revision(const char *name)
{
    json_t *tenants = ctl_json("tenants");
    json_int_t number = number_at(tenant_get(tenants, name), "revision");

    json_decref(tenants);
    return number;
}

START_TEST(tables_are_aligned_and_sizes_are_as_people_write_them)
{
    node_start(&node, 512 * MIB, TENANTS);
    ck_assert_int_eq(ctl("tenants"), 0);
    ck_assert_str_eq(ran.out, "TENANT  DEVICE        USED  LEASED  CACHED  PEAK  MIN  MAX"
                              "  PRIORITY  WEIGHT  CLIENTS  LEASES  WAITING  REVISION\n"
                              "chat    GPU-676d6273     -       -       -     -   8M  64M"
                              "       700     100      0/4       0        0         1\n"
                              "batch   GPU-676d6273     -       -       -     -    -    -"
                              "       500     100        0       0        0         1\n");
    /* What nobody has takes no room until somebody has it. */
    ck_assert_int_eq(ctl("set batch MemoryHigh=32M"), 0);
    ck_assert_int_eq(ctl("tenants"), 0);
    ck_assert_ptr_nonnull(strstr(ran.out, "  PEAK  MIN  HIGH  MAX  PRIORITY  "));
    ck_assert_int_eq(ctl("clients"), 0);
    ck_assert_str_eq(
        ran.out, "ID  TENANT  PID  UID  PROGRAM  UNIT  LEASES  LEASED  WAITING  STATE\n");
    ck_assert_int_eq(ctl("leases"), 0);
    ck_assert_str_eq(
        ran.out, "ID  CLIENT  HOLDERS  TENANT  DEVICE  SIZE  CHUNKS  CHUNK  AGE  LABEL\n");
    ck_assert_int_eq(ctl("status"), 0);
    ck_assert_ptr_nonnull(strstr(ran.out, "2 tenants, 0 clients, 0 leases, 0 requests waiting\n"));
    ck_assert_ptr_nonnull(strstr(ran.out, " 512M "));
    /* No colours into a file. */
    ck_assert_ptr_null(strchr(ran.out, '\x1b'));
    node_stop(&node);
}
END_TEST

static void run_holder(const struct node *on, int fd, uint64_t bytes)
{
    struct gmb_options options = {
        .size = sizeof(options), .socket = on->client_socket, .program = "holder"};
    struct gmb_lease_params params = {.size = sizeof(params),
        .bytes = bytes,
        /* A label that would turn the operator's line around, and clear the screen. */
        .label = "kv\xe2\x80\xae\x1b[2Jcache"};
    gmb_session *session;
    gmb_lease *lease;

    WORKER_CHECK(gmb_connect(&options, &session) == 0);
    WORKER_CHECK(gmb_lease_new(session, &params, &lease) == 0);
    say(fd, 0);
    (void) hear(fd);
    gmb_disconnect(session);
}

static void holder_start(struct worker *worker, uint64_t bytes)
{
    worker_start(&node, worker, run_holder, bytes);
    (void) hear(worker->fd);
}

static void holder_end(struct worker *worker)
{
    say(worker->fd, 0);
    worker_end(worker);
}

START_TEST(lists_show_who_holds_what)
{
    struct worker worker;
    json_t *clients, *leases, *client, *lease, *status;

    node_start(&node, 512 * MIB, TENANTS);
    holder_start(&worker, 6 * MIB);
    clients = ctl_json("clients");
    leases = ctl_json("leases");
    status = ctl_json("status");
    ck_assert_uint_eq(json_array_size(clients), 1);
    ck_assert_uint_eq(json_array_size(leases), 1);
    client = json_array_get(clients, 0);
    lease = json_array_get(leases, 0);
    ck_assert_int_eq(number_at(client, "pid"), worker.pid);
    ck_assert_int_eq(number_at(client, "uid"), geteuid());
    ck_assert_str_eq(json_string_value(json_object_get(client, "program")), "holder");
    ck_assert_int_eq(number_at(client, "leased_bytes"), (json_int_t) (6 * MIB));
    ck_assert_int_eq(number_at(lease, "client"), number_at(client, "id"));
    ck_assert_int_eq(number_at(lease, "bytes"), (json_int_t) (6 * MIB));
    ck_assert_int_eq(
        number_at(lease, "chunk_bytes") * number_at(lease, "chunks"), (json_int_t) (6 * MIB));
    ck_assert_str_eq(json_string_value(json_object_get(lease, "purpose")), "workspace");
    ck_assert_int_eq(
        number_at(json_array_get(json_object_get(status, "devices"), 0), "leased_bytes"),
        (json_int_t) (6 * MIB));
    json_decref(clients);
    json_decref(leases);
    json_decref(status);

    ck_assert_int_eq(ctl("leases"), 0);
    ck_assert_ptr_nonnull(strstr(ran.out, "  kv??[2Jcache\n"));
    ck_assert_int_eq(ctl("clients"), 0);
    ck_assert_ptr_nonnull(strstr(ran.out, "  holder  "));
    ck_assert_ptr_nonnull(strstr(ran.out, "  6M  "));
    ck_assert_ptr_nonnull(strstr(ran.out, "  connected\n"));
    holder_end(&worker);
    node_stop(&node);
}
END_TEST

#define MANY 300

/* Leases of one process: more than a page of the broker's. */
static void run_hoarder(const struct node *on, int fd, uint64_t argument)
{
    struct gmb_lease_params params = {.size = sizeof(params), .bytes = CHUNK_BYTES};
    gmb_session *session = worker_connect(on);
    gmb_lease *lease;

    for (int i = 0; i < MANY; i++)
        WORKER_CHECK(gmb_lease_new(session, &params, &lease) == 0);
    say(fd, 0);
    (void) hear(fd);
    gmb_disconnect(session);
}

START_TEST(long_lists_come_whole_and_without_repetition)
{
    struct worker worker;
    json_t *leases;

    node_start(&node, 1024 * MIB, "[Tenant chat]\nUser=*\n");
    worker_start(&node, &worker, run_hoarder, 0);
    (void) hear(worker.fd);
    leases = ctl_json("leases");
    ck_assert_uint_eq(json_array_size(leases), MANY);
    for (size_t i = 0; i < MANY; i++) {
        for (size_t j = 0; j < i; j++)
            ck_assert_int_ne(number_at(json_array_get(leases, i), "id"),
                number_at(json_array_get(leases, j), "id"));
    }
    json_decref(leases);
    holder_end(&worker);
    node_stop(&node);
}
END_TEST

START_TEST(set_changes_all_or_nothing)
{
    node_start(&node, 512 * MIB, TENANTS);
    ck_assert_int_eq(ctl("set chat MemoryMax=128M Priority=650"), 0);
    ck_assert_str_eq(ran.out, "tenant chat is at revision 2 now\n");
    ck_assert_int_eq(memory_max("chat"), 128 * (json_int_t) MIB);

    ck_assert_int_eq(ctl("set chat MemoryMax=256M Priority=high"), 1);
    ck_assert_ptr_nonnull(strstr(ran.err, "Priority=high"));
    ck_assert_int_eq(ctl("set chat MemoryMax=256M MemoryMx=256M"), 1);
    ck_assert_int_eq(ctl("set chat MemoryMax=256M MemoryMin=4T"), 1);
    ck_assert_int_eq(ctl("set nobody MemoryMax=256M"), 1);
    ck_assert_ptr_nonnull(strstr(ran.err, "there is no tenant nobody"));
    ck_assert_int_eq(memory_max("chat"), 128 * (json_int_t) MIB);
    ck_assert_int_eq(revision("chat"), 2);

    ck_assert_int_eq(ctl("set chat MemoryMax=infinity"), 0);
    ck_assert_int_eq(memory_max("chat"), -1);
    node_stop(&node);
}
END_TEST

START_TEST(operators_do_not_overwrite_each_other_unseen)
{
    node_start(&node, 512 * MIB, TENANTS);
    ck_assert_int_eq(ctl("set chat Priority=1 --revision 1"), 0);
    ck_assert_int_eq(ctl("set chat Priority=2 --revision 1"), 4);
    ck_assert_ptr_nonnull(strstr(ran.err, "gmbctl tenants shows the revision in force"));
    ck_assert_str_eq(ran.out, "");
    ck_assert_int_eq(ctl("set chat Priority=2 --revision 2"), 0);
    node_stop(&node);
}
END_TEST

/* Lowered to the smallest value, and back to its first one: both must count. */
START_TEST(limit_goes_to_zero_and_back)
{
    struct worker worker;

    node_start(&node, 512 * MIB, TENANTS);
    holder_start(&worker, 6 * MIB);
    ck_assert_int_eq(ctl("set chat MemoryMin=0 MemoryMax=0"), 0);
    ck_assert_str_eq(ran.out,
        "tenant chat is at revision 2 now\n"
        "it has 6M more than its MemoryMax on GPU-676d6273-696d-4000-8000-000000000000 until it "
        "gives them back\n");
    ck_assert_int_eq(memory_max("chat"), 0);
    ck_assert_int_eq(ctl("tenants"), 0);
    ck_assert_ptr_nonnull(strstr(ran.out, "  0B    6M  "));
    holder_end(&worker);
    node_wait_idle(&node);

    ck_assert_int_eq(ctl("set chat MemoryMax=64M"), 0);
    ck_assert_int_eq(memory_max("chat"), 64 * (json_int_t) MIB);
    holder_start(&worker, 64 * MIB);
    holder_end(&worker);
    node_stop(&node);
}
END_TEST

START_TEST(reload_reads_the_files_or_changes_nothing)
{
    node_start(&node, 512 * MIB, TENANTS);
    node_configure(&node, "[Tenant chat]\nUser=*\nMemoryMax=32M\n");
    ck_assert_int_eq(ctl("reload"), 0);
    ck_assert_str_eq(ran.out, "configuration read: revision 2, 1 tenant\n");
    ck_assert_int_eq(memory_max("chat"), 32 * (json_int_t) MIB);
    node_configure(&node, "[Tenant chat]\nUser=*\nMemoryMax=lots\n");
    ck_assert_int_eq(ctl("reload"), 1);
    ck_assert_ptr_nonnull(strstr(ran.err, "lots"));
    ck_assert_int_eq(memory_max("chat"), 32 * (json_int_t) MIB);
    node_stop(&node);
}
END_TEST

START_TEST(usage_errors_are_found_before_anybody_is_asked)
{
    static const char *const wrong[] = {"", "bogus", "status now", "set", "set chat",
        "set chat Max", "set chat =1", "--revision 0 set chat A=1", "--revision x set chat A=1",
        "--revision 18446744073709551616 set chat A=1", "--device nowhere set chat A=1",
        "--revision 1 tenants", "--bogus", "--socket"};

    node_start(&node, 512 * MIB, TENANTS);
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        ck_assert_msg(ctl("%s --socket /nonexistent", wrong[i]) == 2 || ctl("%s", wrong[i]) == 2,
            "%s: %d", wrong[i], ran.status);
        ck_assert_str_eq(ran.out, "");
        ck_assert_ptr_nonnull(strstr(ran.err, "--help"));
    }
    ck_assert_int_eq(ctl("--help"), 0);
    ck_assert_int_eq(strncmp(ran.out, "usage: gmbctl ", 14), 0);
    ck_assert_int_eq(ctl("--version"), 0);
    node_stop(&node);
}
END_TEST

START_TEST(broker_that_is_not_there_is_said_so)
{
    node_start(&node, 512 * MIB, TENANTS);
    ck_assert_int_eq(ctl("--socket /nonexistent status"), 3);
    ck_assert_str_eq(ran.err,
        "gmbctl: gmbd isn't listening on /nonexistent: is gmbd.service running? Try: systemctl "
        "status gmbd\n");
    ck_assert_int_eq(ctl("--socket %0200d status", 0), 2);
    node_kill_broker(&node);
    ck_assert_int_eq(ctl("status"), 3);
    node_stop(&node);
}
END_TEST

/* Success means that somebody can read the answer. */
START_TEST(answer_that_cannot_be_written_is_no_success)
{
    char words[512];

    node_start(&node, 512 * MIB, TENANTS);
    for (int json = 0; json < 2; json++) {
        (void) snprintf(words, sizeof(words), "GMB_CONTROL_SOCKET=%s %s status %s >/dev/full 2>&1",
            node.control_socket, getenv("GMBCTL"), json ? "--json" : "");
        ck_assert_int_eq(WEXITSTATUS(system(words)), 1);
    }
    node_stop(&node);
}
END_TEST

START_TEST(memory_is_moved_by_order)
{
    const char *uuid = "GPU-676d6273-696d-4000-8000-000000000000";
    json_t *plan, *status, *device;

    node_start(&node, 512 * MIB, TENANTS);
    ck_assert_int_eq(ctl("evict chat 64M --dry-run"), 0);
    ck_assert_ptr_nonnull(strstr(ran.out, "0B of 64M would be taken: nothing left\n"));
    plan = ctl_json("reclaim batch 1G");
    ck_assert_int_eq(number_at(plan, "planned_bytes"), 0);
    ck_assert_uint_eq(json_array_size(json_object_get(plan, "steps")), 0);
    json_decref(plan);
    ck_assert_int_eq(ctl("drain %s", uuid), 0);
    ck_assert_ptr_nonnull(strstr(ran.out, "nothing new is granted there"));
    ck_assert_int_eq(ctl("status"), 0);
    ck_assert_ptr_nonnull(strstr(ran.out, "  draining\n"));
    ck_assert_int_eq(ctl("drain --undo %s", uuid), 0);
    status = ctl_json("status");
    device = json_array_get(json_object_get(status, "devices"), 0);
    ck_assert(json_is_false(json_object_get(device, "draining")));
    json_decref(status);
    ck_assert_int_eq(ctl("evict nobody 1M"), 1);
    ck_assert_int_eq(ctl("evict chat 0"), 2);
    ck_assert_int_eq(ctl("evict chat"), 2);
    ck_assert_int_eq(ctl("reclaim chat 1M --undo"), 2);
    ck_assert_int_eq(ctl("drain chat"), 2);
    ck_assert_int_eq(ctl("drain GPU-00000000-0000-0000-0000-000000000001"), 1);
    ck_assert_int_eq(ctl("status --dry-run"), 2);
    node_stop(&node);
}
END_TEST

START_TEST(pressure_shows_levels_and_what_tenants_were_asked)
{
    json_t *json, *tenant;

    node_start(&node, 512 * MIB, TENANTS);
    ck_assert_int_eq(ctl("pressure"), 0);
    ck_assert_str_eq(ran.out, "DEVICE        USED  CAPACITY  LEVEL\n"
                              "GPU-676d6273     -      512M  none\n"
                              "\n"
                              "TENANT  DEVICE        USED  HEADROOM  SOME10  SOME60  SOME300  "
                              "FULL10  STALLED  LEVEL\n"
                              "chat    GPU-676d6273     -       64M       -       -        -  "
                              "     -        -  none\n"
                              "batch   GPU-676d6273     -      504M       -       -        -  "
                              "     -        -  none\n");
    json = ctl_json("pressure");
    ck_assert_int_eq(
        number_at(json_array_get(json_object_get(json, "devices"), 0), "capacity_bytes"),
        512 * (json_int_t) MIB);
    tenant = tenant_get(json_object_get(json, "tenants"), "batch");
    ck_assert_int_eq(number_at(tenant, "advice"), 0);
    ck_assert_uint_eq(json_array_size(json_object_get(tenant, "steps")), 0);
    json_decref(json);
    ck_assert_int_eq(ctl("status --watch"), 2);
    ck_assert_int_eq(ctl("pressure --undo"), 2);
    ck_assert_int_eq(ctl("pressure now"), 2);
    /* It follows until nobody listens any more. */
    ck_assert_int_eq(ctl("pressure --watch | head -n 13"), 0);
    ck_assert_ptr_nonnull(strstr(ran.out + 1, "\n\nDEVICE  "));
    ck_assert_int_eq(ctl("set chat 'DegradeLow=reduce-batch 0.5'"), 0);
    ck_assert_int_eq(ctl("set chat 'DegradeLow=reduce-btch 0.5'"), 1);
    ck_assert_ptr_nonnull(strstr(ran.err, "there is no step 'reduce-btch'"));
    node_stop(&node);
}
END_TEST

/* Each family in one piece, each sample with its family's name, and the end. */
static void assert_openmetrics(char *text)
{
    char families[32][64] = {0};
    size_t count = 0;
    bool ended = false;

    for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL && rest != NULL;) {
        ck_assert_msg(!ended, "behind the end: %s", line);
        if (strncmp(line, "# TYPE ", 7) == 0) {
            ck_assert_uint_lt(count, ARRAY_SIZE(families));
            ck_assert_int_eq(sscanf(line + 7, "%63s", families[count]), 1);
            for (size_t i = 0; i < count; i++)
                ck_assert_str_ne(families[i], families[count]);
            count++;
        } else if (strcmp(line, "# EOF") == 0) {
            ended = true;
        } else if (line[0] != '#') {
            ck_assert_uint_gt(count, 0);
            ck_assert_msg(
                strncmp(line, families[count - 1], strlen(families[count - 1])) == 0, "%s", line);
            ck_assert_ptr_nonnull(strrchr(line, ' '));
        }
    }
    ck_assert(ended);
}

START_TEST(metrics_are_text_that_collectors_read)
{
    static const char device[] = "GPU-676d6273-696d-4000-8000-000000000000";
    char line[256];

    node_start(&node, 512 * MIB, TENANTS);
    ck_assert_int_eq(ctl("metrics --json"), 2);
    ck_assert_int_eq(ctl("metrics all"), 2);
    ck_assert_int_eq(ctl("metrics"), 0);
    (void) snprintf(line, sizeof(line),
        "\ngmbd_device_memory_bytes{device=\"%s\",state=\"free\"} 536870912\n", device);
    ck_assert_ptr_nonnull(strstr(ran.out, line));
    (void) snprintf(line, sizeof(line),
        "\ngmbd_tenant_memory_max_bytes{tenant=\"chat\",device=\"%s\"} 67108864\n", device);
    ck_assert_ptr_nonnull(strstr(ran.out, line));
    (void) snprintf(line, sizeof(line),
        "\ngmbd_tenant_memory_max_bytes{tenant=\"batch\",device=\"%s\"} +Inf\n", device);
    ck_assert_ptr_nonnull(strstr(ran.out, line));
    (void) snprintf(line, sizeof(line),
        "\ngmbd_tenant_pressure_level{tenant=\"batch\",device=\"%s\"} 0\n", device);
    ck_assert_ptr_nonnull(strstr(ran.out, line));
    (void) snprintf(line, sizeof(line),
        "\ngmbd_tenant_stall_seconds_total{tenant=\"chat\",device=\"%s\",line=\"full\"} 0.000000\n",
        device);
    ck_assert_ptr_nonnull(strstr(ran.out, line));
    ck_assert_ptr_nonnull(strstr(ran.out, "\ngmbd_requests_total{result=\"granted\"} 0\n"));
    assert_openmetrics(ran.out);
    node_stop(&node);
}
END_TEST

UNIT_MAIN("client ctl", memory_is_moved_by_order,
    tables_are_aligned_and_sizes_are_as_people_write_them, lists_show_who_holds_what,
    long_lists_come_whole_and_without_repetition, set_changes_all_or_nothing,
    operators_do_not_overwrite_each_other_unseen, limit_goes_to_zero_and_back,
    reload_reads_the_files_or_changes_nothing, usage_errors_are_found_before_anybody_is_asked,
    broker_that_is_not_there_is_said_so, answer_that_cannot_be_written_is_no_success,
    pressure_shows_levels_and_what_tenants_were_asked, metrics_are_text_that_collectors_read)
