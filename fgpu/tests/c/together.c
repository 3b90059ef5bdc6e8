/* Threads of one program that launch at once, on the simulated clock: together <pattern> <number>.
 *
 * late <ms>: one thread is long at each launch of a millisecond, while another launches a short kernel on that stream;
 * prints the share of the time that the GPU worked for both, in percent.
 * crowd <ms>: four threads on one stream that waits for another; prints for how many ns the GPU worked.
 * full <commands>, begin <commands>, tail <commands>: a stream that holds so many, while another thread launches on
 * others; prints how many ms the longest of those launches took.
 * destroy <kernels>: ends a stream with so many in flight, while another thread is at a launch on it; prints for how many
 * ns the GPU worked.
 * reset <commands>: a thread ends the context of such a stream; prints how many ms that took.
 * green <us>: ends a green context that long after a launch in it that no event closes.
 * end <commands>, record <commands>: on a stream that holds so many and waits, a thread ends it, or begins to record a
 * graph; prints how many ms that took.
 * leave <us>: exits so long after a launch on a stream that waits for something elsewhere. */
#include <pthread.h>
#include <stdbool.h>

#include "driver.h"

enum { STREAMS = 100, LATE_NS = 50000, PERIOD_NS = 2000000, HELD_NS = 1000000000, MS = 1000000, US = 1000 };
static CUcontext context;
static CUstream streams[STREAMS];
static CUevent event;
static uint64_t (*now)(void), until, longest;
static void (*sleep_until)(uint64_t), (*delay_launches)(uint64_t), (*hold)(CUstream, uint64_t);
static _Atomic unsigned running;

struct thread { void (*work)(unsigned); int sleeper; unsigned seed; };

