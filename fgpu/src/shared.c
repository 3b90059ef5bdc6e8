/* Memory that crosses the borders of processes. What a process imports is charged to it, whoever made it: the maker
 * may be another session, or dead. Where a handle says which memory it is, and a process of this session holds that
 * already, it costs nothing (region.c). A file descriptor says neither what it is nor how much: what is imported by one
 * is charged when it is mapped, and what is exported by one stays charged until this process ends, since nobody can
 * tell when its last copy is closed. */
#include "fgpu.h"

HELPER(cuMemFree_v2, (CUdeviceptr));
HELPER(cuMemRelease, (CUmemHandle));
HELPER(cuMemGetAddressRange_v2, (CUdeviceptr *, size_t *, CUdeviceptr));
HELPER(cuMemGetAllocationPropertiesFromHandle, (CUmemProp *, CUmemHandle));
HELPER(cuPointerGetAttribute, (void *, int, CUdeviceptr));

static uint64_t id_of(const CUshareHandle *handle) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (unsigned i = 0; i < sizeof handle->bytes; i++)
        hash = (hash ^ handle->bytes[i]) * 0x100000001b3u;
    return hash | 1;
}

/* How much lies at an address, and who pays for it: `gpu`, unless it is page-locked memory of an imported pool. Of that
 * the driver knows no range, but attributes. */
static CUresult extent(CUdeviceptr pointer, int *gpu, size_t *bytes) {
    CUdeviceptr base;
    unsigned type = 0;
    CUresult rc = CALL(cuMemGetAddressRange_v2, (&base, bytes, pointer));
    if (rc == CUDA_NOT_FOUND)
        CALL(cuPointerGetAttribute, (&type, POINTER_MEMORY_TYPE, pointer));
    if (type != MEMORY_TYPE_HOST) return rc;
    *gpu = fgpu_host();
    return CALL(cuPointerGetAttribute, (bytes, POINTER_RANGE_SIZE, pointer));
}

/* Let the session's other processes know what they may open. */
static void publish(CUdeviceptr pointer, uint64_t bytes, const CUshareHandle *handle) {
    struct hold *hold = ledger_find(HELD_POINTER, pointer);
    if (hold && hold->gpu >= 0 && ledger_mark(HELD_POINTER, pointer, id_of(handle)))
        region_publish(id_of(handle), hold->gpu, least(bytes ? bytes : hold->bytes, hold->bytes));
}

/* Charge for memory that has just been opened at an address. */
static CUresult opened(CUdeviceptr pointer, const CUshareHandle *handle, enum kind kind) {
    struct place here;
    struct hold *hold = ledger_find(HELD_IPC, pointer); /* opened a second time */
    size_t bytes;
    bool shared;
    if (hold) {
        ledger_put(HELD_IPC, pointer, 0, hold);
        return CUDA_SUCCESS;
    }
    CUresult rc = fgpu_place(NULL, &here);
    if (rc || (rc = extent(pointer, &here.gpu, &bytes))) return rc;
    rc = hold_open(id_of(handle), here.gpu, bytes, here.context, &hold, &shared);
    if (rc) return rc;
    ledger_put(kind, pointer, bytes, hold);
    if (shared)
        ledger_mark(kind, pointer, id_of(handle));
    return rc;
}

WRAP(cuIpcGetMemHandle, (CUshareHandle *out, CUdeviceptr pointer)) {
    CUresult rc = CALL(cuIpcGetMemHandle, (out, pointer));
    if (!rc)
        publish(pointer, 0, out);
    return rc;
}

WRAP(cuIpcCloseMemHandle, (CUdeviceptr pointer)) {
    CUresult rc = CALL(cuIpcCloseMemHandle, (pointer));
    if (!rc)
        ledger_drop(HELD_IPC, pointer, NULL);
    return rc;
}

#define OPEN_IPC(name) \
    WRAP(name, (CUdeviceptr *out, CUshareHandle handle, unsigned flags)) { \
        CUresult rc = fgpu_ready(); \
        if (rc || (rc = CALL(name, (out, handle, flags)))) return rc; \
        rc = opened(*out, &handle, HELD_IPC); \
        if (rc) \
            CALL(cuIpcCloseMemHandle, (*out)); \
        return rc; \
    }
OPEN_IPC(cuIpcOpenMemHandle)
OPEN_IPC(cuIpcOpenMemHandle_v2)

/* Pools: an imported one has no memory of its own, the pointers into it have. */
WRAP(cuMemPoolExportPointer, (CUshareHandle *out, CUdeviceptr pointer)) {
    int gpu;
    size_t bytes = 0;
    CUresult rc = CALL(cuMemPoolExportPointer, (out, pointer));
    if (!rc && !extent(pointer, &gpu, &bytes))
        publish(pointer, bytes, out);
    return rc;
}

