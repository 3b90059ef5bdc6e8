/* The real driver behind the hook, and the decision whether this process may use it. Fails closed. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "fgpu.h"
#include "functions.h" /* CUDA_REFUSED; made from functions.tsv */

enum { MAX_ORDINALS = 64 };

HELPER(cuDeviceGetCount, (int *));
HELPER(cuDeviceGetUuid, (CUuuid *, CUdevice));
HELPER(cuDeviceGetUuid_v2, (CUuuid *, CUdevice));
HELPER(cuCtxGetCurrent, (CUcontext *));
HELPER(cuCtxGetDevice, (CUdevice *));
HELPER(cuCtxPushCurrent_v2, (CUcontext));
HELPER(cuCtxPopCurrent_v2, (CUcontext *));
HELPER(cuStreamGetCtx, (CUstream, CUcontext *));

struct limits fgpu_limits;
bool fgpu_gated;

extern char __start_fgpu_process[] __attribute__((visibility("hidden")));
extern char __stop_fgpu_process[] __attribute__((visibility("hidden")));
PER_PROCESS static pthread_mutex_t setup = PTHREAD_MUTEX_INITIALIZER;
PER_PROCESS static _Atomic bool ready;
static bool attached;
static signed char index_of[MAX_ORDINALS]; /* plus one */

static void in_child(void) {
    turn_in_child();
    memset(__start_fgpu_process, 0, (size_t)(__stop_fgpu_process - __start_fgpu_process));
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
    turn_attach();
    attached = pthread_atfork(NULL, NULL, in_child) == 0;
}

bool fgpu_attach(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, attach);
    return attached;
}

/* Find the driver's own functions. A library that is not there yet is looked for again. */
bool fgpu_bind(const char *library) {
    static void *handles[2];
    bool nvml = !strcmp(library, NVML_LIBRARY);
    LOCKED(setup);
    if (!handles[nvml] && (handles[nvml] = dlopen(library, RTLD_LAZY)))
        for EACH_SYMBOL(s)
            if ((s->name[0] == 'n') == nvml)
                s->real = fgpu_real_dlsym(handles[nvml], s->name);
    return handles[nvml] != NULL;
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
    if (!fgpu_attach() || !fgpu_bind(CUDA_LIBRARY)) return CUDA_SYSTEM_NOT_READY;
    LOCKED(setup);
    CUresult rc = atomic_load(&ready) ? CUDA_SUCCESS : map_devices();
    atomic_store(&ready, rc == CUDA_SUCCESS);
    return rc;
}

WRAP(cuInit, (unsigned flags)) {
    if (!fgpu_attach() || !fgpu_bind(CUDA_LIBRARY)) return CUDA_SYSTEM_NOT_READY;
    CUresult rc = CALL(cuInit, (flags));
    return rc ? rc : fgpu_ready();
}

int fgpu_index(CUdevice device) {
    return device >= 0 && device < MAX_ORDINALS ? index_of[device] - 1 : -1;
}

/* CUDA's own error where the thread has no context. A stream may be of another context, on another GPU. */
CUresult fgpu_place(CUstream stream, struct place *out) {
    CUcontext its;
    CUresult rc;
    if ((rc = fgpu_ready()) || (rc = CALL(cuCtxGetDevice, (&out->device)))
        || (rc = CALL(cuCtxGetCurrent, (&out->context))))
        return rc;
    if (KEY(stream) > KEY(STREAM_PER_THREAD) && !CALL(cuStreamGetCtx, (stream, &its)) && its != out->context
        && !CALL(cuCtxPushCurrent_v2, (its))) {
        CALL(cuCtxGetDevice, (&out->device));
        CALL(cuCtxPopCurrent_v2, (&out->context));
    }
    out->gpu = fgpu_index(out->device);
    return out->gpu < 0 ? CUDA_SYSTEM_NOT_READY : CUDA_SUCCESS;
}

int fgpu_host(void) { return fgpu_limits.pinned_bytes ? HOST_MEMORY : -1; }

/* Managed memory may move to a GPU: without one of its own it is the current context's, or the first one's. */
CUresult fgpu_account(const CUlocation *where, int type, int *gpu) {
    CUdevice device = 0;
    CUresult rc = fgpu_ready();
    bool on_host = where && where->type >= LOCATION_HOST && where->type <= LOCATION_HOST_NUMA_CURRENT;
    *gpu = -1;
    if (rc || !where) return rc;
    if (type != ALLOCATION_MANAGED && on_host) {
        *gpu = fgpu_host();
        return CUDA_SUCCESS;
    }
    if (where->type == LOCATION_DEVICE)
        device = where->id;
    else if (where->type == LOCATION_LOCALITY_DOMAIN)
        device = where->id & 0xff;
    else if (type != ALLOCATION_MANAGED || (where->type != LOCATION_NONE && !on_host))
        return CUDA_NOT_SUPPORTED; /* a kind of memory of a driver to come */
    else if (CALL(cuCtxGetDevice, (&device)))
        device = 0;
    *gpu = fgpu_index(device);
    return *gpu < 0 ? CUDA_INVALID_DEVICE : CUDA_SUCCESS;
}

#define REFUSED(name) \
    WRAP(name, (void)) { return CUDA_NOT_SUPPORTED; }
CUDA_REFUSED(REFUSED)
