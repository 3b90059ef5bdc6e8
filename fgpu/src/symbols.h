/* Every driver entry point that the hook wraps (WRAPPED_*) or merely calls (HELPERS), with its prototype. */
#ifndef FGPU_SYMBOLS_H
#define FGPU_SYMBOLS_H

#include "abi.h"

#define WRAPPED_CUDA(X) \
    X(cuInit, (unsigned)) X(cuGetProcAddress, (const char *, void **, int, uint64_t)) \
    X(cuGetProcAddress_v2, (const char *, void **, int, uint64_t, int *)) X(cuMemGetInfo, (void)) \
    X(cuMemGetInfo_v2, (size_t *, size_t *)) X(cuDeviceTotalMem, (void)) \
    X(cuDeviceTotalMem_v2, (size_t *, CUdevice)) X(cuMemAlloc, (void)) \
    X(cuMemAlloc_v2, (CUdeviceptr *, size_t)) \
    X(cuMemAllocPitch, (void)) \
    X(cuMemAllocPitch_v2, (CUdeviceptr *, size_t *, size_t, size_t, unsigned)) \
    X(cuMemAllocManaged, (CUdeviceptr *, size_t, unsigned)) X(cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream)) \
    X(cuMemAllocAsync_ptsz, (CUdeviceptr *, size_t, CUstream)) \
    X(cuMemAllocFromPoolAsync, (CUdeviceptr *, size_t, CUmemPool, CUstream)) \
    X(cuMemAllocFromPoolAsync_ptsz, (CUdeviceptr *, size_t, CUmemPool, CUstream)) \
    X(cuMemFree_v2, (CUdeviceptr)) X(cuMemFreeAsync, (CUdeviceptr, CUstream)) \
    X(cuMemFreeAsync_ptsz, (CUdeviceptr, CUstream)) X(cuMemPoolCreate, (CUmemPool *, const CUpoolProps *)) \
    X(cuMemPoolDestroy, (CUmemPool)) X(cuMemPoolTrimTo, (CUmemPool, size_t)) \
    X(cuMemCreate, (CUmemHandle *, size_t, const CUmemProp *, unsigned long long)) X(cuMemRelease, (CUmemHandle)) \
    X(cuMemMap, (CUdeviceptr, size_t, size_t, CUmemHandle, unsigned long long)) X(cuMemUnmap, (CUdeviceptr, size_t)) \
    X(cuMemRetainAllocationHandle, (CUmemHandle *, void *)) X(cuArrayCreate, (void)) \
    X(cuArrayCreate_v2, (CUarray *, const CUarrayDesc *)) X(cuArray3DCreate, (void)) \
    X(cuArray3DCreate_v2, (CUarray *, const CUarray3DDesc *)) X(cuArrayDestroy, (CUarray)) \
    X(cuMipmappedArrayCreate, (CUmipmap *, const CUarray3DDesc *, unsigned)) X(cuMipmappedArrayDestroy, (CUmipmap)) \
    X(cuGraphAddMemAllocNode, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUallocNode *)) \
    X(cuGraphAddNode, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUnodeParams *)) \
    X(cuGraphAddNode_v2, (CUgraphNode *, CUgraph, const CUgraphNode *, const void *, size_t, CUnodeParams *)) \
    X(cuGraphInstantiate, (CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t)) \
    X(cuGraphInstantiate_v2, (CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t)) \
    X(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long)) \
    X(cuGraphInstantiateWithParams, (CUgraphExec *, CUgraph, void *)) \
    X(cuGraphInstantiateWithParams_ptsz, (CUgraphExec *, CUgraph, void *)) X(cuGraphExecDestroy, (CUgraphExec)) \
    X(cuGraphDestroy, (CUgraph)) X(cuCtxCreate, (CUcontext *, unsigned, CUdevice)) \
    X(cuCtxCreate_v2, (CUcontext *, unsigned, CUdevice)) \
    X(cuCtxCreate_v3, (CUcontext *, void *, int, unsigned, CUdevice)) \
    X(cuCtxCreate_v4, (CUcontext *, void *, unsigned, CUdevice)) X(cuCtxDestroy, (CUcontext)) \
    X(cuCtxDestroy_v2, (CUcontext)) X(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice)) \
    X(cuDevicePrimaryCtxRelease, (CUdevice)) X(cuDevicePrimaryCtxRelease_v2, (CUdevice)) \
    X(cuDevicePrimaryCtxReset, (CUdevice)) X(cuDevicePrimaryCtxReset_v2, (CUdevice)) \
    X(cuGreenCtxCreate, (CUgreenCtx *, CUresourceDesc, CUdevice, unsigned)) X(cuGreenCtxDestroy, (CUgreenCtx)) \
    X(cuLaunch, (CUfunction)) X(cuLaunchGrid, (CUfunction, int, int)) \
    X(cuLaunchGridAsync, (CUfunction, int, int, CUstream)) X(cuLaunchKernel, LAUNCH_ARGS(void **)) \
    X(cuLaunchKernel_ptsz, LAUNCH_ARGS(void **)) \
    X(cuLaunchKernelEx, (const CUlaunchConfig *, CUfunction, void **, void **)) \
    X(cuLaunchKernelEx_ptsz, (const CUlaunchConfig *, CUfunction, void **, void **)) \
    X(cuLaunchCooperativeKernel, COOPERATIVE_ARGS) X(cuLaunchCooperativeKernel_ptsz, COOPERATIVE_ARGS) \
    X(cuLaunchCooperativeKernelMultiDevice, (CUlaunchParams *, unsigned, unsigned)) \
    X(cuGraphLaunch, (CUgraphExec, CUstream)) X(cuGraphLaunch_ptsz, (CUgraphExec, CUstream))

