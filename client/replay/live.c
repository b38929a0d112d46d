/* Read from the shared block without any lock: the numbers of one line are a few microseconds
 * apart, which nobody can see. */
#include "client/replay/live.h"

#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/size.h"

/* Tenants named in the line; what a terminal has no room for is cut. */
#define TENANTS_SHOWN 4
#define COLUMNS_DEFAULT 80
#define QUIET_INTERVAL_S 10

static bool shown_on_terminal;
static uint64_t quiet_until_s = QUIET_INTERVAL_S;

static void print(FILE *to, const struct run *run, uint64_t seconds)
{
    uint32_t in_flight = 0, waiting = 0, done = 0, refused = 0;
    char size[SIZE_TEXT_MAX];

    for (uint32_t w = 0; w < run->workers; w++) {
        const struct stats_worker *worker = &run->stats->workers[w];

        in_flight += atomic_load(&worker->in_flight);
        waiting += atomic_load(&worker->waiting);
        done += atomic_load(&worker->done);
        refused += atomic_load(&worker->refused);
    }
    fprintf(to, "%4llu s  %u/%zu done  %u in flight  %u waiting  %u refused ",
        (unsigned long long) seconds, done, run->trace->count, in_flight, waiting, refused);
    for (uint32_t t = 0; t < MIN(run->tenants->count, (uint32_t) TENANTS_SHOWN); t++)
        fprintf(to, " %s %s", run->tenants->items[t].name,
            size_format(size, atomic_load(&run->stats->tenants[t].now)));
    fprintf(to, "  of %s", size_format(size, run->sizing->device_bytes));
}

static size_t terminal_columns(void)
{
    struct winsize size;

    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col
                                                                           : COLUMNS_DEFAULT;
}

/* A line that wraps would not be overwritten by the next one. */
static void print_over(const struct run *run, uint64_t seconds)
{
    _cleanup_free_ char *line = NULL;
    size_t size;
    FILE *to = open_memstream(&line, &size);

    if (to == NULL)
        return;
    print(to, run, seconds);
    if (fclose(to) == 0)
        fprintf(stderr, "\r\033[K%.*s", (int) (terminal_columns() - 1), line);
}

void live_show(const struct run *run)
{
    uint64_t start_ns = atomic_load(&run->stats->start_ns), seconds;

    if (start_ns == 0)
        return;
    seconds = sub_saturate(clock_now(&clock_monotonic), start_ns) / NSEC_PER_SEC;
    if (isatty(STDERR_FILENO)) {
        print_over(run, seconds);
        shown_on_terminal = true;
    } else if (seconds >= quiet_until_s) {
        quiet_until_s = seconds + QUIET_INTERVAL_S;
        print(stderr, run, seconds);
        fputc('\n', stderr);
    }
    (void) fflush(stderr);
}

void live_end(void)
{
    if (shown_on_terminal)
        fputc('\n', stderr);
    shown_on_terminal = false;
}