WRAP(cuMemPoolImportFromShareableHandle, (CUmemPool *out, void *handle, int type, unsigned long long flags)) {
    struct hold *hold;
    CUresult rc = fgpu_ready();
    if (rc || (rc = hold_new(-1, 0, NULL, &hold))) return rc;
    rc = CALL(cuMemPoolImportFromShareableHandle, (out, handle, type, flags));
    if (!rc)
        hold->pool = *out;
    return hold_settle(rc, hold, HELD_POOL, rc ? 0 : KEY(*out));
}

WRAP(cuMemPoolImportPointer, (CUdeviceptr *out, CUmemPool pool, CUshareHandle *data)) {
    CUresult rc = CALL(cuMemPoolImportPointer, (out, pool, data));
    if (rc) return rc;
    rc = opened(*out, data, HELD_POINTER);
    if (rc)
        CALL(cuMemFree_v2, (*out));
    return rc;
}

/* Virtual memory management. */
WRAP(cuMemExportToShareableHandle, (void *out, CUmemHandle handle, int type, unsigned long long flags)) {
    CUresult rc = CALL(cuMemExportToShareableHandle, (out, handle, type, flags));
    struct hold *hold = rc ? NULL : ledger_find(HELD_HANDLE, handle);
    if (hold && !ledger_find(HELD_EXPORT, KEY(hold)))
        ledger_put(HELD_EXPORT, KEY(hold), 0, hold);
    return rc;
}

/* Whoever pays for imported memory: by its own word where it lies, else the current context's GPU. */
static CUresult account_of(CUmemHandle handle, int *gpu) {
    CUmemProp props = {.type = 0};
    CUresult rc = CALL(cuMemGetAllocationPropertiesFromHandle, (&props, handle));
    return !rc && !fgpu_account(&props.location, props.type, gpu)
               ? CUDA_SUCCESS
               : fgpu_account(&(CUlocation){.type = LOCATION_NONE}, ALLOCATION_MANAGED, gpu);
}

WRAP(cuMemImportFromShareableHandle, (CUmemHandle *out, void *shared, int type)) {
    struct hold *hold;
    int gpu;
    CUresult rc = fgpu_ready();
    if (rc || (rc = CALL(cuMemImportFromShareableHandle, (out, shared, type)))) return rc;
    if ((rc = account_of(*out, &gpu)) || (rc = hold_new(gpu, 0, NULL, &hold))) {
        CALL(cuMemRelease, (*out));
        return rc;
    }
    hold->imported = true;
    return hold_settle(rc, hold, HELD_HANDLE, *out);
}

/* Memory of another interface, or of another process, of a size that is said. */
WRAP(cuImportExternalMemory, (CUexternal *out, const CUexternalDesc *desc)) {
    struct place here;
    struct hold *hold;
    CUresult rc = fgpu_place(NULL, &here);
    if (rc || (rc = hold_new(here.gpu, desc ? desc->bytes : 0, NULL, &hold))) return rc;
    rc = CALL(cuImportExternalMemory, (out, desc));
    return hold_settle(rc, hold, HELD_EXTERNAL, rc ? 0 : KEY(*out));
}

/* What is mapped of it keeps it alive. */
WRAP(cuExternalMemoryGetMappedBuffer, (CUdeviceptr *out, CUexternal memory, const void *desc)) {
    CUresult rc = CALL(cuExternalMemoryGetMappedBuffer, (out, memory, desc));
    if (!rc)
        ledger_share(HELD_EXTERNAL, KEY(memory), HELD_POINTER, *out);
    return rc;
}

WRAP(cuExternalMemoryGetMappedMipmappedArray, (CUmipmap *out, CUexternal memory, const void *desc)) {
    CUresult rc = CALL(cuExternalMemoryGetMappedMipmappedArray, (out, memory, desc));
    if (!rc)
        ledger_share(HELD_EXTERNAL, KEY(memory), HELD_MIPMAP, KEY(*out));
    return rc;
}

WRAP(cuDestroyExternalMemory, (CUexternal memory)) {
    CUresult rc = CALL(cuDestroyExternalMemory, (memory));
    if (!rc)
        ledger_drop(HELD_EXTERNAL, KEY(memory), NULL);
    return rc;
}

/* Objects that bind memory across GPUs or processes are not offered: programs that ask first do without. */
WRAP(cuDeviceGetAttribute, (int *out, int which, CUdevice device)) {
    CUresult rc = fgpu_ready();
    if (!rc)
        rc = CALL(cuDeviceGetAttribute, (out, which, device));
    bool endpoints = which >= ENDPOINT_UNICAST_SUPPORTED && which <= ENDPOINT_HANDLE_TYPES;
    if (!rc && (which == MULTICAST_SUPPORTED || endpoints))
        *out = 0;
    return rc;
}

/* A process that has been written away comes back to the GPUs that pay for its memory. */
WRAP(cuCheckpointProcessRestore, (int pid, CUrestoreArgs *args)) {
    if (args && args->count) return CUDA_NOT_SUPPORTED;
    return CALL(cuCheckpointProcessRestore, (pid, args));
}
