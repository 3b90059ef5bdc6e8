/* What nvidia-smi and its relatives see of the GPU: the container's share, its use, and its own processes. */
#include "fgpu.h"

/* Fails closed: no valid limit for the device, no figures. */
static int share_of(nvmlDevice device, int *gpu) {
    char uuid[96] = "";
    if (!fgpu_bind_nvml())
        return NVML_LIBRARY_NOT_FOUND;
    if (!fgpu_attach())
        return NVML_NO_PERMISSION;
    int rc = REAL(nvmlDeviceGetUUID) ? REAL(nvmlDeviceGetUUID)(device, uuid, sizeof uuid) : NVML_FUNCTION_NOT_FOUND;
    *gpu = rc ? -1 : limits_find(&fgpu_limits, uuid);
    return rc ? rc : *gpu < 0 ? NVML_NO_PERMISSION : NVML_SUCCESS;
}

static int memory_of(nvmlDevice device, unsigned long long *total, unsigned long long *used) {
    int gpu, rc = share_of(device, &gpu);
    uint64_t bytes;
    if (!rc && !region_used(gpu, &bytes))
        rc = NVML_NO_PERMISSION;
    if (!rc) {
        *total = fgpu_limits.gpu[gpu].mem_bytes;
        *used = bytes < *total ? bytes : *total;
    }
    return rc;
}

EXPORT int nvmlDeviceGetMemoryInfo(nvmlDevice device, nvmlMemoryV1 *out) {
    int rc = out ? memory_of(device, &out->total, &out->used) : NVML_INVALID_ARGUMENT;
    if (!rc)
        out->free = out->total - out->used;
    return rc;
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(nvmlDevice device, nvmlMemoryV2 *out) {
    if (!out || out->version != (sizeof *out | 2u << 24))
        return NVML_INVALID_ARGUMENT;
    int rc = memory_of(device, &out->total, &out->used);
    if (!rc) {
        out->free = out->total - out->used;
        out->reserved = 0;
    }
    return rc;
}

/* Percent of the container's share; on a GPU that is all its own the driver's figure is right. */
EXPORT int nvmlDeviceGetUtilizationRates(nvmlDevice device, nvmlUtilization *out) {
    int gpu, rc = out ? share_of(device, &gpu) : NVML_INVALID_ARGUMENT;
    if (rc)
        return rc;
    if (fgpu_limits.gpu[gpu].sm_points == 10000 && REAL(nvmlDeviceGetUtilizationRates))
        return REAL(nvmlDeviceGetUtilizationRates)(device, out);
    out->gpu = region_gate_percent(gpu, clock_now());
    out->memory = 0; /* the driver knows it for the whole GPU only */
    return NVML_SUCCESS;
}

/* The driver would list host pids, of other tenants too; the region knows the container's own. */
static int processes(nvmlDevice device, unsigned *count, nvmlProcessV2 *out, unsigned room) {
    int gpu, rc = share_of(device, &gpu);
    int found = rc ? 0 : region_processes(gpu, out, (int)room);
    if (rc || found < 0)
        return rc ? rc : NVML_NO_PERMISSION;
    *count = (unsigned)found;
    return *count > room ? NVML_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

enum { MAX_LISTED = 256 };

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice device, unsigned *count, nvmlProcessV2 *out) {
    if (!count || (*count && !out))
        return NVML_INVALID_ARGUMENT;
    return processes(device, count, out, *count < MAX_LISTED ? *count : MAX_LISTED);
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice device, unsigned *count, nvmlProcessV2 *out) {
    return nvmlDeviceGetComputeRunningProcesses_v3(device, count, out);
}

EXPORT int nvmlDeviceGetComputeRunningProcesses(nvmlDevice device, unsigned *count, nvmlProcessV1 *out) {
    nvmlProcessV2 list[MAX_LISTED];
    if (!count || (*count && !out))
        return NVML_INVALID_ARGUMENT;
    int rc = processes(device, count, list, *count < MAX_LISTED ? *count : MAX_LISTED);
    for (unsigned i = 0; rc == NVML_SUCCESS && i < *count; i++)
        out[i] = (nvmlProcessV1){list[i].pid, list[i].used};
    return rc;
}

#define NONE(name) \
    EXPORT int name(nvmlDevice device, unsigned *count, void *out) \
    { \
        (void)out; \
        if (count) \
            *count = 0; \
        return device && count ? NVML_SUCCESS : NVML_INVALID_ARGUMENT; \
    }
NONE(nvmlDeviceGetGraphicsRunningProcesses)
NONE(nvmlDeviceGetGraphicsRunningProcesses_v2)
NONE(nvmlDeviceGetGraphicsRunningProcesses_v3)
NONE(nvmlDeviceGetMPSComputeRunningProcesses)
NONE(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NONE(nvmlDeviceGetMPSComputeRunningProcesses_v3)

/* Figures about other tenants, which the driver cannot narrow down to this container. */
#define WITHHELD(name) \
    EXPORT int name(void) { return NVML_NOT_SUPPORTED; }
WITHHELD(nvmlDeviceGetProcessUtilization)
WITHHELD(nvmlDeviceGetProcessesUtilizationInfo)
WITHHELD(nvmlDeviceGetRunningProcessDetailList)
WITHHELD(nvmlDeviceGetAccountingPids)
WITHHELD(nvmlDeviceGetAccountingStats)
WITHHELD(nvmlDeviceGetSamples)
