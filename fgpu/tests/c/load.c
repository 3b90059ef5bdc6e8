/* A GPU load on the simulated clock: load <pattern> <kernel us> <for ms> [pause us]. Prints the share of the time that
 * the GPU was busy for all processes together, as seen by this one from its start to its end, and for it alone, and how many ms
 * the longest step took. */
#include <stdbool.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

#define LAUNCH_TYPES \
    (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **)

#define AS(function, types) ((CUresult(*) types)(uintptr_t)function)
#define COOPERATIVE_TYPES \
    (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **)

enum { CROWD = 100 };
static uint64_t kernel_ns, pause_ns, longest_ns; /* `longest`: wait for a launch */
static CUstream streams[CROWD];
static CUgraphExec exec;

static uint64_t now(void)
{
    return ((uint64_t(*)(void))(uintptr_t)by_dlsym("fgpuSimNow"))();
}

static uint64_t busy(void)
{
    return ((uint64_t(*)(int))(uintptr_t)by_dlsym("fgpuSimBusy"))(0);
}

static uint64_t executed(void)
{
    return ((uint64_t(*)(int))(uintptr_t)by_dlsym("fgpuSimExecuted"))(0);
}

static void rest(uint64_t ns)
{
    if (ns)
        ((void (*)(uint64_t))(uintptr_t)by_dlsym("fgpuSimSleepUntil"))(now() + ns);
}

