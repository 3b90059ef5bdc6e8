/* The real driver behind the hook, and the decision whether this process may use it. Fails closed. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "fgpu.h"

enum { MAX_ORDINALS = 64 };

HELPER(cuDeviceGetCount, (int *));
HELPER(cuDeviceGetUuid, (CUuuid *, CUdevice));
HELPER(cuDeviceGetUuid_v2, (CUuuid *, CUdevice));
HELPER(cuCtxGetCurrent, (CUcontext *));
HELPER(cuCtxGetDevice, (CUdevice *));

struct limits fgpu_limits;
bool fgpu_gated;

static pthread_mutex_t setup = PTHREAD_MUTEX_INITIALIZER;
static bool attached;
static _Atomic bool ready;
static signed char index_of[MAX_ORDINALS]; /* plus one */

static void in_child(void) {
    pthread_mutex_init(&setup, NULL);
    atomic_store(&ready, false);
    region_forget_process();
    ledger_forget();
    contexts_forget_process();
    gate_forget_process();
}

static void attach(void) {
    const char *problem = region_attach(system_region_path());
    if (!problem)
        problem = limits_load(system_limits_path(), &fgpu_limits);
    if (problem) {
        region_note(problem);
        return;
    }
    for (int i = 0; i < fgpu_limits.count; i++)
        fgpu_gated |= fgpu_limits.gpu[i].sm_points < ALL_SMS;
    attached = pthread_atfork(NULL, NULL, in_child) == 0;
}

bool fgpu_attach(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, attach);
    return attached;
}

/* Find the driver's own functions whose names begin so. A library that is not there yet is looked for again. */
static bool bind(void **handle, const char *library, const char *prefix) {
    LOCKED(setup);
    if (!*handle && (*handle = dlopen(library, RTLD_LAZY)))
        for EACH_SYMBOL(s)
            if (!strncmp(s->name, prefix, strlen(prefix)))
                s->real = fgpu_real_dlsym(*handle, s->name);
    return *handle != NULL;
}

bool fgpu_bind_cuda(void) {
    static void *handle;
    return bind(&handle, "libcuda.so.1", "cu");
}

bool fgpu_bind_nvml(void) {
    static void *handle;
    return bind(&handle, "libnvidia-ml.so.1", "nvml");
}

static int limit_of(CUdevice device) {
    CUuuid id;
    char text[48] = "GPU-", *at = text + 4;
    CUresult rc = CALL(cuDeviceGetUuid_v2, (&id, device)); /* of the MIG slice, if it is one */
    if (rc && CALL(cuDeviceGetUuid, (&id, device))) return -1;
    for (int i = 0; i < 16; i++)
        at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", id.bytes[i]);
    return limits_find(&fgpu_limits, text);
}

static CUresult refuse(const char *why) {
    region_note(why);
    return CUDA_SYSTEM_NOT_READY;
}

/* Match every visible GPU with its limit, by UUID: ordinals depend on the tenant's environment. */
static CUresult map_devices(void) {
    int count = 0;
    CUresult rc = CALL(cuDeviceGetCount, (&count));
    for (int i = 0; !rc && i < count; i++) {
        int index = i < MAX_ORDINALS ? limit_of(i) : -1;
        if (index < 0) return refuse("a visible GPU has no limit");
        index_of[i] = (signed char)(index + 1);
    }
    return rc ? rc : region_join() ? CUDA_SUCCESS : refuse("no slot left in the region");
}

CUresult fgpu_ready(void) {
    if (atomic_load_explicit(&ready, memory_order_acquire)) return CUDA_SUCCESS;
    if (!fgpu_attach() || !fgpu_bind_cuda()) return CUDA_SYSTEM_NOT_READY;
    LOCKED(setup);
    CUresult rc = atomic_load(&ready) ? CUDA_SUCCESS : map_devices();
    atomic_store(&ready, rc == CUDA_SUCCESS);
    return rc;
}

WRAP(cuInit, (unsigned flags)) {
    if (!fgpu_attach() || !fgpu_bind_cuda()) return CUDA_SYSTEM_NOT_READY;
    CUresult rc = CALL(cuInit, (flags));
    return rc ? rc : fgpu_ready();
}

int fgpu_index(CUdevice device) {
    return device >= 0 && device < MAX_ORDINALS ? index_of[device] - 1 : -1;
}

/* CUDA's own error where the thread has no context. */
CUresult fgpu_here(struct place *here) {
    CUresult rc;
    if ((rc = fgpu_ready()) || (rc = CALL(cuCtxGetDevice, (&here->device)))
        || (rc = CALL(cuCtxGetCurrent, (&here->context))))
        return rc;
    here->gpu = fgpu_index(here->device);
    return here->gpu < 0 ? CUDA_SYSTEM_NOT_READY : CUDA_SUCCESS;
}
