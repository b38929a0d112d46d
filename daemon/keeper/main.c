/*
 * gmbd-keeper: where there is no systemd, the program that a container starts. It runs the broker,
 * holds the fds that the broker hands it, and starts the next broker with them.
 */
#include "daemon/keeper/keeper.h"

int main(int argc, char **argv)
{
    struct keeper_options options;
    struct keeper keeper;
    int r = keeper_options_parse(argc, argv, &options);

    if (r != KEEPER_OPTIONS_RUN)
        return r < 0 ? 2 : 0;
    r = keeper_start(&keeper, &options, argv, &clock_monotonic);
    r = r < 0 ? 1 : keeper_run(&keeper);
    keeper_clear(&keeper);
    keeper_options_clear(&options);
    return r;
}
