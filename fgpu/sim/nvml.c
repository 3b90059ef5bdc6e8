/* A simulated libnvidia-ml.so.1: what nvidia-smi, pynvml and our host worker ask of a GPU, answered from the simulated
 * host's state. Functions that are not here are "not supported" (nvml_absent.c): there are no clocks, fans and links. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "../src/abi.h"
#include "state.h"

#define API __attribute__((visibility("default")))
enum { NVML_UNINITIALIZED = 1, NVML_NOT_FOUND = 6, NVML_TIMEOUT = 10 };
enum { IDLE_MILLIWATTS = 30000, BUSY_MILLIWATTS = 250000, MOST_MILLIWATTS = 300000 };
enum { FIELD_ENERGY = 83, FIELD_POWER_AVERAGE = 185, FIELD_POWER_INSTANT = 186, UNSIGNED_INT = 1, UNSIGNED_LONG_LONG = 3 };

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci;
typedef struct { unsigned pid; unsigned long long at; unsigned sm, memory, encoder, decoder; } sample;
typedef struct { const char *cgroup; unsigned long long soft, hard, used; } limits;
typedef struct { unsigned id, scope; long long at, took; int type, rc; union { unsigned u; unsigned long long ull; } value; } field;
typedef struct { unsigned version; int sensor, celsius; } temperature;

#define INDEX(device) ((int)(uintptr_t)(device) - 1)
#define NEED(device) \
    if (!sim) \
        return NVML_UNINITIALIZED; \
    if (INDEX(device) < 0 || INDEX(device) >= sim_config.count) \
    return NVML_INVALID_ARGUMENT

#define NVML(name, ...) \
    int name(__VA_ARGS__); \
    API int name(__VA_ARGS__)

NVML(nvmlInitWithFlags, unsigned flags) { (void)flags; return sim_open() ? NVML_SUCCESS : 9; /* driver not loaded */ }
NVML(nvmlInit_v2, void) { return nvmlInitWithFlags(0); }
NVML(nvmlInit, void) { return nvmlInitWithFlags(0); }
NVML(nvmlShutdown, void) { return NVML_SUCCESS; }

static const char *text_of(int code)
{
    return code == 0 ? "Success" : code == 3 ? "Not Supported" : code == 4 ? "Insufficient Permissions" : "Error";
}
const char *nvmlErrorString(int code);
API const char *nvmlErrorString(int code) { return text_of(code); }

static int put(char *out, unsigned room, const char *text)
{
    return snprintf(out, room, "%s", text) < (int)room ? NVML_SUCCESS : NVML_INSUFFICIENT_SIZE;
}

NVML(nvmlSystemGetDriverVersion, char *out, unsigned room) { return sim ? put(out, room, sim_config.driver) : NVML_UNINITIALIZED; }

/* NVIDIA's: the CUDA version that the driver brings, then the driver's. */
NVML(nvmlSystemGetNVMLVersion, char *out, unsigned room)
{
    char text[64];
    snprintf(text, sizeof text, "%d.%s", sim_config.cuda / 1000, sim_config.driver);
    return sim ? put(out, room, text) : NVML_UNINITIALIZED;
}

NVML(nvmlSystemGetCudaDriverVersion_v2, int *out) { *out = sim_config.cuda; return NVML_SUCCESS; }
NVML(nvmlSystemGetCudaDriverVersion, int *out) { *out = sim_config.cuda; return NVML_SUCCESS; }

NVML(nvmlDeviceGetCount_v2, unsigned *out) { *out = (unsigned)sim_config.count; return sim ? NVML_SUCCESS : NVML_UNINITIALIZED; }
NVML(nvmlDeviceGetCount, unsigned *out) { return nvmlDeviceGetCount_v2(out); }

