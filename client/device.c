/*
 * Devices are joined by UUID: ordinals depend on CUDA_VISIBLE_DEVICES in each process. One that
 * this process can't see stays in the table, so that the error can say so.
 *
 * The primary context of a device is retained with the first lease there and kept until the session
 * ends: it is the one that the CUDA runtime uses too, so that a program with a GPU pays nothing,
 * and a program that takes no lease pays nothing either. It is never made current.
 */
#include "client/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/fork.h"

static int device_load(struct gmb_session *session, const Gmb__Device *told, struct device *ret,
    struct outcome *outcome)
{
    char text[UUID_TEXT_MAX];

    if (uuid_from_bytes(told->uuid.data, told->uuid.len, &ret->uuid) < 0 ||
        told->granularity_bytes == 0)
        return outcome_set(outcome, GMB_E_PROTOCOL, "the broker told of a device without %s",
            told->granularity_bytes == 0 ? "granularity" : "UUID");
    /* A process without NVML can't tell a MIG instance from a GPU: the broker can. */
    uuid_format_device(text, &ret->uuid, told->mig);
    ret->gpu = gpu_device_find(session->gpu, text);
    ret->info.size = sizeof(ret->info);
    (void) snprintf(ret->info.uuid, sizeof(ret->info.uuid), "%s", text);
    (void) snprintf(ret->info.name, sizeof(ret->info.name), "%s", told->name);
    ret->info.capacity_bytes = told->capacity_bytes;
    ret->info.granularity_bytes = told->granularity_bytes;
    ret->info.memory_max_bytes = told->memory_max_bytes;
    atomic_store(&ret->failed, told->failed);
    ret->slabs = told->sharing == GMB__HANDLE_TYPE__HANDLE_TYPE_IPC;
    ret->info.whole_leases = ret->slabs;
    if (!ret->slabs && told->sharing != GMB__HANDLE_TYPE__HANDLE_TYPE_POSIX_FD)
        return outcome_set(outcome, GMB_E_UNSUPPORTED,
            "device %s shares its memory in a way that this library doesn't know", text);
    return 0;
}

int devices_load(struct gmb_session *session, const Gmb__Welcome *welcome, struct outcome *outcome)
{
    session->devices = calloc(MAX(welcome->n_devices, (size_t) 1), sizeof(*session->devices));
    if (session->devices == NULL)
        return outcome_set(outcome, GMB_E_INTERNAL, "no host memory for the list of devices");
    for (size_t i = 0; i < welcome->n_devices; i++) {
        int r = device_load(session, welcome->devices[i], &session->devices[i], outcome);

        if (r < 0)
            return r;
    }
    session->device_count = (unsigned) welcome->n_devices;
    return 0;
}

static struct device *device_named(struct gmb_session *session, const char *text)
{
    struct uuid uuid;

    if (text == NULL)
        return session->device_count > 0 ? &session->devices[0] : NULL;
    if (uuid_parse(text, &uuid) < 0)
        return NULL;
    for (unsigned i = 0; i < session->device_count; i++) {
        if (uuid_equal(&session->devices[i].uuid, &uuid))
            return &session->devices[i];
    }
    return NULL;
}

bool devices_same(struct gmb_session *session, const Gmb__Welcome *welcome)
{
    if (welcome->n_devices != session->device_count)
        return false;
    for (unsigned i = 0; i < session->device_count; i++) {
        const Gmb__Device *told = welcome->devices[i];

        if (told->uuid.len != UUID_BYTES ||
            memcmp(told->uuid.data, session->devices[i].uuid.bytes, UUID_BYTES) != 0)
            return false;
    }
    for (unsigned i = 0; i < session->device_count; i++)
        atomic_store(&session->devices[i].failed, welcome->devices[i]->failed != 0);
    return true;
}

int device_find(
    struct gmb_session *session, const char *uuid, struct device **ret, struct outcome *outcome)
{
    struct device *device = device_named(session, uuid);

    if (device == NULL)
        return outcome_set(outcome, GMB_E_NOT_FOUND, "the broker has no device %s",
            uuid != NULL ? uuid : "at all");
    if (device->gpu == NULL)
        return outcome_set(outcome, GMB_E_NOT_FOUND,
            "this process doesn't see device %s (CUDA_VISIBLE_DEVICES? the container's devices?)",
            device->info.uuid);
    *ret = device;
    return 0;
}

int device_retain(struct gmb_session *session, struct device *device, struct outcome *outcome)
{
    struct gpu_error error = {0};
    int r = 0;

    (void) pthread_mutex_lock(&session->context_lock);
    if (device->context == NULL)
        r = session->gpu->ops->context_retain(session->gpu, device->gpu, &device->context, &error);
    (void) pthread_mutex_unlock(&session->context_lock);
    return r == 0 ? 0 : outcome_set(outcome, GMB_E_GPU, "%s", error.text);
}

void devices_release(struct gmb_session *session)
{
    for (unsigned i = 0; i < session->device_count; i++) {
        struct device *device = &session->devices[i];

        if (device->context != NULL)
            (void) session->gpu->ops->context_release(session->gpu, device->gpu, NULL);
        device->context = NULL;
    }
}

void device_failed_take(struct gmb_session *session, const Gmb__DeviceFailed *told)
{
    struct uuid uuid;

    if (uuid_from_bytes(told->device.data, told->device.len, &uuid) < 0)
        return;
    for (unsigned i = 0; i < session->device_count; i++) {
        if (uuid_equal(&session->devices[i].uuid, &uuid))
            atomic_store(&session->devices[i].failed, true);
    }
}

static void device_info_copy(struct device *device, struct gmb_device_info *ret)
{
    *ret = device->info;
    ret->failed = atomic_load(&device->failed);
}

_public_ unsigned gmb_device_count(const gmb_session *session)
{
    return session->device_count;
}

_public_ int gmb_device_get(
    const gmb_session *session, unsigned index, struct gmb_device_info *info)
{
    struct outcome outcome = OUTCOME_OK;

    if (fork_guard_check(session, &outcome) < 0)
        return outcome_publish(&outcome);
    if (info == NULL || info->size < sizeof(*info))
        (void) outcome_set(&outcome, GMB_E_INVALID, "info.size must be sizeof the structure");
    else if (index >= session->device_count)
        (void) outcome_set(&outcome, GMB_E_INVALID, "there is no device %u, the broker has %u",
            index, session->device_count);
    else
        device_info_copy(&session->devices[index], info);
    return outcome_publish(&outcome);
}
