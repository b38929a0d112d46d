/*
 * One request is in flight at a time. Lists are read page by page, each asked for behind the last
 * item of the one before, so that the broker never queues more than a page for us.
 */
#include "client/ctl/control.h"

#include <errno.h>
#include <poll.h>

#include "base/clock.h"
#include "client/dial.h"

#define PATIENCE_NS (10 * NSEC_PER_SEC)
/* More pages than every lease of every client could fill: a broker that goes on is broken. */
#define PAGES_MAX 65536

int control_connect(const char *path, struct conn **ret, struct outcome *outcome)
{
    uint64_t deadline_ns = clock_now(&clock_monotonic) + PATIENCE_NS;
    int fd, r = dial(path, deadline_ns, &fd, outcome);

    if (r == GMB_E_DISCONNECTED)
        return outcome_set(outcome, r,
            "gmbd isn't listening on %s: is gmbd.service running? Try: systemctl status gmbd",
            path);
    if (r == GMB_E_DENIED)
        return outcome_set(outcome, r,
            "no permission for %s: it is for root and the group of ControlGroup=", path);
    if (r < 0)
        return r;
    r = conn_new_consume(fd, ret);
    return r < 0 ? outcome_set_errno(outcome, r, "no connection can be made") : 0;
}

static int frame_wait(
    struct conn *conn, const uint8_t **ret_bytes, size_t *ret_size, struct outcome *outcome)
{
    uint64_t deadline_ns = clock_now(&clock_monotonic) + PATIENCE_NS;
    _cleanup_fdset_ struct fdset fds = FDSET_EMPTY;
    int r;

    while ((r = conn_receive(conn, ret_bytes, ret_size, &fds)) == -EAGAIN) {
        uint64_t left_ns = sub_saturate(deadline_ns, clock_now(&clock_monotonic));
        struct pollfd poll_fd = {.fd = conn_fd(conn), .events = POLLIN};

        if (left_ns == 0)
            return outcome_set(outcome, GMB_E_TIMED_OUT,
                "gmbd doesn't answer: is it stopped? Try: systemctl status gmbd");
        if (conn_wants_write(conn))
            poll_fd.events |= POLLOUT;
        (void) poll(&poll_fd, 1, (int) (left_ns / NSEC_PER_MSEC) + 1);
        if (conn_flush(conn) < 0)
            continue; /* the reason is in the next frame, or in its absence */
    }
    if (r == -ECONNRESET || r == -EPIPE)
        return outcome_set(outcome, GMB_E_DISCONNECTED, "gmbd closed the connection");
    if (r < 0 || fds.count > 0)
        return outcome_set(outcome, GMB_E_PROTOCOL, "gmbd sent garbage");
    return 0;
}

int control_ask(struct conn *conn, Gmb__ControlRequest *request,
    Gmb__ControlReply__BodyCase expected, Gmb__ControlReply **ret, struct outcome *outcome)
{
    Gmb__ControlReply *reply;
    const uint8_t *bytes;
    size_t size;
    int r;

    request->id = 1;
    r = conn_send_consume(conn, &request->base, NULL);
    /* A broker that has no room for operators says so and closes: the reason is still to be read.
     * */
    if (r < 0 && r != -EPIPE && r != -ECONNRESET)
        return outcome_set_errno(outcome, r, "asking gmbd failed");
    r = frame_wait(conn, &bytes, &size, outcome);
    if (r < 0)
        return r;
    if (frame_decode_reply(bytes, size, &reply) < 0)
        return outcome_set(outcome, GMB_E_PROTOCOL, "gmbd sent garbage");
    if (reply->body_case == expected) {
        *ret = reply;
        return 0;
    }
    if (reply->body_case == GMB__CONTROL_REPLY__BODY_ERROR)
        r = outcome_from_error(outcome, reply->error);
    else
        r = outcome_set(outcome, GMB_E_PROTOCOL, "gmbd answered another question than was asked");
    frame_message_free(&reply->base);
    return r;
}

/* Where a list goes on, and the page that came. */
struct page {
    ProtobufCMessage **items;
    size_t count;
    bool last;
    uint64_t after_id;
    const char *after_name;
};

static void page_take(const Gmb__ControlReply *reply, struct page *ret)
{
    *ret = (struct page){.last = true};
    if (reply->body_case == GMB__CONTROL_REPLY__BODY_TENANT_PAGE) {
        const Gmb__TenantPage *page = reply->tenant_page;

        *ret = (struct page){(ProtobufCMessage **) page->tenants, page->n_tenants, page->last, 0,
            page->n_tenants > 0 ? page->tenants[page->n_tenants - 1]->name : NULL};
    } else if (reply->body_case == GMB__CONTROL_REPLY__BODY_CLIENT_PAGE) {
        const Gmb__ClientPage *page = reply->client_page;

        *ret = (struct page){(ProtobufCMessage **) page->clients, page->n_clients, page->last,
            page->n_clients > 0 ? page->clients[page->n_clients - 1]->id : 0, NULL};
    } else if (reply->body_case == GMB__CONTROL_REPLY__BODY_LEASE_PAGE) {
        const Gmb__LeasePage *page = reply->lease_page;

        *ret = (struct page){(ProtobufCMessage **) page->leases, page->n_leases, page->last,
            page->n_leases > 0 ? page->leases[page->n_leases - 1]->id : 0, NULL};
    } else if (reply->body_case == GMB__CONTROL_REPLY__BODY_SEGMENT_PAGE) {
        const Gmb__SegmentPage *page = reply->segment_page;

        *ret = (struct page){(ProtobufCMessage **) page->segments, page->n_segments, page->last,
            page->n_segments > 0 ? page->segments[page->n_segments - 1]->id : 0, NULL};
    } else if (reply->body_case == GMB__CONTROL_REPLY__BODY_PRESSURE_PAGE) {
        const Gmb__PressurePage *page = reply->pressure_page;

        *ret = (struct page){(ProtobufCMessage **) page->tenants, page->n_tenants, page->last, 0,
            page->n_tenants > 0 ? page->tenants[page->n_tenants - 1]->name : NULL};
    }
}

