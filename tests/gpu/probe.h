/*
 * The probe asks a driver what its documentation leaves open and writes the answers as Markdown.
 *
 * Each question runs in a forked process of its own that has not touched the driver: an answer may
 * well be that the process is poisoned or dead. Questions state what they saw; nothing here is
 * right or wrong.
 */
#pragma once

#include <stdio.h>
#include <sys/types.h>

#include "base/macro.h"
#include "gpu/loader.h"

struct probe {
    struct cuda_api cu;
    struct nvml_api nvml;
    bool has_nvml;
    FILE *report; /* each question appends */
    CUdevice device;
    size_t granule;
    CUcontext context; /* NULL until probe_context */
    nvmlDevice_t nvml_device;
};

/* Number as in the specification of the driver, title, and what to do. */
struct question {
    unsigned number;
    const char *title;
    void (*ask)(struct probe *probe);
};

/* Loads and initialises; ends the process with a line in the report when the driver refuses. */
void probe_init(struct probe *probe);
/* The primary context, current. */
void probe_context(struct probe *probe);
/* One line of the answer, `- ` before it. */
void probe_say(struct probe *probe, const char *format, ...) _printf_(2, 3);
/* `what`: NAME (code). */
void probe_result(struct probe *probe, const char *what, CUresult result);
/* As probe_result, and a failure ends the question: the rest needs it. */
void probe_need(struct probe *probe, const char *what, CUresult result);

/* The device's free bytes by NVML; 0 without NVML. */
uint64_t probe_free(struct probe *probe);
/* What NVML charges to `pid`; false when it doesn't list it. */
bool probe_charged(struct probe *probe, pid_t pid, uint64_t *ret_bytes);

CUmemAllocationProp probe_properties(const struct probe *probe);
CUmemGenericAllocationHandle probe_chunk(struct probe *probe, size_t bytes);
/* Reserves and maps, without access. */
CUdeviceptr probe_map(struct probe *probe, CUmemGenericAllocationHandle handle, size_t bytes);
CUresult probe_access(struct probe *probe, CUdeviceptr address, size_t bytes);
CUresult probe_export(struct probe *probe, CUmemGenericAllocationHandle handle, int *ret_fd);
CUresult probe_import(struct probe *probe, int fd, CUmemGenericAllocationHandle *ret);

/* probe_mapping.c */
void ask_prefix_and_offset(struct probe *probe);
void ask_set_access_without_context(struct probe *probe);
void ask_copy_without_access(struct probe *probe);
void ask_free_with_live_mapping(struct probe *probe);
/* probe_sharing.c */
void ask_fd_errors(struct probe *probe);
void ask_mps(struct probe *probe);
void ask_parked_fd(struct probe *probe);
void ask_process_figures(struct probe *probe);
/* probe_cost.c */
void ask_latencies(struct probe *probe);
void ask_zeroing(struct probe *probe);
