/* Launches of every kind pass the gate. */
#include "fgpu.h"

#define GATED(stream, call) \
    if (fgpu_ready() == CUDA_SUCCESS && !fgpu_gated) \
        return call; \
    struct gate_pass pass; \
    CUresult rc = gate_enter(stream, &pass); \
    if (rc) \
        return rc; \
    rc = call; \
    gate_leave(&pass); \
    return rc

#define PER_THREAD(stream) ((stream) ? (stream) : STREAM_PER_THREAD)
#define SHAPE unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared
#define SHAPED gx, gy, gz, bx, by, bz, shared

EXPORT CUresult cuLaunchKernel(CUfunction f, SHAPE, CUstream stream, void **params, void **extra) {
    GATED(stream, CALL(cuLaunchKernel, f, SHAPED, stream, params, extra));
}

EXPORT CUresult cuLaunchKernel_ptsz(CUfunction f, SHAPE, CUstream stream, void **params, void **extra) {
    GATED(PER_THREAD(stream), CALL(cuLaunchKernel_ptsz, f, SHAPED, stream, params, extra));
}

EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **params, void **extra) {
    GATED(config ? config->stream : NULL, CALL(cuLaunchKernelEx, config, f, params, extra));
}

EXPORT CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **params, void **extra) {
    GATED(config ? PER_THREAD(config->stream) : NULL, CALL(cuLaunchKernelEx_ptsz, config, f, params, extra));
}

EXPORT CUresult cuLaunchCooperativeKernel(CUfunction f, SHAPE, CUstream stream, void **params) {
    GATED(stream, CALL(cuLaunchCooperativeKernel, f, SHAPED, stream, params));
}

EXPORT CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, SHAPE, CUstream stream, void **params) {
    GATED(PER_THREAD(stream), CALL(cuLaunchCooperativeKernel_ptsz, f, SHAPED, stream, params));
}

/* Obsolete since CUDA 11.3. Over several GPUs there is no one gate to pass: refused where any of them is gated. */
EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUlaunchParams *list, unsigned count, unsigned flags) {
    if (count != 1 && (fgpu_ready() || fgpu_gated))
        return CUDA_NOT_SUPPORTED;
    GATED(list ? list->stream : NULL, CALL(cuLaunchCooperativeKernelMultiDevice, list, count, flags));
}

EXPORT CUresult cuLaunch(CUfunction f) { GATED(NULL, CALL(cuLaunch, f)); }
EXPORT CUresult cuLaunchGrid(CUfunction f, int width, int height) { GATED(NULL, CALL(cuLaunchGrid, f, width, height)); }

EXPORT CUresult cuLaunchGridAsync(CUfunction f, int width, int height, CUstream stream) {
    GATED(stream, CALL(cuLaunchGridAsync, f, width, height, stream));
}

EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) { GATED(stream, CALL(cuGraphLaunch, exec, stream)); }

EXPORT CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
    GATED(PER_THREAD(stream), CALL(cuGraphLaunch_ptsz, exec, stream));
}
