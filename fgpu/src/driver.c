/* The real driver behind the hook, and the decision whether this process may use it. Fails closed. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fgpu.h"

#define LIMITS_PATH "/run/fgpu/limits.conf"
#define REGION_PATH "/run/fgpu/region"

enum { UNKNOWN, GOOD, REFUSED };

struct limits fgpu_limits;
void *fgpu_cuda, *fgpu_nvml, *fgpu_real[S_COUNT];

static pthread_mutex_t setup = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int attached, ready;
static signed char index_of[MAX_ORDINALS];

static const char *path_of(const char *variable, const char *fixed) {
#ifdef FGPU_TEST
    if (getenv(variable))
        return getenv(variable);
#endif
    (void)variable;
    return fixed;
}

static void in_child(void) {
    pthread_mutex_init(&setup, NULL);
    atomic_store(&ready, 0);
    region_forget_process();
    ledger_forget();
    gate_forget_process();
}

static bool attach_once(void) {
    const char *problem = region_attach(path_of("FGPU_REGION", REGION_PATH));
    if (!problem)
        problem = limits_load(path_of("FGPU_LIMITS", LIMITS_PATH), &fgpu_limits);
    if (problem) {
        region_note(problem);
        return false;
    }
    for (int i = 0; i < fgpu_limits.count; i++)
        fgpu_gated |= fgpu_limits.gpu[i].sm_points < 10000;
    return pthread_atfork(NULL, NULL, in_child) == 0;
}

bool fgpu_attach(void) {
    if (atomic_load(&attached) == UNKNOWN) {
        pthread_mutex_lock(&setup);
        if (atomic_load(&attached) == UNKNOWN)
            atomic_store(&attached, attach_once() ? GOOD : REFUSED);
        pthread_mutex_unlock(&setup);
    }
    return atomic_load(&attached) == GOOD;
}

static bool bind(void **handle, int first, int last, const char *library) {
    pthread_mutex_lock(&setup);
    if (!*handle) {
        void *found = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
        found = found ? found : dlopen(library, RTLD_LAZY);
        for (int i = first; found && i < last; i++)
            fgpu_real[i] = fgpu_real_dlsym(found, fgpu_names[i]);
        *handle = found;
    }
    pthread_mutex_unlock(&setup);
    return *handle != NULL;
}

bool fgpu_bind_cuda(void) {
    return bind(&fgpu_cuda, 0, S_CUDA_END, "libcuda.so.1");
}

bool fgpu_bind_nvml(void) {
    return bind(&fgpu_nvml, S_CUDA_END, S_COUNT, "libnvidia-ml.so.1");
}

static int limit_of(CUdevice device) {
    CUuuid id;
    char text[48] = "GPU-", *at = text + 4;
    CUresult rc = CALL(cuDeviceGetUuid_v2, &id, device); /* of the MIG slice, if it is one */
    if (rc && CALL(cuDeviceGetUuid, &id, device))
        return -1;
    for (int i = 0; i < 16; i++)
        at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", id.bytes[i]);
    return limits_find(&fgpu_limits, text);
}

/* Match every visible GPU with its limit, by UUID: ordinals depend on the tenant's environment. */
static CUresult map_devices(void) {
    int count = 0;
    CUresult rc = CALL(cuDeviceGetCount, &count);
    if (rc)
        return rc;
    for (int i = 0; i < count; i++) {
        int index = i < MAX_ORDINALS ? limit_of(i) : -1;
        if (index < 0) {
            region_note("a visible GPU has no limit");
            return CUDA_SYSTEM_NOT_READY;
        }
        index_of[i] = (signed char)(index + 1);
    }
    if (region_join())
        return CUDA_SUCCESS;
    region_note("no slot left in the region");
    return CUDA_SYSTEM_NOT_READY;
}

CUresult fgpu_ready(void) {
    if (atomic_load_explicit(&ready, memory_order_acquire))
        return CUDA_SUCCESS;
    if (!fgpu_attach() || !fgpu_bind_cuda())
        return CUDA_SYSTEM_NOT_READY;
    pthread_mutex_lock(&setup);
    CUresult rc = atomic_load(&ready) ? CUDA_SUCCESS : map_devices();
    atomic_store(&ready, rc == CUDA_SUCCESS);
    pthread_mutex_unlock(&setup);
    return rc;
}

EXPORT CUresult cuInit(unsigned flags) {
    if (!fgpu_attach() || !fgpu_bind_cuda())
        return CUDA_SYSTEM_NOT_READY;
    CUresult rc = CALL(cuInit, flags);
    return rc ? rc : fgpu_ready();
}

int fgpu_index(CUdevice device) {
    return device >= 0 && device < MAX_ORDINALS ? index_of[device] - 1 : -1;
}

/* The current context's GPU; CUDA's own error where there is none. */
CUresult fgpu_here(int *gpu, CUdevice *device, CUcontext *context) {
    CUresult rc = fgpu_ready();
    if (!rc)
        rc = CALL(cuCtxGetDevice, device);
    if (!rc)
        rc = CALL(cuCtxGetCurrent, context);
    if (!rc)
        *gpu = fgpu_index(*device);
    return rc ? rc : *gpu < 0 ? CUDA_SYSTEM_NOT_READY : CUDA_SUCCESS;
}
