/* The simulated driver's memory: blocks, arrays, virtual memory management, pools. */
#include "cuda.h"

static struct block *blocks, *spare;
static uint64_t next_address = 0x7f0000000000ull;

uint64_t take_addresses(uint64_t bytes)
{
    return __atomic_fetch_add(&next_address, (bytes + 0x1fffff) & ~0x1fffffull, __ATOMIC_RELAXED);
}

struct block *add_block(int device, int kind, uint64_t bytes, uint64_t address)
{
    struct block *block = spare && spare->bytes == bytes ? spare : NULL; /* the last freed address comes back first */
    if (block)
        spare = block->next;
    else
        block = zeroed(sizeof *block);
    if (!block->address || address)
        block->address = address ? address : take_addresses(bytes);
    *block = (struct block){blocks, block->address, bytes, device, kind, 1, 0, 0, NULL, NULL, current};
    blocks = block;
    return block;
}

static struct block **find(int kind, uint64_t address)
{
    for (struct block **at = &blocks; *at; at = &(*at)->next)
        if ((*at)->kind == kind && (*at)->address == address)
            return at;
    return NULL;
}

struct block *block_at(int kind, uint64_t address)
{
    struct block **at = find(kind, address);
    return at ? *at : NULL;
}

struct block *block_around(uint64_t address)
{
    for (struct block *block = blocks; block; block = block->next)
        if (address - block->address < block->bytes)
            return block;
    return NULL;
}

/* The last block of this process that stands for an object takes its hold along. */
static void drop_object(int object)
{
    for (const struct block *block = blocks; block; block = block->next)
        if (block->object == object)
            return;
    sim_object_drop(object - 1);
}

static void drop_block(struct block **at, bool release)
{
    struct block *block = *at;
    *at = block->next;
    if (block->object)
        drop_object(block->object);
    else if (release && block->device >= 0)
        sim_release(visible[block->device], block->bytes);
    block->object = 0;
    block->next = spare;
    spare = block;
}

static CUresult allocate(int device, int kind, uint64_t bytes, uint64_t *out)
{
    if (!bytes || !out)
        return CUDA_INVALID_VALUE;
    if (device >= 0 && !sim_reserve(visible[device], bytes))
        return CUDA_OUT_OF_MEMORY;
    pthread_mutex_lock(&big);
    *out = add_block(device, kind, bytes, 0)->address;
    pthread_mutex_unlock(&big);
    return CUDA_SUCCESS;
}

CUresult release_block(int kind, uint64_t key)
{
    pthread_mutex_lock(&big);
    struct block **at = find(kind, key);
    if (at && (*at)->pool) {
        (*at)->pool->used -= (*at)->bytes;
        drop_block(at, false);
    } else if (at) {
        drop_block(at, true);
    }
    pthread_mutex_unlock(&big);
    return at ? CUDA_SUCCESS : CUDA_INVALID_VALUE;
}

API CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t n)
{
    NEED_CONTEXT;
    return allocate(current->device, BLOCK_POINTER, n, (uint64_t *)out);
}

CUresult cuMemAlloc_v9(CUdeviceptr *, size_t);
API CUresult cuMemAlloc_v9(CUdeviceptr *out, size_t n) { return cuMemAlloc_v2(out, n); } /* of a driver to come */

API CUresult cuMemAllocManaged(CUdeviceptr *out, size_t n, unsigned flags) { return flags ? cuMemAlloc_v2(out, n) : 1; }

API CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t rows, unsigned element)
{
    NEED_CONTEXT;
    *pitch = (width + 511) & ~(size_t)511;
    return element ? allocate(current->device, BLOCK_POINTER, *pitch * rows, (uint64_t *)out) : CUDA_INVALID_VALUE;
}

API CUresult cuMemFree_v2(CUdeviceptr p) { NEED_CONTEXT; return release_block(BLOCK_POINTER, p); }

