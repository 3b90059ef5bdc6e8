/* Stands in for src/system.c in the test build: files that the environment names, of any owner; the simulated clock. */
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

#include "../../src/fgpu.h"

const char *system_limits_path(void) { return getenv("FGPU_LIMITS"); }
const char *system_region_path(void) { return getenv("FGPU_REGION"); }

bool system_trusts(unsigned owner) {
    (void)owner;
    return true;
}

static void *simulated(const char *name) {
    void *library = getenv("FGPU_SIM_CLOCK") ? dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD) : NULL;
    if (!library && getenv("FGPU_SIM_CLOCK"))
        library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_NOLOAD);
    return library ? fgpu_real_dlsym(library, name) : NULL;
}

uint64_t clock_now(void) {
    uint64_t (*now)(void) = (uint64_t (*)(void))(uintptr_t)simulated("fgpuSimNow");
    struct timespec t;
    if (now)
        return now();
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void clock_sleep(uint64_t ns) {
    void (*until)(uint64_t) = (void (*)(uint64_t))(uintptr_t)simulated("fgpuSimSleepUntil");
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    if (until)
        until(clock_now() + ns);
    else
        nanosleep(&t, NULL);
}
