/* Stream-ordered memory. What a pool costs is what it has reserved, freed blocks that it keeps included. */
#include <pthread.h>

#include "fgpu.h"

static pthread_mutex_t pools = PTHREAD_MUTEX_INITIALIZER;

static uint64_t attribute(struct hold *hold, int which, uint64_t otherwise) {
    uint64_t value = otherwise;
    return CALL(cuMemPoolGetAttribute, (CUmemPool)hold->pool, which, &value) ? otherwise : value;
}

static void reconcile(struct hold *hold) {
    if (hold->gpu >= 0)
        hold_resize(hold, attribute(hold, POOL_RESERVED_CURRENT, hold->bytes));
}

/* Like the driver when memory runs out: what pools keep unused is given back before anybody is refused. */
static void trim(struct hold *hold) {
    if (hold->gpu >= 0)
        CALL(cuMemPoolTrimTo, (CUmemPool)hold->pool, 0);
    reconcile(hold);
}

void pools_reconcile(bool and_trim) {
    pthread_mutex_lock(&pools);
    ledger_each(HELD_POOL, and_trim ? trim : reconcile);
    pthread_mutex_unlock(&pools);
}

static struct hold *add_pool(CUmemPool pool, int gpu) {
    struct hold *hold;
    if (hold_new(gpu, 0, NULL, &hold))
        return NULL;
    hold->pool = KEY(pool);
    ledger_put(HELD_POOL, KEY(pool), 0, hold);
    return hold;
}

/* Charge for what the pool may have to grow by, beyond the blocks it has idle; trim once before saying no. */
static CUresult reserve(struct hold *hold, uint64_t bytes) {
    for (int attempt = 0; attempt < 2; attempt++) {
        uint64_t reserved = attribute(hold, POOL_RESERVED_CURRENT, hold->bytes);
        uint64_t idle = reserved - attribute(hold, POOL_USED_CURRENT, reserved);
        uint64_t growth = bytes > idle ? bytes - idle : 0;
        if (growth <= UINT64_MAX - reserved && hold_resize(hold, reserved + growth) == CUDA_SUCCESS)
            return CUDA_SUCCESS;
        ledger_each(HELD_POOL, trim);
    }
    return CUDA_OUT_OF_MEMORY;
}

struct request {
    CUdeviceptr *out;
    size_t bytes;
    CUmemPool pool; /* NULL: the device's current pool */
    CUstream stream;
    bool per_thread;
};

static CUresult ask_driver(const struct request *r) {
    if (r->pool)
        return r->per_thread ? CALL(cuMemAllocFromPoolAsync_ptsz, r->out, r->bytes, r->pool, r->stream)
                             : CALL(cuMemAllocFromPoolAsync, r->out, r->bytes, r->pool, r->stream);
    return r->per_thread ? CALL(cuMemAllocAsync_ptsz, r->out, r->bytes, r->stream)
                         : CALL(cuMemAllocAsync, r->out, r->bytes, r->stream);
}

/* The caller holds the lock. A pool the program did not create is charged from when it is first seen. */
static CUresult allocate(const struct request *r, CUmemPool pool, int gpu) {
    struct hold *hold = ledger_find(HELD_POOL, KEY(pool), -1);
    hold = hold ? hold : add_pool(pool, gpu);
    CUresult rc = !hold ? CUDA_OUT_OF_MEMORY : hold->gpu < 0 ? CUDA_SUCCESS : reserve(hold, r->bytes);
    if (rc)
        return rc;
    rc = ask_driver(r);
    if (hold->gpu < 0)
        return rc; /* in host memory */
    if (!rc && hold_resize(hold, attribute(hold, POOL_RESERVED_CURRENT, hold->bytes))) {
        CALL(cuMemFreeAsync, *r->out, r->per_thread && !r->stream ? STREAM_PER_THREAD : r->stream);
        CALL(cuMemPoolTrimTo, pool, 0);
        rc = CUDA_OUT_OF_MEMORY; /* it grew by more than fits */
    }
    if (rc)
        reconcile(hold);
    else
        ledger_put(HELD_POINTER, *r->out, r->bytes, hold);
    return rc;
}

