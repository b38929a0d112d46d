/*
 * Runs one scenario of policies/reclaim.h: tenants and their chunks, a plan, what it must be.
 *
 *   tenant NAME used=SIZE [KEY=VALUE …]         priority weight min low high host
 *                                               carrying=SIZE ignores=1
 *   chunk NAME TENANT SIZE [KEY=VALUE …]        page=SIZE resident pinned recomputable
 *                                               continued idle=MS cost here=MS segment=1
 *   plan SIZE [KEY=VALUE …]                     for=TENANT from=TENANT wanted=SIZE whole=1
 *                                               steps=N empty=1
 *   expect steps [CHUNK=REASON[*DROPPED] …]     all of them, in order; blanks of a reason as dashes
 *   expect planned SIZE
 *   expect shortfall WHY
 *   lease NAME TENANT SIZE [KEY=VALUE …]        chunk=SIZE age=MS
 *   revoke SIZE for=TENANT [KEY=VALUE …]        wanted=SIZE steps=N
 *   expect revoked [LEASE=SIZE=REASON …]        all of them, in order
 *   kill VICTIM [KEY=VALUE …]                   for=TENANT forbidden=1 dying=N since=MS cooldown=MS
 *   expect kill VERDICT
 */
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "policies/reclaim_revoke.h"
#include "tests/scenario/lines.h"

#define TENANTS 16
#define CHUNKS 64
#define LEASES 32
#define MS UINT64_C(1000000)

static struct reclaim_tenant tenants[TENANTS];
static struct reclaim_chunk chunks[CHUNKS];
static char tenant_names[TENANTS][16], chunk_names[CHUNKS][16];
static size_t tenant_count, chunk_count, step_count;
static struct reclaim_step steps[CHUNKS];
static struct revoke_lease leases[LEASES];
static char lease_names[LEASES][16];
static struct revoke_step revoked[LEASES];
static size_t lease_count, revoked_count;
static uint64_t planned;
static enum reclaim_shortfall shortfall;
static enum reclaim_kill_verdict verdict;

static void name_copy(char *to, size_t size, const char *name)
{
    if (strlen(name) >= size)
        fail("too long a name: %s", name);
    (void) strcpy(to, name);
}

static uint32_t tenant_row(const char *name)
{
    if (!name)
        return UINT32_MAX;
    for (uint32_t i = 0; i < tenant_count; i++) {
        if (strcmp(tenant_names[i], name) == 0)
            return i;
    }
    fail("no tenant %s", name);
}

static void run_tenant(void)
{
    if (tenant_count == TENANTS)
        fail("too many tenants");
    name_copy(tenant_names[tenant_count], sizeof(tenant_names[0]), word(1));
    tenants[tenant_count++] = (struct reclaim_tenant){
        .used = value_size(2, "used", 0),
        .min = value_size(2, "min", 0),
        .low = value_size(2, "low", 0),
        .high = value_size(2, "high", UINT64_MAX),
        .host_left = value_size(2, "host", UINT64_MAX),
        .host_carrying = value_size(2, "carrying", 0),
        .priority = (uint32_t) value_number(2, "priority", 100),
        .weight = (uint32_t) value_number(2, "weight", 100),
        .ignores_advice = value_number(2, "ignores", 0) != 0,
    };
}

static void run_chunk(void)
{
    if (chunk_count == CHUNKS)
        fail("too many chunks");
    name_copy(chunk_names[chunk_count], sizeof(chunk_names[0]), word(1));
    chunks[chunk_count] = (struct reclaim_chunk){
        .tenant = tenant_row(word(2)),
        .bytes = size_of(word(3)),
        .page_bytes = value_size(4, "page", UINT64_C(1) << 20),
        .resident = (uint32_t) value_number(4, "resident", 0),
        .pinned = (uint32_t) value_number(4, "pinned", 0),
        .recomputable = (uint32_t) value_number(4, "recomputable", 0),
        .continued = (uint32_t) value_number(4, "continued", 0),
        .idle_ns = value_number(4, "idle", 0) * MS,
        .here_ns = value_number(4, "here", 3600000) * MS,
        .recompute_cost = (double) value_number(4, "cost", 0),
        .segment = value_number(4, "segment", 0) != 0,
    };
    chunk_count++;
}

static void run_plan(void)
{
    const struct reclaim_request request = {
        .bytes = size_of(word(1)),
        .beneficiary = tenant_row(value_of(2, "for")),
        .from = tenant_row(value_of(2, "from")),
        .wanted = value_size(2, "wanted", 0),
        .whole_device = value_number(2, "whole", 0) != 0,
        .empty_only = value_number(2, "empty", 0) != 0,
    };

    step_count = reclaim_plan(&request, tenants, tenant_count, chunks, chunk_count, steps,
        value_number(2, "steps", CHUNKS), &planned, &shortfall);
}

