/* See tamper_arm.h. */
#include "tests/integration/tamper_arm.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/frame.h"
#include "tests/integration/raw.h"

#define MORE_MAX 6

static char folder[SCRATCH_PATH_BYTES], path[SCRATCH_PATH_BYTES + 8];

void tamper_start(struct harness *harness, const char *text, const char *const *environment)
{
    static char variable[128], under[160];
    const char *all[2 + MORE_MAX + 1] = {variable, under};
    size_t count = 0;

    ck_assert_int_eq(scratch_make(folder), 0);
    (void) snprintf(path, sizeof(path), "%s/tamper", folder);
    (void) snprintf(variable, sizeof(variable), "GMBD_TAMPER=%s", path);
    (void) snprintf(under, sizeof(under), "GMBD_UNDER_KEEPER=%s", getenv("GMBD_TAMPER_PROGRAM"));
    for (; environment != NULL && environment[count] != NULL; count++) {
        ck_assert_uint_lt(count, MORE_MAX);
        all[2 + count] = environment[count];
    }
    harness_start_kept(harness, text, all);
}

void tamper_stop(struct harness *harness)
{
    harness_stop(harness);
    ck_assert_int_eq(scratch_remove(folder), 0);
}

void tamper_arm(const char *what)
{
    FILE *file = fopen(path, "we");

    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(what, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

void tamper_expect_done(void)
{
    ck_assert_int_lt(access(path, F_OK), 0);
}

/* Each sentence has a line of its own. */
static void expect_logged(const struct harness *harness, const char *said)
{
    while (said[0] != '\0') {
        const char *end = strstr(said, "; ");
        char part[LIMIT_TEXT_BYTES];

        (void) snprintf(
            part, sizeof(part), "%.*s", (int) (end != NULL ? end - said : LIMIT_TEXT_BYTES), said);
        ck_assert_msg(harness_logged(harness, part), "it doesn't log: %s", part);
        said += strlen(part) + (end != NULL ? strlen("; ") : 0);
    }
}

void tamper_expect_said(const struct harness *harness, const char *text)
{
    Gmb__ControlReply *reply = raw_status(harness);
    const char *said = reply->status->degraded;

    if (text[0] == '\0')
        ck_assert_str_eq(said, "");
    else
        ck_assert_msg(strstr(said, text) != NULL, "it says: %s", said);
    expect_logged(harness, said);
    frame_message_free(&reply->base);
}
