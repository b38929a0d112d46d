/*
 * A driver that has no such device any more (-ENODEV: CUDA's 100 and 101, NVML's "GPU is lost") has
 * said all there is to say. Errors that nobody can explain (-EIO, to which errors that poison a
 * process belong) may pass, and count when one follows another.
 */
#include "daemon/device.h"

#include <errno.h>
#include <stdio.h>

#include "base/log.h"
#include "daemon/message.h"
#include "daemon/pressure.h"
#include "daemon/segment.h"
#include "daemon/text.h"

/* One may be chance, as may two of jobs that ran side by side. */
#define BROKEN_IN_A_ROW 3

static void clients_tell(struct broker *broker, struct broker_device *device)
{
    Gmb__BrokerMessage message = GMB__BROKER_MESSAGE__INIT;
    Gmb__DeviceFailed body;

    gmb__device_failed__init(&body);
    body.device.data = device->uuid.bytes;
    body.device.len = UUID_BYTES;
    body.text = device->failure;
    message.body_case = GMB__BROKER_MESSAGE__BODY_DEVICE_FAILED;
    message.device_failed = &body;
    list_for_each(session, &broker->sessions, struct session, link)
    {
        if (session->state == SESSION_ACTIVE)
            message_send(session, &message);
    }
}

void device_healthy_set(struct broker *broker, uint32_t device, bool healthy)
{
    if (broker->devices[device].healthy == healthy)
        return;
    broker->devices[device].healthy = healthy;
    pressure_health_changed(broker->pressure, device);
}

static void device_fail(struct broker *broker, uint32_t index, const char *text)
{
    struct broker_device *device = &broker->devices[index];
    struct core_event event = {.type = CORE_EVENT_DEVICE_FAIL, .device_fail.device = index};
    char uuid[UUID_TEXT_MAX];

    text_copy(device->failure, sizeof(device->failure), text);
    if (device->failure[0] == '\0')
        (void) snprintf(device->failure, sizeof(device->failure), "no details");
    device_healthy_set(broker, index, false);
    log_error("device %u (%s) is out of service until the next start: %s", index,
        uuid_format(uuid, &device->uuid), device->failure);
    /* Before those who wait there are refused. */
    clients_tell(broker, device);
    broker_step(broker, &event);
    segments_device_failed(broker, index);
}

void device_heard(struct broker *broker, uint32_t index, int result, const char *text)
{
    struct broker_device *device = &broker->devices[index];

    if (device->failure[0] != '\0')
        return;
    device->broken = result == -EIO ? device->broken + 1 : 0;
    if (result == -ENODEV || device->broken >= BROKEN_IN_A_ROW)
        device_fail(broker, index, text);
    else if (result == 0)
        device_healthy_set(broker, index, true);
}
