/* What calls cost on this machine: cost <calls>. Prints ns per allocation and free, and ns per launch of an empty kernel:
 * those of the fastest part of the calls, since parts are short enough to be left alone by whatever else runs here. */
#include <time.h>

#include "driver.h"

enum { PART = 2000 };
typedef CUresult (*alloc_fn)(CUdeviceptr *, size_t);
typedef CUresult (*free_fn)(CUdeviceptr);
typedef CUresult (*launch_fn)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);

static alloc_fn allocate;
static free_fn release;
static launch_fn launch;

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void alloc_and_free(void)
{
    CUdeviceptr p;
    if (allocate(&p, 1 << 20) || release(p))
        exit(2);
}

static void launch_nothing(void)
{
    uint64_t nothing = 0;
    void *params[] = {&nothing};
    if (launch(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL))
        exit(3);
}

static double fastest(void (*call)(void), int calls)
{
    double least = 0;
    for (int done = 0; done < calls; done += PART) {
        double start = now_ns();
        for (int i = 0; i < PART; i++)
            call();
        double each = (now_ns() - start) / PART;
        least = done == 0 || each < least ? each : least;
    }
    return least;
}

int main(int argc, char **argv)
{
    CUcontext context;
    int calls = argc > 1 ? atoi(argv[1]) : 100000;
    open_cuda();
    if (CU(cuInit, (unsigned), 0) || CU(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice), &context, 0))
        return 1;
    CU(cuCtxSetCurrent, (CUcontext), context);
    allocate = (alloc_fn)(uintptr_t)by_dlsym("cuMemAlloc_v2");
    release = (free_fn)(uintptr_t)by_dlsym("cuMemFree_v2");
    launch = (launch_fn)(uintptr_t)by_dlsym("cuLaunchKernel");
    double alloc_ns = fastest(alloc_and_free, calls);
    printf("%.1f %.1f\n", alloc_ns, fastest(launch_nothing, calls));
    return 0;
}
