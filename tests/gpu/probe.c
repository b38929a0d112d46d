/*
 * Runs the questions one after the other, each in its own process, into one report:
 *
 *     probe [--driver=cuda|sim] [--only=N] REPORT.md
 *
 * Exit status: 0 all questions ran, 77 there is no driver or device, 1 a question's process died or
 * gave up half-way (the report says which), 2 wrong arguments.
 */
#include "tests/gpu/probe.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXIT_SKIP 77
/* A question that hangs is an answer too. */
#define QUESTION_SECONDS 60

static enum gpu_driver driver = GPU_DRIVER_CUDA;

static const struct question questions[] = {
    {1, "cuMemMap of a prefix, and with an offset", ask_prefix_and_offset},
    {2, "cuMemSetAccess without a context on the device", ask_set_access_without_context},
    {3, "Copies and fills of mapped memory without access", ask_copy_without_access},
    {4, "Export when fds are exhausted, import of a foreign fd", ask_fd_errors},
    {5, "Export and import under MPS", ask_mps},
    {6, "Memory that only an fd keeps, when no process uses the GPU", ask_parked_fd},
    {7, "NVML's figures for owner and importer", ask_process_figures},
    {8, "What export, import and the last close cost", ask_latencies},
    {9, "What memory recycled inside one process holds", ask_zeroing},
    {10, "cuMemAddressFree with a live mapping, cuMemGetAccess never set",
        ask_free_with_live_mapping},
};

void probe_say(struct probe *probe, const char *format, ...)
{
    va_list arguments;

    (void) fprintf(probe->report, "- ");
    va_start(arguments, format);
    (void) vfprintf(probe->report, format, arguments);
    va_end(arguments);
    (void) fprintf(probe->report, "\n");
    /* The process may not live to do it later. */
    (void) fflush(probe->report);
}

void probe_result(struct probe *probe, const char *what, CUresult result)
{
    const char *name = NULL;

    (void) probe->cu.get_error_name(result, &name);
    probe_say(probe, "%s: %s (%d)", what, name != NULL ? name : "unknown code", (int) result);
}

void probe_need(struct probe *probe, const char *what, CUresult result)
{
    if (result == CUDA_SUCCESS)
        return;
    probe_result(probe, what, result);
    exit(EXIT_FAILURE);
}

static void nvml_join(struct probe *probe)
{
    CUuuid uuid;
    char text[64];
    char *at = text + sprintf(text, "GPU-");

    if (!probe->has_nvml)
        return;
    probe_need(probe, "cuDeviceGetUuid_v2", probe->cu.device_get_uuid(&uuid, probe->device));
    for (size_t i = 0; i < sizeof(uuid.bytes); i++)
        at += sprintf(at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
            (unsigned) (unsigned char) uuid.bytes[i]);
    probe->has_nvml =
        probe->nvml.init() == NVML_SUCCESS &&
        probe->nvml.device_get_handle_by_uuid(text, &probe->nvml_device) == NVML_SUCCESS;
}

