/*
 * A forked child and its parent's arenas: told by every function, without the page table, and
 * unable to change a page of the parent's by intent or by accident.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "client/arena.h"
#include "tests/client/script.h"
#include "tests/unit/unit.h"

#define PAGES 3u /* of the 4 of a chunk: with one left, nothing is asked for ahead of need */

static struct script script;
static struct script_arena shared;
static gmb_arena *arena;
static uint32_t pages[PAGES];

/* An arena with one chunk, with PAGES pages allocated, of which the last one is pinned. */
static void arena_begin(void)
{
    struct call call = {.n = PAGES, .pages = pages, .wait_ns = 10 * NSEC_PER_SEC};

    script_begin(&script);
    script_connect(&script);
    arena = script_arena(&script, NULL, &shared);
    call.arena = arena;
    call_start(&script, &call, call_alloc);
    broker_grant(&script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_ARENA_FILL), 0, 1, 1);
    message_free(broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_ARENA_MAPPED));
    ck_assert_int_eq(call_join(&call), 0);
    ck_assert_int_eq(gmb_page_pin(arena, 1, pages + 2), GMB_PIN_READY);
}

static void arena_finish(void)
{
    script_arena_end(&shared);
    script_end(&script);
}

/* Exit status of a child that finds everything as it should: 0, else the line that failed. */
#define CHILD_CHECK(condition)                                                                     \
    do {                                                                                           \
        if (!(condition))                                                                          \
            _exit((__LINE__ & 0xff) != 0 ? __LINE__ & 0xff : 1);                                   \
    } while (0)

static bool mapped(void *memory)
{
    return msync(memory, 4096, MS_ASYNC) == 0;
}

static void child_told(void)
{
    struct gmb_arena_params params = {
        .size = sizeof(params), .page_bytes = CHUNK / 4, .max_bytes = CHUNK};
    struct gmb_arena_stats stats = {.size = sizeof(stats)};
    struct gmb_page_hint hint = {.tokens = 1};
    void *stream = fake_gpu_stream(0);
    uint32_t other[2 * PAGES];
    gmb_arena *another = NULL;

    CHILD_CHECK(gmb_arena_new(script.session, &params, &another) == GMB_E_FORKED);
    CHILD_CHECK(gmb_page_alloc(arena, 1, other, GMB_WAIT_NONE) == GMB_E_FORKED);
    CHILD_CHECK(gmb_page_alloc(arena, 1, other, NSEC_PER_SEC) == GMB_E_FORKED);
    CHILD_CHECK(gmb_page_ref(arena, 1, pages) == GMB_E_FORKED);
    CHILD_CHECK(gmb_page_unref(arena, 1, pages) == GMB_E_FORKED);
    CHILD_CHECK(gmb_page_pin(arena, 1, pages) == GMB_E_FORKED);
    CHILD_CHECK(gmb_page_unpin(arena, 1, pages + 2) == GMB_E_FORKED);
    CHILD_CHECK(gmb_page_ready(arena, 1, pages + 2) == GMB_E_FORKED);
    CHILD_CHECK(gmb_page_wait(arena, 1, pages + 2, 0) == GMB_E_FORKED);
    CHILD_CHECK(gmb_page_touch(arena, 1, pages) == GMB_E_FORKED);
    CHILD_CHECK(gmb_page_unref_after(arena, 1, pages, stream) == GMB_E_FORKED);
    CHILD_CHECK(gmb_page_unpin_after(arena, 1, pages + 2, stream) == GMB_E_FORKED);
    CHILD_CHECK(gmb_page_set_hint(arena, pages[0], &hint) == GMB_E_FORKED);
    CHILD_CHECK(gmb_arena_compact(arena, PAGES, other, other + PAGES) == GMB_E_FORKED);
    CHILD_CHECK(gmb_arena_get_stats(arena, &stats) == GMB_E_FORKED);
    CHILD_CHECK(gmb_arena_free(arena) == GMB_E_FORKED);
    CHILD_CHECK(gmb_arena_pages(arena) == 16 * 4);
    CHILD_CHECK(gmb_arena_page_bytes(arena) == CHUNK / 4);
}

