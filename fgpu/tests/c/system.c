/* Stands in for src/system.c in the test build: files that the environment names, of any owner; the simulated clock. */
#include <dlfcn.h>
#include <linux/futex.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../../src/fgpu.h"

const char *system_limits_path(void) { return getenv("FGPU_LIMITS"); }
const char *system_region_path(void) { return getenv("FGPU_REGION"); }
const char *system_grant_path(void) { return getenv("FGPU_GRANT") ? getenv("FGPU_GRANT") : ""; }
const char *system_socket_path(void) { return getenv("FGPU_SOCKET"); }

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

uint64_t clock_coarse(void) {
    struct timespec t;
    if (getenv("FGPU_SIM_CLOCK"))
        return clock_now();
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
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

enum { HOP_NS = 30000 }; /* from the arbiter's grant to the thread that waited for it */

void system_sleep_on(const _Atomic uint32_t *word, uint32_t seen, uint64_t until, uint64_t key) {
    void (*wait)(uint64_t, const void *, uint32_t, uint64_t) =
        (void (*)(uint64_t, const void *, uint32_t, uint64_t))(uintptr_t)simulated("fgpuSimWait");
    struct timespec at = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
    if (!wait) {
        syscall(SYS_futex, word, FUTEX_WAIT_BITSET, seen, until == UINT64_MAX ? NULL : &at, NULL, FUTEX_BITSET_MATCH_ANY);
        return;
    }
    wait(key, word, seen, until);
    if (atomic_load(word) != seen)
        clock_sleep(HOP_NS);
}

void system_wake(_Atomic uint32_t *word, uint64_t key) {
    void (*wake)(uint64_t) = (void (*)(uint64_t))(uintptr_t)simulated("fgpuSimWake");
    if (wake)
        wake(key);
    else
        syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void system_sent(void) {
    void (*knock)(void) = (void (*)(void))(uintptr_t)simulated("fgpuSimKnock");
    if (knock)
        knock();
}

static void *(*helper_run)(void *);

static void *as_sleeper(void *index) {
    void (*become)(int) = (void (*)(int))(uintptr_t)simulated("fgpuSimBecome");
    if (become)
        become((int)(intptr_t)index);
    return helper_run(NULL);
}

bool system_thread(void *(*run)(void *)) {
    pthread_t thread;
    int (*reserve)(void) = (int (*)(void))(uintptr_t)simulated("fgpuSimReserve");
    helper_run = run;
    if (pthread_create(&thread, NULL, as_sleeper, (void *)(intptr_t)(reserve ? reserve() : -1))) return false;
    return pthread_detach(thread) == 0;
}
