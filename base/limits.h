/*
 * Every bound on what somebody outside the process controls, each with its reason.
 * A limit of the operator's (MemoryMax=, ClientsMax= …) lives in the configuration; what stands
 * here is what no configuration may exceed.
 */
#pragma once

#include <stdint.h>

/* Linux takes 253 fds in one SCM_RIGHTS message; 128 leaves room and keeps a control buffer at 1
 * KiB. */
#define LIMIT_FRAME_FDS 128
/* Largest message either way. A grant of 128 chunks takes ~8 KiB, a status reply is split in pages.
 */
#define LIMIT_FRAME_BYTES (64u * 1024u)
/* What decoding one frame may allocate: protobuf-c turns 2 bytes into a ~24-byte object at worst.
 */
#define LIMIT_DECODE_BYTES (1024u * 1024u)
/* Fields of one message that this version doesn't know: a later one adds a few, each costs time. */
#define LIMIT_UNKNOWN_FIELDS 32
/* Messages that wait for a peer which does not read. Past it the peer is dropped, not waited for.
 */
#define LIMIT_SEND_QUEUE_FRAMES 256
/* fds that wait in that queue: they pin device memory, so they are fewer than the frames allow. */
#define LIMIT_SEND_QUEUE_FDS 4096
/* Frames read from one peer before others get their turn. */
#define LIMIT_READ_BURST 16
/* And bytes, past which no further frame is: what takes long to decode comes one at a time. */
#define LIMIT_READ_BURST_BYTES (16u * 1024u)

/* Pages in one PageWant and chunks in one ChunkRecall: what fits in a frame at 5 bytes each, with
 * room. */
#define LIMIT_WANT_PAGES 4096
#define LIMIT_RECALL_CHUNKS 4096
/* Workspaces of a device that are asked back and not given yet: all of them are looked at in each
 * turn of the device, and more workers than that have no business to be disturbed at once. */
#define LIMIT_REVOKED_LEASES 64

/* Arenas of one client, and chunks that all of them may ever have: each index costs the broker
 * about 80 bytes of page table and ledger before anything is behind it. */
#define LIMIT_ARENAS_PER_CLIENT 64
#define LIMIT_ARENA_CHUNKS_PER_CLIENT (1u << 18)
/* And of one tenant, whose empty arenas nothing else bounds. */
#define LIMIT_ARENAS_PER_TENANT 1024
/* Indices of its arenas and segments together. */
#define LIMIT_INDICES_PER_TENANT LIMIT_CHUNKS_TOTAL
/* Clients that hold one lease together: as many as the word of a page has places for. */
#define LIMIT_LEASE_HOLDERS 16
/* A segment is only read: as many workers as one device could ever feed. Each step on it looks at
 * all of them. */
#define LIMIT_SEGMENT_HOLDERS 1024
/* And holders of one tenant beyond the first of each lease: each costs a bit for every index of its
 * lease, here and in the shell. */
#define LIMIT_HOLDERS_PER_TENANT 4096
/* Holders of all segments: what each tenant may have at once, the first of each included. */
#define LIMIT_SEATS (LIMIT_TENANTS * (LIMIT_HOLDERS_PER_TENANT + LIMIT_SEGMENTS_PER_TENANT))
/* Segments of one tenant or share group: a broker that lists, verifies and demotes them looks at
 * all of them. A server has tens of models, not hundreds. */
#define LIMIT_SEGMENTS_PER_TENANT 256
/* Requests of one tenant that wait until a segment is written, or is back on the device; and of one
 * client: the shards of a few models on each device. None takes all places of its tenant. */
#define LIMIT_SEGMENT_WAITERS 1024
#define LIMIT_SEGMENT_WAITERS_PER_CLIENT 128
/* Runs of chunks that one client gives back while the broker still moves pages there. */
#define LIMIT_RETURNS_HELD 256

/* Steps of one advice: each action of a ladder at most once, and room for later ones. */
#define LIMIT_ADVICE_STEPS 16

/* Requests of one client that wait for memory at once; a worker has tens in flight, not thousands.
 */
#define LIMIT_REQUESTS_PER_CLIENT 1024
/* And of one tenant: many clients must not fill the broker's memory with what they wait for. */
#define LIMIT_REQUESTS_PER_TENANT 4096
#define LIMIT_REQUESTS_TOTAL (LIMIT_TENANTS * LIMIT_REQUESTS_PER_TENANT)
/* Chunks in one lease: 64 Ki chunks of the smallest size (2 MiB) are 128 GiB. */
#define LIMIT_LEASE_CHUNKS 65536
/* A request may wait at most an hour: a longer wait is a client that forgot it. */
#define LIMIT_WAIT_NS (UINT64_C(3600) * UINT64_C(1000000000))

/* Connected clients over all tenants: one fd and one pidfd each, under the daemon's RLIMIT_NOFILE.
 */
#define LIMIT_CLIENTS 16384
/* Connections that have said no Hello yet, and how long they may take. */
#define LIMIT_UNGREETED 256
#define LIMIT_HELLO_NS (UINT64_C(10) * UINT64_C(1000000000))
/* Sockets that wait to be closed: past it none is accepted for a moment. */
#define LIMIT_CLOSING 1024
/* Operators' connections. */
#define LIMIT_OPERATORS 64

/* Watches of one client on pressure, one fd each: a level and a stall trigger on two devices. */
#define LIMIT_WATCHES_PER_CLIENT 4
/* And of all clients together, fairly shared: they are fds of the daemon's. */
#define LIMIT_WATCHES 2048
/* Calls over D-Bus that wait for the bus, for polkit or for the broker; and of one user but root,
 * who could keep the others out by questions that nobody answers. */
#define LIMIT_BUS_CALLS 256
#define LIMIT_BUS_CALLS_PER_USER 16
/* Messages that wait for a bus which does not read: past it the connection is given up. */
#define LIMIT_BUS_QUEUE 4096
/* Assignments of one SetTenant: each key once for all devices, and room. */
#define LIMIT_BUS_ASSIGNMENTS 64

#define LIMIT_TENANTS 1024
#define LIMIT_DEVICES 64
/* Chunks that the broker owns on all devices: 2^20 of 2 MiB are 2 TiB. */
#define LIMIT_CHUNKS_TOTAL (1u << 20)
/* One chunk: what VMM maps at once; a larger one could hardly be recovered from fragments. */
#define LIMIT_CHUNK_BYTES (UINT64_C(1) << 30)
/* Largest Priority= and Weight=. */
#define LIMIT_PRIORITY 1000
#define LIMIT_WEIGHT 10000

/* Names of tenants and leases: one line of a terminal. */
#define LIMIT_NAME_BYTES 64
/* Text of an error that travels to a peer. */
#define LIMIT_TEXT_BYTES 256
/* A configuration file: what a person writes, not what a disk holds. */
#define LIMIT_CONFIG_BYTES (1024u * 1024u)
#define LIMIT_CONFIG_FILES 256
