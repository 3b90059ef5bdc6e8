/* Plain, pitched, managed and virtual memory, arrays, graphs: charge first, ask the driver, take the charge back if it
 * says no. */
#include "fgpu.h"

HELPER(cuDeviceGraphMemTrim, (CUdevice));

static uint64_t times(uint64_t a, uint64_t b) {
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/* Charge the GPU of the current context. */
static CUresult claim_here(uint64_t bytes, struct hold **hold) {
    struct place here;
    CUresult rc = fgpu_place(NULL, &here);
    return rc ? rc : hold_new(here.gpu, bytes, here.context, hold);
}

/* Charge the GPU of a location; what is not on a GPU is free. */
static CUresult claim_at(const CUlocation *where, uint64_t bytes, struct hold **hold) {
    CUresult rc = fgpu_ready();
    *hold = NULL;
    if (rc || !where || where->type != LOCATION_DEVICE) return rc;
    int gpu = fgpu_index(where->id);
    return gpu < 0 ? CUDA_INVALID_DEVICE : hold_new(gpu, bytes, NULL, hold);
}

#define FREE(name, kind, type) \
    WRAP(name, (type what)) { \
        CUresult rc = CALL(name, (what)); \
        if (!rc) \
            ledger_drop(kind, KEY(what), NULL); \
        return rc; \
    }
FREE(cuMemFree_v2, HELD_POINTER, CUdeviceptr)
FREE(cuMemRelease, HELD_HANDLE, CUmemHandle)
FREE(cuArrayDestroy, HELD_ARRAY, CUarray)
FREE(cuMipmappedArrayDestroy, HELD_MIPMAP, CUmipmap)

#define ALLOCATE(name, kind, key, claim, params, args) \
    WRAP(name, params) { \
        struct hold *hold; \
        CUresult rc = claim; \
        if (rc) return rc; \
        rc = CALL(name, args); \
        return hold_settle(rc, hold, kind, rc ? 0 : KEY(key)); \
    }
ALLOCATE(cuMemAlloc_v2, HELD_POINTER, *out, claim_here(bytes, &hold), (CUdeviceptr *out, size_t bytes), (out, bytes))
ALLOCATE(cuMemAllocManaged, HELD_POINTER, *out, claim_here(bytes, &hold),
         (CUdeviceptr *out, size_t bytes, unsigned flags), (out, bytes, flags))

/* The pitch is the driver's to choose: charge for rows of a multiple of 512 bytes, then correct to what it chose. */
WRAP(cuMemAllocPitch_v2, (CUdeviceptr *out, size_t *pitch, size_t width, size_t rows, unsigned element)) {
    struct hold *hold;
    CUresult rc = claim_here(width > UINT64_MAX - 511 ? UINT64_MAX : times((width + 511) & ~511ull, rows), &hold);
    if (rc) return rc;
    rc = CALL(cuMemAllocPitch_v2, (out, pitch, width, rows, element));
    if (!rc && hold_resize(hold, times(*pitch, rows))) {
        CALL(cuMemFree_v2, (*out));
        rc = CUDA_OUT_OF_MEMORY;
    }
    return hold_settle(rc, hold, HELD_POINTER, rc ? 0 : *out);
}

/* Sparse arrays and those mapped later have no memory of their own. */
static uint64_t array_bytes(const CUarray3DDesc *d, unsigned levels) {
    uint64_t sum = 0, texel = 4;
    if (!d || d->flags & (ARRAY_SPARSE | ARRAY_DEFERRED)) return 0;
    if (d->format == 0x01 || d->format == 0x08 || (d->format >= 0xc0 && d->format <= 0xc5))
        texel = 1; /* 8-bit formats; block-compressed and unknown ones count as 32-bit */
    else if (d->format == 0x02 || d->format == 0x09 || d->format == 0x10 || (d->format >= 0xc6 && d->format <= 0xcb))
        texel = 2;
    for (unsigned level = 0; level < levels && level < 32; level++) {
        uint64_t layers = d->flags & ARRAY_LAYERED ? d->depth : most(d->depth >> level, 1);
        uint64_t area = times(most(d->width >> level, 1), most(d->height >> level, 1));
        uint64_t bytes = times(area, times(most(layers, 1), d->channels * texel));
        sum = bytes > UINT64_MAX - sum ? UINT64_MAX : sum + bytes;
    }
    return sum;
}

#define FLAT(d) (d ? &(CUarray3DDesc){d->width, d->height, 0, d->format, d->channels, 0} : NULL)
ALLOCATE(cuArrayCreate_v2, HELD_ARRAY, *out, claim_here(array_bytes(FLAT(d), 1), &hold),
         (CUarray *out, const CUarrayDesc *d), (out, d))
ALLOCATE(cuArray3DCreate_v2, HELD_ARRAY, *out, claim_here(array_bytes(d, 1), &hold),
         (CUarray *out, const CUarray3DDesc *d), (out, d))
ALLOCATE(cuMipmappedArrayCreate, HELD_MIPMAP, *out, claim_here(array_bytes(d, levels), &hold),
         (CUmipmap *out, const CUarray3DDesc *d, unsigned levels), (out, d, levels))

/* Virtual memory management: the memory lives while a handle or a mapping does. */
ALLOCATE(cuMemCreate, HELD_HANDLE, *out, claim_at(props ? &props->location : NULL, bytes, &hold),
         (CUmemHandle *out, size_t bytes, const CUmemProp *props, unsigned long long flags), (out, bytes, props, flags))

WRAP(cuMemMap, (CUdeviceptr at, size_t bytes, size_t offset, CUmemHandle handle, unsigned long long flags)) {
    CUresult rc = CALL(cuMemMap, (at, bytes, offset, handle, flags));
    struct hold *hold = rc ? NULL : ledger_find(HELD_HANDLE, handle);
    if (hold)
        ledger_put(HELD_MAP, at, bytes, hold);
    return rc;
}

WRAP(cuMemUnmap, (CUdeviceptr at, size_t bytes)) {
    CUresult rc = CALL(cuMemUnmap, (at, bytes));
    uint64_t size = 0;
    for (CUdeviceptr end = at + bytes; !rc && at < end && ledger_drop(HELD_MAP, at, &size); at += size) {
    }
    return rc;
}

WRAP(cuMemRetainAllocationHandle, (CUmemHandle *out, void *address)) {
    CUresult rc = CALL(cuMemRetainAllocationHandle, (out, address));
    struct hold *hold = rc ? NULL : ledger_find_address(HELD_MAP, KEY(address));
    if (hold)
        ledger_put(HELD_HANDLE, *out, 0, hold);
    return rc;
}

/* A graph's memory is charged when its nodes are made, until the graph and all executables made from it are gone. */
static CUresult claim_node(const CUallocNode *node, struct hold **hold) {
    return claim_at(node ? &node->pool.location : NULL, node ? node->bytes : 0, hold);
}

#define ADD_NODE(name, memory, params, args) \
    ALLOCATE(name, HELD_GRAPH, graph, claim_node(memory, &hold), params, args)
#define NODE CUgraphNode *out, CUgraph graph, const CUgraphNode *after
#define MEMORY_OF(node) (node && node->type == NODE_MEM_ALLOC ? &node->alloc : NULL)
ADD_NODE(cuGraphAddMemAllocNode, node, (NODE, size_t count, CUallocNode *node), (out, graph, after, count, node))
ADD_NODE(cuGraphAddNode, MEMORY_OF(node), (NODE, size_t count, CUnodeParams *node), (out, graph, after, count, node))
ADD_NODE(cuGraphAddNode_v2, MEMORY_OF(node), (NODE, const void *edges, size_t count, CUnodeParams *node),
         (out, graph, after, edges, count, node))

#define INSTANTIATE(name, params, args) \
    WRAP(name, params) { \
        CUresult rc = CALL(name, args); \
        if (!rc) \
            ledger_share(HELD_GRAPH, KEY(graph), HELD_EXEC, KEY(*out)); \
        return rc; \
    }
#define INSTANTIATE_LOGGING(name) \
    INSTANTIATE(name, (CUgraphExec *out, CUgraph graph, CUgraphNode *bad, char *log, size_t room), \
                (out, graph, bad, log, room))
#define INSTANTIATE_WITH(name, type) INSTANTIATE(name, (CUgraphExec *out, CUgraph graph, type how), (out, graph, how))
INSTANTIATE_LOGGING(cuGraphInstantiate)
INSTANTIATE_LOGGING(cuGraphInstantiate_v2)
INSTANTIATE_WITH(cuGraphInstantiateWithFlags, unsigned long long)
INSTANTIATE_WITH(cuGraphInstantiateWithParams, void *)
INSTANTIATE_WITH(cuGraphInstantiateWithParams_ptsz, void *)

/* Memory that an executable has used stays with the driver until it is trimmed: give it back with the charge. */
WRAP(cuGraphExecDestroy, (CUgraphExec exec)) {
    CUresult rc = CALL(cuGraphExecDestroy, (exec));
    bool had = false;
    while (!rc && ledger_drop(HELD_EXEC, KEY(exec), NULL))
        had = true;
    for (CUdevice device = 0; had && fgpu_index(device) >= 0; device++)
        CALL(cuDeviceGraphMemTrim, (device));
    return rc;
}

WRAP(cuGraphDestroy, (CUgraph graph)) {
    CUresult rc = CALL(cuGraphDestroy, (graph));
    while (!rc && ledger_drop(HELD_GRAPH, KEY(graph), NULL)) {
    }
    return rc;
}

/* What programs are told: the share as the total, and no more free than the container may still take. */
WRAP(cuMemGetInfo_v2, (size_t *free, size_t *total)) {
    struct place here;
    size_t really_free, really_there;
    uint64_t used;
    CUresult rc;
    if ((rc = fgpu_place(NULL, &here)) || (rc = CALL(cuMemGetInfo_v2, (&really_free, &really_there)))) return rc;
    pools_reconcile(false);
    limits_refresh();
    if (!region_used(here.gpu, &used)) return CUDA_SYSTEM_NOT_READY;
    uint64_t limit = fgpu_limits.gpu[here.gpu].mem_bytes;
    if (free)
        *free = least(used < limit ? limit - used : 0, really_free);
    if (total)
        *total = least(limit, really_there);
    return CUDA_SUCCESS;
}

WRAP(cuDeviceTotalMem_v2, (size_t *bytes, CUdevice device)) {
    CUresult rc = fgpu_ready();
    if (!rc)
        rc = CALL(cuDeviceTotalMem_v2, (bytes, device));
    int gpu = rc ? -1 : fgpu_index(device);
    limits_refresh();
    if (gpu >= 0)
        *bytes = least(*bytes, fgpu_limits.gpu[gpu].mem_bytes);
    return rc;
}

/* The first versions of the interface (32-bit sizes and pointers, before CUDA 3.2) are not offered. */
#define REFUSED(name) \
    WRAP(name, (void)) { return CUDA_NOT_SUPPORTED; }
REFUSED(cuMemAlloc)
REFUSED(cuMemAllocPitch)
REFUSED(cuArrayCreate)
REFUSED(cuArray3DCreate)
REFUSED(cuMemGetInfo)
REFUSED(cuDeviceTotalMem)
