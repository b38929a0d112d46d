/*
 * How a request turns into bytes over time: pure arithmetic, the same for the plan, which knows no
 * broker, and for the workers, which have one.
 *
 *   bytes(n) = ceil(n × kv_bytes_per_token / scale), in whole chunks
 *
 *   arrival          chunks for the prompt
 *   + prompt/prefill the first token is being generated: chunks for prompt + 1 tokens
 *   + k/decode       token k + 1: chunks for prompt + k + 1
 *   + answer/decode  the end: everything is given back
 *
 * Times are the trace's; who compresses time divides them.
 */
#pragma once

#include "base/macro.h"
#include "client/replay/trace.h"

struct model {
    uint64_t kv_bytes_per_token; /* > 0, before scaling */
    uint64_t scale;              /* > 0: bytes are divided by it */
    uint64_t chunk_bytes;        /* > 0, after scaling */
    double prefill_rate;         /* tokens/s of one request, > 0 */
    double decode_rate;
};

/* Chunks that hold the KV of `tokens` tokens: at least one, so that a request always has a lease.
 * UINT64_MAX when it doesn't fit. */
uint64_t model_chunks(const struct model *model, uint64_t tokens);

/* The smallest number of tokens that needs more than `chunks` chunks (> 0). */
uint64_t model_tokens_past(const struct model *model, uint64_t chunks);

/* The same with `density` tokens in the place of one: 2 for KV of half the bytes. */
struct model model_denser(const struct model *model, unsigned density);

/* Bytes before scaling of so many tokens' KV; and how many tokens more fit into `chunks` chunks of
 * which `stored` such bytes are taken. Saturating. */
uint64_t model_token_bytes(const struct model *model, uint64_t tokens);
uint64_t model_tokens_within(const struct model *model, uint64_t chunks, uint64_t stored);

/* Duration of computing the KV of a prompt of `tokens`, and of generating `tokens`. */
uint64_t model_prefill_ns(const struct model *model, uint64_t tokens);
uint64_t model_decode_ns(const struct model *model, uint64_t tokens);

/* Chunks that the request holds in the end. */
static inline uint64_t model_request_chunks(
    const struct model *model, const struct trace_request *request)
{
    return model_chunks(model, request->context_tokens + request->generated_tokens);
}
