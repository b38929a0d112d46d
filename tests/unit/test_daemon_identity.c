/* What /proc says, including what a hostile process name makes of it, and whose a socket is. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "daemon/identity.h"
#include "tests/unit/unit.h"

#define REST "S 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 9 9\n"

START_TEST(the_start_time_is_field_22_whatever_the_name)
{
    uint64_t ticks = 1;

    ck_assert_int_eq(identity_parse_start("12 (cat) " REST, &ticks), 0);
    ck_assert_uint_eq(ticks, 4711);
    ticks = 1;
    ck_assert_int_eq(identity_parse_start("12 (a) S 1 1 1) 99 (b) " REST, &ticks), 0);
    ck_assert_uint_eq(ticks, 4711);
    ck_assert_int_eq(identity_parse_start("12 (cat) S 1 1", &ticks), -EBADMSG);
    ck_assert_int_eq(identity_parse_start("12 cat S 1 1", &ticks), -EBADMSG);
    ck_assert_int_eq(identity_parse_start("", &ticks), -EBADMSG);
}
END_TEST

START_TEST(the_cgroup_is_the_unified_one)
{
    char *path;

    ck_assert_int_eq(identity_parse_cgroup("0::/a.slice/b.service\n", &path), 0);
    ck_assert_str_eq(path, "/a.slice/b.service");
    free(path);
    ck_assert_int_eq(identity_parse_cgroup("4:memory:/x\n1:name=systemd:/y\n0::/z\n", &path), 0);
    ck_assert_str_eq(path, "/z");
    free(path);
    ck_assert_int_eq(identity_parse_cgroup("4:memory:/x 0::/y\n", &path), 0);
    ck_assert_str_eq(path, "");
    free(path);
}
END_TEST

/* Both ends of a connection that a child made; the child waits until it is killed. */
static pid_t child_connect(int *ret_fd)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t length = sizeof(sa_family_t); /* a name of the kernel's choice */
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    pid_t pid;

    ck_assert_int_eq(bind(listener, (struct sockaddr *) &address, length), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    length = sizeof(address);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *) &address, &length), 0);
    pid = fork();
    if (pid == 0) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

        if (connect(fd, (struct sockaddr *) &address, length) < 0)
            _exit(1);
        for (;;)
            (void) pause();
    }
    *ret_fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    ck_assert_int_ge(*ret_fd, 0);
    (void) close(listener);
    return pid;
}

START_TEST(a_living_peer_is_who_connected)
{
    struct identity identity = IDENTITY_NONE;
    int fd;
    pid_t pid = child_connect(&fd);

    ck_assert_int_eq(identity_read(fd, &identity), 0);
    ck_assert_int_eq(identity.pid, pid);
    ck_assert_uint_eq(identity.uid, geteuid());
    ck_assert_int_ge(identity.pidfd, 0);
    ck_assert_ptr_nonnull(identity.cgroup);
    ck_assert(identity_in_group(&identity, getegid()));
    (void) kill(pid, SIGKILL);
    (void) waitpid(pid, NULL, 0);
    identity_clear(&identity);
    identity_clear(&identity);
    (void) close(fd);
}
END_TEST

START_TEST(a_dead_peer_is_nobody)
{
    struct identity identity = IDENTITY_NONE;
    int fd;
    pid_t pid = child_connect(&fd);

    (void) kill(pid, SIGKILL);
    (void) waitpid(pid, NULL, 0);
    ck_assert_int_eq(identity_read(fd, &identity), -ESRCH);
    ck_assert_int_eq(identity.pidfd, -1);
    (void) close(fd);
}
END_TEST

START_TEST(a_process_younger_than_the_connection_is_not_its_peer)
{
    char line[1024] = "";
    uint64_t started;
    int pidfd = -1;
    FILE *file = fopen("/proc/self/stat", "re");

    ck_assert_ptr_nonnull(file);
    ck_assert_ptr_nonnull(fgets(line, sizeof(line), file));
    (void) fclose(file);
    ck_assert_int_eq(identity_parse_start(line, &started), 0);
    pidfd = (int) syscall(SYS_pidfd_open, getpid(), 0);
    if (pidfd < 0 && errno == ENOSYS)
        unit_skip("there is no pidfd_open()"); /* valgrind doesn't know the call */
    (void) close(pidfd);
    ck_assert_int_eq(identity_open_pid(getpid(), started, &pidfd), 0);
    ck_assert_int_ge(pidfd, 0);
    (void) close(pidfd);
    pidfd = -1;
    /* Accepted before this process was: its pid was somebody else's then. */
    ck_assert_int_eq(identity_open_pid(getpid(), started - 1, &pidfd), -ESRCH);
    ck_assert_int_eq(pidfd, -1);
}
END_TEST

