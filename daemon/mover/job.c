/* See job.h. Each sum that could wrap round is compared as a difference instead. */
#include "daemon/mover/job.h"

#include <errno.h>

static int job_refuse(const char *reason, const char **ret_reason)
{
    *ret_reason = reason;
    return -EINVAL;
}

uint64_t job_slot_bytes(enum page_format format, enum page_element element, uint64_t page_bytes)
{
    switch (format) {
    case PAGE_FORMAT_RAW:
        return page_bytes;
    case PAGE_FORMAT_INT8:
    case PAGE_FORMAT_FP8:
        return element == PAGE_ELEMENT_FP16 || element == PAGE_ELEMENT_BF16
                   ? quantized_bytes(page_bytes)
                   : 0;
    case PAGE_FORMAT_MAX:
        break;
    }
    return 0;
}

static const char *chunks_parse(
    struct job *job, const Gmb__MoverJob *message, const struct job_bounds *bounds, size_t fd_count)
{
    size_t fds = 0;

    for (uint32_t i = 0; i < job->chunk_count; i++) {
        const Gmb__MoverChunk *chunk = message->chunks[i];

        if (chunk->number >= LIMIT_CHUNKS_TOTAL)
            return "a chunk's number is out of range";
        if (chunk->bytes == 0 || chunk->bytes > LIMIT_CHUNK_BYTES ||
            chunk->bytes % bounds->granularity_bytes != 0)
            return "a chunk's size makes no sense";
        for (uint32_t j = 0; j < i; j++) {
            if (job->chunks[j].number == chunk->number)
                return "a chunk stands twice";
        }
        job->chunks[i] = (struct job_chunk){
            .number = chunk->number,
            .generation = chunk->generation,
            .bytes = chunk->bytes,
            .with_fd = chunk->with_fd != 0,
        };
        fds += chunk->with_fd ? 1 : 0;
    }
    return fds == fd_count ? NULL : "other fds came than were announced";
}

static const char *copies_parse(
    struct job *job, const Gmb__MoverJob *message, const struct job_bounds *bounds)
{
    bool sums = job->kind == GMB__MOVER_JOB_KIND__MOVER_JOB_CHECKSUM;

    for (uint32_t i = 0; i < job->copy_count; i++) {
        const Gmb__MoverCopy *copy = message->copies[i];
        const struct job_chunk *chunk;

        if (copy->chunk >= job->chunk_count)
            return "a copy names no chunk of the job";
        chunk = &job->chunks[copy->chunk];
        if (copy->chunk_offset % 16 != 0 || copy->chunk_offset > chunk->bytes ||
            job->page_bytes > chunk->bytes - copy->chunk_offset)
            return "a page lies outside its chunk";
        if (sums
                ? copy->tier_offset != 0
                : copy->tier_offset % 16 != 0 || copy->tier_offset >= bounds->tier_bytes ||
                      job->slot_bytes > bounds->slab_bytes - copy->tier_offset % bounds->slab_bytes)
            return "a slot lies outside its slab";
        job->copies[i] = (struct job_copy){
            .chunk = copy->chunk,
            .chunk_offset = copy->chunk_offset,
            .tier_offset = copy->tier_offset,
            .checksum = copy->checksum,
        };
    }
    return NULL;
}

static const char *prepare_check(const Gmb__MoverJob *message, const struct job_bounds *bounds)
{
    if (message->n_chunks != 0 || message->n_copies != 0)
        return "chunks or copies in a job that only prepares";
    if (bounds->slab_bytes == 0 || message->slab_offset % bounds->slab_bytes != 0 ||
        message->slab_offset >= bounds->tier_bytes - bounds->disk_bytes)
        return "no slab of the tier's memory";
    return NULL;
}

/* What the kind asks for as a whole. */
static const char *shape_check(const Gmb__MoverJob *message, const struct job_bounds *bounds)
{
    bool sums = message->kind == GMB__MOVER_JOB_KIND__MOVER_JOB_CHECKSUM;
    bool copies = sums || message->kind == GMB__MOVER_JOB_KIND__MOVER_JOB_EVICT ||
                  message->kind == GMB__MOVER_JOB_KIND__MOVER_JOB_RESTORE;

    if (message->kind == GMB__MOVER_JOB_KIND__MOVER_JOB_PREPARE)
        return prepare_check(message, bounds);
    if (message->slab_offset != 0)
        return "a slab in a job that prepares none";
    if (!copies && message->kind != GMB__MOVER_JOB_KIND__MOVER_JOB_SCRUB &&
        message->kind != GMB__MOVER_JOB_KIND__MOVER_JOB_FORGET)
        return "unknown kind";
    if (message->n_chunks == 0 || message->n_chunks > JOB_CHUNKS_MAX)
        return "no chunks, or too many";
    if (!copies)
        return message->n_copies == 0 ? NULL : "copies in a job that copies nothing";
    if (message->n_copies == 0 || message->n_copies > JOB_COPIES_MAX)
        return "no copies, or too many";
    if (message->page_bytes == 0 || message->page_bytes % 16 != 0 ||
        message->page_bytes > LIMIT_CHUNK_BYTES)
        return "the page size makes no sense";
    if ((unsigned) message->format >= PAGE_FORMAT_MAX || message->element >= PAGE_ELEMENT_MAX)
        return "unknown format";
    if (sums && message->format != GMB__MOVER_FORMAT__MOVER_FORMAT_RAW)
        return "only bytes as they are can be summed";
    if (!sums && bounds->slab_bytes == 0)
        return "there is no tier";
    return NULL;
}

int job_parse(const Gmb__MoverJob *message, const struct job_bounds *bounds, size_t fd_count,
    struct job **ret, const char **ret_reason)
{
    _cleanup_free_ struct job *job = NULL;
    const char *reason = shape_check(message, bounds);

    if (reason != NULL)
        return job_refuse(reason, ret_reason);
    job = calloc(1, sizeof(*job) + message->n_copies * sizeof(job->copies[0]));
    if (job == NULL)
        return -ENOMEM;
    job->id = message->id;
    job->kind = message->kind;
    job->chunk_count = (uint32_t) message->n_chunks;
    job->copy_count = (uint32_t) message->n_copies;
    job->slab_offset = message->slab_offset;
    if (job->copy_count > 0) {
        job->format = (enum page_format) message->format;
        job->element = (enum page_element) message->element;
        job->page_bytes = message->page_bytes;
        job->slot_bytes = job_slot_bytes(job->format, job->element, job->page_bytes);
        if (job->kind != GMB__MOVER_JOB_KIND__MOVER_JOB_CHECKSUM &&
            (job->slot_bytes == 0 || job->slot_bytes > bounds->slab_bytes))
            return job_refuse("the page doesn't go into a slot of this format", ret_reason);
    }
    reason = chunks_parse(job, message, bounds, fd_count);
    if (reason == NULL)
        reason = copies_parse(job, message, bounds);
    if (reason != NULL)
        return job_refuse(reason, ret_reason);
    *ret = TAKE_PTR(job);
    return 0;
}
