/* Plain, pitched, managed and virtual memory, arrays: charge first, ask the driver, take the charge back if it says no. */
#include "fgpu.h"

static CUresult claim(uint64_t bytes, struct hold **hold) {
    int gpu;
    CUdevice device;
    CUcontext context;
    CUresult rc = fgpu_here(&gpu, &device, &context);
    return rc ? rc : hold_new(gpu, bytes, context, hold);
}

static CUresult settle(CUresult rc, struct hold *hold, enum kind kind, uint64_t key, uint64_t size) {
    if (rc)
        hold_undo(hold);
    else
        ledger_put(kind, key, size, hold);
    return rc;
}

static uint64_t times(uint64_t a, uint64_t b) {
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

#define ALLOCATE(kind, size, call) \
    struct hold *hold; \
    CUresult rc = claim(size, &hold); \
    if (rc) \
        return rc; \
    rc = call; \
    return settle(rc, hold, kind, rc ? 0 : KEY(*out), 0)

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes) {
    ALLOCATE(HELD_POINTER, bytes, CALL(cuMemAlloc_v2, out, bytes));
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned flags) {
    ALLOCATE(HELD_POINTER, bytes, CALL(cuMemAllocManaged, out, bytes, flags));
}

/* The pitch is the driver's to choose: charge for rows of a multiple of 512 bytes, then correct to what it chose. */
static uint64_t pitched(uint64_t width, uint64_t rows) {
    return width > UINT64_MAX - 511 ? UINT64_MAX : times((width + 511) & ~511ull, rows);
}

static CUresult settle_pitch(CUresult rc, struct hold *hold, CUdeviceptr pointer, uint64_t bytes) {
    if (!rc && hold_resize(hold, bytes)) {
        CALL(cuMemFree_v2, pointer);
        rc = CUDA_OUT_OF_MEMORY;
    }
    return settle(rc, hold, HELD_POINTER, pointer, 0);
}

#define ALLOCATE_PITCH(call) \
    struct hold *hold; \
    CUresult rc = claim(pitched(width, rows), &hold); \
    if (rc) \
        return rc; \
    rc = call; \
    return settle_pitch(rc, hold, rc ? 0 : *out, rc ? 0 : times(*pitch, rows))

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t rows, unsigned element) {
    ALLOCATE_PITCH(CALL(cuMemAllocPitch_v2, out, pitch, width, rows, element));
}

/* Sparse arrays and those mapped later have no memory of their own. */
static uint64_t array_bytes(const CUarray3DDesc *d, unsigned levels) {
    uint64_t sum = 0, texel = 4;
    if (!d || d->flags & (ARRAY_SPARSE | ARRAY_DEFERRED))
        return 0;
    if (d->format == 0x01 || d->format == 0x08 || (d->format >= 0xc0 && d->format <= 0xc5))
        texel = 1; /* 8-bit formats; block-compressed and unknown ones count as 32-bit */
    else if (d->format == 0x02 || d->format == 0x09 || d->format == 0x10 || (d->format >= 0xc6 && d->format <= 0xcb))
        texel = 2;
    for (unsigned level = 0; level < levels && level < 32; level++) {
        uint64_t w = d->width >> level, h = d->height >> level;
        uint64_t z = d->flags & ARRAY_LAYERED ? d->depth : d->depth >> level;
        uint64_t bytes = times(times(w ? w : 1, h ? h : 1), times(z ? z : 1, d->channels * texel));
        sum = bytes > UINT64_MAX - sum ? UINT64_MAX : sum + bytes;
    }
    return sum;
}

EXPORT CUresult cuArray3DCreate_v2(CUarray *out, const CUarray3DDesc *desc) {
    ALLOCATE(HELD_ARRAY, array_bytes(desc, 1), CALL(cuArray3DCreate_v2, out, desc));
}

EXPORT CUresult cuArrayCreate_v2(CUarray *out, const CUarrayDesc *desc) {
    CUarray3DDesc full = {0};
    if (desc)
        full = (CUarray3DDesc){desc->width, desc->height, 0, desc->format, desc->channels, 0};
    ALLOCATE(HELD_ARRAY, array_bytes(&full, 1), CALL(cuArrayCreate_v2, out, desc));
}