static bool capturing(CUstream stream, CUgraph *graph) {
    int status = 0;
    size_t count;
    uint64_t id;
    const void *nodes, *edges;
    CUresult rc = REAL(cuStreamGetCaptureInfo_v2)
                      ? CALL(cuStreamGetCaptureInfo_v2, stream, &status, &id, graph, &nodes, &count)
                      : CALL(cuStreamGetCaptureInfo_v3, stream, &status, &id, graph, &nodes, &edges, &count);
    return !rc && status == 1;
}

static CUresult async_alloc(struct request r) {
    int gpu;
    CUdevice device;
    CUcontext context;
    CUgraph graph;
    CUmemPool pool = r.pool;
    CUresult rc = fgpu_here(&gpu, &device, &context);
    if (rc)
        return rc;
    if (capturing(r.per_thread && !r.stream ? STREAM_PER_THREAD : r.stream, &graph)) {
        rc = graph_claim(graph, gpu, r.bytes);
        return rc ? rc : graph_settle(ask_driver(&r), graph, gpu, r.bytes);
    }
    rc = pool ? CUDA_SUCCESS : CALL(cuDeviceGetMemPool, &pool, device);
    if (rc)
        return rc;
    pthread_mutex_lock(&pools);
    rc = allocate(&r, pool, gpu);
    pthread_mutex_unlock(&pools);
    return rc;
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream) {
    return async_alloc((struct request){out, bytes, NULL, stream, false});
}

EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t bytes, CUstream stream) {
    return async_alloc((struct request){out, bytes, NULL, stream, true});
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemPool pool, CUstream stream) {
    return pool ? async_alloc((struct request){out, bytes, pool, stream, false}) : CUDA_INVALID_VALUE;
}

EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *out, size_t bytes, CUmemPool pool, CUstream stream) {
    return pool ? async_alloc((struct request){out, bytes, pool, stream, true}) : CUDA_INVALID_VALUE;
}

static CUresult freed(CUresult rc, CUdeviceptr pointer, bool recorded) {
    if (!rc && !recorded)
        ledger_drop(HELD_POINTER, pointer, NULL);
    return rc;
}

/* A free recorded into a graph happens when the graph runs; the charge stays. */
EXPORT CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
    CUgraph graph;
    return freed(CALL(cuMemFreeAsync, pointer, stream), pointer, capturing(stream, &graph));
}

EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream) {
    CUgraph graph;
    bool recorded = capturing(stream ? stream : STREAM_PER_THREAD, &graph);
    return freed(CALL(cuMemFreeAsync_ptsz, pointer, stream), pointer, recorded);
}

/* A pool in host memory gets a hold that is never charged. */
EXPORT CUresult cuMemPoolCreate(CUmemPool *out, const CUpoolProps *props) {
    CUresult rc = fgpu_ready();
    if (!rc)
        rc = CALL(cuMemPoolCreate, out, props);
    if (!rc)
        add_pool(*out, props->location.type == LOCATION_DEVICE ? fgpu_index(props->location.id) : -1);
    return rc;
}

/* Memory still in use keeps the pool's charge until the last pointer into it is freed. */
EXPORT CUresult cuMemPoolDestroy(CUmemPool pool) {
    pools_reconcile(false);
    CUresult rc = CALL(cuMemPoolDestroy, pool);
    if (!rc)
        ledger_drop(HELD_POOL, KEY(pool), NULL);
    return rc;
}

EXPORT CUresult cuMemPoolTrimTo(CUmemPool pool, size_t keep) {
    CUresult rc = CALL(cuMemPoolTrimTo, pool, keep);
    pools_reconcile(false);
    return rc;
}
