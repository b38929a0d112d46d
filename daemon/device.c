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

static void failure_tell(struct session *session, uint32_t index)
{
    struct broker_device *device = &session->broker->devices[index];
    Gmb__BrokerMessage message = GMB__BROKER_MESSAGE__INIT;
    Gmb__DeviceFailed body;

    session->failed |= UINT64_C(1) << index;
    gmb__device_failed__init(&body);
    body.device.data = device->uuid.bytes;
    body.device.len = UUID_BYTES;
    body.text = device->failure;
    message.body_case = GMB__BROKER_MESSAGE__BODY_DEVICE_FAILED;
    message.device_failed = &body;
    message_send(session, &message);
}

/* One that is coming back hears it then, behind Resumed. */
static void clients_tell(struct broker *broker, uint32_t index)
{
    list_for_each(session, &broker->sessions, struct session, link)
    {
        if (session->state == SESSION_ACTIVE)
            failure_tell(session, index);
    }
}

void device_failures_tell(struct session *session)
{
    const struct broker *broker = session->broker;

    for (uint32_t i = 0; i < broker->device_count; i++) {
        if (broker->devices[i].failure[0] != '\0' && (session->failed >> i & 1) == 0)
            failure_tell(session, i);
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
    clients_tell(broker, index);
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