NVML(nvmlDeviceGetHandleByIndex_v2, unsigned i, nvmlDevice *out)
{
    *out = (nvmlDevice)(uintptr_t)(i + 1);
    NEED(*out);
    return NVML_SUCCESS;
}
NVML(nvmlDeviceGetHandleByIndex, unsigned i, nvmlDevice *out) { return nvmlDeviceGetHandleByIndex_v2(i, out); }

NVML(nvmlDeviceGetHandleByUUID, const char *uuid, nvmlDevice *out)
{
    for (int i = 0; i < sim_config.count; i++)
        if (strcmp(sim_config.gpu[i].uuid, uuid) == 0)
            return nvmlDeviceGetHandleByIndex_v2((unsigned)i, out);
    return NVML_NOT_FOUND;
}

static int by_index(unsigned i, nvmlDevice *out) { return nvmlDeviceGetHandleByIndex_v2(i, out); }
static int no_such(void) { return NVML_NOT_SUPPORTED; }

/* NVIDIA's own nvidia-smi asks for a table of unpublished functions; of these it needs one to find the GPUs. */
NVML(nvmlInternalGetExportTable, const void **out, const void *which)
{
    static void *table[400];
    (void)which;
    table[0] = (void *)(uintptr_t)sizeof table;
    for (unsigned i = 1; i < sizeof table / sizeof *table; i++)
        table[i] = i == 81 ? (void *)(uintptr_t)by_index : (void *)(uintptr_t)no_such;
    *out = table;
    return NVML_SUCCESS;
}

/* The simulated GPUs have no faults: no event is ever known, and who waits for one waits in vain. */
NVML(nvmlEventSetCreate, void **out) { *out = &sim; return NVML_SUCCESS; }
NVML(nvmlEventSetFree, void *set) { (void)set; return NVML_SUCCESS; }
NVML(nvmlDeviceGetSupportedEventTypes, nvmlDevice d, unsigned long long *out) { NEED(d); *out = 0; return NVML_SUCCESS; }
NVML(nvmlEventSetWait_v2, void *set, void *out, unsigned ms)
{
    (void)set, (void)out;
    sim_sleep_until(sim_now() + ms * 1000000ull);
    return NVML_TIMEOUT;
}
NVML(nvmlEventSetWait, void *set, void *out, unsigned ms) { return nvmlEventSetWait_v2(set, out, ms); }

NVML(nvmlDeviceGetIndex, nvmlDevice d, unsigned *out) { NEED(d); *out = (unsigned)INDEX(d); return NVML_SUCCESS; }
NVML(nvmlDeviceGetMinorNumber, nvmlDevice d, unsigned *out) { return nvmlDeviceGetIndex(d, out); }
NVML(nvmlDeviceGetName, nvmlDevice d, char *out, unsigned room) { NEED(d); return put(out, room, sim_config.gpu[INDEX(d)].name); }
API int nvmlDeviceGetUUID(nvmlDevice d, char *out, unsigned room) { NEED(d); return put(out, room, sim_config.gpu[INDEX(d)].uuid); }

NVML(nvmlDeviceGetPciInfo_v3, nvmlDevice d, pci *out)
{
    NEED(d);
    memset(out, 0, sizeof *out);
    out->bus = (unsigned)INDEX(d) + 1;
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", out->bus);
    snprintf(out->legacy, sizeof out->legacy, "0000:%02X:00.0", out->bus);
    return NVML_SUCCESS;
}

NVML(nvmlDeviceGetHandleByPciBusId_v2, const char *id, nvmlDevice *out)
{
    pci each;
    for (unsigned i = 0; sim && i < (unsigned)sim_config.count; i++)
        if (!nvmlDeviceGetHandleByIndex_v2(i, out) && !nvmlDeviceGetPciInfo_v3(*out, &each)
            && (!strcasecmp(id, each.bus_id) || !strcasecmp(id, each.legacy)))
            return NVML_SUCCESS;
    return sim ? NVML_NOT_FOUND : NVML_UNINITIALIZED;
}

