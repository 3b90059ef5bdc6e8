/* The few declarations of the CUDA driver and NVML interfaces that the hook needs, written from their published ABI. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemHandle;
typedef void *CUcontext, *CUstream, *CUevent, *CUfunction, *CUarray, *CUmipmap, *CUmemPool;
typedef void *CUgraph, *CUgraphNode, *CUgraphExec, *CUgreenCtx, *CUresourceDesc, *CUexternal;
typedef struct { unsigned char bytes[16]; } CUuuid;
typedef struct { unsigned char bytes[64]; } CUshareHandle; /* CUipcMemHandle, CUmemPoolPtrExportData */

enum {
    CUDA_SUCCESS = 0, CUDA_INVALID_VALUE = 1, CUDA_OUT_OF_MEMORY = 2, CUDA_NOT_INITIALIZED = 3,
    CUDA_INVALID_DEVICE = 101, CUDA_INVALID_CONTEXT = 201, CUDA_NOT_FOUND = 500, CUDA_NOT_READY = 600,
    CUDA_NOT_SUPPORTED = 801, CUDA_SYSTEM_NOT_READY = 802,
};
enum {
    LOCATION_NONE = 0, LOCATION_DEVICE = 1, LOCATION_HOST = 2, LOCATION_HOST_NUMA = 3, LOCATION_HOST_NUMA_CURRENT = 4,
    LOCATION_LOCALITY_DOMAIN = 6, /* a part of a device's memory; the device is the id's lowest byte */
};
enum { ALLOCATION_PINNED = 1, ALLOCATION_MANAGED = 2 };
enum { NODE_CHILD_GRAPH = 4, NODE_MEM_ALLOC = 10, CHILD_MOVED = 1 };
enum { CAPTURE_MODE_RELAXED = 2, EVENT_BLOCKING_SYNC = 1, OPERATION_MAP = 1 };
enum { LIMIT_STACK = 0, LIMIT_PRINTF = 1, LIMIT_HEAP = 2, LIMIT_PER_BLOCK = 10 };
enum {
    SM_COUNT = 16, THREADS_PER_SM = 39, BLOCKS_PER_SM = 106, MULTICAST_SUPPORTED = 132,
    ENDPOINT_UNICAST_SUPPORTED = 153, ENDPOINT_HANDLE_TYPES = 158,
};
enum { POINTER_MEMORY_TYPE = 2, POINTER_RANGE_SIZE = 12, MEMORY_TYPE_HOST = 1, MEMORY_TYPE_DEVICE = 2 };
enum { POOL_RESERVED_CURRENT = 5, POOL_USED_CURRENT = 7 };
enum { ARRAY_LAYERED = 0x01, ARRAY_CUBEMAP = 0x04, ARRAY_SPARSE = 0x40, ARRAY_DEFERRED = 0x80 };
#define STREAM_PER_THREAD ((CUstream)2)

typedef struct { int type, id; } CUlocation;
typedef struct { size_t width, height; int format; unsigned channels; } CUarrayDesc;
typedef struct { size_t width, height, depth; int format; unsigned channels, flags; } CUarray3DDesc;
typedef struct { int type, handle_types; CUlocation location; void *win32; unsigned char flags[8]; } CUmemProp;
typedef struct { int type, handle_types; CUlocation location; void *win32; unsigned char rest[64]; } CUpoolProps;
typedef struct { CUpoolProps pool; const void *access; size_t access_count, bytes; CUdeviceptr ptr; } CUallocNode;
typedef struct {
    int type, reserved[3];
    union { long long size[29]; CUallocNode alloc; struct { CUgraph graph; int ownership; } child; };
    long long reserved2;
} CUnodeParams;
typedef struct {
    int resource_type;
    void *resource; /* an array or mipmapped array, with memory mapped into a part of it */
    int part_type;
    unsigned long long part[4];
    int operation, handle_type;
    CUmemHandle handle;
    unsigned long long offset;
    unsigned devices, flags, reserved[2];
} CUarrayMap;
typedef struct {
    int type;
    union { int fd; void *win32[2]; } handle;
    unsigned long long bytes;
    unsigned rest[17];
} CUexternalDesc;
typedef struct { void *gpus; unsigned count, pad; void *rest[6]; } CUrestoreArgs;
typedef struct { unsigned grid[3], block[3], shared; CUstream stream; void *attrs; unsigned count; } CUlaunchConfig;
typedef struct { CUfunction f; unsigned grid[3], block[3], shared; CUstream stream; void **params; } CUlaunchParams;

_Static_assert(sizeof(CUpoolProps) == 88 && sizeof(CUallocNode) == 120, "CUDA ABI");
_Static_assert(offsetof(CUnodeParams, alloc) == 16 && sizeof(CUnodeParams) == 256, "CUDA ABI");
_Static_assert(sizeof(CUarrayMap) == 96 && offsetof(CUarrayMap, handle) == 64, "CUDA ABI");
_Static_assert(sizeof(CUexternalDesc) == 104 && offsetof(CUexternalDesc, bytes) == 24, "CUDA ABI");
_Static_assert(sizeof(CUrestoreArgs) == 64, "CUDA ABI");
_Static_assert(offsetof(CUlaunchConfig, stream) == 32 && offsetof(CUlaunchParams, stream) == 40, "CUDA ABI");

typedef void *nvmlDevice;
typedef struct { unsigned long long total, free, used; } nvmlMemoryV1;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } nvmlMemoryV2;
typedef struct { unsigned gpu, memory; } nvmlUtilization;
typedef struct { unsigned pid; unsigned long long used; } nvmlProcessV1;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } nvmlProcessV2;

enum {
    NVML_SUCCESS = 0, NVML_INVALID_ARGUMENT = 2, NVML_NOT_SUPPORTED = 3, NVML_NO_PERMISSION = 4,
    NVML_INSUFFICIENT_SIZE = 7, NVML_LIBRARY_NOT_FOUND = 12, NVML_FUNCTION_NOT_FOUND = 13,
};
