/* What nvidia-smi and its relatives see of the GPU: the container's share, its use, and its own processes. */
#include "fgpu.h"
#include "functions.h" /* NVML_REFUSED, NVML_DENIED; made from functions.tsv */

enum { MAX_LISTED = 256 };

HELPER(nvmlDeviceGetUUID, (nvmlDevice, char *, unsigned));

/* Fails closed: no valid limit for the device, no figures. */
static int share_of(nvmlDevice device, int *gpu) {
    char uuid[96] = "";
    if (!fgpu_bind(NVML_LIBRARY)) return NVML_LIBRARY_NOT_FOUND;
    if (!fgpu_attach()) return NVML_NO_PERMISSION;
    limits_refresh();
    int rc = REAL(nvmlDeviceGetUUID) ? REAL(nvmlDeviceGetUUID)(device, uuid, sizeof uuid) : NVML_FUNCTION_NOT_FOUND;
    *gpu = rc ? -1 : limits_find(&fgpu_limits, uuid);
    return rc ? rc : *gpu < 0 ? NVML_NO_PERMISSION : NVML_SUCCESS;
}

static int memory_of(nvmlDevice device, nvmlMemoryV1 *out) {
    uint64_t used;
    int gpu, rc = share_of(device, &gpu);
    if (!rc && !region_used(gpu, &used))
        rc = NVML_NO_PERMISSION;
    if (!rc) {
        out->total = fgpu_limits.gpu[gpu].mem_bytes;
        out->used = least(used, out->total);
        out->free = out->total - out->used;
    }
    return rc;
}

WRAP(nvmlDeviceGetMemoryInfo, (nvmlDevice device, nvmlMemoryV1 *out)) {
    return out ? memory_of(device, out) : NVML_INVALID_ARGUMENT;
}

WRAP(nvmlDeviceGetMemoryInfo_v2, (nvmlDevice device, nvmlMemoryV2 *out)) {
    nvmlMemoryV1 share;
    if (!out || out->version != (sizeof *out | 2u << 24)) return NVML_INVALID_ARGUMENT;
    int rc = memory_of(device, &share);
    if (!rc)
        *out = (nvmlMemoryV2){out->version, share.total, 0, share.free, share.used};
    return rc;
}

/* Percent of the container's share; on a GPU that is all its own the driver's figure is right. */
WRAP(nvmlDeviceGetUtilizationRates, (nvmlDevice device, nvmlUtilization *out)) {
    int gpu, rc = out ? share_of(device, &gpu) : NVML_INVALID_ARGUMENT;
    if (rc) return rc;
    if (fgpu_limits.gpu[gpu].sm_points == ALL_SMS && REAL(nvmlDeviceGetUtilizationRates))
        return REAL(nvmlDeviceGetUtilizationRates)(device, out);
    *out = (nvmlUtilization){region_gate_percent(gpu, clock_now()), 0}; /* memory's is known for the whole GPU only */
    return NVML_SUCCESS;
}

/* The driver would list host pids, of other tenants too; the region knows the container's own. */
static int processes(nvmlDevice device, unsigned *count, nvmlProcessV2 *out, const void *given) {
    if (!count || (*count && !given)) return NVML_INVALID_ARGUMENT;
    unsigned room = (unsigned)least(*count, MAX_LISTED);
    int gpu, rc = share_of(device, &gpu);
    int found = rc ? 0 : region_processes(gpu, out, (int)room);
    if (rc || found < 0) return rc ? rc : NVML_NO_PERMISSION;
    *count = (unsigned)found;
    return *count > room ? NVML_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

WRAP(nvmlDeviceGetComputeRunningProcesses, (nvmlDevice device, unsigned *count, nvmlProcessV1 *out)) {
    nvmlProcessV2 list[MAX_LISTED];
    int rc = processes(device, count, list, out);
    for (unsigned i = 0; rc == NVML_SUCCESS && i < *count; i++)
        out[i] = (nvmlProcessV1){list[i].pid, list[i].used};
    return rc;
}

#define COMPUTE_PROCESSES(name) \
    WRAP(name, (nvmlDevice device, unsigned *count, nvmlProcessV2 *out)) { return processes(device, count, out, out); }
COMPUTE_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2)
COMPUTE_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3)

#define NO_PROCESSES(name) \
    WRAP(name, (nvmlDevice device, unsigned *count, void *out)) { \
        (void)out; \
        if (count) \
            *count = 0; \
        return device && count ? NVML_SUCCESS : NVML_INVALID_ARGUMENT; \
    }
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3)

/* Figures about the whole GPU or about other tenants, which the driver cannot narrow down to this container; and what
 * would change the GPU for all of them. */
__attribute__((used)) static int refused(void) { return NVML_NOT_SUPPORTED; }
__attribute__((used)) static int denied(void) { return NVML_NO_PERMISSION; }
#define ALIAS(name, of) \
    __attribute__((visibility("default"), alias(#of))) int name(void); \
    SYMBOL(name, name);
#define REFUSE(name) ALIAS(name, refused)
#define DENY(name) ALIAS(name, denied)
NVML_REFUSED(REFUSE)
NVML_DENIED(DENY)
