/* The few declarations of the CUDA driver and NVML interfaces that the hook needs, written from their published ABI. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemHandle;
typedef void *CUcontext, *CUstream, *CUevent, *CUfunction, *CUarray, *CUmipmap, *CUmemPool;
typedef void *CUgraph, *CUgraphNode, *CUgraphExec, *CUgreenCtx, *CUresourceDesc;
typedef struct { unsigned char bytes[16]; } CUuuid;

enum {
    CUDA_SUCCESS = 0, CUDA_INVALID_VALUE = 1, CUDA_OUT_OF_MEMORY = 2, CUDA_NOT_INITIALIZED = 3,
    CUDA_INVALID_DEVICE = 101, CUDA_INVALID_CONTEXT = 201, CUDA_NOT_FOUND = 500, CUDA_NOT_READY = 600,
    CUDA_NOT_SUPPORTED = 801, CUDA_SYSTEM_NOT_READY = 802,
};
enum { LOCATION_DEVICE = 1, NODE_MEM_ALLOC = 10, CAPTURE_MODE_RELAXED = 2, EVENT_BLOCKING_SYNC = 1 };
enum { POOL_RESERVED_CURRENT = 5, POOL_USED_CURRENT = 7 };
enum { ARRAY_LAYERED = 0x01, ARRAY_SPARSE = 0x40, ARRAY_DEFERRED = 0x80 };
#define STREAM_PER_THREAD ((CUstream)2)

typedef struct { int type, id; } CUlocation;
typedef struct { size_t width, height; int format; unsigned channels; } CUarrayDesc;
typedef struct { size_t width, height, depth; int format; unsigned channels, flags; } CUarray3DDesc;
typedef struct { int type, handle_types; CUlocation location; void *win32; unsigned char flags[8]; } CUmemProp;
typedef struct { int type, handle_types; CUlocation location; void *win32; unsigned char rest[64]; } CUpoolProps;
typedef struct { CUpoolProps pool; const void *access; size_t access_count, bytes; CUdeviceptr ptr; } CUallocNode;
typedef struct {
    int type, reserved[3];
    union { long long size[29]; CUallocNode alloc; };
    long long reserved2;
} CUnodeParams;
typedef struct { unsigned grid[3], block[3], shared; CUstream stream; void *attrs; unsigned count; } CUlaunchConfig;
typedef struct { CUfunction f; unsigned grid[3], block[3], shared; CUstream stream; void **params; } CUlaunchParams;

_Static_assert(sizeof(CUpoolProps) == 88 && sizeof(CUallocNode) == 120, "CUDA ABI");
_Static_assert(offsetof(CUnodeParams, alloc) == 16 && sizeof(CUnodeParams) == 256, "CUDA ABI");
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
