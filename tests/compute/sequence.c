/*
 * A choice among the logits by the Gumbel-max trick (Maddison et al. 2014), whose noise is a
 * function of seed, sequence and position: sampling that gives the same tokens each time.
 *
 * Recomputing after a loss reads the known tokens again. Their logits are the same, and enter the
 * digest once.
 */
#include "tests/compute/sequence.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/pattern.h"

#define PROMPT_TOKENS 32
#define FNV_OFFSET UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME UINT64_C(0x100000001b3)

int sequence_init_consume(struct sequence *sequence, uint32_t number, uint32_t length,
    struct kv *kv, struct kv *reference)
{
    *sequence = (struct sequence){
        .number = number,
        .length = length,
        .known = PROMPT_TOKENS,
        .digest = FNV_OFFSET,
        .kv = kv,
        .reference = reference,
        .tokens = calloc(length, sizeof(*sequence->tokens)),
        .scratch = calloc(length, TRANSFORMER_KV_BYTES),
    };
    if (sequence->tokens == NULL || sequence->scratch == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < PROMPT_TOKENS; i++)
        sequence->tokens[i] = (uint32_t) (pattern_word(UINT64_C(0x70726f6d7074) + number, i) %
                                          TRANSFORMER_VOCABULARY);
    return 0;
}

void sequence_done(struct sequence *sequence)
{
    sequence->kv = kv_free(sequence->kv);
    sequence->reference = kv_free(sequence->reference);
    free(sequence->tokens);
    free(sequence->scratch);
    sequence->tokens = NULL;
    sequence->scratch = NULL;
}

uint32_t sequence_reach(const struct sequence *sequence, uint32_t steps)
{
    return MIN(sequence->computed + steps, sequence->length);
}

static void digest_add(uint64_t *digest, const float logits[TRANSFORMER_VOCABULARY])
{
    for (size_t i = 0; i < TRANSFORMER_VOCABULARY; i++) {
        uint32_t bits;

        memcpy(&bits, &logits[i], sizeof(bits));
        *digest = (*digest ^ bits) * FNV_PRIME;
    }
}

static uint32_t choose(
    const struct sequence *sequence, uint32_t position, const float logits[TRANSFORMER_VOCABULARY])
{
    const uint64_t seed = (uint64_t) sequence->number << 32 | position;
    uint32_t best = 0;
    double most = -INFINITY;

    for (uint32_t i = 0; i < TRANSFORMER_VOCABULARY; i++) {
        double unit = ((double) (pattern_word(seed, i) >> 11) + 0.5) * 0x1p-53;
        double worth = logits[i] - log(-log(unit));

        if (worth > most) {
            most = worth;
            best = i;
        }
    }
    return best;
}

static int step_on(const struct transformer *model, struct sequence *sequence, struct kv *kv,
    float logits[TRANSFORMER_VOCABULARY])
{
    const uint32_t position = sequence->computed;
    uint16_t *scratch = sequence->scratch;

    if (kv->ops->read(kv, position, scratch) < 0)
        return -EIO;
    transformer_step(model, sequence->tokens[position], position, scratch, logits);
    return kv->ops->write(kv, position, scratch + (size_t) position * TRANSFORMER_KV_HALVES);
}

static uint32_t compare(struct sequence *sequence, uint32_t position,
    const float logits[TRANSFORMER_VOCABULARY], const float reference[TRANSFORMER_VOCABULARY])
{
    uint32_t chosen = choose(sequence, position, reference);

    for (size_t i = 0; i < TRANSFORMER_VOCABULARY; i++)
        sequence->worst = fmaxf(sequence->worst, fabsf(logits[i] - reference[i]));
    sequence->equal += choose(sequence, position, logits) == chosen;
    sequence->steps++;
    return chosen;
}

int sequence_step(const struct transformer *model, struct sequence *sequence)
{
    float logits[TRANSFORMER_VOCABULARY], reference[TRANSFORMER_VOCABULARY];
    bool newest = sequence->computed + 1 == sequence->known;
    uint32_t chosen;

    if (step_on(model, sequence, sequence->kv, logits) < 0)
        return -EIO;
    if (sequence->reference != NULL && step_on(model, sequence, sequence->reference, reference) < 0)
        return -EIO;
    sequence->computed++;
    if (!newest || sequence_finished(sequence))
        return 0;
    chosen = sequence->reference ? compare(sequence, sequence->computed, logits, reference)
                                 : choose(sequence, sequence->computed, logits);
    digest_add(&sequence->digest, logits);
    sequence->tokens[sequence->known++] = chosen;
    return 0;
}

void sequence_rewind(struct sequence *sequence)
{
    sequence->computed = 0;
}
