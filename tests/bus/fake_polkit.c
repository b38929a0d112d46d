/*
 * Stands for polkit on a bus of a test's own: `fake-polkit ADDRESS ANSWER` owns its name, answers
 * every CheckAuthorization with `yes`, `no`, `challenge` (an administrator would have to be asked),
 * `wrong` (a message of another shape), or not at all (`silent`). It prints each question.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-bus.h>

static const char *answer;

static int on_check(sd_bus_message *message, void *userdata, sd_bus_error *error)
{
    const char *kind, *action;
    uint32_t flags = 0;

    (void) userdata, (void) error;
    if (sd_bus_message_enter_container(message, 'r', "sa{sv}") < 0 ||
        sd_bus_message_read(message, "s", &kind) < 0 || sd_bus_message_skip(message, "a{sv}") < 0 ||
        sd_bus_message_exit_container(message) < 0 ||
        sd_bus_message_read(message, "s", &action) < 0 ||
        sd_bus_message_skip(message, "a{ss}") < 0 || sd_bus_message_read(message, "u", &flags) < 0)
        return -EBADMSG;
    printf("%s %s %u\n", kind, action, flags);
    (void) fflush(stdout);
    if (strcmp(answer, "silent") == 0)
        return 1;
    if (strcmp(answer, "wrong") == 0)
        return sd_bus_reply_method_return(message, "s", "yes");
    return sd_bus_reply_method_return(
        message, "(bba{ss})", strcmp(answer, "yes") == 0, strcmp(answer, "challenge") == 0, 0);
}

static const sd_bus_vtable vtable[] = {
    SD_BUS_VTABLE_START(0),
    SD_BUS_METHOD("CheckAuthorization", "(sa{sv})sa{ss}us", "(bba{ss})", on_check,
        SD_BUS_VTABLE_UNPRIVILEGED),
    SD_BUS_VTABLE_END,
};

int main(int argc, char **argv)
{
    sd_bus *bus = NULL;
    int r;

    if (argc != 3)
        return EXIT_FAILURE;
    answer = argv[2];
    r = sd_bus_new(&bus);
    if (r >= 0)
        r = sd_bus_set_address(bus, argv[1]);
    if (r >= 0)
        r = sd_bus_set_bus_client(bus, 1);
    if (r >= 0)
        r = sd_bus_start(bus);
    if (r >= 0)
        r = sd_bus_add_object_vtable(bus, NULL, "/org/freedesktop/PolicyKit1/Authority",
            "org.freedesktop.PolicyKit1.Authority", vtable, NULL);
    if (r >= 0)
        r = sd_bus_request_name(bus, "org.freedesktop.PolicyKit1", 0);
    if (r >= 0) {
        printf("ready\n");
        (void) fflush(stdout);
    }
    while (r >= 0) {
        r = sd_bus_process(bus, NULL);
        if (r == 0)
            r = sd_bus_wait(bus, UINT64_MAX);
    }
    (void) sd_bus_unref(bus);
    return EXIT_FAILURE;
}
