/* Takes over what the host has rewritten in the limits file, as a session that runs is resized. What cannot be read
 * whole, or is of other GPUs, changes nothing: the process goes on with what it had, and looks again.
 *
 * The kernel stamps a file before the new bytes are there, so a stamp is trusted once it is a second old. */
#include <sys/stat.h>
#include <string.h>
#include <time.h>

#include "fgpu.h"

#define SETTLED_NS 1000000000u
#define LOOK_NS 10000000u /* LOOK_MS in limits.py: the host waits much longer before it trusts a smaller limit */

PER_PROCESS static pthread_mutex_t reloading = PTHREAD_MUTEX_INITIALIZER;
static uint64_t taken_at; /* the stamp of what was taken over; 0: it may have changed within the same stamp */
/* When the latest look began. Written after the look alone: no thread may go on with older limits on its account. */
PER_PROCESS static _Atomic uint64_t looked_at;

static uint64_t ns_of(struct timespec t) { return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec; }

/* The same GPUs in the same order, each of them gated or not as before. */
static bool is_resized(const struct limits *fresh) {
    bool same = fresh->count == fgpu_limits.count && fresh->burst == fgpu_limits.burst;
    for (int i = 0; same && i < fresh->count; i++)
        same = !strcmp(fresh->gpu[i].uuid, fgpu_limits.gpu[i].uuid)
               && (fresh->gpu[i].sm_points == ALL_SMS) == (fgpu_limits.gpu[i].sm_points == ALL_SMS);
    return same;
}

static void take_over(const struct limits *fresh) {
    fgpu_limits.pinned_bytes = fresh->pinned_bytes;
    for (int i = 0; i < fresh->count; i++) {
        fgpu_limits.gpu[i].mem_bytes = fresh->gpu[i].mem_bytes;
        fgpu_limits.gpu[i].ctx_bytes = fresh->gpu[i].ctx_bytes;
        fgpu_limits.gpu[i].sm_points = fresh->gpu[i].sm_points;
    }
}

void limits_refresh(void) {
    struct stat info;
    struct timespec now;
    struct limits fresh;
    uint64_t began = clock_coarse();
    if (stat(system_limits_path(), &info) || clock_gettime(CLOCK_REALTIME, &now)) return;
    uint64_t stamp = ns_of(info.st_mtim);
    LOCKED(reloading);
    if (stamp != taken_at) {
        bool good = !limits_load(system_limits_path(), &fresh) && is_resized(&fresh);
        if (good)
            take_over(&fresh);
        taken_at = good && stamp + SETTLED_NS < ns_of(now) ? stamp : 0;
    }
    atomic_store_explicit(&looked_at, began, memory_order_release);
}

void limits_poll(void) {
    uint64_t last = atomic_load_explicit(&looked_at, memory_order_acquire);
    if (!last || clock_coarse() - last >= LOOK_NS)
        limits_refresh();
}