/* ------------------------------------------------------------------ found again */

static uint64_t start_of(pid_t pid)
{
    char path[32], line[1024] = "";
    uint64_t ticks = 0;
    FILE *file;

    (void) snprintf(path, sizeof(path), "/proc/%d/stat", (int) pid);
    file = fopen(path, "re");
    ck_assert_ptr_nonnull(file);
    ck_assert_ptr_nonnull(fgets(line, sizeof(line), file));
    (void) fclose(file);
    ck_assert_int_eq(identity_parse_start(line, &ticks), 0);
    return ticks;
}

static pid_t sleeper_start(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            (void) pause();
    }
    ck_assert_int_gt(pid, 0);
    return pid;
}

static void sleeper_end(pid_t pid)
{
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

START_TEST(a_process_is_found_by_pid_and_start_until_it_is_dead)
{
    _cleanup_identity_ struct identity identity = IDENTITY_NONE;
    pid_t pid = sleeper_start();
    uint64_t started = start_of(pid);

    ck_assert_int_eq(identity_find(pid, started + 1, 7, &identity), -ESRCH);
    ck_assert_int_eq(identity_find(pid, started, 7, &identity), 0);
    ck_assert_int_eq(identity.pid, pid);
    ck_assert_uint_eq(identity.uid, 7);
    ck_assert_uint_eq(identity.start_ticks, started);
    ck_assert(!identity.guessed);
    sleeper_end(pid);
    identity_clear(&identity);
    ck_assert_int_eq(identity_find(pid, started, 7, &identity), -ESRCH);
    ck_assert_int_eq(identity_find(0, started, 7, &identity), -ESRCH);
}
END_TEST

struct told {
    _Atomic pid_t thread;
};

static void *thread_tell(void *data)
{
    struct told *told = data;

    told->thread = gettid();
    for (;;)
        (void) pause();
    return NULL;
}

START_TEST(who_has_the_number_of_a_thread_by_now_is_dead)
{
    _cleanup_identity_ struct identity identity = IDENTITY_NONE;
    struct told told = {0};
    pthread_t other;

    ck_assert_int_eq(pthread_create(&other, NULL, thread_tell, &told), 0);
    while (told.thread == 0)
        (void) sched_yield();
    ck_assert_int_eq(identity_find(told.thread, start_of(told.thread), 7, &identity), -ESRCH);
    (void) pthread_cancel(other);
    (void) pthread_join(other, NULL);
}
END_TEST

/* What a user finds who may not look at others: 0 found, 1 dead, 2 something else, 77 can't try. */
static int find_hidden(const char *option, pid_t pid, uint64_t start)
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        _cleanup_identity_ struct identity identity = IDENTITY_NONE;
        int r;

        if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 ||
            mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("proc", "/proc", "proc", 0, option) < 0 || setgid(65534) < 0 || setuid(65534) < 0)
            _exit(77);
        r = identity_find(pid, start, 0, &identity);
        if (r == 0 && identity.guessed && identity.start_ticks == start &&
            identity.cgroup[0] == '\0')
            _exit(0);
        _exit(r == -ESRCH ? 1 : 2);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

START_TEST(a_process_that_proc_hides_is_not_dead)
{
    static const char *const options[] = {"hidepid=1", "hidepid=2"};

    for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
        pid_t pid = sleeper_start();
        uint64_t started = start_of(pid);
        int found = find_hidden(options[i], pid, started);

        if (found == 77) {
            sleeper_end(pid);
            unit_skip("/proc can't be mounted with %s here", options[i]);
        }
        ck_assert_int_eq(found, 0);
        /* Dead, and not reaped yet: nothing of it can be read then, either. */
        ck_assert_int_eq(kill(pid, SIGKILL), 0);
        ck_assert_int_eq(waitid(P_PID, (id_t) pid, &(siginfo_t){0}, WEXITED | WNOWAIT), 0);
        ck_assert_int_eq(find_hidden(options[i], pid, started), 1);
        ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
        ck_assert_int_eq(find_hidden(options[i], pid, started), 1);
    }
}
END_TEST

UNIT_MAIN("daemon_identity", the_start_time_is_field_22_whatever_the_name,
    the_cgroup_is_the_unified_one, a_living_peer_is_who_connected, a_dead_peer_is_nobody,
    a_process_younger_than_the_connection_is_not_its_peer,
    a_process_is_found_by_pid_and_start_until_it_is_dead,
    who_has_the_number_of_a_thread_by_now_is_dead, a_process_that_proc_hides_is_not_dead)
