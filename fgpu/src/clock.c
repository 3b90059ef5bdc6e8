/* The gate's clock: monotonic, one for all containers of a host. The test build follows the simulated GPU's clock. */
#include <time.h>

#include "fgpu.h"

#ifdef FGPU_TEST
#include <stdlib.h>

static void *simulated(const char *name) {
    void *library = fgpu_cuda ? fgpu_cuda : fgpu_nvml;
    return library && getenv("FGPU_SIM_CLOCK") ? fgpu_real_dlsym(library, name) : NULL;
}
#endif

uint64_t clock_now(void) {
#ifdef FGPU_TEST
    uint64_t (*now)(void) = (uint64_t (*)(void))(uintptr_t)simulated("fgpuSimNow");
    if (now)
        return now();
#endif
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void clock_sleep(uint64_t ns) {
#ifdef FGPU_TEST
    void (*until)(uint64_t) = (void (*)(uint64_t))(uintptr_t)simulated("fgpuSimSleepUntil");
    if (until) {
        until(clock_now() + ns);
        return;
    }
#endif
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&t, NULL); /* cut short by a signal: the caller asks the gate again */
}