NVML(nvmlDeviceGetCudaComputeCapability, nvmlDevice d, int *major, int *minor) { NEED(d); *major = 9; *minor = 0; return NVML_SUCCESS; }
NVML(nvmlDeviceGetNumGpuCores, nvmlDevice d, unsigned *out) { NEED(d); *out = (unsigned)sim_config.gpu[INDEX(d)].sms * 128; return NVML_SUCCESS; }
#define ANSWER(name, value) NVML(name, nvmlDevice d, unsigned *out) { NEED(d); *out = (value); return NVML_SUCCESS; }
ANSWER(nvmlDeviceGetPersistenceMode, 1)
ANSWER(nvmlDeviceGetComputeMode, 0)
ANSWER(nvmlDeviceGetPerformanceState, 0)
ANSWER(nvmlDeviceGetDisplayActive, 0)
ANSWER(nvmlDeviceGetDisplayMode, 0)
ANSWER(nvmlDeviceGetArchitecture, 9) /* of compute capability 9.0 */
ANSWER(nvmlDeviceGetBrand, 0)        /* unknown */
ANSWER(nvmlDeviceGetVirtualizationMode, 0)
ANSWER(nvmlDeviceGetAccountingMode, 0)
ANSWER(nvmlDeviceGetMaxMigDeviceCount, 0)
ANSWER(nvmlDeviceIsMigDeviceHandle, 0)
ANSWER(nvmlDeviceGetPowerManagementMode, 1)
ANSWER(nvmlDeviceGetPowerManagementLimit, MOST_MILLIWATTS)
ANSWER(nvmlDeviceGetPowerManagementDefaultLimit, MOST_MILLIWATTS)
ANSWER(nvmlDeviceGetEnforcedPowerLimit, MOST_MILLIWATTS)
NVML(nvmlDeviceGetEncoderUtilization, nvmlDevice d, unsigned *out, unsigned *period_us) { NEED(d); *out = 0; *period_us = 1000000; return NVML_SUCCESS; }
NVML(nvmlDeviceGetDecoderUtilization, nvmlDevice d, unsigned *out, unsigned *period_us) { return nvmlDeviceGetEncoderUtilization(d, out, period_us); }

uint64_t fgpuSimNow(void);
API uint64_t fgpuSimNow(void) { return sim_now(); }

static uint64_t used_of(nvmlDevice d)
{
    sim_lock();
    sim_sweep();
    uint64_t used = sim_used(sim_config.gpu[INDEX(d)].shared);
    sim_unlock();
    return used;
}

API int nvmlDeviceGetMemoryInfo(nvmlDevice d, nvmlMemoryV1 *out)
{
    NEED(d);
    uint64_t total = sim_config.gpu[INDEX(d)].memory, used = used_of(d);
    *out = (nvmlMemoryV1){total, total - used, used};
    return NVML_SUCCESS;
}

API int nvmlDeviceGetMemoryInfo_v2(nvmlDevice d, nvmlMemoryV2 *out)
{
    nvmlMemoryV1 v1;
    int rc = nvmlDeviceGetMemoryInfo(d, &v1);
    if (!rc)
        *out = (nvmlMemoryV2){out->version, v1.total, 0, v1.free, v1.used};
    return rc;
}
NVML(nvmlDeviceGetMemoryInfo_v3, nvmlDevice d, nvmlMemoryV2 *out) { return nvmlDeviceGetMemoryInfo_v2(d, out); } /* to come */

API int nvmlDeviceGetUtilizationRates(nvmlDevice d, nvmlUtilization *out)
{
    NEED(d);
    int shared = sim_config.gpu[INDEX(d)].shared;
    const struct sim_gpu *g = &sim->gpu[shared];
    uint64_t second = sim_now() / 1000000000u - 1;
    sim_lock();
    sim_sweep();
    sim_advance(shared);
    uint64_t busy = g->second[second % 4] == second ? g->busy_ns[second % 4] : 0;
    sim_unlock();
    out->gpu = (unsigned)(busy / 10000000u);
    out->memory = out->gpu / 2;
    return NVML_SUCCESS;
}

