/* 128-bit products, so that no trace within its bounds can wrap. */
#include "client/replay/model.h"

#include "base/clock.h"

uint64_t model_chunks(const struct model *model, uint64_t tokens)
{
    unsigned __int128 bytes = (unsigned __int128) tokens * model->kv_bytes_per_token;
    unsigned __int128 chunks;

    bytes = (bytes + model->scale - 1) / model->scale;
    chunks = (bytes + model->chunk_bytes - 1) / model->chunk_bytes;
    if (chunks == 0)
        return 1;
    return chunks > UINT64_MAX ? UINT64_MAX : (uint64_t) chunks;
}

uint64_t model_tokens_past(const struct model *model, uint64_t chunks)
{
    /* ceil(n × kv / scale) > chunks × chunk  ⇔  n > chunks × chunk × scale / kv */
    unsigned __int128 bytes = (unsigned __int128) chunks * model->chunk_bytes;
    unsigned __int128 tokens;

    if (bytes > UINT64_MAX)
        return UINT64_MAX;
    tokens = bytes * model->scale / model->kv_bytes_per_token + 1;
    return tokens > UINT64_MAX ? UINT64_MAX : (uint64_t) tokens;
}

struct model model_denser(const struct model *model, unsigned density)
{
    struct model denser = *model;

    denser.kv_bytes_per_token = (model->kv_bytes_per_token + density - 1) / density;
    return denser;
}

uint64_t model_token_bytes(const struct model *model, uint64_t tokens)
{
    unsigned __int128 bytes = (unsigned __int128) tokens * model->kv_bytes_per_token;

    return bytes > UINT64_MAX ? UINT64_MAX : (uint64_t) bytes;
}

uint64_t model_tokens_within(const struct model *model, uint64_t chunks, uint64_t stored)
{
    unsigned __int128 bytes = (unsigned __int128) chunks * model->chunk_bytes;

    bytes = bytes > UINT64_MAX ? UINT64_MAX : bytes * model->scale;
    if (bytes <= stored)
        return 0;
    bytes = (bytes - stored) / model->kv_bytes_per_token;
    return bytes > UINT64_MAX ? UINT64_MAX : (uint64_t) bytes;
}

static uint64_t duration_ns(uint64_t tokens, double rate)
{
    double ns = (double) tokens / rate * (double) NSEC_PER_SEC;

    /* 2^63 ns are 292 years: far past any deadline, and far from wrapping. */
    return ns < 0x1p63 ? (uint64_t) ns : UINT64_C(1) << 63;
}

uint64_t model_prefill_ns(const struct model *model, uint64_t tokens)
{
    return duration_ns(tokens, model->prefill_rate);
}

uint64_t model_decode_ns(const struct model *model, uint64_t tokens)
{
    return duration_ns(tokens, model->decode_rate);
}
