/*
 * The part of gmb.h that is about segments: shared weights. It is included there, and nowhere else.
 * What that header says of errors, threads, deadlines and forks holds here.
 */
#ifndef GMB_SEGMENT_H
#define GMB_SEGMENT_H

#ifndef GMB_H
#error "include gmb.h"
#endif

/*
 * A segment is memory that one process of a tenant writes and any number of its processes read:
 * the weights of a model. It has a name, of its own on each device, and outlives the processes: one
 * that starts anew has its weights back in the time of a mapping. A process's part in it is a
 * gmb_lease: its address, its size and its release are those of a lease; it doesn't grow or shrink.
 *
 * Who creates it writes it and then seals it. From then on it is mapped for reading, here and in
 * every process that opens it. That is a courtesy of each process's driver, not a wall: the broker
 * keeps a checksum of each piece and compares now and then, and what was changed all the same is
 * served to nobody any more. docs/segments.md has the life of a segment.
 */
struct gmb_segment_params {
    size_t size;        /* sizeof(struct gmb_segment_params) */
    const char *name;   /* 1 to 64 bytes */
    const char *device; /* UUID text; NULL: the broker's first device */
    uint64_t bytes; /* to create: > 0, the same in everybody who creates it; to open: not read */
    uint64_t chunk_bytes; /* of the one who writes it; 0: the broker chooses */
    uint64_t wait_ns;     /* for memory, for another process to seal it, for it to come back */
    uint32_t group;       /* not 0: of the tenant's share group, whose account pays for it */
};

/*
 * Takes the segment of that name, whichever way: the first one to ask becomes its writer
 * (gmb_segment_writable()), and maps memory whose contents are undefined; the others wait until it
 * is sealed, and read it. When the writer ends or releases it unsealed, nothing is left of it, and
 * the next one that waits becomes the writer. Blocks and fails as gmb_lease_new(); CONFLICT when
 * it is there with another size, or this process has it already; DENIED for `group` in a tenant
 * without one; EXHAUSTED or TIMED_OUT with the limit "unsealed" while another process writes it.
 */
int gmb_segment_create(
    gmb_session *session, const struct gmb_segment_params *params, gmb_lease **ret_lease);
/* The same for one that is there: NOT_FOUND when nobody has made it or whoever was writing it has
 * gone. CONFLICT, too, when it was found changed. */
int gmb_segment_open(
    gmb_session *session, const struct gmb_segment_params *params, gmb_lease **ret_lease);
/* Both without blocking, as gmb_lease_new_async(). */
int gmb_segment_create_async(gmb_session *session, const struct gmb_segment_params *params,
    gmb_lease_fn done, void *user, uint64_t *ret_request);
int gmb_segment_open_async(gmb_session *session, const struct gmb_segment_params *params,
    gmb_lease_fn done, void *user, uint64_t *ret_request);

/* Not 0: this process writes it, and it isn't sealed yet. */
int gmb_segment_writable(const gmb_lease *lease);

/*
 * Says that all of it is written: waits for the work that the device has in flight, maps it for
 * reading, and blocks while the broker sums it up, `wait_ns` at most (and the session's timeout).
 * INVALID when this process doesn't write it, or it is sealed. After another failure it is writable
 * as before and may be sealed again; after TIMED_OUT the broker may have sealed it all the same,
 * which the next call says.
 */
int gmb_segment_seal(gmb_lease *lease, uint64_t wait_ns);

/*
 * Not 0: the broker found bytes in it that are not those that were sealed, or can't tell any more
 * after it was damaged. Don't compute with it: release it and create it anew, which gets other
 * memory (CONFLICT from gmb_segment_open() until somebody did). It stays mapped as long. One load,
 * for between two steps; true as far as the broker's messages have been read, by whoever dispatches
 * or waits. Between two looks of the broker nobody knows (SegmentVerify=).
 */
int gmb_segment_quarantined(const gmb_lease *lease);

/* Called once for each such segment by whoever dispatches (as gmb_lease_fn), which may release it
 * here or later. What is said of gmb_revoke_fn and other threads holds here. */
typedef void (*gmb_segment_fn)(void *user, gmb_lease *lease);

/* From now on `quarantined` is called; NULL ends that. What was found before and nobody was called
 * for is handed to it. Replaces the callback before, which doesn't run any more when this has
 * returned, except if it is called from there. Exchanges nothing with the broker. FORKED. */
int gmb_segment_subscribe(gmb_session *session, gmb_segment_fn quarantined, void *user);

/* Takes its name from a sealed segment: nobody finds it any more, and its memory comes back when
 * the last of its readers has released it. Of `params`, name, device and group are read. Blocks for
 * one exchange with the broker. NOT_FOUND; CONFLICT while it is being written; DENIED, INVALID,
 * TIMED_OUT, DISCONNECTED, FORKED. */
int gmb_segment_remove(gmb_session *session, const struct gmb_segment_params *params);

#endif
