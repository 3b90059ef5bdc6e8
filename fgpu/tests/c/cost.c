/* What calls cost on this machine: cost <calls>. Prints ns per allocation and free, and ns per launch of an empty kernel:
 * those of the fastest part of the calls, since parts are short enough to be left alone by whatever else runs here.
 *
 * cost <calls> <streams>: prints ns of this thread's CPU time per launch, on each stream in turn while all of them have
 * work in flight, and on a single one after that.
 *
 * cost <calls> 0 <blocks>: prints ns per allocation and free while so many other blocks are held. */
#include <time.h>
#include <unistd.h>

#include "driver.h"

enum { PART = 2000, ROUNDS = 20, HELD_NS = 1000000000 };
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

static double cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* The fastest of some rounds, each of one launch on each stream; what is launched waits for something elsewhere. */
static double on_each(CUstream *streams, int count)
{
    uint64_t nothing = 0, until = ((uint64_t(*)(void))(uintptr_t)by_dlsym("fgpuSimNow"))() + HELD_NS;
    void *params[] = {&nothing};
    double least = 0;
    for (int i = 0; i < count; i++)
        ((void (*)(CUstream, uint64_t))(uintptr_t)by_dlsym("fgpuSimHold"))(streams[i], until);
    for (int round = 0; round < ROUNDS; round++) {
        double start = cpu_ns();
        for (int i = 0; i < count; i++)
            if (launch(NULL, 1, 1, 1, 1, 1, 1, 0, streams[i], params, NULL))
                exit(4);
        double each = (cpu_ns() - start) / count;
        least = round == 0 || each < least ? each : least;
    }
    return least;
}

static void measure_streams(int count, int calls)
{
    CUstream *streams = calloc((size_t)count, sizeof *streams);
    for (int i = 0; i < count; i++)
        if (CU(cuStreamCreate, (CUstream *, unsigned), &streams[i], 0))
            exit(5);
    launch_nothing(); /* so that the gate knows how long one takes */
    CU(cuCtxSynchronize, (void));
    launch_nothing();
    double many = on_each(streams, count);
    usleep(HELD_NS / 1000);
    printf("%.1f %.1f\n", many, fastest(launch_nothing, calls));
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
    if (argc > 3) {
        CUdeviceptr block;
        for (int i = atoi(argv[3]); i > 0; i--)
            if (allocate(&block, 1))
                exit(6);
        printf("%.1f\n", fastest(alloc_and_free, calls));
        return 0;
    }
    if (argc > 2) {
        measure_streams(atoi(argv[2]), calls);
        return 0;
    }
    double alloc_ns = fastest(alloc_and_free, calls);
    printf("%.1f %.1f\n", alloc_ns, fastest(launch_nothing, calls));
    return 0;
}