void probe_init(struct probe *probe)
{
    CUmemAllocationProp properties;

    probe_need(probe, "cuInit", probe->cu.init(0));
    probe_need(probe, "cuDeviceGet", probe->cu.device_get(&probe->device, 0));
    properties = probe_properties(probe);
    probe_need(probe, "cuMemGetAllocationGranularity",
        probe->cu.mem_get_allocation_granularity(
            &probe->granule, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    nvml_join(probe);
}

void probe_context(struct probe *probe)
{
    probe_need(probe, "cuDevicePrimaryCtxRetain",
        probe->cu.primary_ctx_retain(&probe->context, probe->device));
    probe_need(probe, "cuCtxSetCurrent", probe->cu.ctx_set_current(probe->context));
}

static void describe_device(struct probe *probe)
{
    static const struct {
        CUdevice_attribute attribute;
        const char *name;
    } attributes[] = {
        {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "102 VMM"},
        {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, "103 POSIX fd"},
        {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, "110 RDMA with VMM"},
        {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, "128 fabric"},
        {CU_DEVICE_ATTRIBUTE_MPS_ENABLED, "133 MPS"},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, "20 compute mode"},
    };
    nvmlEnableState_t persistence;
    char name[96] = "";
    size_t total = 0;

    probe_init(probe);
    (void) probe->cu.device_get_name(name, sizeof(name), probe->device);
    (void) probe->cu.device_total_mem(&total, probe->device);
    probe_say(probe, "driver for CUDA %d.%d, device 0: %s, %zu MiB, granularity %zu KiB",
        probe->cu.version / 1000, probe->cu.version % 1000 / 10, name, total >> 20,
        probe->granule >> 10);
    for (size_t i = 0; i < ARRAY_SIZE(attributes); i++) {
        int value = 0;
        CUresult result =
            probe->cu.device_get_attribute(&value, attributes[i].attribute, probe->device);

        if (result == CUDA_SUCCESS)
            probe_say(probe, "attribute %s: %d", attributes[i].name, value);
        else
            probe_result(probe, attributes[i].name, result);
    }
    if (probe->has_nvml && probe->nvml.device_get_persistence_mode != NULL &&
        probe->nvml.device_get_persistence_mode(probe->nvml_device, &persistence) == NVML_SUCCESS)
        probe_say(
            probe, "persistence mode: %s", persistence == NVML_FEATURE_ENABLED ? "on" : "off");
    else
        probe_say(probe, "persistence mode: not known, NVML is %s",
            probe->has_nvml ? "open" : "not available");
}

/* In a child: loads the driver, asks, exits. */
static void question_run(FILE *report, void (*ask)(struct probe *)) __attribute__((noreturn));
static void question_run(FILE *report, void (*ask)(struct probe *))
{
    struct probe probe = {.report = report};
    struct gpu_error error;

    (void) alarm(QUESTION_SECONDS);
    if (cuda_load(driver, &probe.cu, &error) < 0) {
        (void) fprintf(stderr, "%s\n", error.text);
        exit(EXIT_SKIP);
    }
    probe.has_nvml = nvml_load(driver, &probe.nvml, &error) == 0;
    if (!probe.has_nvml)
        probe_say(&probe, "%s", error.text);
    ask(&probe);
    exit(EXIT_SUCCESS);
}

/* The child's exit status; a death by signal is written down and counts as failure. */
static int question_wait(FILE *report, pid_t child)
{
    int status;

    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    (void) fprintf(report, "- the process died of signal %d (%s)\n", WTERMSIG(status),
        WTERMSIG(status) == SIGALRM ? "it hung" : strsignal(WTERMSIG(status)));
    return EXIT_FAILURE;
}

static int question_ask(FILE *report, const char *title, void (*ask)(struct probe *))
{
    pid_t child;

    (void) fprintf(report, "\n%s\n\n", title);
    (void) fflush(report);
    child = fork();
    if (child < 0) {
        (void) fprintf(report, "- no process for it: %s\n", strerror(errno));
        return EXIT_FAILURE;
    }
    if (child == 0)
        question_run(report, ask);
    return question_wait(report, child);
}

/* Whether a driver and a device are there at all, before a report is begun. */
static void usable(struct probe *probe)
{
    struct gpu_error error;
    struct gpu *gpu;

    if (gpu_open(driver, GPU_ROLE_CLIENT, &gpu, &error) < 0) {
        (void) fprintf(stderr, "%s\n", error.text);
        exit(EXIT_SKIP);
    }
    gpu_close(gpu);
}

static int report_write(FILE *report, unsigned only)
{
    int worst = EXIT_SUCCESS;
    pid_t child = fork();

    if (child == 0)
        question_run(report, usable);
    if (child < 0)
        return EXIT_FAILURE;
    worst = question_wait(report, child);
    if (worst != EXIT_SUCCESS)
        return worst;
    if (only == 0)
        worst = question_ask(report, "# What this driver answers", describe_device);
    for (size_t i = 0; i < ARRAY_SIZE(questions); i++) {
        char title[128];

        if (only != 0 && questions[i].number != only)
            continue;
        (void) snprintf(title, sizeof(title), "## %u. %s", questions[i].number, questions[i].title);
        if (question_ask(report, title, questions[i].ask) != EXIT_SUCCESS)
            worst = EXIT_FAILURE;
    }
    return worst;
}

int main(int argc, char **argv)
{
    const char *path = NULL;
    unsigned only = 0;
    FILE *report;
    int status;

    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--driver=", 9) == 0 && gpu_driver_parse(argv[i] + 9, &driver) == 0)
            continue;
        if (sscanf(argv[i], "--only=%u", &only) == 1 && only >= 1 && only <= ARRAY_SIZE(questions))
            continue;
        if (argv[i][0] == '-' || path != NULL) {
            (void) fprintf(stderr, "usage: %s [--driver=cuda|sim] [--only=N] REPORT.md\n", argv[0]);
            return 2;
        }
        path = argv[i];
    }
    if (path == NULL) {
        (void) fprintf(stderr, "usage: %s [--driver=cuda|sim] [--only=N] REPORT.md\n", argv[0]);
        return 2;
    }
    report = fopen(path, "ae");
    if (report == NULL) {
        (void) fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 2;
    }
    status = report_write(report, only);
    return fclose(report) == 0 ? status : EXIT_FAILURE;
}
