/* A simulated libcuda.so.1: enough of the driver interface to allocate, launch, capture and measure, on virtual GPUs.
 * Not NVIDIA's code, and no CUDA runs here. This file: start, devices. */
#include <stdio.h>

#include "cuda.h"

pthread_mutex_t big = PTHREAD_MUTEX_INITIALIZER;
bool initialised;
int visible[SIM_GPUS], visible_count;
struct context primary[SIM_GPUS];
struct pool default_pool[SIM_GPUS], *current_pool[SIM_GPUS];

uint64_t fgpuSimNow(void);
void fgpuSimSleepUntil(uint64_t when);
uint64_t fgpuSimBusy(int device);
API uint64_t fgpuSimNow(void) { return sim_now(); }
API void fgpuSimSleepUntil(uint64_t when) { sim_sleep_until(when); }

/* Time in which the GPU worked for all, and for this process. */
API uint64_t fgpuSimBusy(int device)
{
    int gpu = sim_config.gpu[visible[device]].shared;
    sim_lock();
    sim_advance(gpu);
    uint64_t ns = sim->gpu[gpu].busy_total;
    sim_unlock();
    return ns;
}
uint64_t fgpuSimExecuted(int device);
API uint64_t fgpuSimExecuted(int device) { return sim_executed(visible[device]); }

/* For the hook and the arbiter on the virtual clock. */
void fgpuSimWait(uint64_t key, const uint32_t *word, uint32_t seen, uint64_t until), fgpuSimWake(uint64_t key);
int fgpuSimReserve(void), fgpuSimJoin(void);
uint32_t fgpuSimKnocks(void), fgpuSimDeaths(void), fgpuSimJoined(void);
void fgpuSimKnock(void), fgpuSimWaitForKnock(uint32_t seen, uint64_t until);
void fgpuSimBecome(int sleeper);
API void fgpuSimWait(uint64_t key, const uint32_t *word, uint32_t seen, uint64_t until) { sim_wait(key, word, seen, until); }
API void fgpuSimWake(uint64_t key) { sim_wake(key); }
API int fgpuSimReserve(void) { return sim_reserve_sleeper(); }
API void fgpuSimBecome(int sleeper) { sim_become_sleeper(sleeper); }
API uint32_t fgpuSimKnocks(void) { return __atomic_load_n(&sim->knocks, __ATOMIC_ACQUIRE); }
API uint32_t fgpuSimJoined(void) { return (uint32_t)__atomic_load_n(&sim->joined, __ATOMIC_ACQUIRE); }
API uint32_t fgpuSimDeaths(void) { return __atomic_load_n(&sim->deaths, __ATOMIC_ACQUIRE); }
API void fgpuSimKnock(void) { __atomic_fetch_add(&sim->knocks, 1, __ATOMIC_RELEASE); sim_wake(SIM_KNOCK); }
API void fgpuSimWaitForKnock(uint32_t seen, uint64_t until) { sim_wait(SIM_KNOCK, &sim->knocks, seen, until); }
API int fgpuSimJoin(void) { return sim_open() && sim_join() ? 0 : -1; }

static void in_child(void)
{
    initialised = false;
    sim_after_fork();
}

/* Taken down for the thread that leaves the program, by what is called first then, and for all threads after that. */
static __thread bool left;
static bool gone;
static void leave(void) { left = true; }
static void register_leave(void) { atexit(leave); }
__attribute__((destructor)) static void go(void) { gone = true; }
void need_driver(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (left || gone)
        abort();
    pthread_once(&once, register_leave);
}

/* CUDA_VISIBLE_DEVICES: ordinals or UUIDs, in the order named. */
static void choose_visible(void)
{
    char *list = getenv("CUDA_VISIBLE_DEVICES"), *rest, text[1024];
    visible_count = 0;
    for (int i = 0; !list && i < sim_config.count; i++)
        visible[visible_count++] = i;
    if (!list)
        return;
    snprintf(text, sizeof text, "%s", list);
    for (char *word = strtok_r(text, ",", &rest); word; word = strtok_r(NULL, ",", &rest))
        for (int i = 0; i < sim_config.count && visible_count < SIM_GPUS; i++)
            if (strcmp(word, sim_config.gpu[i].uuid) == 0 || (word[0] != 'G' && atoi(word) == i))
                visible[visible_count++] = i;
}

