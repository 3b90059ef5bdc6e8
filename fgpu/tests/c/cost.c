/* What calls cost on this machine: cost <calls>. Prints ns per allocation and free, and ns per launch of an empty kernel. */
#include <time.h>

#include "driver.h"

typedef CUresult (*alloc_fn)(CUdeviceptr *, size_t);
typedef CUresult (*free_fn)(CUdeviceptr);
typedef CUresult (*launch_fn)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    CUcontext context;
    CUdeviceptr p;
    uint64_t nothing = 0;
    void *params[] = {&nothing};
    int calls = argc > 1 ? atoi(argv[1]) : 100000;
    open_cuda();
    if (CU(cuInit, (unsigned), 0) || CU(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice), &context, 0))
        return 1;
    CU(cuCtxSetCurrent, (CUcontext), context);
    alloc_fn alloc = (alloc_fn)(uintptr_t)by_dlsym("cuMemAlloc_v2");
    free_fn release = (free_fn)(uintptr_t)by_dlsym("cuMemFree_v2");
    launch_fn launch = (launch_fn)(uintptr_t)by_dlsym("cuLaunchKernel");
    double start = now_ns();
    for (int i = 0; i < calls; i++)
        if (alloc(&p, 1 << 20) || release(p))
            return 2;
    double middle = now_ns();
    for (int i = 0; i < calls; i++)
        if (launch(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL))
            return 3;
    printf("%.1f %.1f\n", (middle - start) / calls, (now_ns() - middle) / calls);
    return 0;
}
