/*
 * One sequence that is generated: prompt and choices come from seeds, so that the tokens are a
 * function of the model and the sequence's number alone, whatever happens to the KV's bytes on the
 * way.
 */
#pragma once

#include "tests/compute/kv.h"

struct sequence {
    uint32_t number;
    uint32_t length;   /* tokens in the end, the prompt included */
    uint32_t known;    /* tokens that stand: the prompt, and what was generated */
    uint32_t computed; /* tokens whose KV is stored; known − computed ≥ 1 are to be read */
    uint32_t *tokens;
    uint64_t digest; /* of the logits of every step, bit for bit */
    struct kv *kv;   /* owned */

    /* With a second KV, every step is computed on both: what is generated follows the second, which
     * nobody moves, and the first is compared with it. */
    struct kv *reference;  /* owned; NULL: none */
    uint32_t steps, equal; /* steps compared, and those that chose the same token */
    float worst;           /* largest difference of a logit */
    uint16_t *scratch;     /* the KV of all tokens, as read */
};

/* Takes both KVs over, on failure too. -ENOMEM. `length` > the prompt's 32 tokens. */
int sequence_init_consume(struct sequence *sequence, uint32_t number, uint32_t length,
    struct kv *kv, struct kv *reference) _must_check_;
void sequence_done(struct sequence *sequence);

static inline bool sequence_finished(const struct sequence *sequence)
{
    return sequence->known == sequence->length;
}

/* Tokens of the sequence after `steps` more: how far it must be held. */
uint32_t sequence_reach(const struct sequence *sequence, uint32_t steps);
/* Reads one token, and generates one where that was the last known. Held. 0 or -EIO. */
int sequence_step(const struct transformer *model, struct sequence *sequence) _must_check_;
/* The KV is lost: all of it will be computed again, from the tokens. */
void sequence_rewind(struct sequence *sequence);
