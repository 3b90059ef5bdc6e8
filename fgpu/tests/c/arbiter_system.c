/* Stands in for arbiter/system.c in the test build: leases of any owner; the simulated clock, which the arbiter joins. */
#include <dlfcn.h>
#include <limits.h>
#include <signal.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../../arbiter/arbiter.h"

bool system_trusts(unsigned owner) {
    (void)owner;
    return true;
}

/* A function of the simulated driver, where its clock is in use. */
static void *simulated(const char *name) {
    static void *library;
    if (!library && getenv("FGPU_SIM_CLOCK")) {
        library = dlopen("libcuda.so.1", RTLD_NOW);
        int (*join)(void) = library ? (int (*)(void))(uintptr_t)dlsym(library, "fgpuSimJoin") : NULL;
        if (!join || join()) {
            fprintf(stderr, "arbiter: no simulated driver to join\n");
            exit(1);
        }
    }
    return library ? dlsym(library, name) : NULL;
}

uint64_t clock_now(void) {
    uint64_t (*now)(void) = (uint64_t(*)(void))(uintptr_t)simulated("fgpuSimNow");
    struct timespec t;
    if (now)
        return now();
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A message is there when its sender has knocked; a death is there soon after. */
int system_wait(int epoll, struct epoll_event *events, int room, uint64_t until) {
    static uint32_t deaths;
    uint32_t (*knocks)(void) = (uint32_t(*)(void))(uintptr_t)simulated("fgpuSimKnocks");
    void (*wait)(uint32_t, uint64_t) = (void (*)(uint32_t, uint64_t))(uintptr_t)simulated("fgpuSimWaitForKnock");
    if (!knocks) {
        uint64_t now = clock_now();
        int ms = until > now ? (int)((until - now) / 1000000) : 0;
        return epoll_wait(epoll, events, room, ms < 1 ? 1 : ms);
    }
    const char *dies = getenv("FGPU_ARBITER_DIES_MS"); /* after so long on the simulated clock */
    static uint64_t born;
    born = born ? born : clock_now();
    if (dies && clock_now() - born > strtoull(dies, NULL, 10) * 1000000)
        raise(SIGKILL);
    uint32_t seen = knocks();
    int count = epoll_wait(epoll, events, room, 0);
    if (count)
        return count;
    wait(seen, until);
    uint32_t died = ((uint32_t(*)(void))(uintptr_t)simulated("fgpuSimDeaths"))();
    count = epoll_wait(epoll, events, room, died == deaths ? 0 : 20);
    deaths = died;
    return count;
}

void system_wake(_Atomic uint32_t *word, uint64_t key) {
    void (*wake)(uint64_t) = (void (*)(uint64_t))(uintptr_t)simulated("fgpuSimWake");
    if (wake)
        wake(key);
    else
        syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