API CUresult cuInit(unsigned flags)
{
    if (flags)
        return CUDA_INVALID_VALUE;
    pthread_mutex_lock(&big);
    bool ok = initialised || (sim_open() && sim_join());
    if (ok && !initialised) {
        choose_visible();
        for (int i = 0; i < visible_count; i++)
            default_pool[i].device = primary[i].device = i, current_pool[i] = &default_pool[i];
        pthread_atfork(NULL, NULL, in_child);
        initialised = true;
    }
    pthread_mutex_unlock(&big);
    return !ok ? 999 : visible_count ? CUDA_SUCCESS : 100;
}

/* Devices. */
API CUresult cuDriverGetVersion(int *version) { *version = sim_open() ? sim_config.cuda : 0; return CUDA_SUCCESS; }
API CUresult cuDeviceGetCount(int *count) { NEED_INIT; *count = visible_count; return CUDA_SUCCESS; }
API CUresult cuDeviceGet(CUdevice *out, int ordinal) { NEED_DEVICE(ordinal); *out = ordinal; return CUDA_SUCCESS; }

API CUresult cuDeviceGetName(char *out, int room, CUdevice d)
{
    NEED_DEVICE(d);
    snprintf(out, (size_t)room, "%s", sim_config.gpu[visible[d]].name);
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetUuid(CUuuid *out, CUdevice d)
{
    NEED_DEVICE(d);
    const char *text = sim_config.gpu[visible[d]].uuid + 4;
    for (int i = 0; i < 16; i++, text += 2) {
        unsigned byte = 0;
        text += *text == '-';
        sscanf(text, "%2x", &byte);
        out->bytes[i] = (unsigned char)byte;
    }
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetUuid_v2(CUuuid *out, CUdevice d) { return cuDeviceGetUuid(out, d); }

API CUresult cuDeviceTotalMem_v2(size_t *out, CUdevice d)
{
    NEED_DEVICE(d);
    *out = sim_config.gpu[visible[d]].memory;
    return CUDA_SUCCESS;
}

API CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
    NEED_CONTEXT;
    int gpu = visible[current->device];
    sim_lock();
    sim_sweep();
    uint64_t used = sim_used(sim_config.gpu[gpu].shared);
    sim_unlock();
    *total = sim_config.gpu[gpu].memory;
    *free = *total - used;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice d) { NEED_DEVICE(d); *major = 9; *minor = 0; return CUDA_SUCCESS; }
API CUresult cuDeviceCanAccessPeer(int *out, CUdevice a, CUdevice b) { NEED_DEVICE(a); NEED_DEVICE(b); *out = a != b; return CUDA_SUCCESS; }
API CUresult cuDeviceGetPCIBusId(char *out, int room, CUdevice d)
{
    NEED_DEVICE(d);
    snprintf(out, (size_t)room, "0000:%02X:00.0", (unsigned)visible[d] + 1);
    return CUDA_SUCCESS;
}
API CUresult cuMulticastCreate(void) { return CUDA_SUCCESS; } /* there, but not offered by the hook */

/* The tables of private functions that NVIDIA's own libraries ask for are not public: none is offered. */
API CUresult cuGetExportTable(const void **out, const CUuuid *id)
{
    if (!out || !id)
        return CUDA_INVALID_VALUE;
    *out = NULL;
    return CUDA_NOT_FOUND;
}
API CUresult cuDeviceGetByPCIBusId(CUdevice *out, const char *id)
{
    char text[16];
    NEED_INIT;
    for (CUdevice d = 0; out && id && d < visible_count; d++) {
        cuDeviceGetPCIBusId(text, sizeof text, d);
        if (strcmp(text, id) == 0 || strcmp(text + 5, id) == 0)
            return *out = d, CUDA_SUCCESS;
    }
    return CUDA_INVALID_VALUE;
}
