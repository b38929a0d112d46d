/* See crew.h. */
#include "tests/integration/crew.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/pages.h"

#define CHUNK HARNESS_CHUNK
#define PAGE (UINT64_C(64) << 10)
/* 16 MiB of each arena's; at most two chunks at once are in use. */
#define PAGES 256u
#define STEP 8u
/* Pages that are freed and allocated anew. */
#define FRESH 12u

enum kind { KIND_LESSEE, KIND_ARENA, KIND_TRANSFORMER, KIND_MAX };

/* The first of three groups. */
#define GROUP 61184u
/* The reserve is for the mover's context. */
#define CONFIG HARNESS_BROKER "HostTier=512M\nMoverIdle=200ms\n[Device *]\nReserve=4M\n"

static struct crew *crew;
static struct lessee_process processes[CREW_WORKERS];

void crew_configure(char ret[CREW_CONFIG_BYTES])
{
    int length;

    if (geteuid() != 0)
        length = snprintf(ret, CREW_CONFIG_BYTES, CONFIG HARNESS_TENANT);
    else
        length = snprintf(ret, CREW_CONFIG_BYTES,
            CONFIG "[Tenant leases]\nGroup=%u\nPriority=700\nMemoryMin=240M\n"
                   "[Tenant pages]\nGroup=%u\nPriority=300\n"
                   "[Tenant tokens]\nGroup=%u\nPriority=300\nMemoryMax=4M\n",
            GROUP + KIND_LESSEE, GROUP + KIND_ARENA, GROUP + KIND_TRANSFORMER);
    ck_assert_int_lt(length, CREW_CONFIG_BYTES);
}

static void tenant_become(enum kind kind)
{
    gid_t group = GROUP + kind;

    if (geteuid() == 0)
        lessee_need(setresgid(group, group, group), "group");
}

static void rest(struct crew_slot *slot)
{
    atomic_store(&slot->fds, (unsigned) harness_open_fds(getpid()));
    atomic_store(&slot->resting, true);
}

/* ------------------------------------------------------------------ leases */

static uint64_t mark_of(const struct crew_slot *slot, unsigned kind, unsigned round)
{
    return (uint64_t) (slot->number + 1) << 40 | (uint64_t) kind << 32 | round;
}

/* Every request but a return succeeds, whatever becomes of the broker meanwhile. */
static void lessee_round(struct lessee *lessee, struct crew_slot *slot, gmb_lease *moving,
    unsigned round, unsigned chunks)
{
    gmb_lease *extra;

    lessee_check(lessee, moving, mark_of(slot, 1, round));
    lessee_need(gmb_lease_grow(moving, CHUNK, LESSEE_WAIT_NS), "grow");
    lessee_write(lessee, moving, mark_of(slot, 1, round + 1));
    extra = lessee_take(lessee, chunks, "extra");
    lessee_write(lessee, extra, mark_of(slot, 2, round));
    lessee_need_or_later(gmb_lease_shrink(moving, CHUNK), "shrink");
    lessee_check(lessee, moving, mark_of(slot, 1, round + 1));
    lessee_check(lessee, extra, mark_of(slot, 2, round));
    lessee_need_or_later(gmb_lease_release(extra), "release");
}

static void lessee_work(const struct harness *harness, void *data)
{
    struct crew_slot *slot = data;
    struct lessee lessee;
    gmb_lease *fixed, *moving;

    tenant_become(KIND_LESSEE);
    lessee_connect(&lessee, harness);
    lessee_need(gmb_thread_start(lessee.session), "thread");
    fixed = lessee_take(&lessee, 1 + slot->number % 3, "fixed");
    moving = lessee_take(&lessee, 1, "moving");
    lessee_write(&lessee, fixed, mark_of(slot, 0, 0));
    lessee_write(&lessee, moving, mark_of(slot, 1, 0));
    atomic_store(&slot->leases, 2);
    for (unsigned round = 0; !atomic_load(&crew->stop); round++) {
        lessee_round(&lessee, slot, moving, round, 1 + round % 2);
        lessee_check(&lessee, fixed, mark_of(slot, 0, 0));
        atomic_fetch_add(&slot->rounds, 1);
        atomic_store(&slot->bytes, gmb_lease_bytes(fixed) + gmb_lease_bytes(moving));
        for (harness_breathe(); atomic_load(&crew->rest); harness_breathe())
            rest(slot);
        atomic_store(&slot->resting, false);
    }
    lessee_need_or_later(gmb_lease_release(fixed), "release");
    lessee_need_or_later(gmb_lease_release(moving), "release");
    gmb_disconnect(lessee.session);
}

/* ------------------------------------------------------------------ arenas */

static void pages_refresh(struct pages *pages)
{
    pages->count -= FRESH;
    lessee_need(gmb_page_unref(pages->arena, FRESH, pages->pages + pages->count), "free");
    pages_fill(pages, FRESH);
}

static void pages_count(const struct pages *pages, struct crew_slot *slot)
{
    struct gmb_arena_stats stats = pages_stats(pages);

    atomic_store(&slot->bytes, stats.mapped_bytes);
    atomic_store(&slot->evictions, stats.evictions);
    atomic_store(&slot->restores, stats.restores);
}

