/* The simulated driver's contexts: made and primary ones, a stack of them for each thread, their limits. */
#include "cuda.h"

enum { STACK = 64 };

__thread struct context *current;
static __thread struct context *below[STACK]; /* what was current before */
static __thread unsigned pushed;
static struct context *made;
static unsigned primary_flags[SIM_GPUS];

static bool is_context(const struct context *context)
{
    if (context >= primary && context < primary + visible_count)
        return true;
    pthread_mutex_lock(&big);
    const struct context *at = made;
    while (at && at != context)
        at = at->next;
    pthread_mutex_unlock(&big);
    if (at && at->dead && at->is_green)
        abort(); /* undefined: its validity was the green one's */
    return at && !at->dead;
}

static CUresult push(struct context *context)
{
    if (pushed == STACK)
        return CUDA_INVALID_VALUE;
    below[pushed++] = current;
    current = context;
    return CUDA_SUCCESS;
}

static struct context *new_context(unsigned flags, CUdevice d)
{
    struct context *context = zeroed(sizeof *context);
    context->device = d;
    context->flags = flags;
    pthread_mutex_lock(&big);
    context->next = made;
    made = context;
    pthread_mutex_unlock(&big);
    return context;
}

static CUresult make_context(CUcontext *out, unsigned flags, CUdevice d)
{
    NEED_DEVICE(d);
    if (!out)
        return CUDA_INVALID_VALUE;
    return push(*out = new_context(flags, d));
}

API CUresult cuCtxCreate(CUcontext *out, unsigned flags, CUdevice d) { return make_context(out, flags, d); }
API CUresult cuCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice d) { return make_context(out, flags, d); }
API CUresult cuCtxCreate_v3(CUcontext *out, void *affinity, int n, unsigned flags, CUdevice d) { (void)affinity, (void)n; return make_context(out, flags, d); }
API CUresult cuCtxCreate_v4(CUcontext *out, void *params, unsigned flags, CUdevice d) { (void)params; return make_context(out, flags, d); }

/* A part of a GPU: by another name a context, whose memory and events are the primary one's. It retains that. */
struct green { struct context *face; };
API CUresult cuGreenCtxCreate(CUgreenCtx *out, CUresourceDesc desc, CUdevice d, unsigned flags)
{
    (void)desc, (void)flags;
    NEED_DEVICE(d);
    struct green *green = *out = zeroed(sizeof *green);
    green->face = new_context(0, d);
    green->face->is_green = true;
    primary[d].primary_refs++;
    return CUDA_SUCCESS;
}
API CUresult cuCtxFromGreenCtx(CUcontext *out, CUgreenCtx c)
{
    NEED_INIT;
    *out = ((struct green *)c)->face;
    return CUDA_SUCCESS;
}
API CUresult cuGreenCtxDestroy(CUgreenCtx c)
{
    NEED_INIT;
    struct context *face = ((struct green *)c)->face;
    if (face->sending)
        abort();
    face->dead = true;
    if (current == face)
        current = pushed ? below[--pushed] : NULL;
    free(c);
    return cuDevicePrimaryCtxRelease_v2(face->device);
}

/* Nobody may be sending it a command meanwhile. */
static void end(struct context *context)
{
    if (context->sending)
        abort();
    free_all_of(context);
}

API CUresult cuCtxDestroy_v2(CUcontext c)
{
    NEED_INIT;
    struct context *context = c;
    if (!is_context(context) || (context >= primary && context < primary + visible_count))
        return CUDA_INVALID_CONTEXT;
    end(context);
    context->dead = true; /* and kept: other threads may have it current */
    if (current == context)
        current = pushed ? below[--pushed] : NULL;
    return CUDA_SUCCESS;
}

API CUresult cuCtxDestroy(CUcontext c) { return cuCtxDestroy_v2(c); }
CUresult cuCtxDetach(CUcontext);
API CUresult cuCtxDetach(CUcontext c) { return cuCtxDestroy_v2(c); } /* of the one use that cuCtxCreate counts */
CUresult cuCtxAttach(CUcontext *, unsigned);
API CUresult cuCtxAttach(CUcontext *out, unsigned flags) { *out = current; return flags ? CUDA_INVALID_VALUE : CUDA_SUCCESS; }