EXPORT CUresult cuMipmappedArrayCreate(CUmipmap *out, const CUarray3DDesc *desc, unsigned levels) {
    ALLOCATE(HELD_MIPMAP, array_bytes(desc, levels), CALL(cuMipmappedArrayCreate, out, desc, levels));
}

#define FREE(name, type, kind) \
    EXPORT CUresult name(type what) \
    { \
        CUresult rc = CALL(name, what); \
        if (!rc) \
            ledger_drop(kind, KEY(what), NULL); \
        return rc; \
    }
FREE(cuMemFree_v2, CUdeviceptr, HELD_POINTER)
FREE(cuMemRelease, CUmemHandle, HELD_HANDLE)
FREE(cuArrayDestroy, CUarray, HELD_ARRAY)
FREE(cuMipmappedArrayDestroy, CUmipmap, HELD_MIPMAP)

/* Virtual memory management: the memory lives while a handle or a mapping does. */
EXPORT CUresult cuMemCreate(CUmemHandle *out, size_t bytes, const CUmemProp *props, unsigned long long flags) {
    struct hold *hold;
    CUresult rc = fgpu_ready();
    if (rc)
        return rc;
    if (!props || props->location.type != LOCATION_DEVICE)
        return CALL(cuMemCreate, out, bytes, props, flags);
    int gpu = fgpu_index(props->location.id);
    rc = gpu < 0 ? CUDA_INVALID_DEVICE : hold_new(gpu, bytes, NULL, &hold);
    if (rc)
        return rc;
    rc = CALL(cuMemCreate, out, bytes, props, flags);
    return settle(rc, hold, HELD_HANDLE, rc ? 0 : *out, 0);
}

EXPORT CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, CUmemHandle handle, unsigned long long flags) {
    CUresult rc = CALL(cuMemMap, at, bytes, offset, handle, flags);
    struct hold *hold = rc ? NULL : ledger_find(HELD_HANDLE, handle, -1);
    if (hold)
        ledger_put(HELD_MAP, at, bytes, hold);
    return rc;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr at, size_t bytes) {
    CUresult rc = CALL(cuMemUnmap, at, bytes);
    uint64_t size = 0;
    for (CUdeviceptr end = at + bytes; !rc && at < end && ledger_drop(HELD_MAP, at, &size); at += size) {
    }
    return rc;
}

EXPORT CUresult cuMemRetainAllocationHandle(CUmemHandle *out, void *address) {
    CUresult rc = CALL(cuMemRetainAllocationHandle, out, address);
    struct hold *hold = rc ? NULL : ledger_search(HELD_MAP, KEY(address), -1);
    if (hold)
        ledger_put(HELD_HANDLE, *out, 0, hold);
    return rc;
}

/* What programs are told: the share as the total, and no more free than the container may still take. */
static CUresult share(int gpu, uint64_t *free, uint64_t *total) {
    uint64_t used, limit = fgpu_limits.gpu[gpu].mem_bytes;
    pools_reconcile(false);
    if (!region_used(gpu, &used))
        return CUDA_SYSTEM_NOT_READY;
    uint64_t left = used < limit ? limit - used : 0;
    *free = left < *free ? left : *free;
    *total = limit < *total ? limit : *total;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
    int gpu;
    CUdevice device;
    CUcontext context;
    size_t some, all;
    CUresult rc = fgpu_here(&gpu, &device, &context);
    if (!rc)
        rc = CALL(cuMemGetInfo_v2, &some, &all);
    if (!rc)
        rc = share(gpu, &some, &all);
    if (!rc && free)
        *free = some;
    if (!rc && total)
        *total = all;
    return rc;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    CUresult rc = fgpu_ready();
    if (!rc)
        rc = CALL(cuDeviceTotalMem_v2, bytes, device);
    int gpu = rc ? -1 : fgpu_index(device);
    if (gpu >= 0 && *bytes > fgpu_limits.gpu[gpu].mem_bytes)
        *bytes = fgpu_limits.gpu[gpu].mem_bytes;
    return rc;
}

/* The first versions of the interface (32-bit sizes and pointers, before CUDA 3.2) are not offered. */
#define REFUSED(name) \
    EXPORT CUresult name(void) { return CUDA_NOT_SUPPORTED; }
REFUSED(cuMemAlloc)
REFUSED(cuMemAllocPitch)
REFUSED(cuArrayCreate)
REFUSED(cuArray3DCreate)
REFUSED(cuMemGetInfo)
REFUSED(cuDeviceTotalMem)
