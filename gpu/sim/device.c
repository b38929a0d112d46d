/*
 * Devices: ordinals under CUDA_VISIBLE_DEVICES, names, attributes.
 *
 * The list holds indices and UUIDs (or beginnings of them); it ends at the first entry that names
 * no device, as the real driver has it, or that names one twice. A MIG instance has no index: it is
 * named by its UUID, behind `MIG-`.
 */
#include "gpu/sim/internal.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static unsigned visible[SIM_DEVICES_MAX];
static unsigned visible_count;

unsigned sim_device_count(void)
{
    return visible_count;
}

int sim_device_index(CUdevice device)
{
    return device >= 0 && (unsigned) device < visible_count ? (int) visible[device] : -1;
}

CUdevice sim_device_ordinal(unsigned index)
{
    for (unsigned i = 0; i < visible_count; i++) {
        if (visible[i] == index)
            return (CUdevice) i;
    }
    return -1;
}

/* The device that an entry names, or -1. */
static int entry_device(const char *entry, const struct sim_hardware *hardware)
{
    unsigned devices = hardware->devices;
    size_t length = strlen(entry);
    unsigned long index;
    int found = -1;
    char *end;

    if (isdigit((unsigned char) *entry)) {
        index = strtoul(entry, &end, 10);
        return *end == '\0' && index < devices && !sim_device_mig(hardware, (unsigned) index)
                   ? (int) index
                   : -1;
    }
    if ((strncasecmp(entry, "GPU-", 4) != 0 && strncasecmp(entry, "MIG-", 4) != 0) || length <= 4)
        return -1;
    for (unsigned i = 0; i < devices; i++) {
        char text[UUID_TEXT_MAX];

        if (strncasecmp(entry, ledger_uuid_text(hardware, i, text), length) != 0)
            continue;
        if (found >= 0)
            return -1; /* a beginning that fits two */
        found = (int) i;
    }
    return found;
}

void sim_devices_init(const struct sim_hardware *hardware)
{
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    char list[4096], *at = list, *entry;

    visible_count = 0;
    if (text == NULL) {
        for (unsigned i = 0; i < hardware->devices; i++)
            visible[visible_count++] = i;
        return;
    }
    (void) snprintf(list, sizeof(list), "%s", text);
    while ((entry = strsep(&at, ",")) != NULL && visible_count < hardware->devices) {
        int device;

        entry += strspn(entry, " ");
        entry[strcspn(entry, " ")] = '\0';
        device = entry_device(entry, hardware);
        if (device < 0 || sim_device_ordinal((unsigned) device) >= 0)
            return;
        visible[visible_count++] = (unsigned) device;
    }
}

CUresult cuDeviceGetCount(int *count)
{
    CUresult result = sim_enter(__func__);

    if (result != CUDA_SUCCESS)
        return result;
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *count = (int) visible_count;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    CUresult result = sim_enter(__func__);

    if (result != CUDA_SUCCESS)
        return result;
    if (device == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_device_index(ordinal) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    CUresult result = sim_enter(__func__);

    if (result != CUDA_SUCCESS)
        return result;
    if (name == NULL || length <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_device_index(device) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    (void) snprintf(name, (size_t) length, "Simulated GPU%s",
        sim_device_mig(&sim_config()->hardware, (unsigned) sim_device_index(device))
            ? " MIG instance"
            : "");
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    CUresult result = sim_enter(__func__);
    int index = sim_device_index(device);
    struct uuid named;

    if (result != CUDA_SUCCESS)
        return result;
    if (uuid == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (index < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    named = ledger_uuid((unsigned) index);
    memcpy(uuid->bytes, named.bytes, sizeof(named.bytes));
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    CUresult result = sim_enter(__func__);
    int index = sim_device_index(device);

    if (result != CUDA_SUCCESS)
        return result;
    if (bytes == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (index < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    *bytes = sim_config()->hardware.capacity[index];
    return CUDA_SUCCESS;
}

struct attribute {
    CUdevice_attribute attribute;
    int value;
};

/* Those that are the same for each device. */
static const struct attribute attributes[] = {
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 8},
    {CU_DEVICE_ATTRIBUTE_INTEGRATED, 0},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, CU_COMPUTEMODE_DEFAULT},
    {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 0},
    {CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 0},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 0},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 8},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, 0},
    {CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_MPS_ENABLED, 0},
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, -1},
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0},
};

static bool attribute_find(int index, CUdevice_attribute attribute, int *ret)
{
    const struct sim_hardware *hardware = &sim_config()->hardware;

    for (size_t i = 0; i < ARRAY_SIZE(attributes); i++) {
        if (attributes[i].attribute == attribute) {
            *ret = attributes[i].value;
            return true;
        }
    }
    if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)
        *ret = index + 1;
    else if (attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)
        *ret = sim_device_vmm(hardware, (unsigned) index);
    else if (attribute == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)
        *ret = sim_device_posix_fd(hardware, (unsigned) index);
    else
        return false;
    return true;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    CUresult result = sim_enter(__func__);
    int index = sim_device_index(device), found;

    if (result != CUDA_SUCCESS)
        return result;
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (index < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!attribute_find(index, attribute, &found))
        return CUDA_ERROR_INVALID_VALUE;
    *value = found;
    return CUDA_SUCCESS;
}
