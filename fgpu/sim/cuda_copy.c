/* The simulated driver's copies: checked, and not made. Device memory has no content here; what is read of it is zero. */
#include "cuda.h"

static CUresult check(CUdeviceptr at, size_t bytes)
{
    NEED_CONTEXT;
    pthread_mutex_lock(&big);
    const struct block *block = block_around(at);
    bool inside = block && bytes <= block->bytes - (at - block->address);
    pthread_mutex_unlock(&big);
    return inside ? CUDA_SUCCESS : CUDA_INVALID_VALUE;
}

API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) { return from ? check(to, bytes) : CUDA_INVALID_VALUE; }
API CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    CUresult rc = to ? check(from, bytes) : CUDA_INVALID_VALUE;
    if (!rc)
        memset(to, 0, bytes);
    return rc;
}
API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) { return check(to, bytes) ? CUDA_INVALID_VALUE : check(from, bytes); }
API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream s) { (void)s; return cuMemcpyHtoD_v2(to, from, bytes); }
API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream s) { (void)s; return cuMemcpyDtoH_v2(to, from, bytes); }
API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s) { (void)s; return cuMemcpyDtoD_v2(to, from, bytes); }
API CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t bytes) { (void)value; return check(to, bytes); }
API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream s) { (void)s; return cuMemsetD8_v2(to, value, bytes); }
