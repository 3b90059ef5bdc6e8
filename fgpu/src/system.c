/* The machine around the hook: its files and its clock. tests/c/system.c stands in for this file in the test build. */
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "fgpu.h"

/* Fixed: a path from the environment would be the tenant's choice. */
const char *system_limits_path(void) { return "/run/fgpu/limits.conf"; }
const char *system_region_path(void) { return "/run/fgpu/region"; }
const char *system_grant_path(void) { return "/run/fgpu/grant"; }
const char *system_socket_path(void) { return "/run/fgpu/arbiter/arbiter"; }

/* Root, or root outside of this user namespace, whom the kernel shows as "nobody". */
bool system_trusts(unsigned owner) { return owner == 0 || owner == 65534; }

/* Monotonic, one for all containers of a host. */
uint64_t clock_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Behind by up to a tick of the kernel, 1 to 10 ms. */
uint64_t clock_coarse(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* May be cut short by a signal: the caller asks the gate again. */
void clock_sleep(uint64_t ns) {
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&t, NULL);
}

void system_sleep_on(const _Atomic uint32_t *word, uint32_t seen, uint64_t until, uint64_t key) {
    struct timespec at = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
    (void)key;
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET, seen, until == UINT64_MAX ? NULL : &at, NULL, FUTEX_BITSET_MATCH_ANY);
}

void system_wake(_Atomic uint32_t *word, uint64_t key) {
    (void)key;
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void system_sent(void) {}

bool system_thread(void *(*run)(void *)) {
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t thread;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool made = pthread_create(&thread, &attributes, run, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return made;
}