NVML(nvmlDeviceGetTemperature, nvmlDevice d, int sensor, unsigned *out)
{
    nvmlUtilization load;
    (void)sensor;
    int rc = nvmlDeviceGetUtilizationRates(d, &load);
    *out = rc ? 0 : 35 + load.gpu * 4 / 10;
    return rc;
}
NVML(nvmlDeviceGetTemperatureV, nvmlDevice d, temperature *out)
{
    return nvmlDeviceGetTemperature(d, out->sensor, (unsigned *)&out->celsius);
}

NVML(nvmlDeviceGetPowerUsage, nvmlDevice d, unsigned *out)
{
    nvmlUtilization load;
    int rc = nvmlDeviceGetUtilizationRates(d, &load);
    *out = rc ? 0 : IDLE_MILLIWATTS + load.gpu * (BUSY_MILLIWATTS / 100);
    return rc;
}

/* In millijoules, since the clock began. */
NVML(nvmlDeviceGetTotalEnergyConsumption, nvmlDevice d, unsigned long long *out)
{
    NEED(d);
    int shared = sim_config.gpu[INDEX(d)].shared;
    sim_lock();
    sim_sweep();
    sim_advance(shared);
    *out = (sim_now() / 1000000 * IDLE_MILLIWATTS + sim->gpu[shared].busy_total / 1000000 * BUSY_MILLIWATTS) / 1000;
    sim_unlock();
    return NVML_SUCCESS;
}

/* Each value has a result of its own. */
NVML(nvmlDeviceGetFieldValues, nvmlDevice d, int count, field *list)
{
    NEED(d);
    for (field *f = list; f < list + count; f++) {
        f->at = (long long)(sim_now() / 1000);
        f->took = 0;
        f->type = f->id == FIELD_ENERGY ? UNSIGNED_LONG_LONG : UNSIGNED_INT;
        f->rc = NVML_NOT_SUPPORTED;
        if (f->id == FIELD_ENERGY)
            f->rc = nvmlDeviceGetTotalEnergyConsumption(d, &f->value.ull);
        if (f->id == FIELD_POWER_AVERAGE || f->id == FIELD_POWER_INSTANT)
            f->rc = nvmlDeviceGetPowerUsage(d, &f->value.u);
    }
    return NVML_SUCCESS;
}

/* Pids as seen from the caller's namespace, like the real driver on a host; siblings' processes are not listed. */
API int nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice d, unsigned *count, nvmlProcessV2 *out)
{
    NEED(d);
    unsigned found = 0, room = out ? *count : 0;
    int shared = sim_config.gpu[INDEX(d)].shared;
    sim_lock();
    sim_sweep();
    for (int i = 0; i < SIM_PROCESSES; i++) {
        uint64_t used = sim->process[i].taken ? sim->process[i].used[shared] : 0;
        int pid = used ? sim_pid(i) : 0;
        if (pid <= 0)
            continue;
        if (found < room)
            out[found] = (nvmlProcessV2){(unsigned)pid, used, UINT32_MAX, UINT32_MAX};
        found++;
    }
    sim_unlock();
    *count = found;
    return found > room ? NVML_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

API int nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice d, unsigned *count, nvmlProcessV2 *out)
{
    return nvmlDeviceGetComputeRunningProcesses_v3(d, count, out);
}

API int nvmlDeviceGetComputeRunningProcesses(nvmlDevice d, unsigned *count, nvmlProcessV1 *out)
{
    nvmlProcessV2 list[SIM_PROCESSES];
    unsigned found = out && *count < SIM_PROCESSES ? *count : out ? SIM_PROCESSES : 0;
    int rc = nvmlDeviceGetComputeRunningProcesses_v3(d, &found, list);
    for (unsigned i = 0; !rc && i < found; i++)
        out[i] = (nvmlProcessV1){list[i].pid, list[i].used};
    *count = found;
    return rc;
}

