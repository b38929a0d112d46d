/*
 * Runs one scenario: a text file of a world, events and expected decisions, one to a line.
 *
 *   device SIZE [reserve=SIZE]                  once, first
 *   tenant NAME [KEY=VALUE …]                   priority weight min low high max clients leases
 *   configure                                   puts the tenants above in force
 *   set NAME KEY=VALUE …                        changes one tenant
 *   client NAME TENANT
 *   request NAME CLIENT SIZE [KEY=VALUE …]      wait=MS chunk=SIZE
 *   grow NAME REQUEST SIZE [wait=MS]            the lease that REQUEST got
 *   release REQUEST, cancel REQUEST, kill CLIENT, detach CLIENT
 *   others SIZE, leak COUNT, pass MS            other processes, releases that don't come back
 *   expect NAME granted | waits
 *   expect NAME refused STATUS [LIMIT]
 *   expect tenant NAME used|leased|cached|orphaned|overage SIZE
 *   expect free SIZE
 *   expect last refused STATUS                  of configure or set
 */
#include <string.h>

#include "base/macro.h"
#include "base/size.h"
#include "tests/core/world.h"
#include "tests/scenario/lines.h"

#define NAMES 64

struct named {
    char name[32];
    core_id client;
    uint64_t request; /* 0: this is a client */
};

struct scenario {
    struct world world;
    struct named names[NAMES];
    size_t name_count;
    const struct core_action *last;
};

static struct scenario scenario;

static struct named *name_find(const char *name)
{
    for (size_t i = 0; i < scenario.name_count; i++) {
        if (strcmp(scenario.names[i].name, name) == 0)
            return &scenario.names[i];
    }
    fail("nothing is called %s", name);
}

static void name_add(const char *name, core_id client, uint64_t request)
{
    struct named *named = &scenario.names[scenario.name_count++];

    if (scenario.name_count > NAMES || strlen(name) >= sizeof(named->name))
        fail("too many names, or too long a one");
    (void) strcpy(named->name, name);
    named->client = client;
    named->request = request;
}

static void apply_number(uint32_t *value, const char *key)
{
    *value = (uint32_t) value_number(2, key, *value);
}

static void apply_size(uint64_t *value, const char *key)
{
    *value = value_size(2, key, *value);
}

static void apply_values(struct core_tenant_config *tenant)
{
    apply_number(&tenant->priority, "priority");
    apply_number(&tenant->weight, "weight");
    apply_number(&tenant->clients_max, "clients");
    apply_number(&tenant->leases_max, "leases");
    apply_size(&tenant->memory[0].min, "min");
    apply_size(&tenant->memory[0].low, "low");
    apply_size(&tenant->memory[0].high, "high");
    apply_size(&tenant->memory[0].max, "max");
}

static void run_set(void)
{
    struct core_tenant_config tenant;
    uint32_t index;

    if (!core_tenant_find(scenario.world.core, word(1), &index) ||
        !core_tenant_config_get(scenario.world.core, index, &tenant))
        fail("no tenant %s", word(1));
    apply_values(&tenant);
    scenario.last = world_set(&scenario.world, &tenant, 0);
}

static core_id lease_of(const struct named *named)
{
    const struct core_action *answer = world_answer(&scenario.world, named->client, named->request);

    if (!answer || answer->type != CORE_ACTION_GRANT)
        fail("%s has no lease", named->name);
    return answer->grant.lease;
}

static uint64_t wait_of(void)
{
    return value_number(4, "wait", 0) * MS;
}

static void run_request(void)
{
    const struct named *client = name_find(word(2));

    name_add(word(1), client->client,
        world_request(&scenario.world, client->client, 0, size_of(word(3)),
            value_size(4, "chunk", 0), wait_of()));
}

static void run_grow(void)
{
    const struct named *of = name_find(word(2));

    name_add(word(1), of->client,
        world_grow(&scenario.world, of->client, lease_of(of), size_of(word(3)), wait_of()));
}