static CUresult launch(CUstream stream, uint64_t ns)
{
    void *params[] = {&ns};
    return CU(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **),
              NULL, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static void *live(void *argument)
{
    struct thread *self = argument;
    ((void (*)(int))(uintptr_t)by_dlsym("fgpuSimBecome"))(self->sleeper);
    CU(cuCtxSetCurrent, (CUcontext), context);
    self->work(self->seed);
    running--;
    for (;;) /* the clock would wait for a thread that ends */
        sleep_until(UINT64_MAX);
}

static void start(void (*work)(unsigned), unsigned seed)
{
    static struct thread all[8];
    pthread_t thread;
    all[running] = (struct thread){work, ((int (*)(void))(uintptr_t)by_dlsym("fgpuSimReserve"))(), seed};
    if (pthread_create(&thread, NULL, live, &all[running++]))
        exit(2);
}

static void join(void)
{
    while (running)
        sleep_until(now() + 10 * MS);
    CU(cuCtxSynchronize, (void));
    sleep_until(now() + 100 * MS); /* for what is done to be seen */
}

/* At the same moments of all periods. */
static void at_each_period(uint64_t after, uint64_t ns)
{
    while (now() < until) {
        sleep_until((now() / PERIOD_NS + 1) * PERIOD_NS + after);
        launch(streams[0], ns);
        CU(cuStreamSynchronize, (CUstream), streams[0]);
    }
}

static void be_long(unsigned unused)
{
    (void)unused;
    delay_launches(LATE_NS);
    at_each_period(0, MS);
}

static void be_short(unsigned unused)
{
    (void)unused;
    at_each_period(10 * US, 20 * US);
}

/* Half of the threads take long at their launches, of longer kernels. */
static void wander(unsigned seed)
{
    bool is_long = seed % 2;
    CUevent own;
    CU(cuEventCreate, (CUevent *, unsigned), &own, 0);
    delay_launches(is_long ? LATE_NS : 0);
    while (now() < until) {
        seed = seed * 1103515245 + 12345;
        unsigned dice = seed >> 16;
        CUstream stream = streams[0];
        launch(stream, (1 + dice / 2 % 5) * (is_long ? MS : 20 * US));
        if (dice / 10 % 5 == 0) {
            CU(cuEventRecord, (CUevent, CUstream), own, streams[(dice + 1) % 2]);
            CU(cuStreamWaitEvent, (CUstream, CUevent, unsigned), stream, own, 0);
        } else if (dice / 10 % 5 > 1) {
            CU(cuStreamSynchronize, (CUstream), stream);
            sleep_until(now() + dice / 50 % 3 * (is_long ? 5 * MS : 50 * US));
        }
    }
}

static void launch_late(unsigned unused)
{
    (void)unused;
    delay_launches(LATE_NS);
    launch(streams[0], MS);
}

static void destroy_under_launch(int kernels)
{
    for (int i = 0; i < kernels; i++)
        launch(streams[0], MS);
    start(launch_late, 0);
    sleep_until(now() + LATE_NS / 2);
    CU(cuStreamDestroy_v2, (CUstream), streams[0]);
}

static void launch_elsewhere(unsigned unused)
{
    (void)unused;
    sleep_until(now() + MS);
    for (int i = 1; i < STREAMS; i++) {
        uint64_t began = now();
        launch(streams[i], 10 * US);
        longest = now() - began > longest ? now() - began : longest;
        sleep_until(now() + MS);
    }
}

static void reset(unsigned unused)
{
    (void)unused;
    sleep_until(now() + 5 * MS); /* until the hook records an event there */
    uint64_t began = now();
    CU(cuDevicePrimaryCtxReset_v2, (CUdevice), 0);
    longest = now() - began;
}

static void end(unsigned unused)
{
    (void)unused;
    sleep_until(now() + 5 * MS); /* until the hook records an event there */
    uint64_t began = now();
    CU(cuStreamDestroy_v2, (CUstream), streams[0]);
    longest = now() - began;
}

static void record(unsigned unused)
{
    (void)unused;
    sleep_until(now() + 5 * MS);
    uint64_t began = now();
    CU(cuStreamBeginCapture_v2, (CUstream, int), streams[0], 0);
    longest = now() - began;
}

static void fill(int commands)
{
    for (int i = 0; i < commands; i++)
        CU(cuEventRecord, (CUevent, CUstream), event, streams[0]);
}

/* The stream waits for something elsewhere, or works for long, with so many commands behind it. */
static void be_full(const char *pattern, int commands)
{
    void (*act)(unsigned) = !strcmp(pattern, "reset") ? reset : !strcmp(pattern, "end") ? end : !strcmp(pattern, "record") ? record : launch_elsewhere;
    bool tail = act != launch_elsewhere || !strcmp(pattern, "tail");
    for (int i = 0; i < 10; i++) /* the hook's events: one behind each launch, or behind many */
        launch(streams[0], tail ? 20 * US : MS);
    CU(cuCtxSynchronize, (void));
    sleep_until(now() + 10 * MS);
    start(act, 0);
    if (tail) {
        launch(streams[0], 20 * US);
        launch(streams[0], act == end || act == record ? 20ull * HELD_NS : 200 * MS);
        fill(commands);
        return;
    }
    hold(streams[0], now() + HELD_NS);
    for (int i = 0; i < 2 && !strcmp(pattern, "full"); i++)
        launch(streams[0], MS);
    fill(commands);
    for (int i = 0; i < 3; i++)
        launch(streams[0], MS);
}

static void wait_elsewhere(uint64_t ns)
{
    launch(streams[0], US);
    CU(cuCtxSynchronize, (void));
    hold(streams[1], now() + HELD_NS);
    CU(cuEventRecord, (CUevent, CUstream), event, streams[1]);
    CU(cuStreamWaitEvent, (CUstream, CUevent, unsigned), streams[0], event, 0);
    launch(streams[0], US);
    sleep_until(now() + ns);
}

static void end_green(uint64_t ns)
{
    CUgreenCtx green;
    CUcontext face;
    for (int i = 0; i < 10; i++)
        launch(streams[0], 20 * US);
    CU(cuCtxSynchronize, (void));
    CU(cuGreenCtxCreate, (CUgreenCtx *, CUresourceDesc, CUdevice, unsigned), &green, NULL, 0, 0);
    CU(cuCtxFromGreenCtx, (CUcontext *, CUgreenCtx), &face, green);
    CU(cuCtxSetCurrent, (CUcontext), face);
    for (int i = 0; i < 2; i++)
        launch(NULL, MS);
    sleep_until(now() + ns);
    CU(cuCtxSetCurrent, (CUcontext), context);
    CU(cuGreenCtxDestroy, (CUgreenCtx), green);
}

int main(int argc, char **argv)
{
    open_cuda();
    if (argc < 3 || CU(cuInit, (unsigned), 0) || CU(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice), &context, 0))
        return 1;
    CU(cuCtxSetCurrent, (CUcontext), context);
    CU(cuEventCreate, (CUevent *, unsigned), &event, 0);
    for (int i = 0; i < STREAMS; i++)
        CU(cuStreamCreate, (CUstream *, unsigned), &streams[i], 0);
    now = (uint64_t(*)(void))(uintptr_t)by_dlsym("fgpuSimNow");
    sleep_until = (void (*)(uint64_t))(uintptr_t)by_dlsym("fgpuSimSleepUntil");
    delay_launches = (void (*)(uint64_t))(uintptr_t)by_dlsym("fgpuSimDelayLaunches");
    hold = (void (*)(CUstream, uint64_t))(uintptr_t)by_dlsym("fgpuSimHold");
    sleep_until(now() + MS); /* until all parties are here */
    uint64_t began = now(), (*executed)(int) = (uint64_t(*)(int))(uintptr_t)by_dlsym("fgpuSimExecuted");
    until = began + strtoull(argv[2], NULL, 10) * MS;
    if (!strcmp(argv[1], "late")) {
        start(be_long, 0);
        start(be_short, 0);
        join();
        printf("%.3f\n", (double)executed(0) / (double)(now() - began) * 100);
    } else if (!strcmp(argv[1], "crowd")) {
        for (unsigned i = 0; i < 4; i++)
            start(wander, i);
        join();
        printf("%llu\n", (unsigned long long)executed(0));
    } else if (!strcmp(argv[1], "destroy")) {
        destroy_under_launch(atoi(argv[2]));
        join();
        printf("%llu\n", (unsigned long long)executed(0));
    } else if (!strcmp(argv[1], "green")) {
        end_green(strtoull(argv[2], NULL, 10) * US);
        join();
        printf("%llu\n", (unsigned long long)executed(0));
    } else if (!strcmp(argv[1], "leave")) {
        wait_elsewhere(strtoull(argv[2], NULL, 10) * US);
    } else {
        be_full(argv[1], atoi(argv[2]));
        join();
        printf("%.3f\n", (double)longest / MS);
    }
    return 0;
}
