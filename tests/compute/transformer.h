/*
 * A small decoder-only transformer: weights from a seed, one token at a time, KV in 16-bit floats.
 *
 * The same model, token, position and KV give the same logits, bit for bit: a KV page that
 * is not what was written shows in everything that is generated after it.
 */
#pragma once

#include "base/macro.h"

#define TRANSFORMER_LAYERS 2
#define TRANSFORMER_HEADS 4
#define TRANSFORMER_WIDTH 64
#define TRANSFORMER_VOCABULARY 256
/* 16-bit floats of one token: keys and values of each layer. */
#define TRANSFORMER_KV_HALVES (TRANSFORMER_LAYERS * 2 * TRANSFORMER_WIDTH)
#define TRANSFORMER_KV_BYTES (TRANSFORMER_KV_HALVES * sizeof(uint16_t))

struct transformer;

/* -ENOMEM. */
int transformer_new(uint64_t seed, struct transformer **ret) _must_check_;
/* Accepts NULL; returns NULL. */
struct transformer *transformer_free(struct transformer *model);

static inline void transformer_free_ptr(struct transformer **model)
{
    *model = transformer_free(*model);
}

/*
 * Reads `token` at `position`. `kv` has room for position + 1 tokens: those before it are read,
 * that of this token is written there. `logits` are of the token that follows.
 */
void transformer_step(const struct transformer *model, uint32_t token, uint32_t position,
    uint16_t *kv, float logits[TRANSFORMER_VOCABULARY]);