static CUresult launch(CUstream stream, uint64_t ns)
{
    void *params[] = {&ns};
    return CU(cuLaunchKernel, LAUNCH_TYPES, NULL, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

/* One kernel by the driver's function of that name; false if there is none. The oldest take a millisecond each. */
static bool launch_by(const char *name)
{
    void *params[] = {&kernel_ns}, *function = NULL;
    CUlaunchConfig config = {.grid = {1, 1, 1}, .block = {1, 1, 1}};
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

/* A batch of kernels on a stream that waits so long for something elsewhere, maybe for what the program does after it. */
static void behind(uint64_t ns)
{
    ((void (*)(CUstream, uint64_t))(uintptr_t)by_dlsym("fgpuSimHold"))(streams[0], now() + ns);
    for (int i = 0; i < 20; i++)
        launch(streams[0], kernel_ns);
}

/* The same by events that happen so late, each a second after the one before, and waited for behind three kernels. */
static void awaited(uint64_t ns, int waits)
{
    CUevent event;
    CU(cuEventCreate, (CUevent *, unsigned), &event, 0);
    for (int i = 0; i < 3; i++)
        launch(streams[0], kernel_ns);
    for (int i = 0; i < waits; i++) {
        ((void (*)(CUstream, uint64_t))(uintptr_t)by_dlsym("fgpuSimHold"))(streams[1], now() + ns + (uint64_t)i * 1000000000);
        CU(cuEventRecord, (CUevent, CUstream), event, streams[1]);
        CU(cuStreamWaitEvent, (CUstream, CUevent, unsigned), streams[0], event, 0);
        launch(streams[0], kernel_ns);
    }
    for (int i = 0; i < 20; i++)
        launch(streams[0], kernel_ns);
}

/* Two streams, each of which waits for the other's last kernel before its next one. */
static void in_turns(unsigned i)
{
    static CUevent events[2];
    if (!events[i % 2])
        CU(cuEventCreate, (CUevent *, unsigned), &events[i % 2], 0);
    if (i)
        CU(cuStreamWaitEvent, (CUstream, CUevent, unsigned), streams[i % 2], events[(i + 1) % 2], 0);
    launch(streams[i % 2], kernel_ns);
    CU(cuEventRecord, (CUevent, CUstream), events[i % 2], streams[i % 2]);
}

/* Kernels of which the last are over before an event closes them; after a pause, one behind a wait. */
static void tail(void)
{
    static CUevent event;
    if (!event)
        CU(cuEventCreate, (CUevent *, unsigned), &event, 0);
    for (int i = 0; i < 5; i++)
        launch(streams[0], kernel_ns);
    CU(cuCtxSynchronize, (void));
    rest(pause_ns);
    CU(cuStreamWaitEvent, (CUstream, CUevent, unsigned), streams[0], event, 0);
    launch(streams[0], kernel_ns);
    CU(cuCtxSynchronize, (void));
}

/* Kernels that launch three times as much themselves: no launch function is called for that. */
static void device(uint64_t ns)
{
    launch(NULL, ns);
    ((void (*)(CUstream, uint64_t))(uintptr_t)by_dlsym("fgpuSimLaunchOnDevice"))(NULL, 3 * ns);
}

/* One process after the other, each with one kernel: of the pattern `once`, which waits for it, or `drop`, which exits
 * while it runs. The clock stands still while a process is made. */
static void short_lived(char **argv)
{
    uint32_t (*joined)(void) = (uint32_t(*)(void))(uintptr_t)by_dlsym("fgpuSimJoined");
    uint32_t before = joined();
    pid_t child = fork();
    if (!child) {
        execl("/proc/self/exe", argv[0], argv[1] + 6, argv[2], "0", NULL);
        _exit(5);
    }
    while (joined() == before)
        usleep(200);
    while (waitpid(child, NULL, WNOHANG) == 0)
        rest(1000000);
}

static void step(const char *pattern, unsigned i)
{
    if (!strcmp(pattern, "graph") || !strcmp(pattern, "elsewhere"))
        CU(cuGraphLaunch, (CUgraphExec, CUstream), exec, streams[0]);
    else if (!strcmp(pattern, "streams"))
        launch(streams[i % 4], kernel_ns);
    else if (!strcmp(pattern, "crowd"))
        launch(streams[i % CROWD], kernel_ns);
    else if (!strcmp(pattern, "device"))
        device(kernel_ns);
    else if (!strcmp(pattern, "held"))
        held();
    else if (!strcmp(pattern, "queued") || !strcmp(pattern, "queued-behind")) {
        if (pattern[6])
            awaited(2000000000, 1);
        else
            behind(2000000000);
        CU(cuCtxSynchronize, (void));
    }
    else if (!strcmp(pattern, "in-turns"))
        in_turns(i);
    else if (!strcmp(pattern, "tail"))
        tail();
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

/* Short kernels, each waited for: prints how many events were recorded for each. */
static void record(uint64_t until)
{
    uint64_t launches = 0;
    for (; now() < until; launches++) {
        launch(NULL, kernel_ns);
        CU(cuCtxSynchronize, (void));
    }
    uint64_t recorded = ((uint64_t(*)(void))(uintptr_t)by_dlsym("fgpuSimRecorded"))();
    printf("%.3f\n", (double)recorded / (double)launches);
}

/* After a pause, work for so long: prints ms until the first kernel is done, beyond its own time, and its part of the
 * first 200 ms and of all of it, in percent. */
static void wake(uint64_t ns)
{
    rest(pause_ns);
    uint64_t start = now(), own = executed(), early = 0;
    launch(NULL, kernel_ns);
    CU(cuCtxSynchronize, (void));
    double first = (double)(now() - start - kernel_ns) / 1e6;
    while (now() < start + ns) {
        launch(NULL, kernel_ns);
        if (!early && now() >= start + 200000000)
            early = executed();
    }
    double elapsed = (double)(now() - start);
    printf("%.3f %.3f %.3f\n", first, (double)(early - own) / 2e6, (double)(executed() - own) / elapsed * 100);
}

int main(int argc, char **argv)
{
    CUcontext context;
    open_cuda();
    if (argc < 4 || CU(cuInit, (unsigned), 0) || CU(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice), &context, 0))
        return 1;
    CU(cuCtxSetCurrent, (CUcontext), context);
    for (int i = 0; i < CROWD; i++)
        CU(cuStreamCreate, (CUstream *, unsigned), &streams[i], 0);
    kernel_ns = strtoull(argv[2], NULL, 10) * 1000;
    pause_ns = argc > 4 ? strtoull(argv[4], NULL, 10) * 1000 : 0;
    make_graph();
    if (!strcmp(argv[1], "elsewhere")) { /* its stream is of GPU 0, while this thread is at GPU 1 */
        CU(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice), &context, 1);
        CU(cuCtxSetCurrent, (CUcontext), context);
    }
    rest(1000); /* on the virtual clock: until all parties are here */
    if (!strcmp(argv[1], "stuck")) {
        stuck();
        return 0;
    }
    if (!strcmp(argv[1], "behind") || !strcmp(argv[1], "awaited")) {
        uint64_t start = now();
        if (argv[1][0] == 'b')
            behind(60000000000);
        else
            awaited(60000000000, atoi(argv[4]));
        printf("%.3f\n", (double)(now() - start) / 1e6); /* how many ms it took to launch them */
        return 0;
    }
    if (!strcmp(argv[1], "once") || !strcmp(argv[1], "drop") || !strcmp(argv[1], "die")) {
        launch(NULL, kernel_ns);
        if (!strcmp(argv[1], "once"))
            CU(cuCtxSynchronize, (void));
        else
            rest(10000000); /* it runs */
        if (!strcmp(argv[1], "die"))
            kill(getpid(), SIGKILL);
        return 0;
    }
    if (!strcmp(argv[1], "record")) {
        record(now() + strtoull(argv[3], NULL, 10) * 1000000);
        return 0;
    }
    if (!strcmp(argv[1], "wake")) {
        wake(strtoull(argv[3], NULL, 10) * 1000000);
        return 0;
    }
    uint64_t start = now(), before = busy(), own = executed(), end = start + strtoull(argv[3], NULL, 10) * 1000000;
    for (unsigned i = 0; now() < end; i++) {
        uint64_t began = now();
        if (strncmp(argv[1], "short-", 6))
            step(argv[1], i);
        else
            short_lived(argv);
        longest_ns = now() - began > longest_ns ? now() - began : longest_ns;
    }
    CU(cuStreamSynchronize, (CUstream), streams[0]);
    CU(cuCtxSynchronize, (void));
    double elapsed = (double)(now() - start) / 100;
    printf("%.3f %.3f %.3f\n", (double)(busy() - before) / elapsed, (double)(executed() - own) / elapsed,
           (double)longest_ns / 1e6);
    return 0;
}
