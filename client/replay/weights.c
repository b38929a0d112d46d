/* See weights.h. */
#include "client/replay/weights.h"

#include <errno.h>
#include <stdio.h>

#define WEIGHTS_NAME "gmb-replay"
/* No worker has this number, so that no request's pattern is this one. */
#define WEIGHTS_WORKER UINT32_MAX

static struct gmb_segment_params params_of(uint64_t bytes)
{
    return (struct gmb_segment_params){
        .size = sizeof(struct gmb_segment_params),
        .name = WEIGHTS_NAME,
        .bytes = bytes,
        .wait_ns = GMB_WAIT_FOREVER,
    };
}

static int gmb_failed(const char *what, char text[WEIGHTS_TEXT_BYTES])
{
    (void) snprintf(text, WEIGHTS_TEXT_BYTES, "cannot %s the weights: %s", what, gmb_error_text());
    return -EIO;
}

static int device_failed(
    const char *what, const struct gpu_error *error, char text[WEIGHTS_TEXT_BYTES])
{
    (void) snprintf(text, WEIGHTS_TEXT_BYTES, "cannot %s the weights: %s", what, error->text);
    return -EIO;
}

static struct device_span span_of(const struct weights *weights)
{
    return (struct device_span){
        .address = gmb_lease_address(weights->lease),
        .chunk_bytes = gmb_lease_chunk_bytes(weights->lease),
        .count = gmb_lease_bytes(weights->lease) / gmb_lease_chunk_bytes(weights->lease),
        .owner = &weights->owner,
    };
}

static int compare(
    const struct weights *weights, uint64_t *ret_differing, char text[WEIGHTS_TEXT_BYTES])
{
    struct device_span span = span_of(weights);
    struct gpu_error error;
    uint64_t foreign;

    if (device_check(weights->device, &span, &error) < 0 ||
        device_settle(weights->device, &foreign, ret_differing, &error) < 0)
        return device_failed("compare", &error, text);
    return 0;
}

static int write_and_seal(const struct weights *weights, char text[WEIGHTS_TEXT_BYTES])
{
    struct device_span span = span_of(weights);
    uint64_t foreign, differing;
    struct gpu_error error;

    if (device_receive(weights->device, &span, &error) < 0 ||
        device_settle(weights->device, &foreign, &differing, &error) < 0)
        return device_failed("write", &error, text);
    if (foreign > 0) {
        (void) snprintf(text, WEIGHTS_TEXT_BYTES, "memory for weights held bytes of others");
        return -EBADMSG;
    }
    return gmb_segment_seal(weights->lease, GMB_WAIT_FOREVER) == 0 ? 0 : gmb_failed("seal", text);
}

int weights_take(gmb_session *session, struct device *device, const char *tenant, uint64_t bytes,
    struct weights *ret, char text[WEIGHTS_TEXT_BYTES])
{
    const struct gmb_segment_params params = params_of(bytes);
    uint64_t differing = 0;
    int r = 0;

    *ret =
        (struct weights){.device = device, .owner = {.tenant = tenant, .worker = WEIGHTS_WORKER}};
    if (bytes == 0)
        return 0;
    if (gmb_segment_create(session, &params, &ret->lease) != 0)
        return gmb_failed("take", text);
    if (gmb_segment_writable(ret->lease))
        r = write_and_seal(ret, text);
    if (r == 0)
        r = compare(ret, &differing, text);
    if (r == 0 && differing > 0) {
        (void) snprintf(text, WEIGHTS_TEXT_BYTES, "the weights are not what was written");
        r = -EBADMSG;
    }
    return r;
}

int weights_give(gmb_session *session, struct weights *weights, uint64_t *ret_differing,
    char text[WEIGHTS_TEXT_BYTES])
{
    const struct gmb_segment_params params = params_of(0);
    int r;

    *ret_differing = 0;
    if (weights->lease == NULL)
        return 0;
    r = compare(weights, ret_differing, text);
    if (gmb_lease_release(weights->lease) != 0 && r == 0)
        r = gmb_failed("give back", text);
    weights->lease = NULL;
    /* Whoever comes later finds that another worker did it. */
    if (gmb_segment_remove(session, &params) == GMB_E_DISCONNECTED && r == 0)
        r = gmb_failed("remove", text);
    return r;
}