/* Page-locked host memory. */
API CUresult cuMemHostAlloc(void **out, size_t n, unsigned flags)
{
    NEED_CONTEXT;
    (void)flags;
    return (*out = malloc(n)) ? CUDA_SUCCESS : CUDA_OUT_OF_MEMORY;
}
API CUresult cuMemAllocHost_v2(void **out, size_t n) { return cuMemHostAlloc(out, n, 0); }
API CUresult cuMemFreeHost(void *memory) { NEED_CONTEXT; free(memory); return CUDA_SUCCESS; }
API CUresult cuMemHostRegister_v2(void *memory, size_t n, unsigned flags) { (void)n, (void)flags; NEED_CONTEXT; return memory ? CUDA_SUCCESS : CUDA_INVALID_VALUE; }
API CUresult cuMemHostRegister(void *memory, size_t n, unsigned flags) { return cuMemHostRegister_v2(memory, n, flags); }
API CUresult cuMemHostUnregister(void *memory) { NEED_CONTEXT; return memory ? CUDA_SUCCESS : CUDA_INVALID_VALUE; }
API CUresult cuMemAllocHost(void) { return CUDA_SUCCESS; }

/* The first versions are there, but the hook offers none of them. */
API CUresult cuMemAlloc(void) { return CUDA_SUCCESS; }
API CUresult cuMemAllocPitch(void) { return CUDA_SUCCESS; }
API CUresult cuArrayCreate(void) { return CUDA_SUCCESS; }
API CUresult cuArray3DCreate(void) { return CUDA_SUCCESS; }
API CUresult cuMemGetInfo(void) { return CUDA_SUCCESS; }
API CUresult cuDeviceTotalMem(void) { return CUDA_SUCCESS; }

/* Arrays. */
static CUresult array(CUarray *out, uint64_t w, uint64_t h, uint64_t d, unsigned channels)
{
    uint64_t key;
    NEED_CONTEXT;
    CUresult rc = allocate(current->device, BLOCK_ARRAY, w * (h ? h : 1) * (d ? d : 1) * channels * 4, &key);
    *out = (CUarray)(uintptr_t)key;
    return rc;
}

API CUresult cuArrayCreate_v2(CUarray *out, const CUarrayDesc *d) { return array(out, d->width, d->height, 0, d->channels); }
API CUresult cuArray3DCreate_v2(CUarray *out, const CUarray3DDesc *d) { return array(out, d->width, d->height, d->depth, d->channels); }
API CUresult cuMipmappedArrayCreate(CUmipmap *out, const CUarray3DDesc *d, unsigned levels)
{
    return levels ? array(out, d->width, d->height, d->depth, d->channels) : CUDA_INVALID_VALUE;
}
API CUresult cuArrayDestroy(CUarray a) { NEED_CONTEXT; return release_block(BLOCK_ARRAY, (uintptr_t)a); }
API CUresult cuMipmappedArrayDestroy(CUmipmap a) { return cuArrayDestroy(a); }

/* Where memory of a location lies: a device, -1 for the host. */
static int device_at(const CUlocation *where)
{
    return where->type == LOCATION_DEVICE ? where->id : where->type == LOCATION_LOCALITY_DOMAIN ? where->id & 0xff : -1;
}

/* Virtual memory management. */
API CUresult cuMemCreate(CUmemHandle *out, size_t n, const CUmemProp *props, unsigned long long flags)
{
    NEED_INIT;
    if (flags || !props || n % (2 << 20))
        return CUDA_INVALID_VALUE;
    return allocate(device_at(&props->location), BLOCK_HANDLE, n, (uint64_t *)out);
}

static void drop_if_unused(struct block **at)
{
    if (at && (*at)->handles == 0 && (*at)->maps == 0)
        drop_block(at, true);
}

API CUresult cuMemRelease(CUmemHandle handle)
{
    NEED_INIT;
    pthread_mutex_lock(&big);
    struct block **at = find(BLOCK_HANDLE, handle);
    bool ok = at && (*at)->handles > 0;
    if (ok) {
        (*at)->handles--;
        drop_if_unused(at);
    }
    pthread_mutex_unlock(&big);
    return ok ? CUDA_SUCCESS : CUDA_INVALID_VALUE;
}

