/* The undisturbed run: bytes that nobody moves. */
#include <stdlib.h>
#include <string.h>

#include "tests/compute/kv.h"

struct kv_plain {
    struct kv kv;
    uint16_t halves[];
};

static uint16_t *token_of(struct kv *kv, uint32_t position)
{
    return container_of(kv, struct kv_plain, kv)->halves +
           (size_t) position * TRANSFORMER_KV_HALVES;
}

static int plain_hold(struct kv *kv, uint32_t tokens)
{
    return KV_READY;
}

static int plain_release(struct kv *kv)
{
    return 0;
}

static int plain_read(struct kv *kv, uint32_t tokens, uint16_t *to)
{
    memcpy(to, token_of(kv, 0), tokens * TRANSFORMER_KV_BYTES);
    return 0;
}

static int plain_write(struct kv *kv, uint32_t position, const uint16_t *token)
{
    memcpy(token_of(kv, position), token, TRANSFORMER_KV_BYTES);
    return 0;
}

static struct kv *plain_free(struct kv *kv)
{
    free(container_of(kv, struct kv_plain, kv));
    return NULL;
}

static const struct kv_ops plain_ops = {
    .hold = plain_hold,
    .release = plain_release,
    .read = plain_read,
    .write = plain_write,
    .free = plain_free,
};

struct kv *kv_plain_new(uint32_t tokens)
{
    struct kv_plain *plain = malloc(sizeof(*plain) + tokens * TRANSFORMER_KV_BYTES);

    if (plain == NULL)
        return NULL;
    plain->kv.ops = &plain_ops;
    return &plain->kv;
}
