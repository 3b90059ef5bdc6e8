/* Stream-ordered memory. What a pool costs is what it has reserved, freed blocks that it keeps included. */
#include "fgpu.h"

HELPER(cuDeviceGetMemPool, (CUmemPool *, CUdevice));
HELPER(cuDeviceGetDefaultMemPool, (CUmemPool *, CUdevice));
HELPER(cuMemPoolGetAttribute, (CUmemPool, int, void *));
HELPER(cuStreamIsCapturing, (CUstream, int *));
HELPER(cuStreamGetCaptureInfo_v2, (CUstream, int *, uint64_t *, CUgraph *, const void **, size_t *));
HELPER(cuStreamGetCaptureInfo_v3, (CUstream, int *, uint64_t *, CUgraph *, const void **, const void **, size_t *));

PER_PROCESS static pthread_mutex_t pools = PTHREAD_MUTEX_INITIALIZER;

WRAP(cuMemPoolTrimTo, (CUmemPool pool, size_t keep)) {
    CUresult rc = CALL(cuMemPoolTrimTo, (pool, keep));
    pools_reconcile(false);
    return rc;
}

static uint64_t attribute(struct hold *hold, int which, uint64_t otherwise) {
    uint64_t value = otherwise;
    return CALL(cuMemPoolGetAttribute, (hold->pool, which, &value)) ? otherwise : value;
}

/* `and_trim`, like the driver when memory runs out: what pools keep unused is given back before anybody is refused. */
static CUresult correct(struct hold *hold, bool and_trim) {
    if (and_trim && hold->gpu >= 0)
        CALL(cuMemPoolTrimTo, (hold->pool, 0));
    return hold_resize(hold, attribute(hold, POOL_RESERVED_CURRENT, hold->bytes));
}

void pools_reconcile(bool and_trim) {
    LOCKED(pools);
    ledger_each(HELD_POOL, correct, and_trim);
}

static struct hold *charge(CUmemPool pool, int gpu) {
    struct hold *hold;
    if (hold_new(gpu, 0, NULL, &hold)) return NULL;
    hold->pool = pool;
    ledger_put(HELD_POOL, KEY(pool), 0, hold);
    return hold;
}

/* The charge of a pool. One that the program did not create is a GPU's own, and charged from when it is first seen. */
static struct hold *hold_of(CUmemPool pool, int gpu) {
    struct hold *hold = ledger_find(HELD_POOL, KEY(pool));
    CUmemPool own;
    for (CUdevice device = 0; !hold && fgpu_index(device) >= 0; device++)
        if (!CALL(cuDeviceGetDefaultMemPool, (&own, device)) && own == pool)
            hold = charge(pool, fgpu_index(device));
    return hold ? hold : charge(pool, gpu);
}

/* Charge for what the pool may have to grow by, beyond the blocks it has idle; trim once before saying no. */
static CUresult reserve(struct hold *hold, uint64_t bytes) {
    for (int attempt = 0; attempt < 2; attempt++) {
        uint64_t reserved = attribute(hold, POOL_RESERVED_CURRENT, hold->bytes);
        uint64_t idle = reserved - attribute(hold, POOL_USED_CURRENT, reserved);
        uint64_t growth = bytes > idle ? bytes - idle : 0;
        if (growth <= UINT64_MAX - reserved && hold_resize(hold, reserved + growth) == CUDA_SUCCESS)
            return CUDA_SUCCESS;
        ledger_each(HELD_POOL, correct, true);
    }
    return CUDA_OUT_OF_MEMORY;
}

/* The graph that the stream records into, NULL if it works. Version 2 fails for what has edges of new kinds; where
 * nothing can be told, and the stream may record, nothing is allocated. */
static CUresult recording(CUstream stream, CUgraph *graph) {
    int status = 0;
    size_t count;
    uint64_t id;
    const void *nodes, *edges;
    *graph = NULL;
    CUresult rc = REAL(cuStreamGetCaptureInfo_v3)
                      ? CALL(cuStreamGetCaptureInfo_v3, (stream, &status, &id, graph, &nodes, &edges, &count))
                      : CALL(cuStreamGetCaptureInfo_v2, (stream, &status, &id, graph, &nodes, &count));
    if (rc && !CALL(cuStreamIsCapturing, (stream, &status)) && !status) return CUDA_SUCCESS;
    if (rc || status != 1)
        *graph = NULL;
    return rc;
}

/* The graph of a capture that fails goes with it, and nobody will destroy it. Which one it was can be asked only while
 * all is well, so it is remembered: as the size of an entry that costs nothing. */
#define CAPTURE(stream) HELD_CAPTURE, stream == STREAM_PER_THREAD ? (uint64_t)pthread_self() : KEY(stream)

CUresult capture_begun(CUresult rc, CUstream stream) {
    CUgraph graph;
    struct hold *hold;
    if (rc) return rc;
    ledger_drop(CAPTURE(stream), NULL); /* of a thread that has ended */
    if (!recording(stream, &graph) && graph && !hold_new(-1, 0, NULL, &hold))
        ledger_put(CAPTURE(stream), KEY(graph), hold);
    return rc;
}

CUresult capture_ended(CUresult rc, CUstream stream, const CUgraph *out) {
    uint64_t graph;
    int status = 0;
    bool goes_on = rc && (!out || (!CALL(cuStreamIsCapturing, (stream, &status)) && status));
    if (!goes_on && ledger_drop(CAPTURE(stream), &graph) && (rc || !out || !*out))
        ledger_drop_all(HELD_GRAPH, graph);
    return rc;
}

