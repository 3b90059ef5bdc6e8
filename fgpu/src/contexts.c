/* A context costs device memory of its own: charged once per process and GPU, when the first one is asked for, until
 * the process ends. The end of a context frees what was made in it. */
#include "fgpu.h"

HELPER(cuDevicePrimaryCtxGetState, (CUdevice, unsigned *, int *));
HELPER(cuCtxFromGreenCtx, (CUcontext *, CUgreenCtx));
HELPER(cuDeviceGetAttribute, (int *, int, CUdevice));

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
CREATE(cuGLCtxCreate, (CUcontext *out, unsigned flags, CUdevice device), (out, flags, device))
CREATE(cuGLCtxCreate_v2, (CUcontext *out, unsigned flags, CUdevice device), (out, flags, device))
CREATE(cuVDPAUCtxCreate, (CUcontext *out, unsigned flags, CUdevice device, unsigned id, void *get),
       (out, flags, device, id, get))
CREATE(cuVDPAUCtxCreate_v2, (CUcontext *out, unsigned flags, CUdevice device, unsigned id, void *get),
       (out, flags, device, id, get))

/* What a limit of the current context costs beyond what each has from the start: the driver takes a stack for every
 * thread that the GPU can hold. */
static uint64_t cost_of(int which, uint64_t value, CUdevice device) {
    int sms = 0, each = 1;
    uint64_t free = which == LIMIT_STACK ? 1024 : which == LIMIT_HEAP ? 8 << 20 : which == LIMIT_PRINTF ? 1 << 20 : 0;
    bool on_sms = which == LIMIT_STACK || which == LIMIT_PER_BLOCK;
    if ((!on_sms && !free) || value <= free) return 0;
    value -= free;
    if (!on_sms) return value;
    CALL(cuDeviceGetAttribute, (&sms, SM_COUNT, device));
    CALL(cuDeviceGetAttribute, (&each, which == LIMIT_STACK ? THREADS_PER_SM : BLOCKS_PER_SM, device));
    uint64_t count = most((uint64_t)sms * (uint64_t)each, 1);
    return value > UINT64_MAX / count ? UINT64_MAX : value * count;
}

/* Charge for the limit; `before`: what is charged for it so far. */
static CUresult charge(const struct place *here, int which, uint64_t cost, struct hold **hold, uint64_t *before) {
    uint64_t key = KEY(here->context) * 16 + (unsigned)which;
    *hold = ledger_find(HELD_LIMIT, key);
    *before = *hold ? (*hold)->bytes : 0;
    if (!*hold && cost) {
        CUresult rc = hold_new(here->gpu, 0, here->context, hold);
        if (rc) return rc;
        ledger_put(HELD_LIMIT, key, 0, *hold);
    }
    if (cost <= *before || hold_resize(*hold, cost) == CUDA_SUCCESS) return CUDA_SUCCESS;
    pools_reconcile(true);
    return hold_resize(*hold, cost);
}

WRAP(cuCtxSetLimit, (int which, size_t value)) {
    struct place here;
    struct hold *hold;
    uint64_t before;
    CUresult rc = fgpu_place(NULL, &here);
    if (rc) return rc;
    uint64_t cost = cost_of(which, value, here.device);
    LOCKED(contexts);
    if ((rc = charge(&here, which, cost, &hold, &before))) return rc;
    rc = CALL(cuCtxSetLimit, (which, value));
    if (hold)
        hold_resize(hold, rc ? before : cost);
    return rc;
}

#define DESTROY(name) \
    WRAP(name, (CUcontext context)) { return gone(CALL(name, (doomed(context))), context); }
DESTROY(cuCtxDestroy)
DESTROY(cuCtxDestroy_v2)
DESTROY(cuCtxDetach) /* of its only use */

/* What programs do in it they do in a context of another handle. Memory is the primary one's, and stays. */
WRAP(cuGreenCtxDestroy, (CUgreenCtx green)) {
    CUcontext context;
    if (!CALL(cuCtxFromGreenCtx, (&context, green)))
        doomed(context);
    return CALL(cuGreenCtxDestroy, (green));
}

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
    int gpu = fgpu_index(device);
    gate_hold();
    if (gpu >= 0 && primary[gpu])
        flight_await_helper(primary[gpu], NULL);
    return device;
}

#define RELEASE(name) \
    WRAP(name, (CUdevice device)) { return released(CALL(name, (held(device))), device); }
RELEASE(cuDevicePrimaryCtxRelease)
RELEASE(cuDevicePrimaryCtxRelease_v2)
RELEASE(cuDevicePrimaryCtxReset)
RELEASE(cuDevicePrimaryCtxReset_v2)