CUresult cuMemAddressReserve(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
API CUresult cuMemAddressReserve(CUdeviceptr *out, size_t n, size_t align, CUdeviceptr at, unsigned long long flags)
{
    (void)align, (void)at, (void)flags;
    *out = take_addresses(n);
    return CUDA_SUCCESS;
}

API CUresult cuMemMapArrayAsync(CUarrayMap *list, unsigned count, CUstream s)
{
    (void)s;
    pthread_mutex_lock(&big);
    for (unsigned i = 0; i < count; i++) {
        struct block *block = block_at(BLOCK_HANDLE, list[i].handle);
        if (block && list[i].operation == OPERATION_MAP)
            block->maps++; /* the simulated one never lets go of it */
    }
    pthread_mutex_unlock(&big);
    return CUDA_SUCCESS;
}

API CUresult cuMemMap(CUdeviceptr at, size_t n, size_t offset, CUmemHandle handle, unsigned long long flags)
{
    (void)offset, (void)flags;
    pthread_mutex_lock(&big);
    struct block **found = find(BLOCK_HANDLE, handle);
    if (found) {
        (*found)->maps++;
        struct block *owner = *found, *map = add_block(owner->device, BLOCK_MAP, n, at);
        map->owner = owner;
    }
    pthread_mutex_unlock(&big);
    return found ? CUDA_SUCCESS : CUDA_INVALID_VALUE;
}

API CUresult cuMemUnmap(CUdeviceptr at, size_t n)
{
    CUresult rc = CUDA_INVALID_VALUE;
    pthread_mutex_lock(&big);
    for (CUdeviceptr end = at + n; at < end;) {
        struct block **map = find(BLOCK_MAP, at);
        if (!map)
            break;
        struct block *owner = (*map)->owner;
        at += (*map)->bytes;
        drop_block(map, false);
        owner->maps--;
        drop_if_unused(find(BLOCK_HANDLE, owner->address));
        rc = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&big);
    return rc;
}

API CUresult cuMemRetainAllocationHandle(CUmemHandle *out, void *address)
{
    pthread_mutex_lock(&big);
    struct block **map = find(BLOCK_MAP, (uintptr_t)address);
    if (map) {
        struct block *owner = (*map)->owner;
        owner->handles++;
        *out = owner->address;
    }
    pthread_mutex_unlock(&big);
    return map ? CUDA_SUCCESS : CUDA_INVALID_VALUE;
}

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
API CUresult cuDeviceGetDefaultMemPool(CUmemPool *out, CUdevice d) { NEED_DEVICE(d); *out = &default_pool[d]; return CUDA_SUCCESS; }

API CUresult cuMemPoolCreate(CUmemPool *out, const CUpoolProps *props)
{
    NEED_INIT;
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

API CUresult cuMemPoolGetAttribute(CUmemPool p, int attribute, void *out)
{
    struct pool *pool = p;
    pthread_mutex_lock(&big);
    *(uint64_t *)out = attribute == 4 ? pool->keep : attribute == POOL_RESERVED_CURRENT ? pool->reserved : pool->used;
    pthread_mutex_unlock(&big);
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
    if (attribute == 4)
        ((struct pool *)p)->keep = *(uint64_t *)value;
    return CUDA_SUCCESS;
}

static CUresult from_pool(CUdeviceptr *out, size_t n, struct pool *pool, struct stream *stream)
{
    NEED_CONTEXT;
    pool = pool ? pool : current_pool[device_of(stream)];
    if (stream->capture) {
        stream->capture->bytes += n;
        *out = take_addresses(n);
        return CUDA_SUCCESS;
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


/* The end of a context frees what was made in it. */
void free_all_of(struct context *context)
{
    pthread_mutex_lock(&big);
    for (struct block **at = &blocks; *at;) {
        if ((*at)->context == context && ((*at)->kind == BLOCK_POINTER || (*at)->kind == BLOCK_ARRAY) && !(*at)->pool)
            drop_block(at, true);
        else
            at = &(*at)->next;
    }
    pthread_mutex_unlock(&big);
}

