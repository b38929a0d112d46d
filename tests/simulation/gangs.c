/* Leases on several devices in one request: all of them or none. */
#include "tests/simulation/model.h"

void model_gang_request(struct model *model, struct model_client *client)
{
    struct core_gang_part parts[MODEL_DEVICES + 1];
    struct core_event event = {.type = CORE_EVENT_GANG_REQUEST};
    uint64_t wait_ns = model_wait(model);
    uint32_t start = (uint32_t) model_below(model, MODEL_DEVICES);
    struct model_request *request = model_ask(model, client, 0, MODEL_DEVICES, wait_ns, &event);

    if (!request)
        return;
    request->parts = 1 + (uint32_t) model_below(model, MODEL_DEVICES);
    for (uint32_t i = 0; i < MODEL_DEVICES; i++) {
        parts[i].device = request->devices[i] = (start + i) % MODEL_DEVICES;
        parts[i].bytes = model_bytes(model);
        parts[i].chunk_bytes = model_chunk_bytes(model);
    }
    if (model_chance(model, 50))
        parts[0].device = request->devices[0] =
            (uint32_t) model_below(model, MODEL_DEVICES + 2); /* twice, or none */
    event.gang_request.parts = parts;
    event.gang_request.count = model_chance(model, 50) ? 0 : request->parts;
    event.gang_request.wait_ns = wait_ns;
    model_step(model, &event);
}
