/* The run's folder is handed to the tests in the environment: they are forked from its maker. */
#include "tests/unit/scratch.h"

#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define VARIABLE "GMB_TEST_DIR"
/* A broker that its test's death killed may still be dying, and make a file meanwhile. */
#define REMOVE_TRIES 100
#define REMOVE_PAUSE_MS 10

static char run_path[SCRATCH_PATH_BYTES];

static int make_in(const char *parent, char ret_path[SCRATCH_PATH_BYTES])
{
    char path[SCRATCH_PATH_BYTES];
    int length = snprintf(path, sizeof(path), "%s/gmb-test-XXXXXX", parent);

    if (length < 0 || (size_t) length >= sizeof(path))
        return -ENAMETOOLONG;
    if (mkdtemp(path) == NULL)
        return -errno;
    /* Tests that change their user still have to reach what lies there. */
    if (chmod(path, 0711) < 0)
        return -errno;
    memcpy(ret_path, path, sizeof(path));
    return 0;
}

void scratch_begin(void)
{
    if (make_in("/tmp", run_path) == 0)
        (void) setenv(VARIABLE, run_path, 1);
}

void scratch_end(void)
{
    int r = 0;

    if (run_path[0] == '\0')
        return;
    for (unsigned i = 0; i < REMOVE_TRIES; i++) {
        r = scratch_remove(run_path);
        if (r == 0)
            break;
        (void) poll(NULL, 0, REMOVE_PAUSE_MS);
    }
    if (r < 0)
        (void) fprintf(stderr, "# %s can't be removed: %s\n", run_path, strerror(-r));
    (void) unsetenv(VARIABLE);
    run_path[0] = '\0';
}

int scratch_make(char ret_path[SCRATCH_PATH_BYTES])
{
    const char *parent = getenv(VARIABLE);

    return make_in(parent != NULL ? parent : "/tmp", ret_path);
}

static int entry_remove(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void) status;
    (void) type;
    (void) walk;
    return remove(path);
}

int scratch_remove(const char *path)
{
    return nftw(path, entry_remove, 16, FTW_DEPTH | FTW_PHYS) == 0 ? 0 : -errno;
}
