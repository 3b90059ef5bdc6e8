/* A context costs device memory of its own, charged once per process and GPU, and its end frees what was made in it. */
#include <pthread.h>

#include "fgpu.h"

static pthread_mutex_t contexts = PTHREAD_MUTEX_INITIALIZER;

/* Take the lock and this GPU's context charge, shared by all contexts on it: the first one pays. */
static CUresult begin(CUdevice device, struct hold **hold) {
    CUresult rc = fgpu_ready();
    int gpu = rc ? -1 : fgpu_index(device);
    if (gpu < 0)
        return rc ? rc : CUDA_INVALID_DEVICE;
    pthread_mutex_lock(&contexts);
    *hold = ledger_search(HELD_CTX, ANYWHERE, gpu);
    if (!*hold)
        rc = hold_new(gpu, fgpu_limits.gpu[gpu].ctx_bytes, NULL, hold);
    if (rc)
        pthread_mutex_unlock(&contexts);
    return rc;
}

static CUresult end(CUresult rc, struct hold *hold, uint64_t key, CUcontext context) {
    if (!rc && !ledger_find(HELD_CTX, key, -1))
        ledger_put(HELD_CTX, key, KEY(context), hold);
    else if (!hold->refs)
        hold_undo(hold);
    pthread_mutex_unlock(&contexts);
    return rc;
}

static void forget(uint64_t key) {
    uint64_t context = 0;
    pthread_mutex_lock(&contexts);
    if (ledger_drop(HELD_CTX, key, &context)) {
        ledger_drop_context((CUcontext)context);
        gate_forget_context((CUcontext)context);
    }
    pthread_mutex_unlock(&contexts);
}

#define CREATE(device, call, created) \
    struct hold *hold; \
    CUresult rc = begin(device, &hold); \
    if (rc) \
        return rc; \
    rc = call; \
    return end(rc, hold, rc ? 0 : KEY(*created), rc ? NULL : *created)

EXPORT CUresult cuCtxCreate(CUcontext *out, unsigned flags, CUdevice device) {
    CREATE(device, CALL(cuCtxCreate, out, flags, device), out);
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice device) {
    CREATE(device, CALL(cuCtxCreate_v2, out, flags, device), out);
}

EXPORT CUresult cuCtxCreate_v3(CUcontext *out, void *affinity, int count, unsigned flags, CUdevice device) {
    CREATE(device, CALL(cuCtxCreate_v3, out, affinity, count, flags, device), out);
}

EXPORT CUresult cuCtxCreate_v4(CUcontext *out, void *params, unsigned flags, CUdevice device) {
    CREATE(device, CALL(cuCtxCreate_v4, out, params, flags, device), out);
}

EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *out, CUresourceDesc desc, CUdevice device, unsigned flags) {
    CREATE(device, CALL(cuGreenCtxCreate, out, desc, device, flags), out);
}

/* The primary context is known by its device, and counted once however often it is retained. */
#define PRIMARY(device) ((uint64_t)(device) + 1)

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device) {
    struct hold *hold;
    CUresult rc = begin(device, &hold);
    if (rc)
        return rc;
    rc = CALL(cuDevicePrimaryCtxRetain, out, device);
    return end(rc, hold, PRIMARY(device), rc ? NULL : *out);
}

static CUresult released(CUresult rc, CUdevice device) {
    unsigned flags;
    int active = 0;
    if (!rc && (CALL(cuDevicePrimaryCtxGetState, device, &flags, &active) || !active))
        forget(PRIMARY(device));
    return rc;
}

#define RELEASE(name) \
    EXPORT CUresult name(CUdevice device) { return released(CALL(name, device), device); }
RELEASE(cuDevicePrimaryCtxRelease)
RELEASE(cuDevicePrimaryCtxRelease_v2)
RELEASE(cuDevicePrimaryCtxReset)
RELEASE(cuDevicePrimaryCtxReset_v2)

#define DESTROY(name, type) \
    EXPORT CUresult name(type context) \
    { \
        CUresult rc = CALL(name, context); \
        if (!rc) \
            forget(KEY(context)); \
        return rc; \
    }
DESTROY(cuCtxDestroy, CUcontext)
DESTROY(cuCtxDestroy_v2, CUcontext)
DESTROY(cuGreenCtxDestroy, CUgreenCtx)
