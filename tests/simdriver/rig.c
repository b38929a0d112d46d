/* See rig.h. */
#include "tests/simdriver/rig.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "tests/unit/scratch.h"

static char directory[] = "/dev/shm/gmb-rig-XXXXXX";
struct sim_config rig;

/* In the process of the test. */
static void setup(void)
{
    char node[] = "/dev/shm/gmb-rig-XXXXXX/node-XXXXXX";

    memcpy(node, directory, strlen(directory));
    ck_assert_ptr_nonnull(mkdtemp(node));
    rig = (struct sim_config){
        .hardware =
            {
                .devices = 1,
                .capacity = {RIG_CAPACITY},
                .granularity = 4096,
                .vmm = UINT64_MAX,
                .posix_fd = UINT64_MAX,
            },
    };
    (void) snprintf(rig.dir, sizeof(rig.dir), "%s/dir", node);
}

int rig_main_loops(const char *name, const TTest *const tests[], size_t count,
    const struct rig_loop loops[], size_t loop_count)
{
    Suite *suite = suite_create(name);
    TCase *tcase = tcase_create(name);
    int status;

    if (mkdtemp(directory) == NULL) {
        perror(directory);
        return EXIT_FAILURE;
    }
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, NULL);
    for (size_t i = 0; i < count; i++)
        tcase_add_test(tcase, tests[i]);
    for (size_t i = 0; i < loop_count; i++)
        tcase_add_loop_test(tcase, loops[i].test, 0, (int) loops[i].count);
    suite_add_tcase(suite, tcase);
    status = unit_run_suite(suite);
    (void) scratch_remove(directory);
    return status;
}

struct ledger *rig_open(void)
{
    struct ledger *ledger;

    ck_assert_int_eq(ledger_open(&rig, &ledger), 0);
    ck_assert_int_eq(ledger_register(ledger, &rig), 0);
    return ledger;
}

struct child child_start(int (*run)(const struct child *at, void *data), void *data)
{
    int to[2], from[2];
    struct child child;

    ck_assert_int_eq(pipe(to), 0);
    ck_assert_int_eq(pipe(from), 0);
    child = (struct child){.told = to[1], .tells = from[0]};
    child.pid = fork();
    ck_assert_int_ge(child.pid, 0);
    if (child.pid == 0) {
        struct child at = {.told = to[0], .tells = from[1]};

        (void) close(to[1]);
        (void) close(from[0]);
        _exit(run(&at, data));
    }
    (void) close(to[0]);
    (void) close(from[1]);
    return child;
}

void child_ready(const struct child *at, int value)
{
    if (write(at->tells, &value, sizeof(value)) != (ssize_t) sizeof(value))
        _exit(100);
}

void child_wait(const struct child *at)
{
    char byte;

    /* The end of the file too: the test has gone. */
    if (read(at->told, &byte, 1) < 0)
        _exit(101);
}

int child_await(const struct child *child)
{
    int value = 0;

    ck_assert_int_eq(read(child->tells, &value, sizeof(value)), (int) sizeof(value));
    return value;
}

void child_go(const struct child *child)
{
    ck_assert_int_eq(write(child->told, "g", 1), 1);
}

static int child_reap(struct child *child)
{
    int status = 0;

    ck_assert_int_eq(waitpid(child->pid, &status, 0), child->pid);
    (void) close(child->told);
    (void) close(child->tells);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void child_kill(struct child *child)
{
    ck_assert_int_eq(kill(child->pid, SIGKILL), 0);
    ck_assert_int_eq(child_reap(child), -SIGKILL);
}

int child_finish(struct child *child)
{
    child_go(child);
    return child_reap(child);
}

uint64_t rig_free(struct ledger *ledger)
{
    struct ledger_memory memory;

    ck_assert_int_eq(ledger_memory(ledger, 0, &memory), 0);
    ck_assert_uint_eq(memory.free + memory.used, memory.total);
    return memory.free;
}

struct ledger_id rig_create(struct ledger *ledger, uint64_t bytes)
{
    struct ledger_chunk_info info = {.bytes = bytes, .handle_types = 1};

    ck_assert_int_eq(ledger_chunk_create(ledger, &info), 0);
    return info.id;
}

unsigned rig_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    unsigned count = 0;

    ck_assert_ptr_nonnull(dir);
    while (readdir(dir) != NULL)
        count++;
    (void) closedir(dir);
    return count;
}

void fd_send(int socket, int fd)
{
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec text = {.iov_base = (char[]){'f'}, .iov_len = 1};
    struct msghdr message = {.msg_iov = &text,
        .msg_iovlen = 1,
        .msg_control = control,
        .msg_controllen = sizeof(control)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);

    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    ck_assert_int_eq(sendmsg(socket, &message, 0), 1);
}

int fd_receive(int socket)
{
    char control[CMSG_SPACE(sizeof(int))] = {0}, byte;
    struct iovec text = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &text,
        .msg_iovlen = 1,
        .msg_control = control,
        .msg_controllen = sizeof(control)};
    int fd;

    ck_assert_int_eq(recvmsg(socket, &message, MSG_CMSG_CLOEXEC), 1);
    ck_assert_ptr_nonnull(CMSG_FIRSTHDR(&message));
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
    return fd;
}
