/* The simulated driver's memory that crosses the borders of processes: IPC, exported handles and pools, external memory. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda.h"

enum { POSIX_FD = 1 };
union name { CUshareHandle bytes; struct { uint32_t object, generation; uint64_t size; } is; };

/* What is at the block's addresses is a file's content from now on, the same in all processes that have the object. */
static void map_content(struct block *block, int file)
{
    if (file < 0)
        return;
    if (block->touched) { /* the exporter's content goes along */
        const char *at = (const char *)(uintptr_t)block->address;
        for (uint64_t done = 0; done < block->bytes;) {
            ssize_t n = pwrite(file, at + done, block->bytes - done, (off_t)done);
            if (n <= 0)
                break;
            done += (uint64_t)n;
        }
    }
    mmap((void *)(uintptr_t)block->address, block->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
    block->mapping = true;
    close(file);
}

/* Let others know the block by an object; the caller holds `big`. */
static bool offer(struct block *block)
{
    if (block->object)
        return true;
    int object = sim_object_new(visible[block->device], block->bytes);
    block->object = object + 1;
    if (object >= 0 && block->kind == BLOCK_POINTER)
        map_content(block, sim_object_content(object, block->bytes));
    return object >= 0;
}

static CUresult name_of(int kind, uint64_t key, union name *out)
{
    pthread_mutex_lock(&big);
    struct block *block = block_at(kind, key);
    bool good = block && !block->pool && block->device >= 0 && offer(block);
    memset(out, 0, sizeof *out);
    if (good) {
        out->is.object = (uint32_t)block->object;
        out->is.generation = sim->object[block->object - 1].generation;
        out->is.size = block->bytes;
    }
    pthread_mutex_unlock(&big);
    return good ? CUDA_SUCCESS : CUDA_INVALID_VALUE;
}

static CUresult take(int kind, int object, uint32_t generation, uint64_t *out)
{
    if (!sim_object_hold(object, generation))
        return CUDA_INVALID_VALUE;
    pthread_mutex_lock(&big);
    int device = 0;
    while (device < visible_count && (uint32_t)sim_config.gpu[visible[device]].shared != sim->object[object].gpu)
        device++;
    struct block *block = add_block(device, kind, sim->object[object].bytes, take_addresses(sim->object[object].bytes));
    block->object = object + 1;
    if (kind == BLOCK_IPC)
        map_content(block, sim_object_content(object, 0));
    *out = block->address;
    pthread_mutex_unlock(&big);
    return CUDA_SUCCESS;
}

API CUresult cuIpcGetMemHandle(CUshareHandle *out, CUdeviceptr p) { NEED_CONTEXT; return name_of(BLOCK_POINTER, p, (union name *)out); }

API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUshareHandle handle, unsigned flags)
{
    NEED_CONTEXT;
    (void)flags;
    const union name *name = (const union name *)&handle;
    return take(BLOCK_IPC, (int)name->is.object - 1, name->is.generation, (uint64_t *)out);
}
API CUresult cuIpcOpenMemHandle(CUdeviceptr *out, CUshareHandle handle, unsigned flags) { return cuIpcOpenMemHandle_v2(out, handle, flags); }
API CUresult cuIpcCloseMemHandle(CUdeviceptr p) { NEED_CONTEXT; return release_block(BLOCK_IPC, p); }

API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr p)
{
    NEED_CONTEXT;
    pthread_mutex_lock(&big);
    const struct block *block = block_around(p);
    *base = block ? block->address : 0;
    *bytes = block ? block->bytes : 0;
    bool unknown = block && block->pool && block->pool->imported && block->pool->host; /* as on an H200 */
    pthread_mutex_unlock(&big);
    return unknown ? CUDA_NOT_FOUND : block ? CUDA_SUCCESS : CUDA_INVALID_VALUE;
}

/* Virtual memory management. */
API CUresult cuMemExportToShareableHandle(void *out, CUmemHandle handle, int type, unsigned long long flags)
{
    union name name;
    NEED_INIT;
    CUresult rc = flags ? CUDA_INVALID_VALUE : name_of(BLOCK_HANDLE, handle, &name);
    if (rc)
        return rc;
    if (type != POSIX_FD)
        return *(union name *)out = name, CUDA_SUCCESS;
    *(int *)out = sim_object_describe((int)name.is.object - 1);
    return *(int *)out < 0 ? CUDA_NOT_SUPPORTED : CUDA_SUCCESS;
}

