/*
 * A process that is out of fds can't accept, and what it can't accept keeps its socket readable:
 * the loop would spin. So one fd is kept in reserve, given up to accept and turn away what can't be
 * served. Nothing is accepted until it is there again, nor while too much waits to be closed.
 */
#include "daemon/server.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "daemon/broker.h"
#include "daemon/control.h"

/* Connections accepted before the loop looks at anything else. */
#define ACCEPT_BURST 32
/* How long nothing is accepted when that has to wait. */
#define PAUSE_USEC 1000
/* Lines about connections that were turned away. */
#define TURNED_AWAY_LINES 5
#define TURNED_AWAY_INTERVAL_NS (10 * NSEC_PER_SEC)

struct server {
    struct broker *broker;
    struct listen_socket client, control;
    struct event *client_event, *control_event, *resume_event;
    struct operators *operators;
    int reserve_fd;
    bool stopped;
    struct ratelimit turned_away;
};

static void turn_away(struct server *server, const char *why)
{
    uint32_t held;

    if (ratelimit_pass(&server->turned_away, clock_now(server->broker->clock),
            TURNED_AWAY_INTERVAL_NS, TURNED_AWAY_LINES, &held)) {
        if (held > 0)
            log_warning("%u more connections were turned away", held);
        log_warning("turned a connection away: %s", why);
    }
}

static int reserve_open(void)
{
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* The next connection; -EAGAIN when there is none or it had to be turned away. */
static int connection_accept(struct server *server, int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd >= 0)
        return fd;
    if (errno != EMFILE && errno != ENFILE)
        return errno == ECONNABORTED || errno == EINTR ? -EINTR : -EAGAIN;
    close_fd(&server->reserve_fd);
    fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    closer_give(server->broker->closer, fd);
    turn_away(server, "no file descriptors left (RLIMIT_NOFILE)");
    return -EAGAIN;
}

/* Stops accepting for a moment if it must. */
static bool server_pause(struct server *server)
{
    struct timeval delay = {.tv_usec = PAUSE_USEC};

    if (server->stopped)
        return true;
    if (server->reserve_fd >= 0 && !closer_full(server->broker->closer))
        return false;
    (void) event_del(server->client_event);
    (void) event_del(server->control_event);
    (void) event_add(server->resume_event, &delay);
    return true;
}

static void on_resume(evutil_socket_t fd, short what, void *data)
{
    struct server *server = data;

    (void) fd;
    (void) what;
    if (server->reserve_fd < 0)
        server->reserve_fd = reserve_open();
    if (server_pause(server))
        return;
    (void) event_add(server->client_event, NULL);
    (void) event_add(server->control_event, NULL);
}

/* The oldest ungreeted session of the user with most of them; NULL when there is none. */
static struct session *flooder_find(const struct broker *broker)
{
    uid_t uids[LIMIT_UNGREETED];
    struct session *worst = NULL;
    size_t count = 0, most = 0;

    list_for_each(each, &broker->greeting, struct session, greeting_link)
    {
        if (count < LIMIT_UNGREETED)
            uids[count++] = each->identity.uid;
    }
    list_for_each(each, &broker->greeting, struct session, greeting_link)
    {
        size_t same = 0;

        for (size_t i = 0; i < count; i++)
            same += uids[i] == each->identity.uid;
        if (same > most) {
            most = same;
            worst = each;
        }
    }
    return worst;
}

static void client_serve(struct server *server, int fd)
{
    _cleanup_identity_ struct identity identity = IDENTITY_NONE;
    struct broker *broker = server->broker;
    struct session *session;
    int r;

    if (broker->session_count >= LIMIT_CLIENTS) {
        closer_give(broker->closer, fd);
        turn_away(server, "as many clients as the broker takes");
        return;
    }
    if (broker->ungreeted_count >= broker->ungreeted_max) {
        session_doom(flooder_find(broker), NULL);
        turn_away(server, "too many connections that say nothing; the oldest was dropped");
    }
    r = identity_read(fd, &identity);
    if (r < 0) {
        closer_give(broker->closer, fd);
        if (r != -ESRCH)
            turn_away(server, strerror(-r));
        return;
    }
    r = session_new_consume(broker, fd, &identity, &session);
    if (r < 0)
        turn_away(server, strerror(-r));
}

static void on_client(evutil_socket_t listener, short what, void *data)
{
    struct server *server = data;

    (void) what;
    for (unsigned i = 0; i < ACCEPT_BURST && !server_pause(server); i++) {
        int fd = connection_accept(server, listener);

        if (fd == -EAGAIN)
            break;
        if (fd >= 0)
            client_serve(server, fd);
    }
    broker_settle(server->broker);
}

static void on_control(evutil_socket_t listener, short what, void *data)
{
    struct server *server = data;

    (void) what;
    for (unsigned i = 0; i < ACCEPT_BURST && !server_pause(server); i++) {
        int fd = connection_accept(server, listener);

        if (fd == -EAGAIN)
            break;
        if (fd >= 0 && operators_add_consume(server->operators, fd) < 0)
            turn_away(server, "as many operators' connections as the broker takes");
    }
    broker_settle(server->broker);
}

int server_new_consume(struct broker *broker, struct listen_socket *client,
    struct listen_socket *control, struct server **ret)
{
    struct server *server = calloc(1, sizeof(*server));
    int r = -ENOMEM;

    if (server == NULL) {
        listen_close(client);
        listen_close(control);
        return r;
    }
    server->broker = broker;
    server->client = *client;
    server->control = *control;
    *client = *control = LISTEN_SOCKET_NONE;
    server->reserve_fd = reserve_open();
    server->client_event =
        event_new(broker->base, server->client.fd, EV_READ | EV_PERSIST, on_client, server);
    server->control_event =
        event_new(broker->base, server->control.fd, EV_READ | EV_PERSIST, on_control, server);
    server->resume_event = event_new(broker->base, -1, 0, on_resume, server);
    r = operators_new(broker, &server->operators);
    if (r < 0 || server->reserve_fd < 0 || server->resume_event == NULL ||
        server->client_event == NULL || server->control_event == NULL ||
        event_add(server->client_event, NULL) < 0 || event_add(server->control_event, NULL) < 0) {
        (void) server_free(server);
        return r < 0 ? r : -ENOMEM;
    }
    *ret = server;
    return 0;
}

void server_stop(struct server *server)
{
    server->stopped = true;
    (void) event_del(server->client_event);
    (void) event_del(server->control_event);
    (void) event_del(server->resume_event);
}

struct server *server_free(struct server *server)
{
    if (server == NULL)
        return NULL;
    if (server->client_event != NULL)
        event_free(server->client_event);
    if (server->control_event != NULL)
        event_free(server->control_event);
    if (server->resume_event != NULL)
        event_free(server->resume_event);
    (void) operators_free(server->operators);
    listen_close(&server->client);
    listen_close(&server->control);
    close_fd(&server->reserve_fd);
    free(server);
    return NULL;
}
