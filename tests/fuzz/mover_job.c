/*
 * A frame as the mover gets it: what is taken as a job touches nothing outside its chunks, its
 * slabs and the tier, whatever the frame said.
 */
#include <errno.h>
#include <string.h>

#include "daemon/mover/job.h"
#include "proto/frame.h"
#include "tests/fuzz/fuzz.h"

static const struct job_bounds bounds = {
    .tier_bytes = UINT64_C(256) << 20,
    .disk_bytes = UINT64_C(64) << 20,
    .slab_bytes = UINT64_C(32) << 20,
    .granularity_bytes = UINT64_C(2) << 20,
};

static void job_check(const struct job *job, size_t fd_count)
{
    size_t fds = 0;

    FUZZ_CHECK(job->id != 0);
    if (job->kind == GMB__MOVER_JOB_KIND__MOVER_JOB_PREPARE) {
        FUZZ_CHECK(job->chunk_count == 0 && job->copy_count == 0 && fd_count == 0);
        FUZZ_CHECK(job->slab_offset % bounds.slab_bytes == 0 &&
                   job->slab_offset < bounds.tier_bytes - bounds.disk_bytes);
        return;
    }
    FUZZ_CHECK(job->slab_offset == 0);
    FUZZ_CHECK(job->chunk_count >= 1 && job->chunk_count <= JOB_CHUNKS_MAX);
    FUZZ_CHECK(job->copy_count <= JOB_COPIES_MAX);
    for (uint32_t i = 0; i < job->chunk_count; i++) {
        FUZZ_CHECK(job->chunks[i].bytes > 0 && job->chunks[i].bytes <= LIMIT_CHUNK_BYTES);
        FUZZ_CHECK(job->chunks[i].bytes % bounds.granularity_bytes == 0);
        fds += job->chunks[i].with_fd;
    }
    FUZZ_CHECK(fds == fd_count);
    for (uint32_t i = 0; i < job->copy_count; i++) {
        const struct job_copy *copy = &job->copies[i];
        unsigned __int128 page_end = (unsigned __int128) copy->chunk_offset + job->page_bytes;
        unsigned __int128 slot_end = (unsigned __int128) copy->tier_offset + job->slot_bytes;

        FUZZ_CHECK(job->page_bytes >= 16 && job->page_bytes % 16 == 0);
        FUZZ_CHECK(copy->chunk < job->chunk_count);
        FUZZ_CHECK(copy->chunk_offset % 16 == 0 && copy->tier_offset % 16 == 0);
        FUZZ_CHECK(page_end <= job->chunks[copy->chunk].bytes);
        if (job->kind == GMB__MOVER_JOB_KIND__MOVER_JOB_CHECKSUM) {
            FUZZ_CHECK(copy->tier_offset == 0);
            continue;
        }
        FUZZ_CHECK(job->slot_bytes >= 16 && job->slot_bytes % 16 == 0);
        FUZZ_CHECK(slot_end <= bounds.tier_bytes);
        FUZZ_CHECK(copy->tier_offset / bounds.slab_bytes ==
                   (uint64_t) ((slot_end - 1) / bounds.slab_bytes));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Gmb__MoverMessage *message;
    const char *reason = NULL;
    struct job *job;

    if (frame_decode_mover(data, size, &message) < 0)
        return 0;
    if (message->body_case == GMB__MOVER_MESSAGE__BODY_JOB) {
        size_t fds = frame_mover_fds(message);
        int r = job_parse(message->job, &bounds, fds, &job, &reason);

        if (r == 0) {
            job_check(job, fds);
            free(job);
            FUZZ_CHECK(job_parse(message->job, &bounds, fds + 1, &job, &reason) == -EINVAL);
        } else {
            FUZZ_CHECK(r == -ENOMEM || (r == -EINVAL && reason != NULL));
        }
    }
    frame_message_free(&message->base);
    return 0;
}