API CUresult cuMemImportFromShareableHandle(CUmemHandle *out, void *shared, int type)
{
    NEED_INIT;
    const union name *name = shared;
    return type == POSIX_FD ? take(BLOCK_HANDLE, sim_object_of((int)(uintptr_t)shared), 0, (uint64_t *)out)
                            : take(BLOCK_HANDLE, (int)name->is.object - 1, name->is.generation, (uint64_t *)out);
}

API CUresult cuMemGetAllocationPropertiesFromHandle(CUmemProp *out, CUmemHandle handle)
{
    pthread_mutex_lock(&big);
    const struct block *block = block_at(BLOCK_HANDLE, handle);
    *out = (CUmemProp){.type = ALLOCATION_PINNED};
    if (block)
        out->location = (CUlocation){block->device < 0 ? LOCATION_HOST : LOCATION_DEVICE, block->device < 0 ? 0 : block->device};
    pthread_mutex_unlock(&big);
    return block ? CUDA_SUCCESS : CUDA_INVALID_VALUE;
}

/* Pools: the pointers into an imported one are the exporter's; it holds them as long as it lives. */
API CUresult cuMemPoolExportToShareableHandle(void *out, CUmemPool pool, int type, unsigned long long flags)
{
    (void)pool, (void)flags;
    *(int *)out = type == POSIX_FD ? open("/dev/null", O_RDWR | O_CLOEXEC) : -1;
    return *(int *)out < 0 ? CUDA_INVALID_VALUE : CUDA_SUCCESS;
}

API CUresult cuMemPoolImportFromShareableHandle(CUmemPool *out, void *handle, int type, unsigned long long flags)
{
    NEED_INIT;
    (void)handle, (void)type, (void)flags;
    struct pool *pool = *out = zeroed(sizeof *pool);
    pool->imported = 1;
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolExportPointer(CUshareHandle *out, CUdeviceptr p)
{
    pthread_mutex_lock(&big);
    const struct block *block = block_at(BLOCK_POINTER, p);
    bool host = block && block->pool && block->pool->host;
    union name name = {.is = {(uint32_t)sim_me(), host, block ? block->bytes : 0}};
    memcpy(name.bytes.bytes + 32, &p, sizeof p);
    *out = name.bytes;
    pthread_mutex_unlock(&big);
    return block && block->pool ? CUDA_SUCCESS : CUDA_INVALID_VALUE;
}

API CUresult cuMemPoolImportPointer(CUdeviceptr *out, CUmemPool p, CUshareHandle *data)
{
    struct pool *pool = p;
    if (!pool->imported)
        return CUDA_INVALID_VALUE;
    pthread_mutex_lock(&big);
    const union name *name = (const union name *)data;
    struct block *block = add_block(-1, BLOCK_POINTER, name->is.size, 0);
    pool->host = (int)name->is.generation;
    pool->used += name->is.size;
    block->pool = pool;
    *out = block->address;
    pthread_mutex_unlock(&big);
    return CUDA_SUCCESS;
}

/* External memory, by a descriptor of exported memory. */
API CUresult cuImportExternalMemory(CUexternal *out, const CUexternalDesc *desc)
{
    uint64_t key;
    NEED_CONTEXT;
    CUresult rc = take(BLOCK_HANDLE, sim_object_of(desc->handle.fd), 0, &key);
    *out = (CUexternal)(uintptr_t)key;
    return rc;
}

API CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *out, CUexternal memory, const void *desc)
{
    (void)desc;
    pthread_mutex_lock(&big);
    const struct block *block = block_at(BLOCK_HANDLE, (uintptr_t)memory);
    int object = block ? block->object - 1 : -1;
    pthread_mutex_unlock(&big);
    return take(BLOCK_POINTER, object, 0, (uint64_t *)out);
}

API CUresult cuDestroyExternalMemory(CUexternal memory) { return release_block(BLOCK_HANDLE, (uintptr_t)memory); }
