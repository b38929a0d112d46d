/* That the tokens of the computing worker depend on every byte of its KV, and on nothing else. */
#include <string.h>

#include "tests/compute/sequence.h"
#include "tests/unit/unit.h"

#define LENGTH 96
#define PROMPT 32

static struct transformer *model;

/* Plain memory that inverts one byte of what is read at one time. */
struct kv_flipping {
    struct kv kv;
    struct kv *below;
    uint32_t at; /* the read that has `at` tokens … */
    size_t half; /* … has the low byte of this one inverted */
};

static int flipping_hold(struct kv *kv, uint32_t tokens)
{
    return KV_READY;
}

static int flipping_release(struct kv *kv)
{
    return 0;
}

static int flipping_read(struct kv *kv, uint32_t tokens, uint16_t *to)
{
    struct kv_flipping *self = container_of(kv, struct kv_flipping, kv);

    ck_assert_int_eq(self->below->ops->read(self->below, tokens, to), 0);
    if (tokens == self->at)
        to[self->half] ^= 0xff;
    return 0;
}

static int flipping_write(struct kv *kv, uint32_t position, const uint16_t *token)
{
    struct kv_flipping *self = container_of(kv, struct kv_flipping, kv);

    return self->below->ops->write(self->below, position, token);
}

static struct kv *flipping_free(struct kv *kv)
{
    struct kv_flipping *self = container_of(kv, struct kv_flipping, kv);

    self->below = kv_free(self->below);
    free(self);
    return NULL;
}

static const struct kv_ops flipping_ops = {
    .hold = flipping_hold,
    .release = flipping_release,
    .read = flipping_read,
    .write = flipping_write,
    .free = flipping_free,
};

static struct kv *flipping_new(uint32_t at, size_t half)
{
    struct kv_flipping *flipping = calloc(1, sizeof(*flipping));

    ck_assert_ptr_nonnull(flipping);
    *flipping = (struct kv_flipping){
        .kv.ops = &flipping_ops, .below = kv_plain_new(LENGTH), .at = at, .half = half};
    ck_assert_ptr_nonnull(flipping->below);
    return &flipping->kv;
}

/* To its end, forgetting everything at `rewind_at` known tokens (0: never). */
static struct sequence run(struct kv *kv, uint32_t rewind_at)
{
    struct sequence sequence;

    ck_assert_int_eq(sequence_init_consume(&sequence, 7, LENGTH, kv, NULL), 0);
    while (!sequence_finished(&sequence)) {
        if (rewind_at != 0 && sequence.known == rewind_at) {
            sequence_rewind(&sequence);
            rewind_at = 0;
        }
        ck_assert_int_eq(sequence_step(model, &sequence), 0);
    }
    return sequence;
}

START_TEST(test_what_is_computed_again_is_the_same)
{
    struct sequence once = run(kv_plain_new(LENGTH), 0), again = run(kv_plain_new(LENGTH), 60);

    ck_assert_uint_eq(once.known, LENGTH);
    ck_assert_uint_eq(again.digest, once.digest);
    ck_assert_mem_eq(again.tokens, once.tokens, LENGTH * sizeof(*once.tokens));
    sequence_done(&once);
    sequence_done(&again);
}
END_TEST

START_TEST(test_one_byte_of_any_key_or_value_shows)
{
    struct sequence right = run(kv_plain_new(LENGTH), 0);

    for (size_t token = 0; token < 64; token += 21) {
        for (size_t part = 0; part < 2 * TRANSFORMER_LAYERS; part++) {
            size_t half = token * TRANSFORMER_KV_HALVES + part * TRANSFORMER_WIDTH + token;
            struct sequence wrong = run(flipping_new(64, half), 0);

            ck_assert_msg(
                wrong.digest != right.digest, "token %zu, part %zu: not noticed", token, part);
            sequence_done(&wrong);
        }
    }
    sequence_done(&right);
}
END_TEST

START_TEST(test_a_step_compared_with_itself_is_equal)
{
    struct sequence sequence;

    ck_assert_int_eq(
        sequence_init_consume(&sequence, 0, LENGTH, kv_plain_new(LENGTH), kv_plain_new(LENGTH)), 0);
    while (!sequence_finished(&sequence))
        ck_assert_int_eq(sequence_step(model, &sequence), 0);
    ck_assert_uint_eq(sequence.steps, LENGTH - PROMPT);
    ck_assert_uint_eq(sequence.equal, LENGTH - PROMPT);
    ck_assert(sequence.worst == 0);
    sequence_done(&sequence);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_what_is_computed_again_is_the_same,
        test_one_byte_of_any_key_or_value_shows, test_a_step_compared_with_itself_is_equal};
    int status;

    if (transformer_new(3, &model) < 0)
        return EXIT_FAILURE;
    status = unit_run("compute_transformer", tests, ARRAY_SIZE(tests));
    model = transformer_free(model);
    return status;
}
