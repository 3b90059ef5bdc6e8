/* The machine around the hook: its files and its clock. tests/c/system.c stands in for this file in the test build. */
#include <time.h>

#include "fgpu.h"

/* Fixed: a path from the environment would be the tenant's choice. */
const char *system_limits_path(void) { return "/run/fgpu/limits.conf"; }
const char *system_region_path(void) { return "/run/fgpu/region"; }

/* Root, or root outside of this user namespace, whom the kernel shows as "nobody". */
bool system_trusts(unsigned owner) { return owner == 0 || owner == 65534; }

/* Monotonic, one for all containers of a host. */
uint64_t clock_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* May be cut short by a signal: the caller asks the gate again. */
void clock_sleep(uint64_t ns) {
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&t, NULL);
}
