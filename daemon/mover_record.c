/* See mover_record.h. One allocation holds the record, its chunks and its copies. */
#include "daemon/mover_record.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "kernels/quantize.h"

_Static_assert((int) MOVER_RAW == PAGE_FORMAT_RAW && (int) MOVER_INT8 == PAGE_FORMAT_INT8 &&
                   (int) MOVER_FP8 == PAGE_FORMAT_FP8 && (int) MOVER_FORMAT_MAX == PAGE_FORMAT_MAX,
    "formats have one number everywhere");
_Static_assert((int) MOVER_FP16 == PAGE_ELEMENT_FP16 && (int) MOVER_BF16 == PAGE_ELEMENT_BF16 &&
                   (int) MOVER_ELEMENT_MAX == PAGE_ELEMENT_MAX,
    "elements too");

uint64_t mover_slot_bytes(enum mover_format format, enum mover_element element, uint64_t page_bytes)
{
    switch (format) {
    case MOVER_RAW:
        return page_bytes;
    case MOVER_INT8:
    case MOVER_FP8:
        return element == MOVER_FP16 || element == MOVER_BF16 ? quantized_bytes(page_bytes) : 0;
    case MOVER_FORMAT_MAX:
        break;
    }
    return 0;
}

static bool copies_valid(const struct mover_job *job, const struct tier *tier)
{
    uint64_t slot = mover_slot_bytes(job->format, job->element, job->page_bytes);
    uint64_t slab = tier_slab_bytes(tier);
    bool sums = job->kind == MOVER_CHECKSUM;

    if (job->page_bytes == 0 || job->page_bytes % 16 != 0 || job->page_bytes > LIMIT_CHUNK_BYTES ||
        (sums ? job->format != MOVER_RAW : slot == 0 || slot > slab) || job->copy_count == 0 ||
        job->copy_count > MOVER_JOB_COPIES ||
        job->page_bytes * job->copy_count > MAX(MOVER_JOB_BYTES, job->page_bytes))
        return false;
    for (size_t i = 0; i < job->copy_count; i++) {
        const struct mover_copy *copy = &job->copies[i];

        if (copy->chunk >= job->chunk_count || copy->chunk_offset % 16 != 0 ||
            copy->chunk_offset > job->chunks[copy->chunk].bytes ||
            job->page_bytes > job->chunks[copy->chunk].bytes - copy->chunk_offset ||
            (sums ? copy->tier_offset != 0
                  : copy->tier_offset % 16 != 0 || copy->tier_offset >= tier_bytes(tier) ||
                        slot > slab - copy->tier_offset % slab))
            return false;
    }
    return true;
}

static bool job_valid(const struct mover_job *job, const struct tier *tier)
{
    if (job->chunk_count == 0 || job->chunk_count > MOVER_JOB_CHUNKS)
        return false;
    for (size_t i = 0; i < job->chunk_count; i++) {
        if (job->chunks[i].number >= LIMIT_CHUNKS_TOTAL || job->chunks[i].bytes == 0 ||
            job->chunks[i].bytes > LIMIT_CHUNK_BYTES)
            return false;
        for (size_t j = 0; j < i; j++) {
            if (job->chunks[j].number == job->chunks[i].number)
                return false;
        }
    }
    switch (job->kind) {
    case MOVER_EVICT:
    case MOVER_RESTORE:
    case MOVER_CHECKSUM:
        return copies_valid(job, tier);
    case MOVER_SCRUB:
        return job->copy_count == 0;
    case MOVER_KIND_MAX:
        break;
    }
    return false;
}

static int record_make(const struct mover_job *job, struct mover_record **ret)
{
    struct mover_record *record =
        calloc(1, sizeof(*record) + job->copy_count * sizeof(struct mover_copy) +
                      job->chunk_count * sizeof(struct mover_chunk));

    if (record == NULL)
        return -ENOMEM;
    list_init(&record->link);
    record->copies = (struct mover_copy *) (void *) (record + 1);
    record->chunks = (struct mover_chunk *) (void *) (record->copies + job->copy_count);
    record->job = *job;
    record->job.chunks = record->chunks;
    record->job.copies = record->copies;
    *ret = record;
    return 0;
}

int mover_record_new(
    const struct mover_job *job, const struct tier *tier, struct mover_record **ret)
{
    int r;

    if (!job_valid(job, tier))
        return -EINVAL;
    r = record_make(job, ret);
    if (r < 0)
        return r;
    memcpy((*ret)->chunks, job->chunks, job->chunk_count * sizeof(*job->chunks));
    if (job->copy_count > 0)
        memcpy((*ret)->copies, job->copies, job->copy_count * sizeof(*job->copies));
    return 0;
}

int mover_record_new_forget(size_t count, struct mover_record **ret)
{
    const struct mover_job job = {.chunk_count = count};
    int r = record_make(&job, ret);

    if (r == 0)
        (*ret)->forget = true;
    return r;
}

int mover_record_new_prepare(uint64_t slab_offset, struct mover_record **ret)
{
    const struct mover_job job = {0};
    int r = record_make(&job, ret);

    if (r == 0) {
        (*ret)->prepare = true;
        (*ret)->slab_offset = slab_offset;
    }
    return r;
}

bool mover_record_own(const struct mover_record *record)
{
    return record->forget || record->prepare;
}