static void arena_work(const struct harness *harness, void *data)
{
    static struct pages pages;
    struct crew_slot *slot = data;

    tenant_become(KIND_ARENA);
    pages_open(&pages, harness, PAGE, CHUNK, PAGES * PAGE);
    pages.mark = slot->number + 1;
    pages.wait_ns = LESSEE_WAIT_NS;
    for (unsigned i = 0; i < PAGES; i += STEP)
        pages_fill(&pages, STEP);
    atomic_store(&slot->leases, 1);
    for (unsigned round = 0; !atomic_load(&crew->stop); round++) {
        pages_check(&pages, round * STEP % PAGES, STEP, STEP);
        if (round % 4 == 0)
            pages_refresh(&pages);
        atomic_fetch_add(&slot->rounds, 1);
        pages_count(&pages, slot);
        for (harness_breathe(); atomic_load(&crew->rest); harness_breathe()) {
            pages_count(&pages, slot);
            rest(slot);
        }
        atomic_store(&slot->resting, false);
    }
    pages_check(&pages, 0, PAGES, STEP);
    pages_count(&pages, slot);
    pages_close(&pages);
}

/* ------------------------------------------------------------------ tokens */

/* One sequence at a time: two that grow in step could hold each other up within MemoryMax. */
static void transformer_exec(const char *socket, const char *seed)
{
    const char *const arguments[] = {getenv("TRANSFORMER"), "--sequences", "12", "--length", "512",
        "--turn", "8", "--batch", "1", "--chunk-pages", "8", "--seed", seed, "--pause",
        socket != NULL ? "5" : "0", socket != NULL ? "--socket" : "--plain", socket, NULL};

    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (arguments[0] != NULL)
        (void) execv(arguments[0], (char *const *) (uintptr_t) arguments);
    _exit(127);
}

/* What it prints: a line for each sequence, then with a broker one on the arena. The caller's. */
static char *generate(const char *socket, const char *seed)
{
    char *text = NULL;
    size_t room = 0;
    int out[2], status;
    FILE *file;
    pid_t pid;

    lessee_need(pipe(out), "pipe");
    pid = fork();
    if (pid == 0) {
        (void) dup2(out[1], STDOUT_FILENO);
        (void) close(out[0]);
        (void) close(out[1]);
        transformer_exec(socket, seed);
    }
    (void) close(out[1]);
    file = fdopen(out[0], "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_gt(getdelim(&text, &room, '\0', file), 0);
    (void) fclose(file);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(status == 0, "a transformer ended with %d", status);
    return text;
}

static void transformer_work(const struct harness *harness, void *data)
{
    struct crew_slot *slot = data;
    _cleanup_free_ char *expected = NULL;
    char seed[16];

    tenant_become(KIND_TRANSFORMER);
    (void) snprintf(seed, sizeof(seed), "%u", slot->number);
    expected = generate(NULL, seed);
    while (!atomic_load(&crew->stop) || atomic_load(&slot->rounds) == 0) {
        _cleanup_free_ char *found = generate(harness->client_socket, seed);
        unsigned long long evictions, restores, waits, lost;
        char *arena = strstr(found, "arena ");

        ck_assert_ptr_nonnull(arena);
        ck_assert_int_eq(sscanf(arena, "arena evictions %llu restores %llu waits %llu lost %llu",
                             &evictions, &restores, &waits, &lost),
            4);
        *arena = '\0';
        ck_assert_msg(strcmp(found, expected) == 0, "the tokens are others");
        ck_assert_uint_eq(lost, 0);
        atomic_fetch_add(&slot->evictions, evictions);
        atomic_fetch_add(&slot->restores, restores);
        atomic_fetch_add(&slot->rounds, 1);
    }
}

/* ------------------------------------------------------------------ all of them */

struct crew *crew_fork(void)
{
    static lessee_alone *const works[] = {
        [KIND_LESSEE] = lessee_work,
        [KIND_ARENA] = arena_work,
        [KIND_TRANSFORMER] = transformer_work,
    };

    (void) setenv("GMB_SIM_MEMORY", CREW_MEMORY, 1);
    (void) setenv("GMB_SIM_GRANULARITY", "64K", 1); /* for the small chunks of a transformer */
    crew = mmap(NULL, sizeof(*crew), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(crew, MAP_FAILED);
    for (unsigned i = 0; i < CREW_WORKERS; i++) {
        enum kind kind = i < CREW_LESSEES   ? KIND_LESSEE
                         : i < CREW_RESTERS ? KIND_ARENA
                                            : KIND_TRANSFORMER;

        crew->slots[i].number = i;
        processes[i] = lessee_fork_alone(works[kind], &crew->slots[i]);
    }
    return crew;
}

void crew_go(const struct harness *harness)
{
    for (unsigned i = 0; i < CREW_WORKERS; i++)
        lessee_go(&processes[i], harness);
}

pid_t crew_pid(unsigned number)
{
    return processes[number].pid;
}

void crew_patience(uint64_t deadline_ms, const char *what)
{
    for (unsigned i = 0; i < CREW_WORKERS; i++)
        ck_assert_msg(lessee_runs(&processes[i]), "worker %u has ended", i);
    ck_assert_msg(harness_now_ms() < deadline_ms, "not in time: %s", what);
    harness_breathe();
}

void crew_join(void)
{
    for (unsigned i = 0; i < CREW_WORKERS; i++)
        lessee_join(&processes[i]);
}
