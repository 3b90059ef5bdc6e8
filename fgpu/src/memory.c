/* Plain, pitched, managed and virtual memory, arrays: charge first, ask the driver, take the charge back if it says
 * no. */
#include "fgpu.h"

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

/* Charge whoever pays for memory at that location. */
static CUresult claim_at(const CUlocation *where, int type, uint64_t bytes, struct hold **hold) {
    int gpu;
    CUresult rc = fgpu_account(where, type, &gpu);
    *hold = NULL;
    return rc || !where ? rc : hold_new(gpu, bytes, NULL, hold);
}

#define FREE(name, kind, type) \
    WRAP(name, (type what)) { \
        CUresult rc = CALL(name, (what)); \
        if (!rc) \
            drop(kind, KEY(what)); \
        return rc; \
    }
#define drop(kind, key) ledger_drop(kind, key, NULL)
FREE(cuMemFree_v2, HELD_POINTER, CUdeviceptr)
FREE(cuMemRelease, HELD_HANDLE, CUmemHandle)
#undef drop
#define drop(kind, key) ledger_drop_all(kind, key) /* what is mapped into it, too */
FREE(cuArrayDestroy, HELD_ARRAY, CUarray)
FREE(cuMipmappedArrayDestroy, HELD_MIPMAP, CUmipmap)

#define ALLOCATE(name, kind, key, claim, params, args) \
    WRAP(name, params) { \
        struct hold *hold = NULL; \
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

/* Bits of a texel, all channels; of a compressed format per texel of its blocks of 4 x 4. */
static uint64_t texel_bits(int format, uint64_t channels) {
    static const unsigned char packed[] = { /* whole texels of 0x50 ... 0x5e and 0x91 ... 0xb5, in bits; 0: no format */
        32, 16, 32, 12, 24, 16, 32, 24, 48, 12, 24, 16, 32, 24, 48,
        4, 4, 8, 8, 8, 8, 4, 4, 8, 8, 8, 8, 8, 8, 24, 0, 24, 16, 32, 32, 16, 32, 32, 32, 32, 0, 0, 0, 0, 0, 0,
        12, 64, 24, 48, 24, 48};
    bool early = format >= 0x50 && format <= 0x5e, late = format >= 0x91 && format <= 0xb5;
    uint64_t bits = early ? packed[format - 0x50] : late ? packed[format - 0x91 + 15] : 0;
    if (bits) return bits;
    if (format >= 0xc0 && format <= 0xcb) /* normalised: 8 and 16 bits in turn, of 1, 2 and 4 channels */
        return (format - 0xc0) / 3 % 2 ? 16 * most(channels, 1u << (format - 0xc0) % 3)
                                       : 8 * most(channels, 1u << (format - 0xc0) % 3);
    if (format == 0x01 || format == 0x08) return 8 * channels;
    if (format == 0x02 || format == 0x09 || format == 0x10) return 16 * channels;
    return 32 * channels; /* and what is not known */
}

static bool is_compressed(int format) { return format >= 0x91 && format <= 0x9e; }

/* Sparse arrays and those mapped later have no memory of their own. */
static uint64_t array_bytes(const CUarray3DDesc *d, unsigned levels) {
    uint64_t sum = 0;
    if (!d || d->flags & (ARRAY_SPARSE | ARRAY_DEFERRED)) return 0;
    uint64_t bits = texel_bits(d->format, d->channels), up = is_compressed(d->format) ? 3 : 0;
    for (unsigned level = 0; level < levels && level < 32; level++) {
        bool all = d->flags & (ARRAY_LAYERED | ARRAY_CUBEMAP); /* every level has all layers and faces */
        uint64_t layers = most(all ? d->depth : d->depth >> level, 1);
        uint64_t width = (most(d->width >> level, 1) + up) & ~up, height = (most(d->height >> level, 1) + up) & ~up;
        uint64_t all_bits = times(times(times(width, height), layers), bits);
        uint64_t bytes = all_bits / 8 + (all_bits % 8 != 0);
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
ALLOCATE(cuMemCreate, HELD_HANDLE, *out,
         claim_at(props ? &props->location : NULL, props ? props->type : 0, bytes, &hold),
         (CUmemHandle *out, size_t bytes, const CUmemProp *props, unsigned long long flags), (out, bytes, props, flags))

/* Imported memory is as large as what is mapped of it. */
static CUresult grow(struct hold *hold, uint64_t bytes) {
    if (!hold || !hold->imported || bytes <= hold->bytes) return CUDA_SUCCESS;
    if (!hold_resize(hold, bytes)) return CUDA_SUCCESS;
    pools_reconcile(true);
    return hold_resize(hold, bytes);
}

PER_PROCESS static pthread_mutex_t mapping = PTHREAD_MUTEX_INITIALIZER;

WRAP(cuMemMap, (CUdeviceptr at, size_t bytes, size_t offset, CUmemHandle handle, unsigned long long flags)) {
    LOCKED(mapping);
    struct hold *hold = ledger_find(HELD_HANDLE, handle);
    uint64_t before = hold ? hold->bytes : 0;
    CUresult rc = grow(hold, bytes > UINT64_MAX - offset ? UINT64_MAX : offset + bytes);
    if (rc) return rc;
    rc = CALL(cuMemMap, (at, bytes, offset, handle, flags));
    if (hold && rc && hold->imported)
        hold_resize(hold, before);
    else if (hold && !rc)
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

/* Memory mapped into a sparse array is charged until the array is gone. Imported memory, whose size is not known, is
 * mapped as addresses only. */
static CUresult map_array(CUarrayMap *list, unsigned count, CUstream stream,
                          CUresult (*real)(CUarrayMap *, unsigned, CUstream)) {
    for (unsigned i = 0; list && i < count; i++) {
        struct hold *hold = list[i].operation == OPERATION_MAP ? ledger_find(HELD_HANDLE, list[i].handle) : NULL;
        if (hold && hold->imported) return CUDA_NOT_SUPPORTED;
    }
    CUresult rc = real ? real(list, count, stream) : CUDA_NOT_FOUND;
    for (unsigned i = 0; !rc && list && i < count; i++)
        if (list[i].operation == OPERATION_MAP)
            ledger_share(HELD_HANDLE, list[i].handle, list[i].resource_type ? HELD_MIPMAP : HELD_ARRAY,
                         KEY(list[i].resource));
    return rc;
}

#define MAP_ARRAY(name) \
    WRAP(name, (CUarrayMap *list, unsigned count, CUstream stream)) { \
        return map_array(list, count, stream, REAL(name)); \
    }
MAP_ARRAY(cuMemMapArrayAsync)
MAP_ARRAY(cuMemMapArrayAsync_ptsz)

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
