/* A context costs device memory of its own: charged once per process and GPU, when the first one is asked for, until
 * the process ends. The end of a context frees what was made in it. */
#include "fgpu.h"

HELPER(cuDevicePrimaryCtxGetState, (CUdevice, unsigned *, int *));

PER_PROCESS static pthread_mutex_t contexts = PTHREAD_MUTEX_INITIALIZER;
PER_PROCESS static struct hold *paid[MAX_GPUS];
static CUcontext primary[MAX_GPUS];

static CUresult pay(CUdevice device) {
    CUresult rc = fgpu_ready();
    int gpu = rc ? -1 : fgpu_index(device);
    if (gpu < 0) return rc ? rc : CUDA_INVALID_DEVICE;
    LOCKED(contexts);
    return paid[gpu] ? CUDA_SUCCESS : hold_new(gpu, fgpu_limits.gpu[gpu].ctx_bytes, NULL, &paid[gpu]);
}

static CUresult gone(CUresult rc, CUcontext context) {
    if (!rc && context)
        ledger_drop_context(context);
    return rc;
}

/* The events of a context go with it: nobody may ask for them from now on. */
static CUcontext doomed(CUcontext context) {
    gate_hold();
    flight_forget_context(context);
    gate_let_go();
    return context;
}

#define CREATE(name, params, args) \
    WRAP(name, params) { \
        CUresult rc = pay(device); \
        return rc ? rc : CALL(name, args); \
    }
CREATE(cuCtxCreate, (CUcontext *out, unsigned flags, CUdevice device), (out, flags, device))
CREATE(cuCtxCreate_v2, (CUcontext *out, unsigned flags, CUdevice device), (out, flags, device))
CREATE(cuCtxCreate_v3, (CUcontext *out, void *affinity, int count, unsigned flags, CUdevice device),
       (out, affinity, count, flags, device))
CREATE(cuCtxCreate_v4, (CUcontext *out, void *params, unsigned flags, CUdevice device), (out, params, flags, device))
CREATE(cuGreenCtxCreate, (CUgreenCtx *out, CUresourceDesc desc, CUdevice device, unsigned flags),
       (out, desc, device, flags))

#define DESTROY(name) \
    WRAP(name, (CUcontext context)) { return gone(CALL(name, (doomed(context))), context); }
DESTROY(cuCtxDestroy)
DESTROY(cuCtxDestroy_v2)
DESTROY(cuGreenCtxDestroy)

WRAP(cuDevicePrimaryCtxRetain, (CUcontext *out, CUdevice device)) {
    CUresult rc = pay(device);
    if (!rc && !(rc = CALL(cuDevicePrimaryCtxRetain, (out, device))))
        primary[fgpu_index(device)] = *out;
    return rc;
}

/* The primary context ends when the last one that retained it lets it go, or when it is reset. */
static CUresult released(CUresult rc, CUdevice device) {
    unsigned flags;
    int active = 0, gpu = fgpu_index(device);
    if (!rc && gpu >= 0 && (CALL(cuDevicePrimaryCtxGetState, (device, &flags, &active)) || !active)) {
        flight_forget_context(primary[gpu]);
        gone(rc, primary[gpu]);
    }
    gate_let_go();
    return rc;
}

static CUdevice held(CUdevice device) {
    gate_hold();
    return device;
}

#define RELEASE(name) \
    WRAP(name, (CUdevice device)) { return released(CALL(name, (held(device))), device); }
RELEASE(cuDevicePrimaryCtxRelease)
RELEASE(cuDevicePrimaryCtxRelease_v2)
RELEASE(cuDevicePrimaryCtxReset)
RELEASE(cuDevicePrimaryCtxReset_v2)
