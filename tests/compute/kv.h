/*
 * Where a sequence's KV lives: plain memory, or pages of an arena. One sequence, one object; not
 * thread-safe.
 *
 * A sequence is held while it computes: what it holds stays where it is. In between, its bytes may
 * be anywhere.
 */
#pragma once

#include "tests/compute/transformer.h"

enum kv_outcome {
    KV_READY = 0,
    KV_LOST = 1, /* the bytes were dropped, as we allowed: nothing is stored or held any more */
    KV_FULL = 2, /* no memory within the time for it; nothing is held, what was stored stays */
};

struct kv;

struct kv_ops {
    /* Holds what is stored, with room for `tokens` in all. An outcome, or -EIO (said on stderr). */
    int (*hold)(struct kv *kv, uint32_t tokens);
    /* 0 or -EIO. */
    int (*release)(struct kv *kv);
    /* The first `tokens` tokens, which were written before. Held. 0 or -EIO. */
    int (*read)(struct kv *kv, uint32_t tokens, uint16_t *to);
    /* One token. Held. 0 or -EIO. */
    int (*write)(struct kv *kv, uint32_t position, const uint16_t *token);
    /* Drops all that is stored and frees the object. Accepts NULL; returns NULL. */
    struct kv *(*free)(struct kv *kv);
};

struct kv {
    const struct kv_ops *ops;
};

static inline struct kv *kv_free(struct kv *kv)
{
    return kv ? kv->ops->free(kv) : NULL;
}

/* In memory of the process, for up to `tokens`. NULL: no memory. */
struct kv *kv_plain_new(uint32_t tokens);
