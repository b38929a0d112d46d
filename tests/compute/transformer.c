/*
 * Pre-norm blocks (RMS norm, attention, residual; RMS norm, MLP, residual), sinusoidal positions
 * (Vaswani et al. 2017), an output matrix of its own. Weights are uniform with variance 1 / fan-in,
 * so that activations stay near 1 in any depth. Sums run in index order, in float: no library whose
 * order differs with the machine's load.
 */
#include "tests/compute/transformer.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/float16.h"
#include "kernels/pattern.h"

#define WIDTH TRANSFORMER_WIDTH
#define HEAD_WIDTH (WIDTH / TRANSFORMER_HEADS)
#define HIDDEN (2 * WIDTH)
/* Makes the choice of the next token depend on what was read, without making it certain. */
#define LOGIT_SCALE 2.0f

struct layer {
    float query[WIDTH][WIDTH], key[WIDTH][WIDTH], value[WIDTH][WIDTH], out[WIDTH][WIDTH];
    float up[HIDDEN][WIDTH], down[WIDTH][HIDDEN];
};

struct transformer {
    float embedding[TRANSFORMER_VOCABULARY][WIDTH];
    struct layer layers[TRANSFORMER_LAYERS];
    float unembedding[TRANSFORMER_VOCABULARY][WIDTH];
};

static void weights_fill(
    float *weights, size_t count, size_t fan_in, uint64_t seed, uint64_t *drawn)
{
    const float range = sqrtf(3.0f / (float) fan_in);

    for (size_t i = 0; i < count; i++) {
        float unit = (float) (pattern_word(seed, (*drawn)++) >> 40) * 0x1p-23f - 1.0f;

        weights[i] = unit * range;
    }
}

#define MATRIX_FILL(matrix, seed, drawn)                                                           \
    weights_fill(                                                                                  \
        &(matrix)[0][0], sizeof(matrix) / sizeof(float), ARRAY_SIZE((matrix)[0]), seed, drawn)

int transformer_new(uint64_t seed, struct transformer **ret)
{
    struct transformer *model = malloc(sizeof(*model));
    uint64_t drawn = 0;

    if (model == NULL)
        return -ENOMEM;
    /* An embedding is looked up, not summed over: its entries have variance 1. */
    weights_fill(
        &model->embedding[0][0], sizeof(model->embedding) / sizeof(float), 1, seed, &drawn);
    for (unsigned i = 0; i < TRANSFORMER_LAYERS; i++) {
        struct layer *layer = &model->layers[i];

        MATRIX_FILL(layer->query, seed, &drawn);
        MATRIX_FILL(layer->key, seed, &drawn);
        MATRIX_FILL(layer->value, seed, &drawn);
        MATRIX_FILL(layer->out, seed, &drawn);
        MATRIX_FILL(layer->up, seed, &drawn);
        MATRIX_FILL(layer->down, seed, &drawn);
    }
    MATRIX_FILL(model->unembedding, seed, &drawn);
    *ret = model;
    return 0;
}

struct transformer *transformer_free(struct transformer *model)
{
    free(model);
    return NULL;
}

static void multiply(const float *matrix, size_t rows, size_t columns, const float *from, float *to)
{
    for (size_t i = 0; i < rows; i++) {
        float sum = 0;

        for (size_t j = 0; j < columns; j++)
            sum += matrix[i * columns + j] * from[j];
        to[i] = sum;
    }
}

static void normalize(const float from[WIDTH], float to[WIDTH])
{
    float squares = 0;

    for (size_t i = 0; i < WIDTH; i++)
        squares += from[i] * from[i];
    for (size_t i = 0; i < WIDTH; i++)
        to[i] = from[i] / sqrtf(squares / WIDTH + 1e-6f);
}

static void add(const float what[WIDTH], float to[WIDTH])
{
    for (size_t i = 0; i < WIDTH; i++)
        to[i] += what[i];
}