/* The top of the stack is replaced, or taken away. */
API CUresult cuCtxSetCurrent(CUcontext c)
{
    NEED_INIT;
    if (c && !is_context(c))
        return CUDA_INVALID_CONTEXT;
    current = c ? c : pushed ? below[--pushed] : NULL;
    return CUDA_SUCCESS;
}
API CUresult cuCtxGetCurrent(CUcontext *out)
{
    NEED_INIT;
    *out = current;
    return CUDA_SUCCESS;
}
API CUresult cuCtxPushCurrent_v2(CUcontext c)
{
    NEED_INIT;
    return is_context(c) ? push(c) : CUDA_INVALID_CONTEXT;
}
API CUresult cuCtxPopCurrent_v2(CUcontext *out)
{
    NEED_CONTEXT;
    if (out)
        *out = current;
    current = pushed ? below[--pushed] : NULL;
    return CUDA_SUCCESS;
}
API CUresult cuCtxPushCurrent(CUcontext c) { return cuCtxPushCurrent_v2(c); }
API CUresult cuCtxPopCurrent(CUcontext *out) { return cuCtxPopCurrent_v2(out); }
API CUresult cuCtxGetDevice(CUdevice *out) { NEED_CONTEXT; *out = current->device; return CUDA_SUCCESS; }
API CUresult cuCtxGetId(CUcontext c, unsigned long long *out) { NEED_INIT; *out = (uintptr_t)(c ? c : current); return *out ? CUDA_SUCCESS : CUDA_INVALID_CONTEXT; }

/* Primary contexts. */
API CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice d)
{
    NEED_DEVICE(d);
    primary[d].primary_refs++;
    primary[d].flags = primary_flags[d];
    *out = &primary[d];
    return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d)
{
    NEED_DEVICE(d);
    if (!primary[d].primary_refs)
        return CUDA_INVALID_CONTEXT;
    if (--primary[d].primary_refs == 0)
        end(&primary[d]);
    return CUDA_SUCCESS;
}
API CUresult cuDevicePrimaryCtxRelease(CUdevice d) { return cuDevicePrimaryCtxRelease_v2(d); }

API CUresult cuDevicePrimaryCtxReset_v2(CUdevice d)
{
    NEED_DEVICE(d);
    primary[d].primary_refs = 0;
    primary_flags[d] = 0;
    end(&primary[d]);
    return CUDA_SUCCESS;
}
API CUresult cuDevicePrimaryCtxReset(CUdevice d) { return cuDevicePrimaryCtxReset_v2(d); }

API CUresult cuDevicePrimaryCtxGetState(CUdevice d, unsigned *flags, int *active)
{
    NEED_DEVICE(d);
    *flags = primary_flags[d];
    *active = primary[d].primary_refs > 0;
    return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice d, unsigned flags)
{
    NEED_DEVICE(d);
    primary_flags[d] = flags;
    return CUDA_SUCCESS;
}
API CUresult cuDevicePrimaryCtxSetFlags(CUdevice d, unsigned flags) { return cuDevicePrimaryCtxSetFlags_v2(d, flags); }

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
    if (which < 0 || which > LIMIT_PER_BLOCK)
        return 215;
    *out = context_limit[which];
    return CUDA_SUCCESS;
}
API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    NEED_CONTEXT;
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}
API CUresult cuCtxGetApiVersion(CUcontext c, unsigned *out) { (void)c; *out = 3020; return CUDA_SUCCESS; }
API CUresult cuCtxGetFlags(unsigned *out) { NEED_CONTEXT; *out = current->flags; return CUDA_SUCCESS; }

static __thread int cache_config;
API CUresult cuCtxSetCacheConfig(int config) { NEED_CONTEXT; cache_config = config; return CUDA_SUCCESS; }
API CUresult cuCtxGetCacheConfig(int *out) { NEED_CONTEXT; *out = cache_config; return CUDA_SUCCESS; }

static __thread int bank_config = 1;
API CUresult cuCtxSetSharedMemConfig(int config) { NEED_CONTEXT; bank_config = config; return CUDA_SUCCESS; }
API CUresult cuCtxGetSharedMemConfig(int *out) { NEED_CONTEXT; *out = bank_config; return CUDA_SUCCESS; }

/* Peers: who may reach whose memory. */
static bool peer[SIM_GPUS][SIM_GPUS];
static CUresult set_peer(CUcontext c, bool on, CUresult already)
{
    NEED_CONTEXT;
    if (!is_context(c) || ((struct context *)c)->device == current->device)
        return is_context(c) ? CUDA_INVALID_DEVICE : CUDA_INVALID_CONTEXT;
    bool *at = &peer[current->device][((struct context *)c)->device];
    if (*at == on)
        return already;
    *at = on;
    return CUDA_SUCCESS;
}
API CUresult cuCtxEnablePeerAccess(CUcontext c, unsigned flags) { return flags ? CUDA_INVALID_VALUE : set_peer(c, true, 704); }
API CUresult cuCtxDisablePeerAccess(CUcontext c) { return set_peer(c, false, 705); }