/* The driver reads it there, too, so it knows no process that its caller does not see. */
NVML(nvmlSystemGetProcessName, unsigned pid, char *out, unsigned room)
{
    char path[32], name[1024] = "";
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "r");
    bool read = file && fread(name, 1, sizeof name - 1, file);
    if (file)
        fclose(file);
    return read ? put(out, room, name) : NVML_NOT_FOUND;
}

static int none(nvmlDevice d, unsigned *count)
{
    NEED(d);
    *count = 0;
    return NVML_SUCCESS;
}
#define NO_PROCESSES(name) NVML(name, nvmlDevice d, unsigned *count, void *out) { (void)out; return none(d, count); }
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3)

/* Of the last full second, in whole percent, as far as it was later than `since` (in microseconds of this clock). */
NVML(nvmlDeviceGetProcessUtilization, nvmlDevice d, sample *out, unsigned *count, unsigned long long since)
{
    NEED(d);
    unsigned found = 0, room = out ? *count : 0;
    int shared = sim_config.gpu[INDEX(d)].shared;
    uint64_t second = sim_now() / 1000000000u - 1;
    sim_lock();
    sim_sweep();
    sim_advance(shared);
    for (int i = 0; i < SIM_CONTEXTS; i++) {
        const struct sim_context *c = &sim->context[i];
        bool worked = c->process && c->gpu == shared && c->second[second % 4] == second && (second + 1) * 1000000 > since;
        int pid = worked ? sim_pid(c->process - 1) : 0;
        if (pid <= 0)
            continue;
        if (found < room)
            out[found] = (sample){(unsigned)pid, (second + 1) * 1000000, (unsigned)(c->busy_ns[second % 4] / 10000000u), 0, 0, 0};
        found++;
    }
    sim_unlock();
    *count = found;
    return !found ? NVML_NOT_FOUND : found > room ? NVML_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

/* The accounting of processes is missing, as in a driver without it. */
NVML(nvmlDeviceGetProcessesUtilizationInfo, void) { return NVML_NOT_FOUND; }
NVML(nvmlDeviceGetRunningProcessDetailList, void) { return NVML_NOT_FOUND; }
NVML(nvmlDeviceGetSamples, void) { return NVML_NOT_FOUND; }

/* The kernel-enforced limits of newer drivers: kept, not enforced; there only if the configuration says so. */
static struct sim_limit *limit_of(const char *cgroup)
{
    for (int i = 0; i < SIM_LIMITS; i++) {
        if (!sim->limit[i].cgroup[0])
            snprintf(sim->limit[i].cgroup, sizeof sim->limit[i].cgroup, "%s", cgroup);
        if (strcmp(sim->limit[i].cgroup, cgroup) == 0)
            return &sim->limit[i];
    }
    return NULL;
}

NVML(nvmlDeviceSetMemoryLimits_v1, nvmlDevice d, const limits *in)
{
    NEED(d);
    struct sim_limit *limit = sim_config.memory_limits && in->cgroup ? limit_of(in->cgroup) : NULL;
    if (!limit)
        return NVML_NOT_SUPPORTED;
    limit->soft = in->soft;
    limit->hard = in->hard;
    return NVML_SUCCESS;
}

NVML(nvmlDeviceGetMemoryLimits_v1, nvmlDevice d, limits *out)
{
    NEED(d);
    struct sim_limit *limit = sim_config.memory_limits && out->cgroup ? limit_of(out->cgroup) : NULL;
    if (!limit)
        return NVML_NOT_SUPPORTED;
    *out = (limits){out->cgroup, limit->soft, limit->hard, 0};
    return NVML_SUCCESS;
}
