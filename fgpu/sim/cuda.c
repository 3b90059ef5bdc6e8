/* A simulated libcuda.so.1: enough of the driver interface to allocate, launch, capture and measure, on virtual GPUs.
 * Not NVIDIA's code, and no CUDA runs here. This file: start, devices, contexts. */
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
    switch (attribute) {
    case 1: case 2: case THREADS_PER_SM: *out = attribute == THREADS_PER_SM ? 2048 : 1024; break; /* threads of a block */
    case 10: *out = 32; break;                                          /* of a warp */
    case SM_COUNT: *out = sim_config.gpu[visible[d]].sms; break;
    case 75: *out = 9; break;                                           /* compute capability 9.0 */
    case BLOCKS_PER_SM: *out = 32; break;
    case 41: case 115: case MULTICAST_SUPPORTED: *out = 1; break;       /* unified addresses, pools */
    default: *out = 0;
    }
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
    struct context *context = *out = zeroed(sizeof *context);
    context->device = d;
    current = context;
    return CUDA_SUCCESS;
}

API CUresult cuCtxCreate(CUcontext *out, unsigned flags, CUdevice d) { (void)flags; return make_context(out, d); }
API CUresult cuCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice d) { (void)flags; return make_context(out, d); }
API CUresult cuCtxCreate_v3(CUcontext *out, void *affinity, int n, unsigned flags, CUdevice d) { (void)affinity, (void)n, (void)flags; return make_context(out, d); }
API CUresult cuCtxCreate_v4(CUcontext *out, void *params, unsigned flags, CUdevice d) { (void)params, (void)flags; return make_context(out, d); }
API CUresult cuGreenCtxCreate(CUgreenCtx *out, CUresourceDesc desc, CUdevice d, unsigned flags) { (void)desc, (void)flags; NEED_DEVICE(d); *out = zeroed(8); return CUDA_SUCCESS; }
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
CUresult cuCtxDetach(CUcontext);
API CUresult cuCtxDetach(CUcontext c) { return cuCtxDestroy_v2(c); } /* of the one use that cuCtxCreate counts */
CUresult cuCtxAttach(CUcontext *, unsigned);
API CUresult cuCtxAttach(CUcontext *out, unsigned flags) { *out = current; return flags ? CUDA_INVALID_VALUE : CUDA_SUCCESS; }
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

/* Limits of the current context: what is set is what is said. */
static size_t context_limit[16] = {[LIMIT_STACK] = 1024, [LIMIT_PRINTF] = 1 << 20, [LIMIT_HEAP] = 8 << 20};
API CUresult cuCtxSetLimit(int which, size_t value)
{
    NEED_CONTEXT;
    if (which < 0 || which > LIMIT_PER_BLOCK || !value)
        return CUDA_INVALID_VALUE;
    context_limit[which] = value;
    return CUDA_SUCCESS;
}
API CUresult cuCtxGetLimit(size_t *out, int which)
{
    NEED_CONTEXT;
    *out = which >= 0 && which <= LIMIT_PER_BLOCK ? context_limit[which] : 0;
    return CUDA_SUCCESS;
}
API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) { NEED_CONTEXT; *least = 0; *greatest = -5; return CUDA_SUCCESS; }
API CUresult cuCtxGetApiVersion(CUcontext c, unsigned *out) { (void)c; *out = 3020; return CUDA_SUCCESS; }
API CUresult cuCtxGetFlags(unsigned *out) { NEED_CONTEXT; *out = 0; return CUDA_SUCCESS; }
API CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice d) { NEED_DEVICE(d); *major = 9; *minor = 0; return CUDA_SUCCESS; }
API CUresult cuDeviceCanAccessPeer(int *out, CUdevice a, CUdevice b) { NEED_DEVICE(a); NEED_DEVICE(b); *out = a != b; return CUDA_SUCCESS; }
API CUresult cuDeviceGetPCIBusId(char *out, int room, CUdevice d)
{
    NEED_DEVICE(d);
    snprintf(out, (size_t)room, "0000:%02X:00.0", (unsigned)visible[d] + 1);
    return CUDA_SUCCESS;
}
API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice d, unsigned flags) { (void)flags; NEED_DEVICE(d); return CUDA_SUCCESS; }
API CUresult cuMulticastCreate(void) { return CUDA_SUCCESS; } /* there, but not offered by the hook */

API CUresult cuGetErrorString(CUresult code, const char **out) { return cuGetErrorName(code, out); }
API CUresult cuGetErrorName(CUresult code, const char **out)
{
    *out = code == 0 ? "CUDA_SUCCESS" : code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : code == 802 ? "CUDA_ERROR_SYSTEM_NOT_READY" : "CUDA_ERROR";
    return CUDA_SUCCESS;
}