static void run_lease(void)
{
    if (lease_count == LEASES)
        fail("too many leases");
    name_copy(lease_names[lease_count], sizeof(lease_names[0]), word(1));
    leases[lease_count++] = (struct revoke_lease){
        .tenant = tenant_row(word(2)),
        .bytes = size_of(word(3)),
        .chunk_bytes = value_size(4, "chunk", UINT64_C(2) << 20),
        .age_ns = value_number(4, "age", 0) * MS,
    };
}

static void run_revoke(void)
{
    const struct revoke_request request = {
        .bytes = size_of(word(1)),
        .beneficiary = tenant_row(value_of(2, "for")),
        .wanted = value_size(2, "wanted", 0),
    };
    bool taken[LEASES];

    revoked_count = revoke_plan(&request, tenants, tenant_count, leases, lease_count, taken,
        revoked, value_number(2, "steps", LEASES), &planned);
}

static void run_kill(void)
{
    const struct reclaim_kill kill = {
        .allowed = value_number(2, "forbidden", 0) == 0,
        .victim = tenant_row(word(1)),
        .beneficiary = tenant_row(value_of(2, "for")),
        .dying = (uint32_t) value_number(2, "dying", 0),
        .killed_before = value_of(2, "since") != NULL,
        .since_ns = value_number(2, "since", 0) * MS,
        .cooldown_ns = value_number(2, "cooldown", 0) * MS,
    };

    verdict = reclaim_may_kill(&kill, tenants, tenant_count);
}

/* A name as one word. */
static const char *dashed(char *to, size_t size, const char *name)
{
    (void) snprintf(to, size, "%s", name);
    for (char *at = to; *at; at++) {
        if (*at == ' ')
            *at = '-';
    }
    return to;
}

static void expect_word(const char *name, const char *expected)
{
    char text[64];

    if (strcmp(dashed(text, sizeof(text), name), expected) != 0)
        fail("it is %s", text);
}

static void expect_steps(void)
{
    size_t expected = word_count() - 2;

    for (size_t i = 0; i < step_count || i < expected; i++) {
        char text[96], reason[64], drop[16] = "";

        if (i >= step_count)
            fail("step %zu is missing: %s", i + 1, word(i + 2));
        if (steps[i].drop_pages > 0)
            (void) snprintf(drop, sizeof(drop), "*%u", steps[i].drop_pages);
        (void) snprintf(text, sizeof(text), "%s=%s%s", chunk_names[steps[i].chunk],
            dashed(reason, sizeof(reason), reclaim_reason_name(steps[i].reason)), drop);
        if (i >= expected || !is(i + 2, text))
            fail("step %zu is %s", i + 1, text);
    }
}

static void expect_revoked(void)
{
    size_t expected = word_count() - 2;

    for (size_t i = 0; i < revoked_count || i < expected; i++) {
        char text[96], reason[64], bytes[SIZE_TEXT_MAX];

        if (i >= revoked_count)
            fail("step %zu is missing: %s", i + 1, word(i + 2));
        (void) snprintf(text, sizeof(text), "%s=%s=%s", lease_names[revoked[i].lease],
            size_format(bytes, revoked[i].bytes),
            dashed(reason, sizeof(reason), reclaim_reason_name(revoked[i].reason)));
        if (i >= expected || !is(i + 2, text))
            fail("step %zu is %s", i + 1, text);
    }
}

static void run_expect(void)
{
    char text[SIZE_TEXT_MAX];

    if (is(1, "steps"))
        expect_steps();
    else if (is(1, "revoked"))
        expect_revoked();
    else if (is(1, "planned")) {
        if (planned != size_of(word(2)))
            fail("it is %s", size_format(text, planned));
    } else if (is(1, "shortfall"))
        expect_word(reclaim_shortfall_name(shortfall), word(2));
    else if (is(1, "kill"))
        expect_word(reclaim_kill_verdict_name(verdict), word(2));
    else
        fail("what is expected?");
}

static void run_line(void)
{
    if (is(0, "tenant"))
        run_tenant();
    else if (is(0, "chunk"))
        run_chunk();
    else if (is(0, "plan"))
        run_plan();
    else if (is(0, "lease"))
        run_lease();
    else if (is(0, "revoke"))
        run_revoke();
    else if (is(0, "kill"))
        run_kill();
    else if (is(0, "expect"))
        run_expect();
    else
        fail("what is %s?", word(0));
}

int main(int argc, char **argv)
{
    return lines_run(argc, argv, run_line);
}