static void child(void)
{
    void *table = arena->table_memory, *own;
    size_t fds = fds_open();

    child_told();
    CHILD_CHECK(strstr(gmb_error_text(), "process") != NULL);
    /* The place of the table is free for whatever the child maps, and stays its own. */
    CHILD_CHECK(!mapped(table) && errno == ENOMEM);
    own = mmap(table, 4096, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHILD_CHECK(own == table);
    gmb_disconnect(script.session);
    CHILD_CHECK(mapped(own));
    /* The socket, two poll sets, two eventfds, and the arena's. */
    CHILD_CHECK(fds_open() == fds - 7);
    _exit(0);
}

static void child_wait(pid_t pid)
{
    int status;

    ck_assert_int_gt(pid, 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", (unsigned) status);
}

static uint64_t word_of(uint32_t page)
{
    return __atomic_load_n(&shared.table.pages[page].word, __ATOMIC_SEQ_CST);
}

/* With a page that waits for a stream, which passes while only the child looks. */
START_TEST(child_is_told_and_changes_nothing_of_its_parents_pages)
{
    void *stream = fake_gpu_stream(0);
    uint64_t before[PAGES];
    pid_t pid;

    arena_begin();
    ck_assert_int_eq(gmb_page_unref_after(arena, 1, pages, stream), 0);
    for (uint32_t i = 0; i < PAGES; i++)
        before[i] = word_of(i);
    if (_i == 1)
        ck_assert_int_eq(gmb_thread_start(script.session), 0);
    pid = fork();
    if (pid == 0) {
        fake_gpu_stream_pass(0);
        child();
    }
    child_wait(pid);
    broker_expect_silence(&script);
    for (uint32_t i = 0; i < PAGES; i++)
        ck_assert_uint_eq(word_of(i), before[i]);

    ck_assert(mapped(arena->table_memory));
    fake_gpu_stream_pass(0);
    ck_assert_int_eq(gmb_page_unpin(arena, 1, pages + 2), 0);
    ck_assert_int_eq(gmb_page_unref(arena, 2, pages + 1), 0);
    ck_assert_uint_eq(fake_gpu_accessible(), CHUNK);
    arena_finish();
}
END_TEST

/* The page functions look for no pid, which would be a system call: a child of a bare clone(2),
 * which runs no handlers, isn't told. It dies of the missing table instead of freeing the page. */
START_TEST(child_that_cannot_be_told_dies_and_changes_nothing)
{
    const struct rlimit no_core = {0};
    uint64_t before;
    int status;
    pid_t pid;

    arena_begin();
    before = word_of(pages[0]);
    pid = _Fork();
    if (pid == 0) {
        (void) setrlimit(RLIMIT_CORE, &no_core);
        (void) signal(SIGSEGV, SIG_DFL);
        (void) gmb_page_unref(arena, 1, pages);
        _exit(0);
    }
    ck_assert_int_gt(pid, 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "status %#x", status);
    ck_assert_uint_eq(word_of(pages[0]), before);
    arena_finish();
}
END_TEST

static struct {
    pthread_mutex_t lock;
    bool stop;
} forking = {PTHREAD_MUTEX_INITIALIZER, false};

/* NULL if every child ended well. Says in any case that it has ended. */
static void *fork_often(void *data)
{
    bool well = true;

    (void) data;
    for (int i = 0; i < 20 && well; i++) {
        pid_t pid = fork();
        int status = -1;

        if (pid == 0) {
            gmb_disconnect(script.session);
            _exit(0);
        }
        well = pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
    }
    (void) pthread_mutex_lock(&forking.lock);
    forking.stop = true;
    (void) pthread_mutex_unlock(&forking.lock);
    return well ? NULL : &forking;
}

/* The child lets go of what another thread was changing at the moment of the fork. */
START_TEST(fork_finds_whole_structures_while_pages_wait_for_streams)
{
    void *stream = fake_gpu_stream(0), *failed;
    pthread_t thread;
    bool stop = false;

    arena_begin();
    ck_assert_int_eq(pthread_create(&thread, NULL, fork_often, NULL), 0);
    while (!stop) {
        ck_assert_int_eq(gmb_page_pin(arena, PAGES, pages), GMB_PIN_READY);
        ck_assert_int_eq(gmb_page_unpin_after(arena, PAGES, pages, stream), 0);
        fake_gpu_stream_pass(0);
        ck_assert_int_eq(gmb_page_touch(arena, PAGES, pages), 0);
        (void) pthread_mutex_lock(&forking.lock);
        stop = forking.stop;
        (void) pthread_mutex_unlock(&forking.lock);
    }
    ck_assert_int_eq(pthread_join(thread, &failed), 0);
    ck_assert_ptr_null(failed);
    ck_assert_uint_eq(arena_word_pins(word_of(pages[0])), 0);
    ck_assert_uint_eq(arena_word_pins(word_of(pages[2])), 1);
    arena_finish();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client arena fork");
    TCase *tcase = tcase_create("client arena fork");

    tcase_add_loop_test(tcase, child_is_told_and_changes_nothing_of_its_parents_pages, 0, 2);
    tcase_add_test(tcase, child_that_cannot_be_told_dies_and_changes_nothing);
    tcase_add_test(tcase, fork_finds_whole_structures_while_pages_wait_for_streams);
    tcase_set_timeout(tcase, 30);
    suite_add_tcase(suite, tcase);
    return unit_run_suite(suite);
}