static bool run_client_line(void)
{
    if (is(0, "client"))
        name_add(word(1), world_client(&scenario.world, word(2)), 0);
    else if (is(0, "request"))
        run_request();
    else if (is(0, "grow"))
        run_grow();
    else if (is(0, "release"))
        (void) world_release(
            &scenario.world, name_find(word(1))->client, lease_of(name_find(word(1))));
    else if (is(0, "cancel"))
        (void) world_cancel(
            &scenario.world, name_find(word(1))->client, name_find(word(1))->request);
    else if (is(0, "kill"))
        world_kill(&scenario.world, name_find(word(1))->client);
    else if (is(0, "detach"))
        world_detach(&scenario.world, name_find(word(1))->client);
    else
        return false;
    return true;
}

static bool run_world_line(void)
{
    if (is(0, "device")) {
        world_init(&scenario.world, NULL, size_of(word(1)), value_size(2, "reserve", 0));
    } else if (is(0, "tenant")) {
        apply_values(world_tenant(&scenario.world, word(1)));
    } else if (is(0, "configure")) {
        scenario.last = world_configure(&scenario.world);
    } else if (is(0, "set")) {
        run_set();
    } else if (is(0, "others")) {
        scenario.world.devices[0].others = size_of(word(1));
    } else if (is(0, "leak")) {
        scenario.world.leak_next = (unsigned) number_of(word(1));
    } else if (is(0, "pass")) {
        world_pass(&scenario.world, number_of(word(1)) * MS);
    } else {
        return false;
    }
    return true;
}

static void expect_refused(const struct core_action *answer, size_t first)
{
    const char *status, *limit;

    if (!answer || answer->type != CORE_ACTION_REFUSE)
        fail("not refused");
    status = status_name(answer->refuse.status);
    limit = limit_name(answer->refuse.limit);
    if (!is(first, status) || (first + 1 < word_count() && !is(first + 1, limit)))
        fail("refused %s %s: %s", status, limit, answer->refuse.text);
}

static void expect_size(uint64_t bytes, const char *expected)
{
    char text[SIZE_TEXT_MAX];

    if (bytes != size_of(expected))
        fail("it is %s", size_format(text, bytes));
}

static void expect_tenant(void)
{
    struct core_tenant_device_view use = world_use(&scenario.world, word(2), 0);

    if (is(3, "used"))
        expect_size(use.used, word(4));
    else if (is(3, "leased"))
        expect_size(use.leased, word(4));
    else if (is(3, "cached"))
        expect_size(use.cached, word(4));
    else if (is(3, "orphaned"))
        expect_size(use.orphaned, word(4));
    else if (is(3, "overage"))
        expect_size(use.overage, word(4));
    else
        fail("a tenant has no %s", word(3));
}

static void expect_request(void)
{
    const struct named *named = name_find(word(1));
    const struct core_action *answer = world_answer(&scenario.world, named->client, named->request);

    if (is(2, "waits")) {
        if (answer)
            fail("%s doesn't wait: %s", named->name,
                answer->type == CORE_ACTION_REFUSE ? answer->refuse.text : "granted");
    } else if (is(2, "granted")) {
        if (!answer || answer->type != CORE_ACTION_GRANT)
            fail("%s is not granted: %s", named->name, answer ? answer->refuse.text : "it waits");
    } else if (is(2, "refused")) {
        expect_refused(answer, 3);
    } else {
        fail("what is expected of %s?", named->name);
    }
}

static void run_line(void)
{
    if (!is(0, "expect")) {
        if (!run_world_line() && !run_client_line())
            fail("what is %s?", word(0));
        return;
    }
    if (is(1, "tenant"))
        expect_tenant();
    else if (is(1, "free"))
        expect_size(world_device(&scenario.world, 0).free, word(2));
    else if (is(1, "last"))
        expect_refused(scenario.last, 3);
    else
        expect_request();
}

int main(int argc, char **argv)
{
    int status = lines_run(argc, argv, run_line);

    world_done(&scenario.world);
    return status;
}
