/*
 * Order matters: limits while we still may raise them, then the user, then what a change of user
 * undoes (the signal of the parent's death).
 */
#include "base/helper.h"

#include <errno.h>
#include <getopt.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>

/* A chunk's fd is closed once it is mapped; the driver has its own. */
#define FDS_MAX 4096

static int fd_parse(const char *text, int *ret)
{
    char *end;
    long value;

    errno = 0;
    value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value <= STDERR_FILENO || value > INT32_MAX)
        return -EINVAL;
    *ret = (int) value;
    return 0;
}

int helper_arguments_parse(int argc, char **argv, struct helper_arguments *ret)
{
    static const struct option options[] = {
        {"gpu", required_argument, NULL, 'g'},
        {"socket", required_argument, NULL, 's'},
        {"user", required_argument, NULL, 'u'},
        {0},
    };
    struct helper_arguments arguments = {.socket_fd = -1};
    int option, r = 0;

    while (r == 0 && (option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
        if (option == 'g')
            arguments.driver = optarg;
        else if (option == 's')
            r = fd_parse(optarg, &arguments.socket_fd);
        else if (option == 'u')
            arguments.user = optarg;
        else
            r = -EINVAL;
    }
    if (r < 0 || optind != argc || arguments.socket_fd < 0)
        return -EINVAL;
    *ret = arguments;
    return 0;
}

static int fds_close(int keep)
{
    unsigned first = STDERR_FILENO + 1;

    if (keep < (int) first)
        return -EBADF;
    if ((unsigned) keep > first && close_range(first, (unsigned) keep - 1, 0) < 0)
        return -errno;
    return close_range((unsigned) keep + 1, ~0u, 0) < 0 ? -errno : 0;
}

static int limits_set(void)
{
    struct rlimit core = {0, 0}, memory = {RLIM_INFINITY, RLIM_INFINITY}, files;

    if (setrlimit(RLIMIT_CORE, &core) < 0 || getrlimit(RLIMIT_NOFILE, &files) < 0)
        return -errno;
    files.rlim_max = MIN(files.rlim_max, (rlim_t) FDS_MAX);
    files.rlim_cur = files.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &files) < 0)
        return -errno;
    /* Page-locking is what it is for; the tier's size bounds it. Only root may, others keep
     * theirs. */
    (void) setrlimit(RLIMIT_MEMLOCK, &memory);
    return 0;
}

static int user_become(const char *user)
{
    const struct passwd *entry;

    if (user == NULL || geteuid() != 0)
        return 0;
    errno = 0;
    entry = getpwnam(user);
    if (entry == NULL)
        return errno != 0 ? -errno : -ENOENT;
    if (entry->pw_uid == 0)
        return -EPERM;
    if (setgroups(0, NULL) < 0 || setresgid(entry->pw_gid, entry->pw_gid, entry->pw_gid) < 0 ||
        setresuid(entry->pw_uid, entry->pw_uid, entry->pw_uid) < 0)
        return -errno;
    return 0;
}

int helper_confine(const char *name, const struct helper_arguments *arguments)
{
    int r;

    (void) prctl(PR_SET_NAME, name);
    r = fds_close(arguments->socket_fd);
    if (r == 0)
        r = limits_set();
    if (r == 0)
        r = user_become(arguments->user);
    if (r == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        r = -errno;
    /* A parent that died before this has closed the socket, which ends us as well. */
    if (r == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        r = -errno;
    return r;
}
