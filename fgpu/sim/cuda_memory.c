/* The simulated driver's memory: blocks, arrays, virtual memory management. */
#include <sys/mman.h>

#include "cuda.h"

static struct block *blocks, *spare;

/* Addresses of the GPUs are addresses of the process: a page takes memory of the host when something is written there. */
uint64_t take_addresses(uint64_t bytes)
{
    enum { PAGE = 2 << 20 };
    static const uint64_t ARENA = 1ull << 40;
    static pthread_mutex_t taking = PTHREAD_MUTEX_INITIALIZER;
    static uint64_t next, end;
    uint64_t rounded = (bytes + PAGE - 1) & ~(PAGE - 1ull);
    pthread_mutex_lock(&taking);
    if (rounded > end - next) {
        uint64_t size = rounded + PAGE > ARENA ? rounded + PAGE : ARENA;
        void *arena = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (arena == MAP_FAILED)
            abort();
        madvise(arena, size, MADV_DONTDUMP);
        end = (uintptr_t)arena + size;
        next = ((uintptr_t)arena + PAGE - 1) & ~(PAGE - 1ull);
    }
    uint64_t address = next;
    next += rounded;
    pthread_mutex_unlock(&taking);
    return address;
}

static unsigned ids;
struct block *add_block(int device, int kind, uint64_t bytes, uint64_t address)
{
    struct block *block = spare && spare->bytes == bytes ? spare : NULL; /* the last freed address comes back first */
    if (block)
        spare = block->next;
    else
        block = zeroed(sizeof *block);
    if (!block->address || address)
        block->address = address ? address : take_addresses(bytes);
    *block = (struct block){
        .next = blocks, .address = block->address, .bytes = bytes, .device = device, .kind = kind, .handles = 1, .context = current && current->is_green ? &primary[current->device] : current, .id = ++ids};
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

static bool kind_is_own(int kind) { return kind != BLOCK_MAP && kind != BLOCK_HOST && kind != BLOCK_REGISTERED; }

static void drop_block(struct block **at, bool release)
{
    struct block *block = *at;
    *at = block->next;
    if (block->object)
        drop_object(block->object);
    else if (release && block->device >= 0)
        sim_release(visible[block->device], block->bytes);
    bool own = kind_is_own(block->kind); /* its addresses come back to us */
    if (own && block->mapping)
        mmap((void *)(uintptr_t)block->address, block->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    else if (own && block->touched)
        madvise((void *)(uintptr_t)block->address, block->bytes, MADV_DONTNEED);
    if (!own) {
        free(block);
        return;
    }
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

API CUresult cuMemAllocManaged(CUdeviceptr *out, size_t n, unsigned flags)
{
    CUresult rc = flags == 1 || flags == 2 ? cuMemAlloc_v2(out, n) : CUDA_INVALID_VALUE;
    if (rc)
        return rc;
    pthread_mutex_lock(&big);
    struct block *block = block_at(BLOCK_POINTER, *out);
    if (block) {
        block->managed = block->touched = true;
        block->flags = flags;
    }
    pthread_mutex_unlock(&big);
    return CUDA_SUCCESS;
}

API CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t rows, unsigned element)
{
    NEED_CONTEXT;
    if (!pitch)
        return CUDA_INVALID_VALUE;
    *pitch = (width + 511) & ~(size_t)511;
    return element ? allocate(current->device, BLOCK_POINTER, *pitch * rows, (uint64_t *)out) : CUDA_INVALID_VALUE;
}

API CUresult cuMemFree_v2(CUdeviceptr p) { NEED_CONTEXT; return release_block(BLOCK_POINTER, p); }

/* The first versions are there, but the hook offers none of them. */
API CUresult cuMemAlloc(void) { return CUDA_SUCCESS; }
API CUresult cuMemAllocHost(void) { return CUDA_SUCCESS; }
API CUresult cuMemAllocPitch(void) { return CUDA_SUCCESS; }
API CUresult cuArrayCreate(void) { return CUDA_SUCCESS; }
API CUresult cuArray3DCreate(void) { return CUDA_SUCCESS; }
API CUresult cuMemGetInfo(void) { return CUDA_SUCCESS; }
API CUresult cuDeviceTotalMem(void) { return CUDA_SUCCESS; }

/* Arrays. Rows lie one after the other. */
size_t element_size(int format, unsigned channels)
{
    static const unsigned char sizes[0x21] = {[1] = 1, [2] = 2, [3] = 4, [8] = 1, [9] = 2, [10] = 4, [0x10] = 2, [0x20] = 4};
    return format > 0 && format <= 0x20 ? sizes[format] * channels : 0;
}

static CUresult array(CUarray *out, const CUarray3DDesc *d)
{
    if (!out || !d)
        return CUDA_INVALID_VALUE;
    uint64_t key, element = element_size(d->format, d->channels), rows = (d->height ? d->height : 1) * (d->depth ? d->depth : 1);
    NEED_CONTEXT;
    CUresult rc = allocate(current->device, BLOCK_ARRAY, d->width * rows * (element ? element : d->channels * 4), &key);
    if (rc)
        return rc;
    pthread_mutex_lock(&big);
    struct block *block = block_at(BLOCK_ARRAY, key);
    if (block)
        block->shape = *d;
    pthread_mutex_unlock(&big);
    *out = (CUarray)(uintptr_t)key;
    return CUDA_SUCCESS;
}

API CUresult cuArrayCreate_v2(CUarray *out, const CUarrayDesc *d)
{
    return array(out, &(CUarray3DDesc){d->width, d->height, 0, d->format, d->channels, 0});
}
API CUresult cuArray3DCreate_v2(CUarray *out, const CUarray3DDesc *d) { return array(out, d); }
API CUresult cuMipmappedArrayCreate(CUmipmap *out, const CUarray3DDesc *d, unsigned levels) { return levels ? array(out, d) : CUDA_INVALID_VALUE; }
API CUresult cuArray3DGetDescriptor_v2(CUarray3DDesc *out, CUarray a)
{
    NEED_CONTEXT;
    pthread_mutex_lock(&big);
    const struct block *block = block_at(BLOCK_ARRAY, (uintptr_t)a);
    if (block)
        *out = block->shape;
    pthread_mutex_unlock(&big);
    return block ? CUDA_SUCCESS : BAD_HANDLE;
}
API CUresult cuArrayGetDescriptor_v2(CUarrayDesc *out, CUarray a)
{
    CUarray3DDesc all;
    CUresult rc = cuArray3DGetDescriptor_v2(&all, a);
    if (!rc)
        *out = (CUarrayDesc){all.width, all.height, all.format, all.channels};
    return rc;
}
API CUresult cuArrayDestroy(CUarray a) { NEED_CONTEXT; return release_block(BLOCK_ARRAY, (uintptr_t)a); }
API CUresult cuMipmappedArrayDestroy(CUmipmap a) { return cuArrayDestroy(a); }

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
