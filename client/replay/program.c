/* /proc/self/exe rather than argv[0], which is whatever the caller wrote there. */
#include "client/replay/program.h"

#include <assert.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static_assert(PROGRAM_PATH_BYTES >= PATH_MAX, "a path of the system fits");

void program_find(const char *name, const char *build_dir, char ret[PROGRAM_PATH_BYTES])
{
    char self[PATH_MAX], places[3][PROGRAM_PATH_BYTES];
    ssize_t size = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash;

    (void) snprintf(ret, PROGRAM_PATH_BYTES, "%s", name);
    if (size <= 0)
        return;
    self[size] = '\0';
    slash = strrchr(self, '/');
    if (!slash)
        return;
    *slash = '\0';
    (void) snprintf(places[0], sizeof(places[0]), "%.3000s/%s", self, name);
    (void) snprintf(places[1], sizeof(places[1]), "%.3000s/../../%s/%s", self, build_dir, name);
    (void) snprintf(places[2], sizeof(places[2]), "%.3000s/../sbin/%s", self, name);
    for (size_t i = 0; i < ARRAY_SIZE(places); i++)
        if (access(places[i], X_OK) == 0) {
            memcpy(ret, places[i], PROGRAM_PATH_BYTES);
            return;
        }
}

void process_tie_to_parent(pid_t parent)
{
    (void) setpgid(0, 0);
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* It may have died before that took effect: then we are somebody else's by now. */
    if (getppid() != parent)
        _exit(EXIT_FAILURE);
}
