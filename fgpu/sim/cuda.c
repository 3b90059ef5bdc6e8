/* A simulated libcuda.so.1: enough of the driver interface to allocate, launch, capture and measure, on virtual GPUs.
 * Not NVIDIA's code, and no CUDA runs here. This file: start, devices, contexts, and how functions are found. */
#include <stdio.h>

#include "cuda.h"

pthread_mutex_t big = PTHREAD_MUTEX_INITIALIZER;
bool initialised;
int visible[SIM_GPUS], visible_count;
struct context primary[SIM_GPUS];
struct pool default_pool[SIM_GPUS], *current_pool[SIM_GPUS];
__thread struct context *current;

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

API CUresult cuDeviceGetAttribute(int *out, int attribute, CUdevice d)
{
    NEED_DEVICE(d);
    *out = attribute == 16 ? sim_config.gpu[visible[d]].sms : attribute == 75 ? 9 : 0; /* multiprocessors, capability */
    return CUDA_SUCCESS;
}

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

/* Contexts. */
static CUresult make_context(CUcontext *out, CUdevice d)
{
    NEED_DEVICE(d);
    struct context *context = *out = calloc(1, sizeof *context);
    context->device = d;
    current = context;
    return CUDA_SUCCESS;
}

API CUresult cuCtxCreate(CUcontext *out, unsigned flags, CUdevice d) { (void)flags; return make_context(out, d); }
API CUresult cuCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice d) { (void)flags; return make_context(out, d); }
API CUresult cuCtxCreate_v3(CUcontext *out, void *affinity, int n, unsigned flags, CUdevice d) { (void)affinity, (void)n, (void)flags; return make_context(out, d); }
API CUresult cuCtxCreate_v4(CUcontext *out, void *params, unsigned flags, CUdevice d) { (void)params, (void)flags; return make_context(out, d); }
API CUresult cuGreenCtxCreate(CUgreenCtx *out, CUresourceDesc desc, CUdevice d, unsigned flags) { (void)desc, (void)flags; NEED_DEVICE(d); *out = calloc(1, 8); return CUDA_SUCCESS; }
API CUresult cuGreenCtxDestroy(CUgreenCtx c) { free(c); return CUDA_SUCCESS; }

API CUresult cuCtxDestroy_v2(CUcontext c)
{
    NEED_INIT;
    free_all_of(c);
    current = current == c ? NULL : current;
    free(c);
    return CUDA_SUCCESS;
}

API CUresult cuCtxDestroy(CUcontext c) { return cuCtxDestroy_v2(c); }
CUresult cuCtxSetCurrent(CUcontext);
API CUresult cuCtxSetCurrent(CUcontext c) { NEED_INIT; current = c; return CUDA_SUCCESS; }
API CUresult cuCtxGetCurrent(CUcontext *out) { NEED_INIT; *out = current; return CUDA_SUCCESS; }
static __thread struct context *below[8]; /* what was current before */
static __thread unsigned pushed;
API CUresult cuCtxPushCurrent_v2(CUcontext c)
{
    NEED_INIT;
    if (pushed == sizeof below / sizeof *below)
        return CUDA_INVALID_VALUE;
    below[pushed++] = current;
    current = c;
    return CUDA_SUCCESS;
}
API CUresult cuCtxPopCurrent_v2(CUcontext *out)
{
    NEED_CONTEXT;
    *out = current;
    current = pushed ? below[--pushed] : NULL;
    return CUDA_SUCCESS;
}
API CUresult cuCtxGetDevice(CUdevice *out) { NEED_CONTEXT; *out = current->device; return CUDA_SUCCESS; }

API CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice d)
{
    NEED_DEVICE(d);
    primary[d].primary_refs++;
    *out = &primary[d];
    return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d)
{
    NEED_DEVICE(d);
    if (primary[d].primary_refs && --primary[d].primary_refs == 0)
        free_all_of(&primary[d]);
    return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRelease(CUdevice d) { return cuDevicePrimaryCtxRelease_v2(d); }

API CUresult cuDevicePrimaryCtxReset_v2(CUdevice d)
{
    NEED_DEVICE(d);
    primary[d].primary_refs = 0;
    free_all_of(&primary[d]);
    return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxReset(CUdevice d) { return cuDevicePrimaryCtxReset_v2(d); }

API CUresult cuDevicePrimaryCtxGetState(CUdevice d, unsigned *flags, int *active)
{
    NEED_DEVICE(d);
    *flags = 0;
    *active = primary[d].primary_refs > 0;
    return CUDA_SUCCESS;
}

API CUresult cuGetErrorName(CUresult code, const char **out)
{
    *out = code == 0 ? "CUDA_SUCCESS" : code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : code == 802 ? "CUDA_ERROR_SYSTEM_NOT_READY" : "CUDA_ERROR";
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v9(CUdeviceptr *, size_t);

/* cuGetProcAddress: base name, the version it was introduced with, and its two flavours of default stream. */
#define PLAIN(name, since, variant) {#name, since, (void *)(uintptr_t)variant, NULL},
#define STREAMED(name, since) {#name, since, (void *)(uintptr_t)name, (void *)(uintptr_t)name##_ptsz},
static const struct { const char *name; int since; void *plain, *per_thread; } addresses[] = {
    PLAIN(cuInit, 2000, cuInit) PLAIN(cuMemAlloc, 2000, cuMemAlloc) PLAIN(cuMemAlloc, 3020, cuMemAlloc_v2)
    PLAIN(cuMemAlloc, 99000, cuMemAlloc_v9) PLAIN(cuMemFree, 3020, cuMemFree_v2) PLAIN(cuMemAllocPitch, 3020, cuMemAllocPitch_v2)
    PLAIN(cuMemAllocManaged, 6000, cuMemAllocManaged) PLAIN(cuMemGetInfo, 3020, cuMemGetInfo_v2)
    PLAIN(cuDeviceTotalMem, 3020, cuDeviceTotalMem_v2) PLAIN(cuDeviceGet, 2000, cuDeviceGet)
    PLAIN(cuDeviceGetCount, 2000, cuDeviceGetCount) PLAIN(cuCtxCreate, 3020, cuCtxCreate_v2)
    PLAIN(cuCtxCreate, 13000, cuCtxCreate_v4) PLAIN(cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain)
    PLAIN(cuCtxSetCurrent, 4000, cuCtxSetCurrent) PLAIN(cuMemCreate, 10020, cuMemCreate)
    PLAIN(cuMemAllocHost, 3020, cuMemAllocHost_v2) PLAIN(cuMemHostAlloc, 2020, cuMemHostAlloc) PLAIN(cuGetProcAddress, 12000, cuGetProcAddress_v2)
    STREAMED(cuMemAllocAsync, 11020) STREAMED(cuMemAllocFromPoolAsync, 11020) STREAMED(cuMemFreeAsync, 11020)
    STREAMED(cuLaunchKernel, 4000) STREAMED(cuLaunchKernelEx, 11060) STREAMED(cuLaunchCooperativeKernel, 9000)
    STREAMED(cuGraphLaunch, 10000)
};

API CUresult cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *status)
{
    int best = 0;
    *out = NULL;
    for (unsigned i = 0; i < sizeof addresses / sizeof *addresses; i++)
        if (strcmp(addresses[i].name, name) == 0 && addresses[i].since <= version && addresses[i].since > best) {
            best = addresses[i].since;
            *out = flags & 2 && addresses[i].per_thread ? addresses[i].per_thread : addresses[i].plain;
        }
    if (status)
        *status = *out ? 0 : 1;
    return *out ? CUDA_SUCCESS : CUDA_NOT_FOUND;
}

API CUresult cuGetProcAddress(const char *name, void **out, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(name, out, version, flags, NULL);
}