static int page_ask(struct conn *conn, Gmb__ControlRequest__BodyCase kind,
    const struct page *before, Gmb__ControlReply **ret, struct outcome *outcome)
{
    Gmb__ControlRequest request = GMB__CONTROL_REQUEST__INIT;
    Gmb__ClientsGet clients = GMB__CLIENTS_GET__INIT;
    Gmb__LeasesGet leases = GMB__LEASES_GET__INIT;
    Gmb__SegmentsGet segments = GMB__SEGMENTS_GET__INIT;
    Gmb__PressureGet pressure;
    Gmb__TenantsGet tenants;

    gmb__tenants_get__init(&tenants);
    gmb__pressure_get__init(&pressure);
    request.body_case = kind;
    if (kind == GMB__CONTROL_REQUEST__BODY_PRESSURE_GET) {
        if (before->after_name != NULL)
            pressure.after = (char *) (uintptr_t) before->after_name;
        request.pressure_get = &pressure;
        return control_ask(conn, &request, GMB__CONTROL_REPLY__BODY_PRESSURE_PAGE, ret, outcome);
    }
    if (kind == GMB__CONTROL_REQUEST__BODY_TENANTS_GET) {
        if (before->after_name != NULL)
            tenants.after = (char *) (uintptr_t) before->after_name;
        request.tenants_get = &tenants;
        return control_ask(conn, &request, GMB__CONTROL_REPLY__BODY_TENANT_PAGE, ret, outcome);
    }
    if (kind == GMB__CONTROL_REQUEST__BODY_CLIENTS_GET) {
        clients.after = before->after_id;
        request.clients_get = &clients;
        return control_ask(conn, &request, GMB__CONTROL_REPLY__BODY_CLIENT_PAGE, ret, outcome);
    }
    if (kind == GMB__CONTROL_REQUEST__BODY_SEGMENTS_GET) {
        segments.after = before->after_id;
        request.segments_get = &segments;
        return control_ask(conn, &request, GMB__CONTROL_REPLY__BODY_SEGMENT_PAGE, ret, outcome);
    }
    leases.after = before->after_id;
    request.leases_get = &leases;
    return control_ask(conn, &request, GMB__CONTROL_REPLY__BODY_LEASE_PAGE, ret, outcome);
}

/* Consumes the reply, on failure too. */
static int listing_append(struct listing *listing, Gmb__ControlReply *reply,
    const struct page *page, struct outcome *outcome)
{
    Gmb__ControlReply **replies =
        reallocarray(listing->replies, listing->reply_count + 1, sizeof(Gmb__ControlReply *));
    ProtobufCMessage **items;

    if (replies == NULL) {
        frame_message_free(&reply->base);
        return outcome_set(outcome, GMB_E_INTERNAL, "no host memory for the list");
    }
    listing->replies = replies;
    listing->replies[listing->reply_count++] = reply;
    items =
        reallocarray(listing->items, MAX(listing->count + page->count, (size_t) 1), sizeof(*items));
    if (items == NULL)
        return outcome_set(outcome, GMB_E_INTERNAL, "no host memory for the list");
    listing->items = items;
    for (size_t i = 0; i < page->count; i++)
        listing->items[listing->count++] = page->items[i];
    return 0;
}

int control_list(struct conn *conn, Gmb__ControlRequest__BodyCase kind, struct listing *ret,
    struct outcome *outcome)
{
    struct page page = {.last = false};

    *ret = (struct listing){0};
    while (!page.last) {
        Gmb__ControlReply *reply;
        int r = page_ask(conn, kind, &page, &reply, outcome);

        if (r < 0)
            return r;
        page_take(reply, &page);
        r = listing_append(ret, reply, &page, outcome);
        if (r < 0)
            return r;
        if (!page.last && (page.count == 0 || ret->reply_count >= PAGES_MAX))
            return outcome_set(outcome, GMB_E_PROTOCOL, "gmbd sent a list without end");
    }
    return 0;
}

void listing_free(struct listing *listing)
{
    for (size_t i = 0; i < listing->reply_count; i++)
        frame_message_free(&listing->replies[i]->base);
    free(listing->replies);
    free(listing->items);
    *listing = (struct listing){0};
}