#define COOPERATIVE_ARGS \
    (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **)
#define LAUNCH_ARGS(extra) \
    (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, extra)

#define WRAPPED_NVML(X) \
    X(nvmlDeviceGetMemoryInfo, (nvmlDevice, nvmlMemoryV1 *)) \
    X(nvmlDeviceGetMemoryInfo_v2, (nvmlDevice, nvmlMemoryV2 *)) \
    X(nvmlDeviceGetUtilizationRates, (nvmlDevice, nvmlUtilization *)) \
    X(nvmlDeviceGetComputeRunningProcesses, (nvmlDevice, unsigned *, nvmlProcessV1 *)) \
    X(nvmlDeviceGetComputeRunningProcesses_v2, (nvmlDevice, unsigned *, nvmlProcessV2 *)) \
    X(nvmlDeviceGetComputeRunningProcesses_v3, (nvmlDevice, unsigned *, nvmlProcessV2 *)) \
    X(nvmlDeviceGetGraphicsRunningProcesses, (nvmlDevice, unsigned *, void *)) \
    X(nvmlDeviceGetGraphicsRunningProcesses_v2, (nvmlDevice, unsigned *, void *)) \
    X(nvmlDeviceGetGraphicsRunningProcesses_v3, (nvmlDevice, unsigned *, void *)) \
    X(nvmlDeviceGetMPSComputeRunningProcesses, (nvmlDevice, unsigned *, void *)) \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v2, (nvmlDevice, unsigned *, void *)) \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v3, (nvmlDevice, unsigned *, void *)) \
    X(nvmlDeviceGetProcessUtilization, (void)) X(nvmlDeviceGetProcessesUtilizationInfo, (void)) \
    X(nvmlDeviceGetRunningProcessDetailList, (void)) X(nvmlDeviceGetAccountingPids, (void)) \
    X(nvmlDeviceGetAccountingStats, (void)) X(nvmlDeviceGetSamples, (void))

#define HELPERS_CUDA(X) \
    X(cuDeviceGetCount, (int *)) X(cuDeviceGetUuid, (CUuuid *, CUdevice)) \
    X(cuDeviceGetUuid_v2, (CUuuid *, CUdevice)) X(cuDeviceGetMemPool, (CUmemPool *, CUdevice)) \
    X(cuDeviceGetDefaultMemPool, (CUmemPool *, CUdevice)) X(cuDeviceGraphMemTrim, (CUdevice)) \
    X(cuDevicePrimaryCtxGetState, (CUdevice, unsigned *, int *)) X(cuCtxGetCurrent, (CUcontext *)) \
    X(cuCtxGetDevice, (CUdevice *)) X(cuMemPoolGetAttribute, (CUmemPool, int, void *)) \
    X(cuThreadExchangeStreamCaptureMode, (int *)) X(cuStreamIsCapturing, (CUstream, int *)) \
    X(cuStreamGetCaptureInfo_v2, (CUstream, int *, uint64_t *, CUgraph *, const void **, size_t *)) \
    X(cuStreamGetCaptureInfo_v3, (CUstream, int *, uint64_t *, CUgraph *, const void **, const void **, size_t *)) \
    X(cuEventCreate, (CUevent *, unsigned)) X(cuEventDestroy_v2, (CUevent)) X(cuEventRecord, (CUevent, CUstream)) \
    X(cuEventQuery, (CUevent)) X(cuEventSynchronize, (CUevent)) X(cuEventElapsedTime, (float *, CUevent, CUevent))
#define HELPERS_NVML(X) X(nvmlDeviceGetUUID, (nvmlDevice, char *, unsigned))

#define PROTOTYPE(name, args) __attribute__((visibility("default"))) int name args;
WRAPPED_CUDA(PROTOTYPE)
WRAPPED_NVML(PROTOTYPE)
HELPERS_CUDA(PROTOTYPE)
HELPERS_NVML(PROTOTYPE)
#undef PROTOTYPE

#define AS_ENUM(name, args) S_##name,
enum symbol {
    WRAPPED_CUDA(AS_ENUM) S_CUDA_WRAPPED_END, S_BEFORE_CUDA_HELPERS = S_CUDA_WRAPPED_END - 1, HELPERS_CUDA(AS_ENUM)
    S_CUDA_END, S_BEFORE_NVML = S_CUDA_END - 1, WRAPPED_NVML(AS_ENUM)
    S_NVML_WRAPPED_END, S_BEFORE_NVML_HELPERS = S_NVML_WRAPPED_END - 1, HELPERS_NVML(AS_ENUM) S_COUNT
};
#undef AS_ENUM

/* The driver's own function behind a wrapper; NULL where this driver has none. */
#define REAL(name) ((__typeof__(&name))(uintptr_t)fgpu_real[S_##name])
extern void *fgpu_real[S_COUNT];

#endif