static void embed(
    const struct transformer *model, uint32_t token, uint32_t position, float to[WIDTH])
{
    for (size_t i = 0; i < WIDTH; i += 2) {
        float angle = (float) position / powf(10000.0f, (float) i / WIDTH);

        to[i] = model->embedding[token][i] + sinf(angle);
        to[i + 1] = model->embedding[token][i + 1] + cosf(angle);
    }
}

/* Keys and values of one layer of one token. */
static uint16_t *kv_of(uint16_t *kv, uint32_t position, unsigned layer, bool value)
{
    return kv + (size_t) position * TRANSFORMER_KV_HALVES + (2 * layer + value) * WIDTH;
}

/* One head over all tokens up to this one: two passes, as the largest score is subtracted so that
 * no exponential overflows. */
static void attend(const float query[HEAD_WIDTH], uint32_t position, uint16_t *kv, unsigned layer,
    size_t head, float to[HEAD_WIDTH])
{
    float most = -INFINITY, total = 0;

    memset(to, 0, HEAD_WIDTH * sizeof(*to));
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t at = 0; at <= position; at++) {
            const uint16_t *key = kv_of(kv, at, layer, false) + head * HEAD_WIDTH;
            const uint16_t *value = kv_of(kv, at, layer, true) + head * HEAD_WIDTH;
            float score = 0, weight;

            for (size_t i = 0; i < HEAD_WIDTH; i++)
                score += query[i] * float_from_fp16(key[i]);
            score /= sqrtf(HEAD_WIDTH);
            if (pass == 0) {
                most = fmaxf(most, score);
                continue;
            }
            weight = expf(score - most);
            total += weight;
            for (size_t i = 0; i < HEAD_WIDTH; i++)
                to[i] += weight * float_from_fp16(value[i]);
        }
    }
    for (size_t i = 0; i < HEAD_WIDTH; i++)
        to[i] /= total;
}

static void layer_step(
    const struct layer *layer, unsigned number, uint32_t position, uint16_t *kv, float x[WIDTH])
{
    float normal[WIDTH], query[WIDTH], key[WIDTH], value[WIDTH], mixed[WIDTH], hidden[HIDDEN];

    normalize(x, normal);
    multiply(&layer->query[0][0], WIDTH, WIDTH, normal, query);
    multiply(&layer->key[0][0], WIDTH, WIDTH, normal, key);
    multiply(&layer->value[0][0], WIDTH, WIDTH, normal, value);
    for (size_t i = 0; i < WIDTH; i++) {
        kv_of(kv, position, number, false)[i] = fp16_from_float(key[i]);
        kv_of(kv, position, number, true)[i] = fp16_from_float(value[i]);
    }
    for (size_t head = 0; head < TRANSFORMER_HEADS; head++)
        attend(query + head * HEAD_WIDTH, position, kv, number, head, mixed + head * HEAD_WIDTH);
    multiply(&layer->out[0][0], WIDTH, WIDTH, mixed, normal);
    add(normal, x);
    normalize(x, normal);
    multiply(&layer->up[0][0], HIDDEN, WIDTH, normal, hidden);
    for (size_t i = 0; i < HIDDEN; i++)
        hidden[i] = fmaxf(hidden[i], 0);
    multiply(&layer->down[0][0], WIDTH, HIDDEN, hidden, normal);
    add(normal, x);
}

void transformer_step(const struct transformer *model, uint32_t token, uint32_t position,
    uint16_t *kv, float logits[TRANSFORMER_VOCABULARY])
{
    float x[WIDTH], normal[WIDTH];

    embed(model, token, position, x);
    for (unsigned i = 0; i < TRANSFORMER_LAYERS; i++)
        layer_step(&model->layers[i], i, position, kv, x);
    normalize(x, normal);
    multiply(&model->unembedding[0][0], TRANSFORMER_VOCABULARY, WIDTH, normal, logits);
    for (size_t i = 0; i < TRANSFORMER_VOCABULARY; i++)
        logits[i] *= LOGIT_SCALE;
}
