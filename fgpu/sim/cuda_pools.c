/* The simulated driver's pools of memory. */
#include "cuda.h"

/* Memory freed into a pool goes back to the GPU when the program synchronises, down to the pool's threshold. */
static void shrink(struct pool *pool, uint64_t keep)
{
    uint64_t needed = (pool->used + POOL_CHUNK - 1) / POOL_CHUNK * POOL_CHUNK;
    needed = needed > keep ? needed : keep;
    if (!pool->host && pool->reserved > needed) {
        sim_release(visible[pool->device], pool->reserved - needed);
        pool->reserved = needed;
    }
}

void pools_synchronised(void)
{
    pthread_mutex_lock(&big);
    for (int i = 0; i < visible_count; i++)
        shrink(&default_pool[i], default_pool[i].keep);
    pthread_mutex_unlock(&big);
}

/* Pools. */
API CUresult cuDeviceGetMemPool(CUmemPool *out, CUdevice d) { NEED_DEVICE(d); *out = current_pool[d]; return CUDA_SUCCESS; }
API CUresult cuDeviceSetMemPool(CUdevice d, CUmemPool p) { NEED_DEVICE(d); current_pool[d] = p; return p ? CUDA_SUCCESS : CUDA_INVALID_VALUE; }
API CUresult cuDeviceGetDefaultMemPool(CUmemPool *out, CUdevice d) { NEED_DEVICE(d); *out = &default_pool[d]; return CUDA_SUCCESS; }

API CUresult cuMemPoolCreate(CUmemPool *out, const CUpoolProps *props)
{
    NEED_INIT;
    if (!out || !props)
        return CUDA_INVALID_VALUE;
    struct pool *pool = *out = zeroed(sizeof *pool);
    int device = props->type == ALLOCATION_MANAGED && device_at(&props->location) < 0 ? 0 : device_at(&props->location);
    pool->host = device < 0;
    pool->device = pool->host ? 0 : device;
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolDestroy(CUmemPool p)
{
    struct pool *pool = p;
    pthread_mutex_lock(&big);
    if (!pool->host)
        shrink(pool, 0);
    pthread_mutex_unlock(&big);
    return CUDA_SUCCESS; /* leaked: pointers into it may still be freed */
}

API CUresult cuMemPoolTrimTo(CUmemPool p, size_t keep)
{
    pthread_mutex_lock(&big);
    shrink(p, keep);
    pthread_mutex_unlock(&big);
    return CUDA_SUCCESS;
}

enum { REUSE_EVENTS = 1, REUSE_INTERNAL = 3, THRESHOLD = 4, RESERVED_HIGH = 6, USED_HIGH = 8 };
API CUresult cuMemPoolGetAttribute(CUmemPool p, int attribute, void *out)
{
    struct pool *pool = p;
    const uint64_t values[] = {0, 0, 0, 0, pool->keep, pool->reserved, pool->reserved_high, pool->used, pool->used_high};
    if (attribute < REUSE_EVENTS || attribute > USED_HIGH)
        return CUDA_INVALID_VALUE;
    if (attribute <= REUSE_INTERNAL)
        *(int *)out = !(pool->no_reuse & 1u << attribute);
    else
        *(uint64_t *)out = values[attribute];
    return CUDA_SUCCESS;
}

/* The driver's own pool of host memory, and of a device's. */
static struct pool host_pool = {.host = 1};
API CUresult cuMemGetDefaultMemPool(CUmemPool *out, CUlocation *where, int type)
{
    NEED_INIT;
    int device = device_at(where);
    *out = type == ALLOCATION_MANAGED || device >= 0 ? (CUmemPool)&default_pool[device < 0 ? 0 : device] : (CUmemPool)&host_pool;
    return CUDA_SUCCESS;
}
API CUresult cuMemGetMemPool(CUmemPool *out, CUlocation *where, int type) { return cuMemGetDefaultMemPool(out, where, type); }

CUresult cuMemPoolSetAttribute(CUmemPool, int, void *);
API CUresult cuMemPoolSetAttribute(CUmemPool p, int attribute, void *value)
{
    struct pool *pool = p;
    if (attribute >= REUSE_EVENTS && attribute <= REUSE_INTERNAL)
        pool->no_reuse = *(int *)value ? pool->no_reuse & ~(1u << attribute) : pool->no_reuse | 1u << attribute;
    else if (attribute == THRESHOLD)
        pool->keep = *(uint64_t *)value;
    else if (attribute == RESERVED_HIGH && !*(uint64_t *)value)
        pool->reserved_high = pool->reserved;
    else if (attribute == USED_HIGH && !*(uint64_t *)value)
        pool->used_high = pool->used;
    else
        return CUDA_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static CUresult from_pool(CUdeviceptr *out, size_t n, struct pool *pool, struct stream *stream)
{
    NEED_CONTEXT;
    pool = pool ? pool : current_pool[device_of(stream)];
    if (stream->capture) {
        *out = take_addresses(n);
        struct act act = {.type = NODE_MEM_ALLOC, .alloc = {.bytes = n, .ptr = *out}};
        return submit(stream, &act);
    }
    if (pool->imported)
        return CUDA_NOT_SUPPORTED;
    pthread_mutex_lock(&big);
    uint64_t growth = n > pool->reserved - pool->used ? n - (pool->reserved - pool->used) : 0;
    growth = (growth + POOL_CHUNK - 1) / POOL_CHUNK * POOL_CHUNK;
    bool fits = pool->host || sim_reserve(visible[pool->device], growth);
    if (fits) {
        pool->reserved += growth;
        pool->used += n;
        pool->reserved_high = pool->reserved > pool->reserved_high ? pool->reserved : pool->reserved_high;
        pool->used_high = pool->used > pool->used_high ? pool->used : pool->used_high;
        struct block *block = add_block(pool->device, BLOCK_POINTER, n, 0);
        block->pool = pool;
        *out = block->address;
    }
    pthread_mutex_unlock(&big);
    return fits ? CUDA_SUCCESS : CUDA_OUT_OF_MEMORY;
}

API CUresult cuMemAllocAsync(CUdeviceptr *out, size_t n, CUstream s) { return from_pool(out, n, NULL, stream_of(s, false)); }
API CUresult cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t n, CUstream s) { return from_pool(out, n, NULL, stream_of(s, true)); }
API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t n, CUmemPool p, CUstream s) { return from_pool(out, n, p, stream_of(s, false)); }
API CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *out, size_t n, CUmemPool p, CUstream s) { return from_pool(out, n, p, stream_of(s, true)); }
API CUresult cuMemFreeAsync(CUdeviceptr p, CUstream s) { return stream_of(s, false)->capture ? CUDA_SUCCESS : cuMemFree_v2(p); }
API CUresult cuMemFreeAsync_ptsz(CUdeviceptr p, CUstream s) { return stream_of(s, true)->capture ? CUDA_SUCCESS : cuMemFree_v2(p); }
