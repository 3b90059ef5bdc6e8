/* A GPU load on the simulated clock: load <pattern> <kernel us> <for ms> [pause us]. Prints the share of the time that
 * the GPU was busy for all processes together, as seen by this one from its start to its end, and its own part of it. */
#include <stdbool.h>

#include "driver.h"

#define LAUNCH_TYPES \
    (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **)

#define AS(function, types) ((CUresult(*) types)(uintptr_t)function)
#define COOPERATIVE_TYPES \
    (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **)

static uint64_t kernel_ns, pause_ns, own_ns;
static CUstream streams[4];
static CUgraphExec exec;

static uint64_t now(void)
{
    return ((uint64_t(*)(void))(uintptr_t)by_dlsym("fgpuSimNow"))();
}

static uint64_t busy(void)
{
    return ((uint64_t(*)(int))(uintptr_t)by_dlsym("fgpuSimBusy"))(0);
}

static void rest(uint64_t ns)
{
    if (ns)
        ((void (*)(uint64_t))(uintptr_t)by_dlsym("fgpuSimSleepUntil"))(now() + ns);
}

static CUresult launch(CUstream stream, uint64_t ns)
{
    void *params[] = {&ns};
    own_ns += ns;
    return CU(cuLaunchKernel, LAUNCH_TYPES, NULL, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

/* One kernel by the driver's function of that name; false if there is none. The oldest take a millisecond each. */
static bool launch_by(const char *name)
{
    void *params[] = {&kernel_ns}, *function = NULL;
    CUlaunchConfig config = {.stream = NULL};
    if (!strncmp(name, "cu", 2))
        function = by_dlsym(name);
    if (!function)
        return false;
    if (!strncmp(name, "cuLaunchKernelEx", 16))
        AS(function, (const CUlaunchConfig *, CUfunction, void **, void **))(&config, NULL, params, NULL);
    else if (!strncmp(name, "cuLaunchKernel", 14))
        AS(function, LAUNCH_TYPES)(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
    else if (!strncmp(name, "cuLaunchCooperativeKernel", 25))
        AS(function, COOPERATIVE_TYPES)(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, params);
    else if (!strncmp(name, "cuGraphLaunch", 13))
        AS(function, (CUgraphExec, CUstream))(exec, NULL);
    else
        AS(function, (CUfunction, int, int, CUstream))(NULL, 1, 1, NULL);
    return true;
}

static void make_graph(void)
{
    CUgraph graph;
    CU(cuStreamBeginCapture_v2, (CUstream, int), streams[0], 0);
    for (int i = 0; i < 10; i++)
        launch(streams[0], kernel_ns);
    if (CU(cuStreamEndCapture, (CUstream, CUgraph *), streams[0], &graph))
        exit(4);
    CU(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long), &exec, graph, 0);
}

/* A stream waits 200 ms for something elsewhere before its kernel, while small kernels run on another now and then. */
static void held(void)
{
    ((void (*)(CUstream, uint64_t))(uintptr_t)by_dlsym("fgpuSimHold"))(streams[0], now() + 200000000);
    launch(streams[0], kernel_ns);
    for (int i = 0; i < 100; i++) {
        launch(streams[1], 10000);
        rest(2000000);
    }
    CU(cuCtxSynchronize, (void));
}

static void step(const char *pattern, unsigned i)
{
    if (!strcmp(pattern, "graph") || !strcmp(pattern, "elsewhere"))
        CU(cuGraphLaunch, (CUgraphExec, CUstream), exec, streams[0]);
    else if (!strcmp(pattern, "streams"))
        launch(streams[i % 4], kernel_ns);
    else if (!strcmp(pattern, "held"))
        held();
    else if (launch_by(pattern))
        return;
    else if (!strcmp(pattern, "mixed"))
        launch(NULL, i % 10 ? kernel_ns / 20 : kernel_ns);
    else
        launch(NULL, kernel_ns);
    if (!strcmp(pattern, "sync") || (!strcmp(pattern, "steps") && i % 50 == 49)) {
        CU(cuCtxSynchronize, (void));
        rest(pause_ns);
    }
}

/* One kernel of the given length, then a launch on another stream: prints how many ms the second launch took. */
static void stuck(void)
{
    launch(streams[0], kernel_ns);
    rest(200000000);
    uint64_t start = now();
    launch(streams[1], 1000);
    printf("%.3f\n", (double)(now() - start) / 1e6);
}

int main(int argc, char **argv)
{
    CUcontext context;
    open_cuda();
    if (argc < 4 || CU(cuInit, (unsigned), 0) || CU(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice), &context, 0))
        return 1;
    CU(cuCtxSetCurrent, (CUcontext), context);
    for (int i = 0; i < 4; i++)
        CU(cuStreamCreate, (CUstream *, unsigned), &streams[i], 0);
    kernel_ns = strtoull(argv[2], NULL, 10) * 1000;
    pause_ns = argc > 4 ? strtoull(argv[4], NULL, 10) * 1000 : 0;
    make_graph();
    if (!strcmp(argv[1], "elsewhere")) { /* its stream is of GPU 0, while this thread is at GPU 1 */
        CU(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice), &context, 1);
        CU(cuCtxSetCurrent, (CUcontext), context);
    }
    own_ns = 0;
    rest(1000); /* on the virtual clock: until all parties are here */
    if (!strcmp(argv[1], "stuck")) {
        stuck();
        return 0;
    }
    uint64_t start = now(), before = busy(), end = start + strtoull(argv[3], NULL, 10) * 1000000;
    for (unsigned i = 0; now() < end; i++)
        step(argv[1], i);
    CU(cuStreamSynchronize, (CUstream), streams[0]);
    CU(cuCtxSynchronize, (void));
    double elapsed = (double)(now() - start) / 100;
    printf("%.3f %.3f\n", (double)(busy() - before) / elapsed, (double)own_ns / elapsed);
    return 0;
}
