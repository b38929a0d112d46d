/*
 * A slab process that dies takes the right to its memory along: what others have mapped the driver
 * may keep or not, but nobody can open it any more. So nothing of it is granted again, those who
 * have leases there are told, and the device goes on with another process.
 */
#include "daemon/slab_device.h"

#include "base/log.h"
#include "daemon/message.h"
#include "daemon/text.h"

static void clients_tell(struct broker *broker, struct broker_device *device, const char *why)
{
    Gmb__BrokerMessage message = GMB__BROKER_MESSAGE__INIT;
    char text[LIMIT_TEXT_BYTES];
    Gmb__MemoryLost body;

    text_copy(text, sizeof(text), why);
    gmb__memory_lost__init(&body);
    body.device.data = device->uuid.bytes;
    body.device.len = UUID_BYTES;
    body.text = text;
    message.body_case = GMB__BROKER_MESSAGE__BODY_MEMORY_LOST;
    message.memory_lost = &body;
    list_for_each(session, &broker->sessions, struct session, link)
    {
        if (session->state == SESSION_ACTIVE)
            message_send(session, &message);
    }
}

static void on_lost(void *data, const char *why)
{
    struct broker_device *device = data;
    struct broker *broker = device->broker;
    struct core_event event = {.type = CORE_EVENT_DEVICE_STALE};
    uint32_t index = (uint32_t) (device - broker->devices);
    struct core_device_view view = {0};
    char uuid[UUID_TEXT_MAX];

    (void) core_device_get(broker->core, index, &view);
    log_error("device %u (%s): %llu MiB of leases are lost: %s", index,
        uuid_format(uuid, &device->uuid), (unsigned long long) (view.leased >> 20), why);
    /* Before a grant of new memory can come. */
    clients_tell(broker, device, why);
    event.device_stale.device = index;
    broker_step(broker, &event);
    broker_settle(broker);
}

static int slabs_start(struct broker *broker, uint32_t index)
{
    struct broker_device *device = &broker->devices[index];
    struct slabs_options options = slabs_options_default;
    const struct slabs_handler handler = {.data = device, .lost = on_lost};
    int r;

    options.driver = gpu_driver_name(broker->gpu->driver);
    r = slabs_new(broker->base, broker->gpu->devices[index],
        broker->config->devices[index].uuid.bytes, &options, &handler, &device->slabs);
    if (r < 0)
        return r;
    executor_use_slabs(broker->executor, index, device->slabs);
    log_notice("device %s shares its memory over CUDA IPC%s: whole slabs, and no arenas",
        broker->gpu->devices[index]->uuid,
        broker->config->devices[index].ipc ? " (Backend=ipc)" : "");
    return 0;
}

int slab_devices_start(struct broker *broker)
{
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < broker->device_count; i++) {
        const struct gpu_device *gpu = broker->gpu->devices[i];
        struct broker_device *device = &broker->devices[i];

        device->broker = broker;
        device->sharing = broker->config->devices[i].ipc ? GPU_HANDLE_IPC : gpu_device_sharing(gpu);
        device->granularity_bytes = gpu_device_granularity(gpu, device->sharing);
        if (slab_device(broker, i))
            r = slabs_start(broker, i);
    }
    return r;
}

void slab_devices_stop(struct broker *broker)
{
    for (size_t i = 0; i < broker->device_count; i++)
        slabs_stop(broker->devices[i].slabs);
}

void slab_devices_free(struct broker *broker)
{
    for (size_t i = 0; i < broker->device_count; i++)
        broker->devices[i].slabs = slabs_free(broker->devices[i].slabs);
}

uint64_t slab_device_losses(const struct broker *broker, uint32_t device)
{
    struct slabs_stats stats = {0};

    if (broker->devices[device].slabs != NULL)
        slabs_stats_get(broker->devices[device].slabs, &stats);
    return stats.losses;
}