#define END_CAPTURE(name, at) \
    WRAP(name, (CUstream stream, CUgraph *out)) { return capture_ended(CALL(name, (stream, out)), at, out); }
END_CAPTURE(cuStreamEndCapture, stream)
END_CAPTURE(cuStreamEndCapture_ptsz, PER_THREAD(stream))

/* A free recorded into a graph happens when the graph runs; the charge stays. */
#define FREE_ASYNC(name, at) \
    WRAP(name, (CUdeviceptr pointer, CUstream stream)) { \
        CUgraph graph; \
        CUresult rc = CALL(name, (pointer, stream)); \
        if (!rc && !recording(at, &graph) && !graph) \
            ledger_drop(HELD_POINTER, pointer, NULL); \
        return rc; \
    }
FREE_ASYNC(cuMemFreeAsync, stream)
FREE_ASYNC(cuMemFreeAsync_ptsz, PER_THREAD(stream))

struct request {
    CUgraph graph; /* the request is recorded there, and its memory is the graph's */
    struct hold *hold;
    CUstream stream;
    uint64_t bytes;
};

/* Charge the pool (NULL: the device's current one) or the graph. Keeps the lock of the pools for `end` if it succeeds
 * with a pool. */
static CUresult begin(struct request *request, CUmemPool pool) {
    struct place here;
    CUresult rc = fgpu_place(request->stream, &here);
    if (rc || (rc = recording(request->stream, &request->graph))) return rc;
    if (!pool && (rc = CALL(cuDeviceGetMemPool, (&pool, here.device)))) return rc;
    pthread_mutex_lock(&pools);
    request->hold = hold_of(pool, here.gpu);
    if (request->graph) {
        int gpu = request->hold ? request->hold->gpu : here.gpu;
        pthread_mutex_unlock(&pools);
        return hold_new(gpu, request->bytes, NULL, &request->hold);
    }
    rc = request->hold ? reserve(request->hold, request->bytes) : CUDA_OUT_OF_MEMORY;
    if (rc)
        pthread_mutex_unlock(&pools);
    return rc;
}

static CUresult end(CUresult rc, const struct request *request, const CUdeviceptr *out) {
    struct hold *hold = request->hold;
    if (request->graph) return hold_settle(rc, hold, HELD_GRAPH, KEY(request->graph));
    if (!rc && correct(hold, false)) { /* it grew by more than fits */
        CALL(cuMemFreeAsync, (*out, request->stream));
        rc = CUDA_OUT_OF_MEMORY;
    }
    if (rc)
        correct(hold, true);
    else
        ledger_put(HELD_POINTER, *out, request->bytes, hold);
    pthread_mutex_unlock(&pools);
    return rc;
}

#define ALLOCATE_ASYNC(name, of, at, params, args) \
    WRAP(name, params) { \
        struct request request = {.stream = at, .bytes = bytes}; \
        CUresult rc = begin(&request, of); \
        return rc ? rc : end(CALL(name, args), &request, out); \
    }
#define ALLOCATE_HERE(name, at) \
    ALLOCATE_ASYNC(name, NULL, at, (CUdeviceptr *out, size_t bytes, CUstream stream), (out, bytes, stream))
#define ALLOCATE_FROM_POOL(name, at) \
    ALLOCATE_ASYNC(name, pool, at, (CUdeviceptr *out, size_t bytes, CUmemPool pool, CUstream stream), \
                   (out, bytes, pool, stream))
ALLOCATE_HERE(cuMemAllocAsync, stream)
ALLOCATE_HERE(cuMemAllocAsync_ptsz, PER_THREAD(stream))
ALLOCATE_FROM_POOL(cuMemAllocFromPoolAsync, stream)
ALLOCATE_FROM_POOL(cuMemAllocFromPoolAsync_ptsz, PER_THREAD(stream))

WRAP(cuMemPoolCreate, (CUmemPool *out, const CUpoolProps *props)) {
    int gpu;
    CUresult rc = fgpu_account(props ? &props->location : NULL, props ? props->type : 0, &gpu);
    if (!rc)
        rc = CALL(cuMemPoolCreate, (out, props));
    if (!rc)
        charge(*out, gpu);
    return rc;
}

/* The driver's own pools of other kinds of memory are charged like those that programs make. */
#define GET_POOL(name) \
    WRAP(name, (CUmemPool *out, CUlocation *where, int type)) { \
        int gpu; \
        CUresult rc = fgpu_account(where, type, &gpu); \
        if (!rc) \
            rc = CALL(name, (out, where, type)); \
        if (rc) return rc; \
        LOCKED(pools); \
        if (!ledger_find(HELD_POOL, KEY(*out))) \
            charge(*out, gpu); \
        return rc; \
    }
GET_POOL(cuMemGetDefaultMemPool)
GET_POOL(cuMemGetMemPool)

/* Memory still in use keeps the pool's charge until the last pointer into it is freed. */
WRAP(cuMemPoolDestroy, (CUmemPool pool)) {
    pools_reconcile(false);
    CUresult rc = CALL(cuMemPoolDestroy, (pool));
    if (!rc)
        ledger_drop(HELD_POOL, KEY(pool), NULL);
    return rc;
}
