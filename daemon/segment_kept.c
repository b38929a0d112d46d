/* See segment_kept.h. */
#include "daemon/segment_kept.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/log.h"
#include "base/memfile.h"
#include "daemon/broker.h"
#include "daemon/ledger/ledger.h"
#include "daemon/segment_request.h"

/* ------------------------------------------------------------------ bytes */

static uint64_t kept_bytes(uint32_t pieces)
{
    return SEGMENT_KEPT_BEGIN + 2 * (uint64_t) pieces * sizeof(uint64_t);
}

static uint64_t *kept_sums(const struct segment *segment)
{
    return (uint64_t *) (void *) ((char *) segment->kept + SEGMENT_KEPT_BEGIN);
}

static uint64_t *kept_slots(const struct segment *segment)
{
    return kept_sums(segment) + segment->pieces;
}

/* By number, so that another segment's are none of its. */
uint64_t segment_words_checksum(const uint64_t *words, uint32_t count, uint32_t number)
{
    return XXH3_64bits_withSeed(words, count * sizeof(*words), number);
}

uint64_t segment_head_checksum(const struct segment_head *head)
{
    return XXH3_64bits(head, offsetof(struct segment_head, checksum));
}

static int kept_map(struct segment *segment, int fd)
{
    int r = memfile_check(fd, kept_bytes(segment->pieces));
    void *memory;

    if (r < 0)
        return r;
    memory = mmap(NULL, kept_bytes(segment->pieces), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return -errno;
    segment->kept = memory;
    return 0;
}

static void kept_unmap(struct segment *segment)
{
    if (segment->kept != NULL)
        (void) munmap(segment->kept, kept_bytes(segment->pieces));
    segment->kept = NULL;
}

/* ------------------------------------------------------------------ writing */

/* What is under way is not there yet, or is still what it was. */
static enum segment_state lasting_state(enum segment_state state)
{
    switch (state) {
    case SEGMENT_ASKED:
    case SEGMENT_WRITING:
    case SEGMENT_SEALING:
        return SEGMENT_WRITING;
    case SEGMENT_SEALED:
    case SEGMENT_DEMOTING:
        return SEGMENT_SEALED;
    case SEGMENT_DEMOTED:
    case SEGMENT_FILLING:
    case SEGMENT_RESTORING:
        return SEGMENT_DEMOTED;
    case SEGMENT_QUARANTINED:
    case SEGMENT_REMOVED:
    case SEGMENT_STATE_MAX:
        break;
    }
    return state;
}

static void head_fill(const struct segment *segment, struct segment_head *ret)
{
    memset(ret, 0, sizeof(*ret)); /* the gaps, too */
    ret->lease = segment->lease;
    ret->writer = segment->writer;
    ret->number = (uint32_t) segment->number;
    ret->tenant = segment->space->tenant;
    ret->device = ledger_device(segment->space->broker->ledger, segment->device);
    ret->state = (uint32_t) lasting_state(segment->state);
    ret->size_bytes = segment->size_bytes;
    ret->chunk_bytes = segment->chunk_bytes;
    ret->piece_bytes = segment->piece_bytes;
    ret->chunks = segment->chunks;
    ret->pieces = segment->pieces;
    ret->asked_ns = segment->asked_ns;
    ret->verified_ns = segment->verified_ns;
    ret->verifications = segment->verifications;
    (void) snprintf(ret->name, sizeof(ret->name), "%s", segment->name);
    (void) snprintf(ret->text, sizeof(ret->text), "%s", segment->text);
}

/* The same as were there before, if some were: what a head counts on is never another's. */
static uint64_t words_write(const struct segment *segment, uint64_t *to, const uint64_t *from)
{
    memcpy(to, from, segment->pieces * sizeof(*from));
    return segment_words_checksum(from, segment->pieces, (uint32_t) segment->number);
}

void segment_kept_write(struct segment *segment)
{
    struct segment_kept *kept = segment->kept;
    struct segment_head head;
    unsigned next;

    if (kept == NULL)
        return;
    head_fill(segment, &head);
    head.summed = segment->summed;
    head.stored = segment->stored;
    if (segment->summed)
        head.sums_checksum = words_write(segment, kept_sums(segment), segment->sums);
    if (segment->stored)
        head.slots_checksum = words_write(segment, kept_slots(segment), segment->slots);
    head.checksum = segment_head_checksum(&head);
    next = kept->current == kept->heads[0].checksum ? 1 : 0;
    memcpy(&kept->heads[next], &head, sizeof(head)); /* gaps are summed, too */
    __atomic_store_n(&kept->current, head.checksum, __ATOMIC_SEQ_CST);
}

/* ------------------------------------------------------------------ the store */

static bool keepable(const struct segment *segment)
{
    const struct broker *broker = segment->space->broker;

    return broker->store != NULL && broker->ledger != NULL && segment->number <= UINT32_MAX;
}

static int kept_make(struct segment *segment)
{
    struct broker *broker = segment->space->broker;
    _cleanup_close_ int fd = memfile_new("gmbd-segment", kept_bytes(segment->pieces));
    struct executor_keep keep = {FDSTORE_SEGMENT, fd};
    int r;

    if (fd < 0)
        return fd;
    /* All of it at once: what is mapped and can't be had would end the broker. */
    if (fallocate(fd, 0, 0, (off_t) kept_bytes(segment->pieces)) < 0)
        return -errno;
    r = kept_map(segment, fd);
    if (r < 0)
        return r;
    segment->kept->magic = SEGMENT_KEPT_MAGIC;
    segment_kept_write(segment);
    segment->kept_tag = ++broker->kept_tags;
    r = executor_keep(
        broker->executor, segment->device, &keep, 1, (uint32_t) segment->number, segment->kept_tag);
    if (r < 0)
        segment->kept_tag = 0;
    return r;
}

bool segment_kept_begin(struct segment *segment)
{
    int r = keepable(segment) ? kept_make(segment) : -ENOTSUP;

    if (r == 0)
        return true;
    kept_unmap(segment);
    if (r != -ENOTSUP)
        log_warning("segment %s on device %u can't be written down, and will end with this broker: "
                    "%s",
            segment->name, segment->device, strerror(-r));
    return false;
}

bool segment_kept_done(struct broker *broker, const struct executor_done *done)
{
    list_for_each(segment, &broker->segments->all, struct segment, all_link)
    {
        if (segment->kept_tag == 0 || segment->kept_tag != done->tag)
            continue;
        segment->kept_tag = 0;
        segment->kept_stored = done->result == 0;
        if (!segment->kept_stored)
            kept_unmap(segment); /* the executor has said so */
        segment_grant_send(segment);
        segments_note(broker, segment->space->tenant);
        return true;
    }
    return false;
}

void segment_kept_end(struct segment *segment)
{
    static const enum fdstore_kind kind = FDSTORE_SEGMENT;
    struct broker *broker = segment->space->broker;

    if (segment->kept_stored && !broker->kept_closed)
        executor_unkeep(broker->executor, segment->device, &kind, 1, (uint32_t) segment->number);
    segment->kept_stored = false;
    kept_unmap(segment);
}

/* ------------------------------------------------------------------ reading */

static bool head_sane(const struct segment_head *head)
{
    return (head->state == SEGMENT_WRITING || head->state == SEGMENT_SEALED ||
               head->state == SEGMENT_DEMOTED || head->state == SEGMENT_QUARANTINED ||
               head->state == SEGMENT_REMOVED) &&
           head->tenant < LIMIT_TENANTS && head->name[0] != '\0' &&
           memchr(head->name, '\0', sizeof(head->name)) != NULL &&
           memchr(head->text, '\0', sizeof(head->text)) != NULL && head->chunks > 0 &&
           head->chunks <= LIMIT_LEASE_CHUNKS && head->piece_bytes > 0 &&
           head->chunk_bytes % head->piece_bytes == 0 &&
           head->pieces == head->chunks * (head->chunk_bytes / head->piece_bytes);
}

int segment_kept_read(int fd, struct segment_head *ret)
{
    struct segment_kept kept;
    ssize_t n = pread(fd, &kept, sizeof(kept), 0);

    if (n < 0)
        return -errno;
    if (n != (ssize_t) sizeof(kept) || kept.magic != SEGMENT_KEPT_MAGIC)
        return -EINVAL;
    for (unsigned i = 0; i < SEGMENT_KEPT_HEADS; i++) {
        const struct segment_head *head = &kept.heads[i];

        if (head->checksum != kept.current || head->checksum != segment_head_checksum(head) ||
            !head_sane(head))
            continue;
        *ret = *head;
        return 0;
    }
    return -EINVAL;
}

/* NULL in `ret` when they don't count. */
static int words_read(const struct segment *segment, bool count, const uint64_t *from,
    uint64_t checksum, uint64_t **ret)
{
    uint64_t *words;

    *ret = NULL;
    if (!count)
        return 0;
    words = malloc(segment->pieces * sizeof(*words));
    if (words == NULL)
        return -ENOMEM;
    memcpy(words, from, segment->pieces * sizeof(*words));
    if (segment_words_checksum(words, segment->pieces, (uint32_t) segment->number) != checksum) {
        free(words);
        return -EBADMSG;
    }
    *ret = words;
    return 0;
}

int segment_kept_resume(struct segment *segment, int fd, const struct segment_head *head)
{
    _cleanup_free_ uint64_t *sums = NULL;
    int r = kept_map(segment, fd);

    if (r < 0)
        return r;
    segment->kept_stored = true;
    r = words_read(segment, head->summed, kept_sums(segment), head->sums_checksum, &sums);
    if (r == 0)
        r = words_read(
            segment, head->stored, kept_slots(segment), head->slots_checksum, &segment->slots);
    if (r == 0)
        segment->sums = TAKE_PTR(sums);
    return r;
}