struct mover_record *mover_record_free(struct mover_record *record)
{
    free(record);
    return NULL;
}

uint64_t mover_record_bytes(const struct mover_record *record)
{
    uint64_t bytes = 0;

    if (mover_record_own(record))
        return 0;
    if (record->job.kind != MOVER_SCRUB)
        return record->job.copy_count * record->job.page_bytes;
    for (size_t i = 0; i < record->job.chunk_count; i++)
        bytes += record->chunks[i].bytes;
    return bytes;
}

/* ------------------------------------------------------------------ to the mover */

struct encoding {
    Gmb__MoverChunk chunks[MOVER_JOB_CHUNKS];
    Gmb__MoverChunk *chunk_list[MOVER_JOB_CHUNKS];
    Gmb__MoverCopy copies[MOVER_JOB_COPIES];
    Gmb__MoverCopy *copy_list[MOVER_JOB_COPIES];
};

static Gmb__MoverJobKind record_kind(const struct mover_record *record)
{
    static const Gmb__MoverJobKind kinds[] = {
        [MOVER_EVICT] = GMB__MOVER_JOB_KIND__MOVER_JOB_EVICT,
        [MOVER_RESTORE] = GMB__MOVER_JOB_KIND__MOVER_JOB_RESTORE,
        [MOVER_SCRUB] = GMB__MOVER_JOB_KIND__MOVER_JOB_SCRUB,
        [MOVER_CHECKSUM] = GMB__MOVER_JOB_KIND__MOVER_JOB_CHECKSUM,
    };
    _Static_assert(ARRAY_SIZE(kinds) == MOVER_KIND_MAX, "a number for each kind");

    if (record->prepare)
        return GMB__MOVER_JOB_KIND__MOVER_JOB_PREPARE;
    return record->forget ? GMB__MOVER_JOB_KIND__MOVER_JOB_FORGET : kinds[record->job.kind];
}

static void record_encode(const struct mover_record *record, struct encoding *encoding,
    const bool with_fd[MOVER_JOB_CHUNKS])
{
    for (size_t i = 0; i < record->job.chunk_count; i++) {
        Gmb__MoverChunk *chunk = encoding->chunk_list[i] = &encoding->chunks[i];

        gmb__mover_chunk__init(chunk);
        chunk->number = record->chunks[i].number;
        chunk->generation = record->chunks[i].generation;
        chunk->bytes = record->chunks[i].bytes;
        chunk->with_fd = with_fd[i];
    }
    for (size_t i = 0; i < record->job.copy_count; i++) {
        Gmb__MoverCopy *copy = encoding->copy_list[i] = &encoding->copies[i];

        gmb__mover_copy__init(copy);
        copy->chunk = record->copies[i].chunk;
        copy->chunk_offset = record->copies[i].chunk_offset;
        copy->tier_offset = record->copies[i].tier_offset;
        copy->checksum = record->job.kind == MOVER_RESTORE ? record->copies[i].checksum : 0;
    }
}

int mover_record_send(const struct mover_record *record, struct conn *conn,
    const bool with_fd[MOVER_JOB_CHUNKS], struct fdset *fds)
{
    _cleanup_free_ struct encoding *encoding = malloc(sizeof(*encoding));
    Gmb__MoverMessage message;
    Gmb__MoverJob job;

    if (encoding == NULL) {
        fdset_close(fds);
        return -ENOMEM;
    }
    record_encode(record, encoding, with_fd);
    gmb__mover_message__init(&message);
    gmb__mover_job__init(&job);
    job.id = record->id;
    job.kind = record_kind(record);
    job.n_chunks = record->job.chunk_count;
    job.chunks = encoding->chunk_list;
    job.n_copies = record->job.copy_count;
    job.copies = encoding->copy_list;
    job.element = record->job.element;
    job.format = (Gmb__MoverFormat) record->job.format;
    job.page_bytes = record->job.page_bytes;
    job.slab_offset = record->slab_offset;
    message.body_case = GMB__MOVER_MESSAGE__BODY_JOB;
    message.job = &job;
    return conn_send_consume(conn, &message.base, fds);
}

/* ------------------------------------------------------------------ from the mover */

int mover_record_apply(struct mover_record *record, const Gmb__MoverDone *done)
{
    bool own = mover_record_own(record);
    bool sums = !own && (record->job.kind == MOVER_EVICT || record->job.kind == MOVER_CHECKSUM);
    bool restore = !own && record->job.kind == MOVER_RESTORE;

    if (done->n_checksums != (sums ? record->job.copy_count : 0) ||
        (!restore && done->n_damaged != 0))
        return -EBADMSG;
    for (size_t i = 0; i < done->n_damaged; i++) {
        if (done->damaged[i] >= record->job.copy_count)
            return -EBADMSG;
    }
    for (size_t i = 0; i < record->job.copy_count; i++)
        record->copies[i].damaged = false;
    for (size_t i = 0; i < done->n_damaged; i++)
        record->copies[done->damaged[i]].damaged = true;
    for (size_t i = 0; i < done->n_checksums; i++)
        record->copies[i].checksum = done->checksums[i];
    return 0;
}

void mover_record_set_text(struct mover_record *record, const char *text)
{
    (void) snprintf(record->text, sizeof(record->text), "%s", text);
}
