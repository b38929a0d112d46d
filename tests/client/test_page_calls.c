/* Pages that are there are allocated, pinned and freed without a system call: the thread that does
 * it may make none but the one that ends it, or its process is killed. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/client/arena_script.h"

#define ROUNDS 1000
#define REFUSED 3 /* exit status: no filter is permitted here */

static bool calls_forbid(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = ARRAY_SIZE(filter), .filter = filter};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* How a process ends that does this and may not make a system call. */
static int status_of(void (*what)(void))
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        if (!calls_forbid())
            _exit(REFUSED);
        what();
        _exit(0);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid ? status : -1;
}

static void pid_ask(void)
{
    (void) syscall(SYS_getpid);
}

static void clock_read(void)
{
    (void) clock_now(&clock_monotonic);
}

START_TEST(a_system_call_would_be_noticed)
{
    int status = status_of(pid_ask);

    ck_assert(WIFSIGNALED(status));
    ck_assert_int_eq(WTERMSIG(status), SIGSYS);
}
END_TEST

struct work {
    gmb_arena *arena;
    size_t n;
    unsigned done; /* rounds */
};

static bool round_do(gmb_arena *arena, size_t n)
{
    uint32_t pages[4];

    return gmb_page_alloc(arena, n, pages, 0) == 0 &&
           gmb_page_pin(arena, n, pages) == GMB_PIN_READY &&
           gmb_page_ready(arena, n, pages) == GMB_PIN_READY &&
           gmb_page_touch(arena, n, pages) == 0 && gmb_page_ref(arena, n, pages) == 0 &&
           gmb_page_unref(arena, n, pages) == 0 && gmb_page_unpin(arena, n, pages) == 0 &&
           gmb_page_unref(arena, n, pages) == 0;
}

static void *pages_work(void *data)
{
    struct work *work = data;

    if (calls_forbid()) {
        while (work->done < ROUNDS && round_do(work->arena, work->n))
            work->done++;
    }
    (void) syscall(SYS_exit, 0);
    return NULL;
}

START_TEST(pages_that_are_there_need_no_system_call)
{
    uint32_t pages[8];
    struct work work = {.arena = arena_begin(8, pages), .n = _i == 0 ? 1 : 4};
    pthread_t thread;

    ck_assert_int_eq(gmb_page_unref(work.arena, 4, pages), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, pages_work, &work), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_uint_eq(work.done, ROUNDS);
    arena_finish();
}
END_TEST

/* What keeps this from being tried here; NULL: nothing. */
static const char *obstacle(void)
{
    int status = status_of(clock_read);

    if (WIFEXITED(status) && WEXITSTATUS(status) == REFUSED)
        return "no seccomp filter is permitted here";
    return WIFSIGNALED(status) ? "the clock is read by a system call here" : NULL;
}

int main(void)
{
    const char *reason = obstacle();
    Suite *suite;
    TCase *tcase;

    if (reason != NULL) {
        (void) printf("1..0 # SKIP %s\n", reason);
        return 0;
    }
    suite = suite_create("client page calls");
    tcase = tcase_create("client page calls");
    tcase_add_test(tcase, a_system_call_would_be_noticed);
    tcase_add_loop_test(tcase, pages_that_are_there_need_no_system_call, 0, 2);
    suite_add_tcase(suite, tcase);
    return unit_run_suite(suite);
}
