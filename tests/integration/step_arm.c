/* The test's side of step.h. */
#include <check.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/integration/step.h"

void step_arm(const char *path, unsigned n, int signal, bool parent)
{
    char fresh[160];
    FILE *file;

    (void) snprintf(fresh, sizeof(fresh), "%s.fresh", path);
    file = fopen(fresh, "we");
    ck_assert_ptr_nonnull(file);
    (void) fprintf(file, "%u %d %d", n, signal, (int) parent);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(rename(fresh, path), 0);
}

bool step_taken(const char *path)
{
    return access(path, F_OK) < 0;
}

bool step_disarm(const char *path)
{
    return unlink(path) == 0;
}
