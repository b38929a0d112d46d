/*
 * A client that speaks the protocol by hand, so that tests can also misspeak it. Answers are waited
 * for with a deadline; whatever doesn't come as expected ends the test.
 */
#pragma once

#include "base/error.h"
#include "tests/integration/harness.h"

struct raw {
    struct conn *conn;
    uint64_t next_id;
    struct fdset fds; /* of the last answer */
    uint8_t token[16];
};

/* Connects without a word. */
void raw_dial(struct raw *raw, const struct harness *harness);
/* Connects and greets; the answer must be Welcome. */
void raw_connect(struct raw *raw, const struct harness *harness);
void raw_close(struct raw *raw);
/* Connects and greets with the token that it has; whether the session is resumed. */
bool raw_come_back(struct raw *raw, const struct harness *harness);
/* The same in two steps. */
void raw_knock(struct raw *raw, const struct harness *harness);
bool raw_welcomed(struct raw *raw);
/* Says what it has mapped, in `count` leases, the last time or not; its id. */
uint64_t raw_say_held(struct raw *raw, Gmb__HeldLease **held, size_t count, bool last);
/* The same, and waits for the answer: how many are lost. */
size_t raw_resume(struct raw *raw, Gmb__HeldLease **held, size_t count, bool last);
/* Says that it has the first `chunks` of one lease and nothing else; how many are lost. */
size_t raw_resume_one(struct raw *raw, uint64_t lease, uint32_t chunks);

/* Sends a message; its id is set and returned. Broken connections are no failure here. */
uint64_t raw_send(struct raw *raw, Gmb__ClientMessage *message);
/* The same for an event: it has no id. */
void raw_tell(struct raw *raw, const Gmb__ClientMessage *message);
/* A frame of these bytes, whatever they are. */
void raw_send_bytes(struct raw *raw, const void *bytes, size_t size);
uint64_t raw_hello(struct raw *raw, uint32_t version);
/*
 * Whether the devices of this run share their memory over CUDA IPC (GMB_SIM_VMM=0). raw_lease()
 * then asks for one slab in place of chunks, and raw_expect_lease() expects that one.
 */
bool raw_slabs(void);
uint64_t raw_lease(struct raw *raw, uint64_t bytes, uint64_t chunk_bytes, uint64_t wait_ns);
uint64_t raw_grow(struct raw *raw, uint64_t lease, uint64_t bytes);
uint64_t raw_shrink(struct raw *raw, uint64_t lease, uint32_t keep_chunks);
uint64_t raw_release(struct raw *raw, uint64_t lease);
uint64_t raw_cancel(struct raw *raw, uint64_t request);

/* The next message, to be freed with frame_message_free(); NULL when the broker hung up. */
Gmb__BrokerMessage *raw_receive(struct raw *raw);
/* Expects a Grant that completes request `id`; closes its fds. Returns the lease. */
uint64_t raw_expect_lease(struct raw *raw, uint64_t id, uint32_t chunks);
void raw_expect_done(struct raw *raw, uint64_t id);
void raw_expect_error(struct raw *raw, uint64_t id, enum gmb_status status);
/* Reads on until the broker has hung up. */
void raw_expect_end(struct raw *raw);

/* One request of an operator on a connection of its own; the reply is the caller's. */
Gmb__ControlReply *raw_control(const struct harness *harness, Gmb__ControlRequest *request);
/* What the broker says of itself; the reply is the caller's. */
Gmb__ControlReply *raw_status(const struct harness *harness);
/* Has the configuration read anew; the status of the answer, GMB_STATUS_OK for Reloaded. */
enum gmb_status raw_reload(const struct harness *harness);
/*
 * What the broker says that it holds of each device is what the driver says is used there, but for
 * a mover that lives; nothing is orphaned, nothing else is unaccounted, and the parts make the
 * total. Waits for that: figures and driver are asked one after the other.
 */
void raw_expect_accounts(const struct harness *harness);
/* `tenant` of the broker, its only device; fails the test if there is none. */
void raw_tenant(const struct harness *harness, const char *tenant, Gmb__TenantDevice *ret);
/* The broker's first device without its texts, and why nothing is put on its tier's disk. */
void raw_device(
    const struct harness *harness, Gmb__DeviceStatus *ret, char failure[LIMIT_TEXT_BYTES]);
/* Sets one key; returns the status of the answer, GMB_STATUS_OK for TenantChanged. */
enum gmb_status raw_set(
    const struct harness *harness, const char *tenant, const char *key, const char *value);
