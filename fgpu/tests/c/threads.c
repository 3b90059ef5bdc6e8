/* Many threads allocate, launch, ask and free at once: for the sanitizers, and for the sum to come out as zero. */
#include <pthread.h>

#include "driver.h"

enum { THREADS = 8, ROUNDS = 300 };
static CUcontext context;

static void *work(void *argument)
{
    uint64_t ns = 20000;
    void *params[] = {&ns};
    CUdeviceptr p, q;
    size_t free_bytes, total;
    CU(cuCtxSetCurrent, (CUcontext), context);
    for (int i = 0; i < ROUNDS; i++) {
        CUresult rc = CU(cuMemAlloc_v2, (CUdeviceptr *, size_t), &p, (1 + (size_t)(i % 7)) << 20);
        CUresult async = CU(cuMemAllocAsync_ptsz, (CUdeviceptr *, size_t, CUstream), &q, 1 << 20, NULL);
        CU(cuLaunchKernel_ptsz, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **),
           argument, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
        CU(cuMemGetInfo_v2, (size_t *, size_t *), &free_bytes, &total);
        if (!async)
            CU(cuMemFreeAsync_ptsz, (CUdeviceptr, CUstream), q, NULL);
        if (!rc)
            CU(cuMemFree_v2, (CUdeviceptr), p);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    size_t free_bytes = 0, total = 0;
    open_cuda();
    if (CU(cuInit, (unsigned), 0) || CU(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice), &context, 0))
        return 1;
    CU(cuCtxSetCurrent, (CUcontext), context);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CU(cuCtxSynchronize, (void));
    CU(cuMemGetInfo_v2, (size_t *, size_t *), &free_bytes, &total);
    printf("%zu %zu\n", free_bytes, total);
    return 0;
}
