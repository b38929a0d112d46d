/* gmbctl: the operator's hand on the broker. */
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/command.h"
#include "client/ctl/terminal.h"

/* What the broker says about a revision that has moved on is for the one who has to look again. */
static const char *advice(int code)
{
    return code == GMB_E_CONFLICT ? "; gmbctl tenants shows the revision in force" : "";
}

int main(int argc, char **argv)
{
    struct view view = {.to = stdout};
    struct outcome outcome = OUTCOME_OK;
    struct conn *conn = NULL;
    enum exit_status status;
    struct options options;
    int r;

    (void) setlocale(LC_CTYPE, "");
    if (options_parse(argc, argv, &options, &status) < 0)
        return (int) status;
    view.colour = terminal_colour();
    r = control_connect(options.socket, &conn, &outcome);
    if (r < 0) {
        (void) fprintf(stderr, "gmbctl: %s\n", outcome.text);
        return r == GMB_E_INVALID ? EXIT_USAGE : EXIT_UNREACHABLE;
    }
    r = command_run(&options, conn, &view, &outcome);
    conn = conn_free(conn);
    /* A table that didn't reach a full disk is no success. */
    if (r == 0 && fflush(stdout) != 0)
        r = outcome_set(&outcome, GMB_E_INTERNAL, "the answer can't be written to standard output");
    if (r < 0)
        (void) fprintf(stderr, "gmbctl: %s%s\n", outcome.text, advice(r));
    return (int) command_exit_status(r);
}
